//! Goodput through `txq bridge` as a share of the rate less headers, the shares of htb's classes, and the ping meanwhile; and the same
//! through the kernel's own bridge, with its qdiscs.
//!
//! A cell is a way (AF_PACKET, AF_XDP, TUN to TUN, or the kernel), a shaper, a rate and a protocol. TCP has four streams of cubic. UDP is
//! offered a fifth more than the rate. Under htb, half of the streams are in a class of 30 % of the rate and half in one of 70 %, each
//! with the whole rate as its ceiling. In the rows `htb one`, the class of 30 % is alone and borrows the rest. In the rows `htb borrow`, the
//! classes have 10 and 30 %, and borrow the rest by quanta of 1 : 3. `burst` is 4 ms of the rate; in
//! the rows `short` it is one packet, htb's default. `--loops` has busy loops beside everything, so timers are late. With `--rounds` the
//! cells take turns.
//!
//! Cells that the kernel has, too, are then compared with it: the error of a class is how far the median of its goodput is from its share of
//! the rate less headers. The goal is an error of 3 %, or of 2 % more than the kernel's.
//!
//! The last column names the goals that a cell misses: goodput within 2 % of the rate less headers, each class within 2 % of its share, a p99
//! of the ping below 15 ms over fq_codel and cake, and above 100 ms where a pfifo of 1000 packets holds as much. The kernel's cells have no goals.
//! A cell takes two to three seconds more than `--seconds`.
//! Needs root, for network namespaces, and ip, ss, tc, ping and iperf3.
//!
//! ```sh
//! cargo build --release && cargo run --release -p txq-lab --example bridge_goodput -- --only 'af_packet cake'
//! ```

mod bridges;
#[allow(dead_code, reason = "shared with tests that need more of it")]
#[path = "../tests/support"]
mod support {
    pub(crate) mod loaded_ping;
    pub(crate) mod netns;
    pub(crate) mod offload;
    pub(crate) mod process;
    pub(crate) mod skip;
    pub(crate) mod tempdir;
}

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use bridges::{Course, FAR, LONG, Shaper, Way, busy};
use serde_json::Value;
use support::loaded_ping::{CUBIC, percentile, pings};
use support::process::{Running, wait_until};
use support::skip::{note_missing, require_af_xdp, require_root, require_tools, require_tun};

const WAYS: [Way; 4] = [Way::AfPacket, Way::AfXdp, Way::Tun, Way::Kernel];
/// Mbit/s.
const RATES: [u32; 2] = [50, 500];
const KINDS: [&str; 11] = [
    "tbf pfifo",
    "tbf fq_codel",
    "tbf short",
    "tbf pfifo short",
    "htb pfifo",
    "htb fq_codel",
    "htb one",
    "htb short",
    "htb pfifo short",
    "htb borrow pfifo short",
    "cake",
];
/// Payload bytes of TCP, with timestamps, and of UDP in a packet of 1500 bytes.
const TCP: f64 = 1448.0;
const UDP: f64 = 1472.0;
/// The part of the rate that is guaranteed to each class, in percent; and that of classes that borrow the rest, by quanta of the same
/// ratio.
const CLASSES: [u32; 2] = [30, 70];
const BORROWERS: [u32; 2] = [10, 30];
const PORT: u16 = 5201;
/// How long the streams run before anything is measured, in seconds.
const WARM_UP: u32 = 1;

#[derive(Clone, Copy, PartialEq)]
struct Cell {
    way: Way,
    kind: &'static str,
    /// Mbit/s.
    rate: u32,
    udp: bool,
}

/// What a cell measured.
struct Measured {
    /// bit/s of payload, of each class or of all.
    goodput: Vec<f64>,
    /// Milliseconds, ascending.
    pings: Vec<f64>,
    /// How many CPUs worked on average, in the whole machine.
    cpus: f64,
}

impl Cell {
    fn name(self) -> String {
        let (way, kind, rate) = (self.way.name(), self.kind, self.rate);
        format!("{way} {kind} {rate} {}", if self.udp { "udp" } else { "tcp" })
    }

