//! Packets into a TUN with several queues, by bare writes and by txq's device, in turns: packets per second, and CPU time
//! per packet, which other programs on the machine disturb less.
//!
//! `cargo run --release -p txq-device --example tun_speed [ROUNDS] [THREADS]`, as root. The interfaces are in a network
//! namespace of the program, so nothing is left. The kernel drops each packet after the route lookup, which is part of all
//! numbers.

use std::error::Error;
use std::io::IoSlice;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use rustix::io::{write, writev};
use rustix::thread::{UnshareFlags, unshare_unsafe};
use rustix::time::{ClockId, clock_gettime};
use txq::NetDev;
use txq::packet::PacketList;
use txq::topology::Topology;
use txq::xps::XpsMap;
use txq_device::Tun;

/// How long each contestant sends in a round.
const TURN: Duration = Duration::from_millis(300);
/// Packets that a thread sends between two looks at the clock, and in one call of xmit.
const BATCH: usize = 64;

/// Returns an IPv4 packet of UDP with 64 bytes.
fn packet(thread: u8) -> Vec<u8> {
    let mut packet = vec![0x45, 0, 0, 64, 0, 0, 0x40, 0, 64, 17, 0x66, 0x8e, 10, 0, 0, 2, 10, 0, 0, 9];
    packet.extend([4, thread, 0, 9, 0, 44, 0, 0]);
    packet.resize(64, 0);
    packet
}

/// What a turn measures.
#[derive(Clone, Copy)]
struct Speed {
    /// Thousands of packets per second.
    rate: f64,
    /// CPU time per packet, user and system, in nanoseconds.
    cost: f64,
}

/// Measures `work`, which returns the number of packets sent.
fn measure(work: impl FnOnce() -> u64) -> Speed {
    let cpu = || Duration::try_from(clock_gettime(ClockId::ProcessCPUTime)).expect("a positive time");
    let (began, spent) = (Instant::now(), cpu());
    let sent = work() as f64;
    let (time, spent) = (began.elapsed(), cpu() - spent);
    Speed { rate: sent / time.as_secs_f64() / 1e3, cost: spent.as_nanos() as f64 / sent }
}

/// Runs `send`, which sends a batch, on each thread for a turn; returns the number of packets.
fn turn(threads: u8, send: impl Fn(u8) -> Box<dyn FnMut()> + Sync) -> u64 {
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

fn bare(tun: &Tun, threads: u8, has_header: bool) -> u64 {
    turn(threads, |thread| {
        let queue = tun.receivers().swap_remove(thread.into());
        let packet = packet(thread);
        Box::new(move || {
            for _ in 0..BATCH {
                let written = if has_header {
                    writev(queue.as_fd(), &[IoSlice::new(&[0; 10]), IoSlice::new(&packet)])
                } else {
                    write(queue.as_fd(), &packet)
                };
                written.expect("the interface takes each packet");
            }
        })
    })
}

fn device(dev: &NetDev, threads: u8, batch: usize) -> u64 {
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

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1).map(|arg| arg.parse::<u8>());
    let rounds = args.next().transpose()?.unwrap_or(10);
    let threads = args.next().transpose()?.unwrap_or(2);
    // SAFETY: no other thread runs yet, and no file descriptor table is unshared.
    unsafe { unshare_unsafe(UnshareFlags::NEWNET)? };
    println!("medians of {rounds} rounds of {TURN:?}, packets of 64 bytes");
    println!("threads header sent by           1000 packets/s  CPU ns/packet");
    for threads in 1..=threads {
        for has_header in [false, true] {
            let config = || Tun::create("tun%d").queues(threads.into()).vnet_header(has_header).open();
            let qdisc = if threads == 1 { "pfifo limit 1000" } else { "mq" };
            let dev = NetDev::builder(config()?)
                .qdisc(qdisc)
                .default_qdisc("pfifo limit 1000")
                .xps(XpsMap::auto(&Topology::read("/sys")?, threads.into())?)
                .start()?;
            let tun = config()?;
            let mut results = [const { Vec::new() }; 4];
            for _ in 0..rounds {
                results[0].push(measure(|| bare(&tun, threads, has_header)));
                for (results, batch) in results[1..].iter_mut().zip([64, 8, 1]) {
                    results.push(measure(|| device(&dev, threads, batch)));
                }
            }
            for (name, results) in
                ["bare", "txq, batches of 64", "txq, of 8", "txq, of 1"].iter().zip(results)
            {
                let median = |of: fn(&Speed) -> f64| {
                    let mut all: Vec<f64> = results.iter().map(of).collect();
                    all.sort_by(f64::total_cmp);
                    all[all.len() / 2]
                };
                let (rate, cost) = (median(|speed| speed.rate), median(|speed| speed.cost));
                println!("{threads:7} {has_header:6} {name:18} {rate:12.0} {cost:14.0}");
            }
        }
    }
    Ok(())
}
