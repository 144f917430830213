//! A device with senders, measured for a fixed time.
//!
//! Senders send as fast as they can, or offer at a fixed rate (`offer.rs`). A sender of the first kind is bounded by its
//! own outstanding packets, as a socket is by its send buffer. It yields its CPU at that bound, and when a whole batch was
//! dropped (not where the device is varied). Senders check between batches whether to stop. The result counts the packets
//! that the device has sent within the time, so a discipline under which senders hardly progress ends on time like any
//! other.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use anyhow::{Context, anyhow};
use histogram::Histogram;
use txq::packet::PacketList;
use txq::pool::{CACHE_SIZE, PoolConfig};
use txq::qdisc::Verdict;
use txq::xps::XpsMap;
use txq::{Discipline, NetDev, Room, Sender, Worker};
use txq_cli::common::failure::refused;
use txq_cli::common::stop::Stop;
use txq_device::Null;

use super::aqm::Aqm;
use super::case::Sample;
use super::costly::{Cost, Costly};
use super::cpu::Begun;
use super::lab::{Lab, pin_to};
use super::meter::{Calls, Counter, Log, Measuring, watch};
use super::offer::{self, Open, Part};
use super::overload::{Reapers, Root, Target, hash_for};
use super::work::Work;
use crate::tree::Tree;

/// Bytes of a packet: those of the published measurements.
pub(super) const LEN: usize = 120;
/// Outstanding packets of a sender: as many small packets as a socket's default send buffer holds.
pub(super) const SNDBUF: u64 = 128;
/// Packets that the device's ring holds.
pub(super) const RING: u32 = 1024;
/// The largest outstanding number where batches are large: less than a queue holds, so that one sender drops nothing.
const QUEUE: u64 = 900;
/// Buffers that senders without a bound share: more than the queue, the ring and the packets waiting for the owner
/// together.
const OPEN_POOL: u64 = 16384;
/// Warm-up before the measurement: this part of the time, and at most this long.
const WARM_UP: (u32, Duration) = (8, Duration::from_millis(50));

/// How long a sender at its limit sleeps at most.
const REST: Duration = Duration::from_millis(5);
/// How long a sender waits for room at most before it checks whether to stop.
const LONGEST_ROOM_SLEEP: Duration = Duration::from_millis(100);

/// The queue that the senders use.
#[derive(Clone)]
pub(super) enum Queue {
    /// A qdisc in tc's words, or a tree.
    Text(Tree),
    /// A qdisc in tc's words that is the root of all txqs, or a tree.
    Root(Tree),
    /// A FIFO with a cost, its name and its limit in packets.
    Costly(&'static str, Cost, usize),
    /// A qdisc whose cost grows with the flows, and its work for each packet at enqueue and at dequeue.
    Aqm(Work),
}

impl Queue {
    /// Returns the queue of a text of `--qdisc`.
    pub(super) fn text(qdisc: &str) -> Self {
        Self::Text(Tree::new(qdisc))
    }

    /// Returns the tree; `None` for a qdisc that only the laboratory has.
    pub(super) fn tree(&self) -> Option<&Tree> {
        match self {
            Self::Text(tree) | Self::Root(tree) => Some(tree),
            Self::Costly(..) | Self::Aqm(_) => None,
        }
    }
}

/// A device and its senders.
#[derive(Clone)]
pub(super) struct Rig {
    pub(super) discipline: Discipline,
    pub(super) queue: Queue,
    pub(super) threads: usize,
    pub(super) batch: usize,
    pub(super) txqs: u16,
    pub(super) xps: Option<XpsMap>,
    /// Flows that a sender's packets belong to in turn.
    pub(super) flows: u32,
    /// Changes the pool's configuration.
    pub(super) pool: fn(PoolConfig) -> PoolConfig,
    /// Whether completions run on a CPU of their own, without senders, if there are two CPUs.
    pub(super) apart: bool,
    /// Whether each sender is pinned to a CPU whatever the options say.
    pub(super) pinned: bool,
    /// Outstanding packets of a sender, at most.
    pub(super) limit: u64,
    /// A sender's work for each packet before it sends it.
    pub(super) outside: Work,
    /// The load offered at a fixed rate; `None` where senders send as fast as they can.
    pub(super) open: Option<Open>,
    /// Whether a sender waits for room in the queue before it sends.
    pub(super) wait_room: bool,
    /// Bytes of a packet.
    pub(super) len: usize,
    /// The device, where a suite varies it. It then runs its own workers, as in a program, and a sender whose packets are
    /// dropped goes on at once.
    pub(super) target: Option<Target>,
}

impl Rig {
    /// Returns a rig of threads that send through one queue to one txq.
    pub(super) fn new(discipline: Discipline, queue: Queue, threads: u64, batch: u64) -> Self {
        Self {
            discipline,
            queue,
            threads: threads as usize,
            batch: batch as usize,
            txqs: 1,
            xps: None,
            flows: 1,
            pool: |config| config,
            apart: false,
            pinned: false,
            limit: SNDBUF.max(2 * batch).min(QUEUE),
            outside: Work::default(),
            open: None,
            wait_room: false,
            len: LEN,
            target: None,
        }
    }

