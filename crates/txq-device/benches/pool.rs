//! The cost of freeing packets on another CPU than the one that allocated them, in each of the pool's modes.
//!
//! One thread allocates lists of packets, as several senders do, and passes them through a ring to another thread, which
//! frees them, as a completion does. `pipe` is the time of one packet through both threads; `free` is the freeing thread's
//! time alone, for packets whose lines it has just read, as a completion has.
//!
//! `cargo bench -p txq-device --bench pool` prints both, at several sizes of a list. Compare the modes of one run.

use std::hint::black_box;
use std::time::{Duration, Instant};

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use txq::packet::PacketList;
use txq::pool::{Cache, FreeMode, Pool, PoolConfig};
use txq_core::arch::Native;
use txq_core::sync::spsc;

/// Bytes of a packet, as in the published measurements.
const LEN: usize = 120;
/// Number of senders that take turns.
const SENDERS: usize = 4;
/// Maximum number of lists in flight.
const RING: u32 = 16;

const MODES: [(&str, FreeMode); 3] =
    [("defer", FreeMode::Defer), ("keep", FreeMode::Keep), ("shared", FreeMode::Shared)];

fn modes(c: &mut Criterion) {
    let mut group = c.benchmark_group("alien free");
    group.sample_size(20).warm_up_time(Duration::from_millis(500)).throughput(Throughput::Elements(1));
    for (name, mode) in MODES {
        for batch in [1, 8, 32] {
            group.bench_function(BenchmarkId::new(format!("pipe, {name}"), batch), |b| {
                b.iter_custom(|n| pipe(mode, batch, n).0);
            });
            group.bench_function(BenchmarkId::new(format!("free, {name}"), batch), |b| {
                b.iter_custom(|n| pipe(mode, batch, n).1);
            });
        }
    }
    group.finish();
}

/// Returns the time of `packets` packets through both threads, and the time to free them.
fn pipe(mode: FreeMode, batch: usize, packets: u64) -> (Duration, Duration) {
    let pool: Pool = Pool::new(&PoolConfig { free: mode, ..PoolConfig::default() }).expect("4096 buffers");
    let (mut to, mut from) = spsc::ring::<Native, PacketList>(RING);
    let lists = packets.div_ceil(batch as u64);
    let start = Instant::now();
    let free = std::thread::scope(|scope| {
        scope.spawn(|| {
            pin(0);
            let mut caches: Vec<_> = (0..SENDERS).map(|_| pool.cache("sender", 0)).collect();
            for turn in 0..lists as usize {
                let cache = &mut caches[turn % SENDERS];
                let mut list = PacketList::new();
                while cache.alloc_batch(batch - list.len(), LEN, &mut list).is_err() || list.len() < batch {
                    std::thread::yield_now();
                }
                while let Err(back) = to.push(list) {
                    list = back;
                    wait();
                }
                to.publish();
            }
        });
        let complete = scope.spawn(|| {
            pin(1);
            let mut cache = pool.cache("completion", 1);
            complete(&mut cache, &mut from, lists)
        });
        complete.join().expect("it does not panic")
    });
    let pipe = start.elapsed();
    let ns = |time: Duration| time.mul_f64(packets as f64 / (lists * batch as u64) as f64);
    (ns(pipe), ns(free))
}

fn complete(cache: &mut Cache, from: &mut spsc::Consumer<Native, PacketList>, lists: u64) -> Duration {
    let clock = {
        // Cost of reading the clock twice, to be subtracted.
        let start = Instant::now();
        (0..1000).for_each(|_| _ = black_box(Instant::now()));
        start.elapsed() / 1000
    };
    let mut freeing = Duration::ZERO;
    let mut left = lists;
    let mut done = PacketList::new();
    while left > 0 {
        // As many as a completion reaps at a time.
        while done.len() < 64 && left > 0 {
            let Some(mut list) = from.pop() else {
                if done.is_empty() {
                    wait();
                    continue;
                }
                break;
            };
            left -= 1;
            // A completion has read each packet when it frees them.
            black_box(list.iter().map(|p| p.len()).sum::<usize>());
            done.append(&mut list);
        }
        from.publish();
        let start = Instant::now();
        cache.free(&mut done);
        freeing += start.elapsed().saturating_sub(clock);
    }
    freeing
}

fn wait() {
    for _ in 0..32 {
        std::hint::spin_loop();
    }
    std::thread::yield_now();
}

/// Pins the thread to a CPU. On a machine with one CPU both threads share it.
fn pin(cpu: usize) {
    // SAFETY: a plain value and a system call on it.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu, &mut set);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set);
    }
}

criterion_group!(benches, modes);
criterion_main!(benches);