    fn shaper(self) -> Shaper {
        let rate = self.rate;
        // What the rate sends in 4 ms, or a packet.
        let burst = if self.kind.ends_with("short") { 1600 } else { rate * 1_000_000 / 8 / 250 };
        let leaf = if self.kind.contains("pfifo") { "pfifo limit 1000" } else { "fq_codel" };
        match self.kind.split_once(' ') {
            None => Shaper { root: format!("cake bandwidth {rate}mbit"), below: Vec::new() },
            Some(("tbf", _)) => Shaper {
                root: format!("handle 1: tbf rate {rate}mbit burst {burst} limit 3m"),
                below: vec![format!("qdisc add parent 1:1 handle 2: {leaf}")],
            },
            Some(_) => {
                let class = |parent: &str, id: u32, percent: u32| {
                    let (own, all, quantum) = (rate * 10 * percent, rate * 1000, percent * 1000);
                    format!(
                        "class add parent {parent} classid 1:{id} htb rate {own}kbit ceil {all}kbit burst {burst} cburst {burst} \
                         quantum {quantum}"
                    )
                };
                let mut below = vec![class("1:", 1, 100)];
                for (id, percent) in (10..).zip(if self.borrows() { BORROWERS } else { CLASSES }) {
                    below.push(class("1:1", id, percent));
                    below.push(format!("qdisc add parent 1:{id} handle {id}: {leaf}"));
                }
                below.push(format!(
                    "filter add parent 1: protocol ip pref 1 u32 match ip dport {PORT} 0xffff classid 1:10"
                ));
                Shaper { root: "handle 1: htb default 11".to_owned(), below }
            }
        }
    }

    fn borrows(self) -> bool {
        self.kind.contains("borrow")
    }

    /// Returns what each class sends if all have enough to send, in percent.
    fn shares(self) -> [u32; 2] {
        // By the quanta, the shares of what is borrowed are those of the guaranteed rates.
        let sum: u32 = BORROWERS.iter().sum();
        if self.borrows() { BORROWERS.map(|percent| percent * 100 / sum) } else { CLASSES }
    }

    /// Returns how many iperf3 run: one for each class that has traffic.
    fn programs(self) -> u16 {
        if self.kind.starts_with("htb") && self.kind != "htb one" { 2 } else { 1 }
    }

    /// Returns the goals that the measured cell misses.
    fn misses(self, measured: &Measured) -> Vec<&'static str> {
        if self.way == Way::Kernel {
            return Vec::new();
        }
        let all: f64 = measured.goodput.iter().sum();
        let share = |(of, percent): (&f64, u32)| (of / all - f64::from(percent) / 100.0).abs() <= 0.02;
        let p99 = percentile(&measured.pings, 99.0);
        let is_long = self.kind.contains("pfifo");
        let reached = [
            ("goodput", (all / self.best() - 1.0).abs() <= 0.02),
            ("classes", self.programs() == 1 || measured.goodput.iter().zip(self.shares()).all(share)),
            ("ping", if is_long { self.rate > 100 || p99 >= 100.0 } else { p99 < 15.0 }),
        ];
        reached.into_iter().filter(|(_, is)| !is).map(|(goal, _)| goal).collect()
    }

    /// Returns how far each class is from its share of the best goodput, as a part of it; `of` are their goodputs in bit/s.
    fn errors(self, of: &[f64]) -> Vec<f64> {
        let share = |percent: u32| if of.len() == 1 { 1.0 } else { f64::from(percent) / 100.0 };
        of.iter().zip(self.shares()).map(|(of, percent)| of / (self.best() * share(percent)) - 1.0).collect()
    }

    /// The best goodput that the rate allows, in bit/s.
    fn best(self) -> f64 {
        let packet = if self.way == Way::Tun { 1500.0 } else { 1514.0 };
        f64::from(self.rate) * 1e6 * if self.udp { UDP } else { TCP } / packet
    }

    fn measure(self, seconds: u32) -> Result<Measured> {
        let course = Course::new(self.way, &self.shaper())?;
        let programs = self.programs();
        let ports: Vec<String> = (0..programs).map(|n| (PORT + n).to_string()).collect();
        let mut servers = Vec::new();
        for port in &ports {
            servers.push(Running::start(course.far.command("iperf3").args(["-s", "-1", "-J", "-p", port])));
            let mut listening = course.far.command("ss");
            listening.args(["-Hltn", &format!("sport = :{port}")]);
            wait_until(LONG, || listening.output().is_ok_and(|done| !done.stdout.is_empty()));
        }
        let time = (seconds + WARM_UP).to_string();
        let streams = if self.udp { 1 } else { 4 / programs };
        let clients = ports.iter().zip(self.shares()).map(|(port, percent)| {
            let percent = if programs == 1 { 100 } else { percent };
            let offered = format!("{}K", self.rate * 12 * percent);
            let words = ["-c", FAR, "-p", port, "-J", "-t", &time, "-P", &streams.to_string()];
            let protocol = if self.udp { &["-u", "-l", "1472", "-b", &offered][..] } else { &CUBIC };
            let mut client = course.near.command("iperf3");
            client.args(words).args(protocol);
            Running::start(&mut client)
        });
        let clients: Vec<_> = clients.collect();
        // The pings begin when the streams have filled the queue, and end before them.
        std::thread::sleep(Duration::from_secs(u64::from(WARM_UP)));
        let (began, worked) = (Instant::now(), busy());
        let pings = pings(&course.near, FAR, "0.005", 200 * seconds.saturating_sub(1).max(1));
        let cpus = (busy() - worked) / began.elapsed().as_secs_f64();
        clients.into_iter().for_each(|client| drop(client.finish(LONG)));
        let goodput = servers.into_iter().map(|server| {
            let said = server.finish(LONG).stdout;
            received(&said).with_context(|| format!("iperf3: {said}"))
        });
        Ok(Measured { goodput: goodput.collect::<Result<_>>()?, pings, cpus })
    }
}

