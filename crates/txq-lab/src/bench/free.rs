//! Cost of freeing a buffer on another CPU than the one that allocated it: one thread allocates, another frees, and only
//! the call that frees is timed.

use std::thread;
use std::time::{Duration, Instant};

use txq::packet::PacketList;
use txq::pool::{Cache, Pool, PoolConfig};
use txq_cli::common::stop::Stop;
use txq_core::arch::Native;
use txq_core::sync::spsc::{Consumer, Producer, ring};

use super::case::Sample;
use super::cpu::Begun;
use super::lab::{Lab, pin_to};
use super::meter::{Counter, watch};
use super::rig::{LEN, join};

/// Packets of the pool, and of the queue between the two threads: as many as DPDK's mempool and ring have here.
const POOL: u32 = 8191;
const BETWEEN: usize = 1024;

/// Frees for `time`, `batch` packets at a time, and returns the time of a packet's free.
pub(super) fn measure(
    lab: &Lab,
    time: Duration,
    batch: usize,
    pool: fn(PoolConfig) -> PoolConfig,
) -> anyhow::Result<Sample> {
    let pool = Pool::new(&pool(PoolConfig { buffers: POOL, room: 256, ..PoolConfig::default() }))?;
    let (first, last) = (lab.cpu(0), lab.last_cpu());
    let (lists, taken) = ring((BETWEEN / batch).max(2) as u32);
    let (packets, nanos) = (Counter::default(), Counter::default());
    let (stop, pool) = (&Stop::default(), &pool);
    let (freed, took) = (packets.clone(), nanos.clone());
    thread::scope(|scope| {
        let from = scope.spawn(move || {
            pin_to(first)?;
            allocate(pool.cache("allocates", first), lists, batch, stop);
            anyhow::Ok(())
        });
        let to = scope.spawn(move || {
            pin_to(last)?;
            free(pool.cache("frees", last), taken, stop, &freed, &took);
            anyhow::Ok(())
        });
        lab.sleep(time / 8);
        let before = (Begun::now(), nanos.get());
        let seen = watch(lab, || packets.get(), &[], time);
        let (cpu, nanos) = (before.0.used(), nanos.get() - before.1);
        stop.ask();
        join(from)?;
        join(to)?;
        let mut sample = Sample::of(seen.packets, seen.wall, cpu);
        sample.ns_per_packet = (seen.packets > 0).then(|| nanos as f64 / seen.packets as f64);
        sample.worst_stall_us = Some(seen.stall.as_secs_f64() * 1e6);
        Ok(sample)
    })
}

fn allocate(mut cache: Cache, mut lists: Producer<Native, PacketList>, batch: usize, stop: &Stop) {
    let mut list = PacketList::new();
    while !stop.asked() {
        let missing = batch - list.len();
        if cache.alloc_batch(missing, LEN, &mut list).is_err() || list.len() < batch {
            thread::yield_now();
            continue;
        }
        while let Err(back) = lists.push(std::mem::take(&mut list)) {
            if stop.asked() {
                return;
            }
            list = back;
            thread::yield_now();
        }
        lists.publish();
    }
}

fn free(
    mut cache: Cache,
    mut taken: Consumer<Native, PacketList>,
    stop: &Stop,
    packets: &Counter,
    nanos: &Counter,
) {
    let clock = clock_cost();
    while !stop.asked() {
        let Some(mut list) = taken.pop() else {
            thread::yield_now();
            continue;
        };
        taken.publish();
        let n = list.len() as u64;
        let start = Instant::now();
        cache.free(&mut list);
        let took = start.elapsed();
        nanos.add(took.saturating_sub(clock).as_nanos() as u64);
        packets.add(n);
    }
}

/// Returns the cost of a clock read.
fn clock_cost() -> Duration {
    (0..10_000).map(|_| Instant::now().elapsed()).min().unwrap_or_default()
}
