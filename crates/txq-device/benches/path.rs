//! The cost of a packet on its whole path: allocation, xmit, qdisc, driver, completion and free, on the null driver.
//!
//! `cargo bench -p txq-device` prints the time of one packet; `cargo xtask bench` turns it into the table of
//! `docs/performance.md`.

use std::hint::black_box;
use std::time::{Duration, Instant};

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use txq::packet::PacketList;
use txq::pool::AllocError;
use txq::qdisc::Verdict;
use txq::{Discipline, NetDev, Sender};
use txq_device::Null;

/// Bytes of a packet, as in the published measurements.
const LEN: usize = 120;
/// Packets that a sender of a crowd may have in flight (about as many as the default send buffer holds).
const SNDBUF: u64 = 128;
/// The largest crowd. Queue and defer list hold all packets that it may have in flight, so nothing is dropped.
const CROWD: u64 = 16;
const ROOM: u64 = CROWD * SNDBUF;

/// One thread sends packets from pool to pool, `batch` at a time.
fn one_thread(c: &mut Criterion) {
    let mut group = c.benchmark_group("one thread");
    for (qdisc, discipline) in [
        ("pfifo", Discipline::Llist),
        ("pfifo", Discipline::Spinlock),
        ("pfifo_fast", Discipline::Llist),
        ("noqueue", Discipline::Llist),
    ] {
        for batch in [1, 8, 32] {
            group.throughput(Throughput::Elements(batch as u64));
            let id = BenchmarkId::new(format!("{qdisc} {discipline}"), batch);
            group.bench_function(id, |b| {
                let dev = device(1, qdisc, discipline);
                let mut sender = dev.sender("bench");
                b.iter(|| send(&mut sender, batch));
            });
        }
    }
    group.finish();
}

fn send(sender: &mut Sender, batch: usize) {
    let mut list = PacketList::new();
    sender.alloc_batch(batch, LEN, &mut list).expect("the pool is larger than a batch");
    let _ = black_box(sender.xmit_batch(&mut list));
}

/// Threads send single packets as fast as they can, each limited by its own packets in flight.
fn crowd(c: &mut Criterion) {
    let mut group = c.benchmark_group("crowd");
    group.throughput(Throughput::Elements(1)).sample_size(10).warm_up_time(Duration::from_millis(200));
    for &discipline in Discipline::ALL {
        for threads in [1, 2, 4, 8, CROWD] {
            let id = BenchmarkId::new(format!("one queue, {discipline}"), threads);
            group.bench_function(id, |b| b.iter_custom(|n| run(1, discipline, threads, n)));
        }
    }
    group.bench_function(BenchmarkId::new("a queue each, llist", 2), |b| {
        b.iter_custom(|n| run(2, Discipline::Llist, 2, n))
    });
    group.finish();
}

/// Returns the time in which `threads` threads send `packets` packets in all. It counts packets sent, not packets accepted.
fn run(txqs: u16, discipline: Discipline, threads: u64, packets: u64) -> Duration {
    let queue = format!("pfifo limit {ROOM}");
    let dev = device(txqs, if txqs > 1 { "mq" } else { &queue }, discipline);
    let start = Instant::now();
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let mut sender = dev.sender_on(&format!("sender {thread}"), thread as u32);
            sender.set_limit(SNDBUF);
            let share = packets / threads + u64::from(thread < packets % threads);
            scope.spawn(move || {
                let mut left = share;
                while left > 0 {
                    match sender.alloc(LEN) {
                        Ok(packet) => match sender.xmit(packet) {
                            // A dropped packet does not count; yield to the threads that can make room.
                            Verdict::Drop => std::thread::yield_now(),
                            Verdict::Success | Verdict::Congested => left -= 1,
                        },
                        Err(AllocError::Limit { .. }) => _ = sender.wait_credit(None),
                        Err(AllocError::Exhausted { .. } | AllocError::Reserved { .. }) => {
                            std::thread::yield_now()
                        }
                        Err(other) => unreachable!("{other}"),
                    }
                }
            });
        }
    });
    assert!(dev.drain(Duration::from_secs(1)), "packets that nobody sends");
    let time = start.elapsed();
    assert_eq!(dev.stats().sent, packets, "what was accepted was dropped");
    time
}

fn device(txqs: u16, qdisc: &str, discipline: Discipline) -> NetDev {
    let topology = txq::topology::Topology::read("/sys").expect("this machine has CPUs");
    let xps = txq::xps::XpsMap::auto(&topology, txqs.into()).expect("at least one txq");
    let builder = NetDev::builder(Null::new(txqs)).qdisc(qdisc).default_qdisc(&format!("pfifo limit {ROOM}"));
    builder.max_burst(ROOM as u32).discipline(discipline).xps(xps).start().expect("a device that can be")
}

criterion_group!(benches, one_thread, crowd);
criterion_main!(benches);