/// Returns the payload that a server of iperf3 received, in bit/s, from the end of the warm-up to its last whole second: what was queued
/// when the sender stopped does not count.
fn received(report: &str) -> Option<f64> {
    let report: Value = serde_json::from_str(report).ok()?;
    let sums = report["intervals"].as_array()?.iter().map(|interval| &interval["sum"]);
    let whole = sums
        .filter(|sum| sum["start"].as_f64() >= Some(WARM_UP.into()) && sum["seconds"].as_f64() > Some(0.99));
    let [bits, seconds] = whole.fold([0.0, 0.0], |[bits, seconds], sum| {
        let of = |key: &str| sum[key].as_f64().unwrap_or(0.0);
        [bits + 8.0 * of("bytes"), seconds + of("seconds")]
    });
    (seconds > 0.0).then_some(bits / seconds)
}

fn main() -> Result<()> {
    let (mut only, mut seconds, mut loops, mut rounds, mut list) = (Vec::new(), 3, 0, 1, false);
    let mut args = std::env::args().skip(1);
    while let Some(option) = args.next() {
        match option.as_str() {
            "--only" => only.push(args.next().context("--only needs words of the rows")?),
            "--seconds" => {
                let value = args.next().context("--seconds needs a number")?;
                seconds = value.parse().context("--seconds: not a number of seconds")?;
            }
            "--list" => list = true,
            "--loops" => {
                let value = args.next().context("--loops needs a number")?;
                loops = value.parse().context("--loops: not a number of busy loops")?;
            }
            "--rounds" => {
                let value = args.next().context("--rounds needs a number")?;
                rounds = value.parse().context("--rounds: not a number of rounds")?;
            }
            _ => bail!(
                "unknown option {option}; use: bridge_goodput [--list] [--only 'WORD..'].. [--seconds N] [--loops N] [--rounds N]"
            ),
        }
    }
    let mut cells = Vec::new();
    for way in WAYS {
        for kind in KINDS {
            for rate in RATES {
                cells.extend([false, true].map(|udp| Cell { way, kind, rate, udp }));
            }
        }
    }
    // A row is run if it has all words of one of the filters.
    cells.retain(|cell| {
        let name = cell.name();
        let has = |word: &str| name.split(' ').any(|part| part == word);
        only.is_empty() || only.iter().any(|words| words.split_whitespace().all(has))
    });
    if list {
        cells.iter().for_each(|cell| println!("{}", cell.name()));
        return Ok(());
    }
    if !(require_root("bridge_goodput")
        && require_tools("bridge_goodput", &["ip", "ss", "tc", "ping", "iperf3"]))
    {
        return Ok(());
    }
    println!(
        "{:<36}{:>8}{:>8}{:>16}{:>10}{:>10}{:>6}  misses",
        "way, shaper, Mbit/s", "Mbit/s", "share", "classes", "ping p50", "p99", "CPUs"
    );
    for _ in 0..loops {
        std::thread::spawn(|| {
            loop {
                std::hint::spin_loop();
            }
        });
    }
    let (began, mut cells_with_goals, mut good) = (Instant::now(), 0, 0);
    let mut results: Vec<(Cell, Vec<Vec<f64>>)> = Vec::new();
    for cell in (0..rounds).flat_map(|_| &cells).copied() {
        let name = cell.name();
        let can = match cell.way {
            Way::AfPacket => true,
            Way::AfXdp => require_af_xdp(&name),
            Way::Tun => require_tun(&name),
            Way::Kernel => {
                cell.shaper().is_in_kernel() || {
                    note_missing(&name, "the kernel lacks one of its qdiscs");
                    false
                }
            }
        };
        if !can {
            continue;
        }
        let measured = cell.measure(seconds).with_context(|| name.clone())?;
        let goodput: f64 = measured.goodput.iter().sum();
        let classes = if measured.goodput.len() == 1 {
            "-".to_owned()
        } else {
            let shares: Vec<_> = measured.goodput.iter().map(|of| format!("{:.3}", of / goodput)).collect();
            shares.join(" : ")
        };
        let [p50, p99] = [50.0, 99.0].map(|percent| percentile(&measured.pings, percent));
        let misses = cell.misses(&measured);
        println!(
            "{name:<36}{:>8.1}{:>8.3}{classes:>16}{p50:>7.1} ms{p99:>7.1} ms{:>6.1}  {}",
            goodput / 1e6,
            goodput / cell.best(),
            measured.cpus,
            misses.join(", ")
        );
        match results.iter_mut().find(|(of, _)| *of == cell) {
            Some((_, rounds)) => rounds.push(measured.goodput),
            None => results.push((cell, vec![measured.goodput])),
        }
        if cell.way != Way::Kernel {
            (cells_with_goals, good) = (cells_with_goals + 1, good + u32::from(misses.is_empty()));
        }
    }
    println!("{good} of {cells_with_goals} cells reach all goals; {} s", began.elapsed().as_secs());
    compare(&results);
    Ok(())
}

