//! A sender: one thread's handle on a device.

use std::cell::Cell;
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use crossbeam_utils::CachePadded;

use crate::arch::{Arch, Atomic, CpuId, Nanos, Native, Work};
use crate::ctx::Ctx;
use crate::drop::DropReason;
use crate::netdev::{Rule, Sampling, Shared};
use crate::packet::{Packet, PacketList};
use crate::pool::{AllocError, Cache};
use crate::qdisc::Verdict;
use crate::stats::log2::Log2;
use crate::steering::{Here, Steer};
use crate::sync::words::Words;

mod flow;

pub use flow::Flow;

/// Calls of xmit after which a sender looks again which CPU it runs on.
const TURNS: u32 = 64;
/// Times that drivers may send a packet on through further devices (`XMIT_RECURSION_LIMIT`).
const RECURSION_LIMIT: u32 = 8;

/// What a sender counts, where others can read it. Only the sender writes.
pub(crate) struct SenderCounters<A: Arch> {
    /// Packets handed in. On a line of its own: its sender writes it at every call.
    pub(crate) submitted: CachePadded<A::AtomicU64>,
    /// How many calls of xmit took how long, by [`Log2`]'s buckets; none where that is not measured.
    times: Words<A>,
}

impl<A: Arch> SenderCounters<A> {
    fn new(times: bool) -> Self {
        let buckets = if times { Log2::BUCKETS } else { 0 };
        Self { submitted: CachePadded::new(A::AtomicU64::new(0)), times: Words::new(buckets, 0) }
    }

    /// Names its lines ([`Arch::name`]).
    fn name_lines(&self) {
        A::name(&self.submitted, "sender: packets handed in");
        self.times.name_lines("sender: times of xmit");
    }

    /// A call of xmit took `time`.
    fn took(&self, time: Nanos) {
        let bucket = self.times.at(Log2::index(time));
        bucket.store(bucket.load(Relaxed) + 1, Relaxed);
    }

    /// Adds how long calls took.
    pub(crate) fn add_times(&self, to: &mut Log2) {
        self.times.iter().enumerate().for_each(|(index, count)| to.add_to_bucket(index, count.load(Relaxed)));
    }
}

/// One thread's handle on a device: its CPU, its stock of buffers, its counters. It moves between threads and is used by
/// one at a time. When it is dropped, by a panic too, its buffers return to the pool and its packets stay on their way.
pub struct Sender<A: Arch = Native> {
    dev: Arc<Shared<A>>,
    cache: Cache<A>,
    counters: Arc<SenderCounters<A>>,
    steer: Steer<A>,
    /// What flows go by, once there is one.
    here: Option<Here<A>>,
    /// Which queues its packets enter; the device's, or what that was at its last call.
    rule: Rule,
    turns: u32,
    /// A new choice of txqs is due, but packets are still on their way.
    renewing: bool,
    /// Given by the program; else the CPU is asked for now and then.
    pinned: Option<CpuId>,
    /// Calls until the next one whose latency is sampled.
    until_sample: u32,
    /// A batch being taken apart, by txq, and the txqs that got a part.
    split: Vec<PacketList<A>>,
    parts: Vec<u16>,
    not_sync: PhantomData<Cell<()>>,
}

impl<A: Arch> Sender<A> {
    pub(crate) fn new(dev: Arc<Shared<A>>, name: &str, pinned: Option<CpuId>) -> Self {
        let cpu = pinned.unwrap_or_else(A::cpu);
        let cache = dev.pool.cache(name, cpu);
        let txqs = dev.txqs.len() as u16;
        let steer = Steer::new(&dev.steering, cpu, txqs, dev.hasher);
        let counters = Arc::new(SenderCounters::new(dev.xmit_times));
        counters.name_lines();
        dev.register(&counters);
        let rule = dev.rule();
        let split = (0..txqs).map(|_| PacketList::new()).collect();
        Self {
            dev,
            cache,
            counters,
            steer,
            here: None,
            rule,
            turns: 0,
            renewing: false,
            pinned,
            until_sample: 0,
            split,
            parts: Vec::new(),
            not_sync: PhantomData,
        }
    }

