//! What the measurements of devices share: threads that send for a time, and what a packet cost.
#![allow(dead_code, reason = "each example needs a part of it")]

use std::error::Error;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use txq::NetDev;
use txq::driver::Driver;
use txq::packet::PacketList;
use txq::topology::Topology;
use txq::xps::XpsMap;

/// How long each contestant sends in a round.
pub(crate) const TURN: Duration = Duration::from_millis(300);
/// Packets that a thread sends between two readings of the clock, and in one system call or call of xmit.
pub(crate) const BATCH: usize = 64;
/// The contestants of [`compare`]: a bare loop, and the device with so many packets in a call of xmit.
const BATCHES: [usize; 3] = [BATCH, 8, 1];

/// The result of a turn.
#[derive(Clone, Copy)]
pub(crate) struct Speed {
    /// Thousands of packets per second.
    pub(crate) rate: f64,
    /// CPU time per packet, user and system, in nanoseconds.
    pub(crate) cost: f64,
}

impl Speed {
    /// Measures `work`, which returns the number of packets sent.
    pub(crate) fn measure(work: impl FnOnce() -> u64) -> Self {
        let (began, spent) = (Instant::now(), cpu_time());
        let sent = work() as f64;
        let (time, spent) = (began.elapsed(), cpu_time() - spent);
        Self { rate: sent / time.as_secs_f64() / 1e3, cost: spent.as_nanos() as f64 / sent }
    }

    /// Returns the medians of rates and of costs.
    pub(crate) fn median(turns: &[Speed]) -> Self {
        let median = |of: fn(&Speed) -> f64| {
            let mut all: Vec<f64> = turns.iter().map(of).collect();
            all.sort_by(f64::total_cmp);
            all[all.len() / 2]
        };
        Self { rate: median(|speed| speed.rate), cost: median(|speed| speed.cost) }
    }
}

/// Returns the CPU time of the process so far.
pub(crate) fn cpu_time() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ProcessCPUTime)).expect("a positive time")
}

/// Runs `send`, which makes a function that sends a batch, on each thread for a turn; returns the number of packets.
pub(crate) fn turn(threads: u8, send: impl Fn(u8) -> Box<dyn FnMut()> + Sync) -> u64 {
    let began = Instant::now();
    std::thread::scope(|scope| {
        let send = &send;
        let run = |thread| {
            scope.spawn(move || {
                let mut batch = send(thread);
                let mut sent = 0;
                while began.elapsed() < TURN {
                    batch();
                    sent += BATCH as u64;
                }
                sent
            })
        };
        let running: Vec<_> = (0..threads).map(run).collect();
        running.into_iter().map(|thread| thread.join().expect("a thread that sends")).sum()
    })
}

/// Starts a device in which each of `threads` threads has its own txq.
pub(crate) fn start(device: impl Driver + 'static, threads: u8) -> Result<NetDev, Box<dyn Error>> {
    let qdisc = if threads == 1 { "pfifo limit 1000" } else { "mq" };
    let xps = XpsMap::auto(&Topology::read("/sys")?, threads.into())?;
    Ok(NetDev::builder(device).qdisc(qdisc).default_qdisc("pfifo limit 1000").xps(xps).start()?)
}

/// Sends `packet`'s bytes for a turn, `batch` packets in a call of xmit; returns the number of packets.
fn through(dev: &NetDev, threads: u8, batch: usize, packet: fn(u8) -> Vec<u8>) -> u64 {
    let before = dev.stats().sent;
    turn(threads, |thread| {
        let mut sender = dev.sender_on("sender", thread.into());
        let packet = packet(thread);
        let mut list = PacketList::new();
        Box::new(move || {
            for _ in 0..BATCH / batch {
                // Without a buffer, packets are on their way on other threads.
                let _ = sender.alloc_batch(batch, packet.len(), &mut list);
                list.for_each_mut(|one| one.data_mut().copy_from_slice(&packet));
                let _ = sender.xmit_batch(&mut list);
            }
        })
    });
    assert!(dev.drain(Duration::from_secs(10)), "packets do not leave");
    dev.stats().sent - before
}

/// Lets `bare` and the device send in turns, and prints a line for each; `case` begins the lines.
pub(crate) fn compare(
    case: &str,
    rounds: u8,
    bare: impl Fn() -> u64,
    dev: &NetDev,
    threads: u8,
    packet: fn(u8) -> Vec<u8>,
) {
    let mut results = [const { Vec::new() }; 1 + BATCHES.len()];
    for _ in 0..rounds {
        results[0].push(Speed::measure(&bare));
        for (results, batch) in results[1..].iter_mut().zip(BATCHES) {
            results.push(Speed::measure(|| through(dev, threads, batch, packet)));
        }
    }
    let medians = results.map(|turns| Speed::median(&turns));
    let names = ["bare", "txq, batches of 64", "txq, of 8", "txq, of 1"];
    for (name, Speed { rate, cost }) in names.iter().zip(medians) {
        println!("{case} {name:18} {rate:12.0} {cost:14.0} {:8.2}", cost / medians[0].cost);
    }
}
