//! Packets a second and memory of a link, beside str0m-netem and turmoil.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use str0m_netem::{GilbertElliot, Input, Netem, NetemConfig, Output, Probability, RandomLoss};
use txq_link::{Direction, Link, Packet};

const PACKETS: u64 = 2_000_000;
const GAP: u64 = 1_000_000;
const LINKS: usize = 1000;

struct Counting;

static BYTES: AtomicI64 = AtomicI64::new(0);

// SAFETY: each call is passed on to `System` unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        BYTES.fetch_add(layout.size() as i64, Relaxed);
        // SAFETY: the caller keeps to the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        BYTES.fetch_sub(layout.size() as i64, Relaxed);
        // SAFETY: `at` came from `alloc` above, with this layout.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn resident() -> i64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    statm.split(' ').nth(1).and_then(|pages| pages.parse::<i64>().ok()).unwrap_or(0) * 4096
}

/// Returns the CPU time of this thread, which other programs on the machine do not change much.
fn cpu() -> Duration {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    Duration::from_nanos(stat.split(' ').next().and_then(|nanos| nanos.parse().ok()).unwrap_or(0))
}

/// Sends a packet each millisecond of the link's time through a link of txq.
fn txq(text: &str) -> (u64, Duration) {
    let mut link: Link<Vec<u8>> = Link::new(text, 1).unwrap();
    let (start, mut arrived) = (cpu(), 0);
    for number in 0..PACKETS {
        let now = number * GAP;
        link.send(now, Direction::Up, Packet::new(Vec::from([0; 64])).header(1136));
        while link.poll(now).is_some() {
            arrived += 1;
        }
    }
    (arrived, cpu() - start)
}

/// The same through str0m's netem.
fn str0m(config: NetemConfig) -> (u64, Duration) {
    let mut netem: Netem<Vec<u8>> = Netem::new(config);
    let (begin, start, mut arrived) = (Instant::now(), cpu(), 0);
    for number in 0..PACKETS {
        let now = begin + Duration::from_nanos(number * GAP);
        netem.handle_input(Input::Timeout(now));
        netem.handle_input(Input::Packet(now, Vec::from([0; 64])));
        while let Some(Output::Packet(_)) = netem.poll_output() {
            arrived += 1;
        }
    }
    (arrived, cpu() - start)
}

/// Datagrams from one host of turmoil to another one, with the hosts' runtimes.
fn turmoil(packets: u64) -> (u64, Duration) {
    let mut sim = turmoil::Builder::new()
        .tick_duration(Duration::from_millis(1))
        .simulation_duration(Duration::from_secs(1 << 20))
        .min_message_latency(Duration::from_millis(20))
        .max_message_latency(Duration::from_millis(24))
        .fail_rate(0.0)
        .udp_capacity(1 << 20)
        .build();
    let arrived = std::rc::Rc::new(std::cell::Cell::new(0));
    let counter = std::rc::Rc::clone(&arrived);
    sim.host("server", move || {
        let counter = std::rc::Rc::clone(&counter);
        async move {
            let socket = turmoil::net::UdpSocket::bind("0.0.0.0:9").await?;
            let mut buffer = [0; 2048];
            loop {
                socket.recv_from(&mut buffer).await?;
                counter.set(counter.get() + 1);
            }
        }
    });
    sim.client("client", async move {
        let socket = turmoil::net::UdpSocket::bind("0.0.0.0:8").await?;
        for _ in 0..packets {
            socket.send_to(&[0; 64], "server:9").await?;
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
        Ok(())
    });
    let start = cpu();
    sim.run().unwrap();
    (arrived.get(), cpu() - start)
}

/// Prints a row: the packets a second, and the kilobytes of a link.
fn row(name: &str, packets: u64, result: (u64, Duration), memory: Option<i64>) {
    let rate = packets as f64 / result.1.as_secs_f64() / 1e6;
    let memory = memory.map_or("-".to_owned(), |bytes| format!("{:.1}", bytes as f64 / 1e3));
    println!("| {name} | {rate:.2} | {:.1}% | {memory} |", result.0 as f64 / packets as f64 * 100.0);
}

/// Returns what each of many values takes: the process's pages, or the bytes asked for where these are less than a page.
fn each<T>(build: impl Fn() -> T) -> i64 {
    drop(build());
    let before = (resident(), BYTES.load(Relaxed));
    let all: Vec<T> = (0..LINKS).map(|_| build()).collect();
    let (pages, bytes) = (resident() - before.0, BYTES.load(Relaxed) - before.1);
    drop(all);
    // A link reserves addresses that it does not touch.
    let each = bytes / LINKS as i64;
    if each < 4096 { each } else { pages / LINKS as i64 }
}

/// Sends pings over two hours of a 3G link under tokio's paused clock; returns their number and the CPU time.
fn hours() -> (u64, Duration) {
    let start = cpu();
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    let pings = runtime.block_on(async {
        let (client, server) = txq_link::tokio::pair(Link::preset("3g", 1).unwrap());
        let begin = tokio::time::Instant::now();
        tokio::spawn(async move {
            loop {
                let (data, from) = server.recv_from().await;
                server.send_to(&data, from).await;
            }
        });
        let mut pings = 0;
        while begin.elapsed() < Duration::from_secs(7200) {
            client.send(b"ping").await;
            client.recv_from().await;
            pings += 1;
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        pings
    });
    (pings, cpu() - start)
}

fn main() {
    println!("| link | million packets a CPU second | arrived | kB a link |");
    println!("|---|---|---|---|");
    for text in [
        "netem delay 20ms",
        "netem delay 20ms 2ms loss 1% rate 20mbit",
        "netem delay 20ms 2ms distribution normal loss gemodel 1% 50% rate 20mbit",
        "tbf rate 20mbit burst 5k latency 50ms | netem delay 20ms",
    ] {
        let memory = each(|| Link::<Vec<u8>>::new(text, 1).unwrap());
        row(&format!("`{text}`"), PACKETS, txq(text), Some(memory));
    }
    let plain = NetemConfig::new().latency(Duration::from_millis(20)).seed(1);
    let lossy = plain.clone().jitter(Duration::from_millis(2));
    for (name, config) in [
        ("str0m-netem: 20 ms", plain.clone()),
        ("str0m-netem: 20 ms, 2 ms, 1 % random", lossy.clone().loss(RandomLoss::new(Probability::new(0.01)))),
        (
            "str0m-netem: 20 ms, 2 ms, Gilbert-Elliot",
            lossy.loss(
                GilbertElliot::new()
                    .good_duration(100.0)
                    .bad_duration(2.0)
                    .loss_in_bad(Probability::new(1.0)),
            ),
        ),
    ] {
        let memory = each(|| [Netem::<Vec<u8>>::new(config.clone()), Netem::<Vec<u8>>::new(config.clone())]);
        row(name, PACKETS, str0m(config), Some(memory));
    }
    row("turmoil: 20 ms, hosts and runtimes included", 100_000, turmoil(100_000), None);
    let (pings, time) = hours();
    println!(
        "\nTwo hours of the preset 3g under tokio's paused clock: {pings} round trips in {:.2} s of CPU time.",
        time.as_secs_f64()
    );
}