    /// A packet of `len` bytes to fill. An error instead of a wait when there is none.
    #[inline]
    pub fn alloc(&mut self, len: usize) -> Result<Packet<A>, AllocError> {
        self.cache.alloc(len)
    }

    /// Up to `n` packets of `len` bytes, appended to `list`: how many, or an error when there is none.
    #[inline]
    pub fn alloc_batch(
        &mut self,
        n: usize,
        len: usize,
        list: &mut PacketList<A>,
    ) -> Result<usize, AllocError> {
        self.cache.alloc_batch(n, len, list)
    }

    /// A packet with a copy of `bytes`.
    #[inline]
    pub fn packet(&mut self, bytes: &[u8]) -> Result<Packet<A>, AllocError> {
        let mut packet = self.cache.alloc(bytes.len())?;
        packet.data_mut().copy_from_slice(bytes);
        Ok(packet)
    }

    /// Bounds the packets that this sender may have on their way (`SO_SNDBUF`, counted in packets). At the bound,
    /// `alloc` says so ([`AllocError::Limit`]), and [`wait_credit`](Sender::wait_credit) sleeps.
    pub fn set_limit(&mut self, packets: u64) {
        self.cache.set_limit(packets);
    }

    /// Sleeps until the limit allows to allocate, or until `deadline` on the clock of [`now`](Sender::now), and tells
    /// whether it does. Who lies down gets up when half of the limit is free, as the kernel's senders do; so hand in
    /// what you hold before. Nothing is paid for it while nobody sleeps.
    pub fn wait_credit(&mut self, deadline: Option<Nanos>) -> bool {
        self.cache.wait_credit(deadline)
    }

    /// Sends one packet (`dev_queue_xmit`).
    ///
    /// [`Verdict::Success`] means accepted for the queue layer: a packet that joins others on their way to the qdisc may
    /// still be dropped there, which counters tell.
    #[inline]
    pub fn xmit(&mut self, packet: Packet<A>) -> Verdict {
        let mut batch = PacketList::new();
        batch.push_back(packet);
        self.xmit_batch(&mut batch)
    }

    /// Sends a list of packets, in order within each flow, and leaves it empty. [`Verdict::Drop`] when all are known to be dropped,
    /// [`Verdict::Congested`] when some are.
    pub fn xmit_batch(&mut self, batch: &mut PacketList<A>) -> Verdict {
        if batch.is_empty() {
            return Verdict::Success;
        }
        self.timed(|sender| sender.hand_in(batch))
    }

    /// Measures a call of xmit, if that is asked for.
    #[inline]
    fn timed(&mut self, call: impl FnOnce(&mut Self) -> Verdict) -> Verdict {
        if !self.dev.xmit_times {
            return call(self);
        }
        let before = A::now();
        let verdict = call(self);
        self.counters.took(A::now().saturating_sub(before));
        verdict
    }

    #[inline]
    fn hand_in(&mut self, batch: &mut PacketList<A>) -> Verdict {
        if !self.begin(batch) {
            return Verdict::Drop;
        }
        match self.steer.fixed() {
            Some(txq) => self.submit(txq, batch),
            None => self.submit_split(batch),
        }
    }

    /// What every call begins with. False when no packet is left to send.
    #[inline]
    fn begin(&mut self, batch: &mut PacketList<A>) -> bool {
        A::spend(|| Work::Xmit);
        let nested = A::inside(|inside| inside.depth()) > 0;
        // From within a data path the wait could be for the caller itself; the old queues hand on.
        if self.rule != self.dev.rule() && !nested {
            // A driver may panic in this: the batch has not been handed in yet.
            self.rule = self.dev.follow(&mut Ctx::new(&self.dev, &mut self.cache));
        }
        let submitted = self.counters.submitted.load(Relaxed) + batch.len() as u64;
        self.counters.submitted.store(submitted, Relaxed);
        if nested && self.hop(batch) == 0 {
            return false;
        }
        if !nested {
            // The same here: a new choice of txqs asks which queues are idle.
            self.turn();
        }
        self.sample(batch);
        true
    }