    /// Returns the same senders with a device of another kind.
    pub(super) fn through(self, target: Target) -> Self {
        Self { txqs: target.txqs, target: Some(target), ..self }
    }

    /// Builds the device. The caller runs the worker, unless `target` is set.
    fn device(&self) -> anyhow::Result<NetDev> {
        let null = Null { ring: RING, inline: !self.apart, ..Null::new(self.txqs) };
        let null = match self.target {
            Some(target) => {
                let inline = target.completions != Reapers::WorkerOnly;
                Null { ring: target.ring, rate: target.rate, inline, ..null }
            }
            None => null,
        };
        let (each, all) = if self.open.is_some() { (0, OPEN_POOL) } else { (self.limit, 4096) };
        let buffers = (each + 2 * CACHE_SIZE as u64) * self.threads as u64 + all;
        let room = self.len.next_multiple_of(64).max(256);
        let pool = PoolConfig { buffers: buffers as u32, room, ..PoolConfig::default() };
        let mut builder = NetDev::builder(null).discipline(self.discipline).pool_config((self.pool)(pool));
        builder = match &self.queue {
            Queue::Text(tree) if self.txqs > 1 && self.root() == Root::Mq => {
                builder.qdisc("mq").default_qdisc(tree.root())
            }
            Queue::Text(tree) | Queue::Root(tree) => builder.qdisc(tree.root()),
            Queue::Costly(kind, cost, limit) => builder.custom_qdisc(Costly::new(kind, *cost, *limit)),
            Queue::Aqm(work) => builder.custom_qdisc(Aqm::new(*work)),
        };
        builder = builder.xps(self.xps.clone());
        let dev = match self.target {
            Some(target) => builder.completions(target.completions.completions()).start()?,
            None => builder.build()?,
        };
        if let Some(tree) = self.queue.tree() {
            tree.complete(|command| dev.tc(command))?;
        }
        Ok(dev)
    }

    fn root(&self) -> Root {
        self.target.map_or(Root::Mq, |target| target.root)
    }

    /// Checks that the device can be built.
    pub(super) fn check(&self) -> anyhow::Result<()> {
        self.device().map(drop)
    }

    /// Returns the CPU that a sender is pinned to; `None` if it is not pinned.
    fn sender_cpu(&self, lab: &Lab, index: usize) -> Option<u32> {
        match (self.apart, lab.cpus.len()) {
            (true, cpus @ 2..) => Some(lab.cpus[index % (cpus - 1)]),
            _ => (lab.pin || self.pinned).then(|| lab.cpu(index)),
        }
    }