/// Prints the errors of the cells that the kernel has, too, beside the kernel's.
fn compare(results: &[(Cell, Vec<Vec<f64>>)]) {
    let errors = |(cell, rounds): &(Cell, Vec<Vec<f64>>)| {
        let median = |class: usize| {
            let mut of: Vec<f64> = rounds.iter().map(|goodput| goodput[class]).collect();
            of.sort_unstable_by(f64::total_cmp);
            (of[(of.len() - 1) / 2] + of[of.len() / 2]) / 2.0
        };
        cell.errors(&(0..rounds[0].len()).map(median).collect::<Vec<_>>())
    };
    let shown = |errors: &[f64]| {
        errors.iter().map(|error| format!("{:+.1} %", error * 100.0)).collect::<Vec<_>>().join(" : ")
    };
    let mut heads = Some(("error of each class", "the kernel's"));
    for result in results.iter().filter(|(cell, _)| cell.way != Way::Kernel) {
        let same = Cell { way: Way::Kernel, ..result.0 };
        let Some(kernel) = results.iter().find(|(cell, _)| *cell == same) else { continue };
        if let Some((own, kernels)) = heads.take() {
            println!("\n{:<36}{own:>24}{kernels:>24}", "medians");
        }
        let (own, kernels) = (errors(result), errors(kernel));
        let good =
            own.iter().zip(&kernels).all(|(own, kernels)| own.abs() <= (kernels.abs() + 0.02).max(0.03));
        println!(
            "{:<36}{:>24}{:>24}  {}",
            result.0.name(),
            shown(&own),
            shown(&kernels),
            if good { "" } else { "misses" }
        );
    }
}