    /// Looks now and then where the thread runs and whether the map is another.
    #[inline]
    fn turn(&mut self) {
        self.turns = self.turns.wrapping_add(1);
        let look = self.turns.is_multiple_of(TURNS);
        if look || (self.steer.is_stale() && !self.renewing) {
            self.look();
        }
    }

    fn look(&mut self) {
        let cpu = self.pinned.unwrap_or_else(A::cpu);
        if cpu != self.steer.cpu() || self.steer.is_stale() {
            self.cache.set_cpu(cpu);
            // While packets are on their way the answer stays the same for a while, and asking takes locks.
            self.renewing = !self.steer.renew(cpu, &self.dev);
        } else {
            self.renewing = false;
            self.steer.is_right();
        }
        if let Some(here) = &mut self.here {
            here.look(&self.dev, cpu);
        }
    }

    #[inline]
    fn sample(&mut self, batch: &mut PacketList<A>) {
        match self.dev.sampling {
            Sampling::Off => {}
            Sampling::All => {
                let now = A::now();
                batch.for_each_mut(|p| p.set_stamp(now));
            }
            Sampling::Every(n) => {
                if self.until_sample == 0 {
                    self.until_sample = n;
                    batch.stamp_front(A::now());
                }
                self.until_sample -= 1;
            }
        }
    }

    #[inline]
    fn submit(&mut self, txq: u16, batch: &mut PacketList<A>) -> Verdict {
        self.steer.note(txq);
        self.enter(txq, batch)
    }

    /// Hands packets for a txq to its qdisc.
    #[inline]
    fn enter(&mut self, txq: u16, batch: &mut PacketList<A>) -> Verdict {
        let mut cx = Ctx::new(&self.dev, &mut self.cache);
        self.dev.enter(self.dev.root_at(self.rule, txq), txq, batch, &mut cx)
    }

    /// Counts that a driver, or a qdisc, sends packets on, and drops those that it has happened to too often: drivers send them to each
    /// other in a circle (`dev_xmit_recursion`). Returns how many are left.
    #[cold]
    fn hop(&mut self, batch: &mut PacketList<A>) -> usize {
        let (mut on, mut looped) = (PacketList::new(), PacketList::new());
        let too_deep = A::inside(|inside| inside.depth()) > RECURSION_LIMIT;
        while let Some(mut packet) = batch.pop_front() {
            if packet.hop() > RECURSION_LIMIT || too_deep {
                packet.set_drop_reason(DropReason::RecursionLimit);
                looped.push_back(packet);
            } else {
                on.push_back(packet);
            }
        }
        batch.append(&mut on);
        if !looped.is_empty() {
            self.dev.count_looped(looped.len() as u64);
            self.cache.free(&mut looped);
        }
        batch.len()
    }

    /// Takes a batch apart by txq. Packets of one flow go to one txq, so their order stays.
    fn submit_split(&mut self, batch: &mut PacketList<A>) -> Verdict {
        while let Some(mut packet) = batch.pop_front() {
            let txq = self.steer.pick(&mut packet);
            let part = &mut self.split[usize::from(txq)];
            if part.is_empty() {
                self.parts.push(txq);
            }
            part.push_back(packet);
        }
        let mut verdicts = [false; 2];
        let mut congested = false;
        while let Some(txq) = self.parts.pop() {
            let mut part = std::mem::take(&mut self.split[usize::from(txq)]);
            match self.submit(txq, &mut part) {
                Verdict::Success => verdicts[0] = true,
                Verdict::Drop => verdicts[1] = true,
                Verdict::Congested => congested = true,
            }
        }
        match (verdicts, congested) {
            ([_, false], false) => Verdict::Success,
            ([false, true], false) => Verdict::Drop,
            _ => Verdict::Congested,
        }
    }

    /// The time on the clock that departure times are on.
    pub fn now(&self) -> Nanos {
        A::now()
    }
}

impl<A: Arch> Drop for Sender<A> {
    fn drop(&mut self) {
        // A panic over one part of a batch leaves the others here: they were handed in and go no further.
        let left: usize = self.parts.iter().map(|&txq| self.split[usize::from(txq)].len()).sum();
        self.dev.count_lost(left as u64);
        self.dev.unregister(&self.counters);
    }
}