    /// Sends for `time` and returns the figures.
    pub(super) fn measure(&self, lab: &Lab, time: Duration) -> anyhow::Result<Sample> {
        let mut dev = self.device()?;
        let worker_cpu = self.apart.then(|| lab.last_cpu());
        let stop = Arc::new(Stop::default());
        let worker = match self.target {
            Some(_) => None,
            None => {
                let (worker, its_stop) = (dev.worker(0), stop.clone());
                Some(spawn("worker", move || run_worker(worker, worker_cpu, &its_stop))?)
            }
        };
        let calls: Vec<Calls> = (0..self.threads).map(|_| Calls::default()).collect();
        let offered: Vec<Counter> = (0..self.threads).map(|_| Counter::default()).collect();
        let all_offered = || offered.iter().map(Counter::get).sum::<u64>();
        let measuring = Measuring::default();
        let (seen, cpu, offers, unequal, times) = thread::scope(|scope| {
            let mut senders = Vec::with_capacity(self.threads);
            for (index, (calls, offered)) in calls.iter().zip(&offered).enumerate() {
                let cpu = self.sender_cpu(lab, index);
                let (dev, stop, measuring) = (&dev, &*stop, &measuring);
                let work = move || {
                    cpu.map_or(Ok(()), pin_to)?;
                    let name = format!("sender {index}");
                    let sender = match cpu {
                        Some(cpu) => dev.sender_on(&name, cpu),
                        None => dev.sender(&name),
                    };
                    let log = Log::new(calls, measuring);
                    let part = Part { index, threads: self.threads, batch: self.batch };
                    anyhow::Ok(match self.open {
                        Some(open) => offer::send(open, &part, self.queue.tree(), sender, log, offered, stop),
                        None => self.send(sender, index as u32, log, stop),
                    })
                };
                match thread::Builder::new().spawn_scoped(scope, work) {
                    Ok(sender) => senders.push(sender),
                    Err(error) => {
                        stop.ask();
                        return Err(no_thread(&error));
                    }
                }
            }
            lab.sleep((time / WARM_UP.0).min(WARM_UP.1));
            let begun: Vec<u64> = calls.iter().map(Calls::begun).collect();
            let (before, offers) = (Begun::now(), all_offered());
            measuring.set(true);
            let seen = watch(lab, || dev.tx_packets(), &calls, time);
            let unequal = unequal(calls.iter().zip(begun).map(|(calls, begun)| calls.begun() - begun));
            let (cpu, offers) = (before.used(), all_offered() - offers);
            measuring.set(false);
            stop.ask();
            let times = senders.into_iter().map(join).collect::<anyhow::Result<Vec<_>>>()?;
            anyhow::Ok((seen, cpu, offers, unequal, times))
        })?;
        let stats = dev.stats();
        dev.shutdown()?;
        worker.map_or(Ok(()), join_worker)?;
        dev.audit().map_err(refused("the counters do not add up"))?;
        let mut sample = Sample::of(seen.packets, seen.wall, cpu);
        let (p99, longest) = summary(&times)?;
        sample.p99_ns = p99;
        sample.worst_stall_us = Some(seen.stall.as_secs_f64() * 1e6);
        sample.worst_xmit_us = Some((seen.xmit.as_secs_f64() * 1e6).max(longest / 1e3));
        sample.dropped = Some(stats.dropped.total() as f64 / (stats.accepted.max(1)) as f64);
        sample.unequal = unequal.filter(|_| self.open.is_none());
        sample.share = self.capacity().map(|most| sample.mpps * 1e6 / most);
        sample.offered_mpps = self.open.map(|_| offers as f64 / seen.wall.as_secs_f64() / 1e6);
        Ok(sample)
    }

    /// Returns the packets that the links, or the shaper above them, can send in a second; `None` where no link is finite.
    fn capacity(&self) -> Option<f64> {
        match &self.queue {
            Queue::Text(tree) => self.target?.capacity(tree.root(), self.len),
            _ => None,
        }
    }

    /// Runs a sender that sends as fast as it can.
    fn send(&self, mut sender: Sender, index: u32, mut log: Log<'_>, stop: &Stop) -> Histogram {
        sender.set_limit(self.limit);
        let mut list = PacketList::new();
        let hash = |flow| match self.target {
            Some(target) => hash_for(flow, index, self.flows, target.txqs),
            None => scatter(index * self.flows + flow),
        };
        let hashes: Vec<u32> = (0..self.flows).map(hash).collect();
        let mut flows = (0..).zip(&hashes).cycle();
        let tree = self.queue.tree();
        while !stop.asked() {
            // Only the limit or the pool can prevent an allocation, and both recover when packets are sent.
            if sender.alloc_batch(self.batch, self.len, &mut list).is_err() {
                // The wait is bounded, so that the sender sees the stop flag. If there is credit, the pool is empty.
                if sender.wait_credit(Some(sender.now() + REST)) {
                    hold();
                }
                continue;
            }
            if self.flows > 1 {
                list.for_each_mut(|packet| {
                    let (flow, hash) = flows.next().expect("a flow or more");
                    packet.set_hash(*hash);
                    if let Some(tree) = tree {
                        tree.classify(packet, flow);
                    }
                });
            }
            for _ in 0..list.len() {
                self.outside.spend();
            }
            while self.wait_room
                && sender.wait_room(Some(sender.now() + LONGEST_ROOM_SLEEP)) == Room::Full
                && !stop.asked()
            {}
            let mut verdict = Verdict::Success;
            log.call(|| verdict = sender.xmit_batch(&mut list));
            if verdict == Verdict::Drop && self.target.is_none() {
                // As programs do on ENOBUFS: yield to threads that can make room.
                hold();
            }
        }
        log.times()
    }
}

/// Returns the largest number divided by the smallest; `None` if there are fewer than two.
fn unequal(numbers: impl Iterator<Item = u64>) -> Option<f64> {
    let mut numbers: Vec<u64> = numbers.collect();
    numbers.sort_unstable();
    let (least, most) = (*numbers.first()?, *numbers.last()?);
    (numbers.len() > 1 && most > 0).then(|| most as f64 / least as f64)
}

/// Yields the CPU of a sender that cannot go on to the threads that send its packets.
pub(super) fn hold() {
    thread::yield_now();
}

/// Returns a hash of a flow's number: never 0, which means none.
pub(super) fn scatter(flow: u32) -> u32 {
    (flow + 1).wrapping_mul(0x9e37_79b1) | 1
}

/// Runs the worker. With a CPU of its own it never sleeps, like a worker that always has completions to reap.
fn run_worker(mut worker: Worker, cpu: Option<u32>, stop: &Stop) -> anyhow::Result<()> {
    let Some(cpu) = cpu else {
        worker.run();
        return Ok(());
    };
    pin_to(cpu)?;
    while !stop.asked() {
        if worker.poll().is_none_or(|next| next > txq::Instant::now()) {
            thread::yield_now();
        }
    }
    Ok(())
}

/// Returns the 99th percentile and the maximum, in nanoseconds.
fn summary(times: &[Histogram]) -> anyhow::Result<(Option<f64>, f64)> {
    let mut all = Histogram::new(7, 40).expect("constants in range");
    for times in times {
        all = all.checked_add(times).context("histograms that do not add up")?;
    }
    let at = |share| anyhow::Ok(all.quantile_bucket(share)?.map(|bucket| bucket.end() as f64));
    Ok((at(0.99)?, at(1.0)?.unwrap_or(0.0)))
}

fn no_thread(error: &std::io::Error) -> anyhow::Error {
    refused("a thread does not start")(error)
}

/// Starts a thread that is no sender.
fn spawn<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> anyhow::Result<thread::JoinHandle<T>> {
    thread::Builder::new().name(name.into()).spawn(work).map_err(|error| no_thread(&error))
}

/// Waits for a thread; returns its result or its error.
pub(super) fn join<T>(thread: thread::ScopedJoinHandle<'_, anyhow::Result<T>>) -> anyhow::Result<T> {
    thread.join().unwrap_or_else(|_| Err(anyhow!("a sending thread panicked")))
}

fn join_worker(thread: thread::JoinHandle<anyhow::Result<()>>) -> anyhow::Result<()> {
    thread.join().unwrap_or_else(|_| Err(anyhow!("the worker panicked")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_compared_where_there_are_two() {
        assert_eq!(unequal([6, 3, 4].into_iter()), Some(2.0));
        assert_eq!(unequal([6, 0].into_iter()), Some(f64::INFINITY));
        assert_eq!((unequal([6].into_iter()), unequal([0, 0].into_iter())), (None, None));
    }
}
