//! A sender: one thread's handle on a device.

use std::cell::Cell;
use std::marker::PhantomData;
use std::sync::Arc;

use crate::arch::{Arch, CpuId, Nanos, Native, Work};
use crate::ctx::Ctx;
use crate::drop::DropReason;
use crate::netdev::{Rule, Sampling, Shared};
use crate::packet::{Packet, PacketList};
use crate::pool::{AllocError, Cache};
use crate::qdisc::Verdict;
use crate::steering::{Here, Steer};

mod counters;
mod flow;
mod room;

pub(crate) use counters::SenderCounters;
pub use flow::Flow;
pub use room::Room;
use room::Waits;

/// Calls of xmit after which a sender looks again which CPU it runs on.
const TURNS: u32 = 64;
/// Times that drivers may send a packet on through further devices (`XMIT_RECURSION_LIMIT`).
const RECURSION_LIMIT: u32 = 8;

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
    /// Calls until the next one that is measured: its packets' latency is sampled, or its own time taken. Without either
    /// it never comes.
    until_measured: u64,
    /// Calls until the next one whose latency is sampled.
    until_sample: u32,
    /// A batch being taken apart, by txq, and the txqs that got a part.
    split: Vec<PacketList<A>>,
    parts: Vec<u16>,
    /// Its waits for room.
    waits: Waits<A>,
    not_sync: PhantomData<Cell<()>>,
}

impl<A: Arch> Sender<A> {
    pub(crate) fn new(dev: Arc<Shared<A>>, name: &str, pinned: Option<CpuId>) -> Self {
        let cpu = pinned.unwrap_or_else(A::cpu);
        // Before another sender's home may become this one's.
        dev.settle_gone();
        let cache = dev.pool.cache(name, cpu);
        let txqs = dev.txqs.len() as u16;
        let steer = Steer::new(&dev.steering, cpu, txqs, dev.hasher);
        let counters = Arc::new(SenderCounters::new(name, dev.xmit_times, &cache));
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
            until_measured: 0,
            until_sample: 0,
            split,
            parts: Vec::new(),
            waits: Waits::default(),
            not_sync: PhantomData,
        }
    }

    /// A packet of `len` bytes to fill. An error instead of a wait when there is none.
    #[inline]
    pub fn alloc(&mut self, len: usize) -> Result<Packet<A>, AllocError> {
        self.cache.alloc(len).or_else(|error| {
            self.reap_deferred();
            self.cache.alloc(len).inspect_err(|_| self.counters.refused(&error))
        })
    }

    /// Up to `n` packets of `len` bytes, appended to `list`: how many, or an error when there is none.
    #[inline]
    pub fn alloc_batch(
        &mut self,
        n: usize,
        len: usize,
        list: &mut PacketList<A>,
    ) -> Result<usize, AllocError> {
        self.cache.alloc_batch(n, len, list).or_else(|error| {
            self.reap_deferred();
            self.cache.alloc_batch(n, len, list).inspect_err(|_| self.counters.refused(&error))
        })
    }

    /// Reaps what its calls have left in devices to be reaped later.
    #[cold]
    fn reap_deferred(&mut self) {
        // From within a data path the wait could be for the caller itself; the worker reaps.
        if A::inside(|inside| inside.depth()) == 0 && self.cache.take_deferred() {
            let mut cx = Ctx::new(&self.dev, &mut self.cache);
            self.steer.used().iter().for_each(|txq| self.dev.reap_deferred(txq, &mut cx));
        }
    }

    /// A packet with a copy of `bytes`.
    #[inline]
    pub fn packet(&mut self, bytes: &[u8]) -> Result<Packet<A>, AllocError> {
        let mut packet = self.alloc(bytes.len())?;
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
        self.reap_deferred();
        self.cache.wait_credit(deadline)
    }

    /// Sends one packet (`dev_queue_xmit`).
    ///
    /// [`Verdict::Success`] means accepted for the queue layer: a packet that joins others on their way to the qdisc may
    /// still be dropped there, which [`dropped`](Sender::dropped) tells. A sender that would rather wait than lose packets
    /// calls [`wait_room`](Sender::wait_room) before.
    #[inline]
    pub fn xmit(&mut self, packet: Packet<A>) -> Verdict {
        let mut batch = PacketList::new();
        batch.push_back(packet);
        self.xmit_batch(&mut batch)
    }

    /// Sends a list of packets, in order within each flow, and leaves it empty. [`Verdict::Drop`] when all are known to be dropped,
    /// [`Verdict::Congested`] when some are; [`dropped`](Sender::dropped) tells how many.
    pub fn xmit_batch(&mut self, batch: &mut PacketList<A>) -> Verdict {
        if batch.is_empty() {
            return Verdict::Success;
        }
        self.call(batch, Self::hand_in)
    }

    /// Makes a call of xmit with `batch`, and measures it if its turn has come.
    #[inline]
    fn call(
        &mut self,
        batch: &mut PacketList<A>,
        call: impl FnOnce(&mut Self, &mut PacketList<A>) -> Verdict,
    ) -> Verdict {
        let verdict = if self.until_measured == 0 {
            self.measured(batch, call)
        } else {
            self.until_measured -= 1;
            call(self, batch)
        };
        self.counters.settle(&self.cache);
        verdict
    }

    /// Makes a call that is measured, and says when the next one is.
    #[cold]
    fn measured(
        &mut self,
        batch: &mut PacketList<A>,
        call: impl FnOnce(&mut Self, &mut PacketList<A>) -> Verdict,
    ) -> Verdict {
        let all = self.dev.xmit_times;
        if !all && self.dev.sampling == Sampling::Off {
            self.until_measured = u64::MAX;
            return call(self, batch);
        }
        let before = A::now();
        self.sample(batch, before);
        if !all && let Sampling::Every(n) = self.dev.sampling {
            self.until_measured = (n - 1).into();
        }
        let verdict = call(self, batch);
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
        self.counters.submit(batch.len() as u64);
        if nested && self.hop(batch) == 0 {
            return false;
        }
        if !nested {
            // The same here: a new choice of txqs asks which queues are idle.
            self.turn();
        }
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
            self.reap_deferred();
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

    /// Stamps the packets of a measured call whose latency is sampled.
    fn sample(&mut self, batch: &mut PacketList<A>, now: Nanos) {
        match self.dev.sampling {
            Sampling::Off => {}
            Sampling::All => batch.for_each_mut(|p| p.set_stamp(now)),
            // Each measured call is its turn, unless all calls are measured.
            Sampling::Every(_) if !self.dev.xmit_times => batch.stamp_front(now),
            Sampling::Every(n) => {
                if self.until_sample == 0 {
                    self.until_sample = n;
                    batch.stamp_front(now);
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
            self.cache.free_dropped(&mut looped);
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
        if !std::thread::panicking() {
            self.reap_deferred();
        }
        // A panic over one part of a batch leaves the others here: they were handed in and go no further.
        let left: usize = self.parts.iter().map(|&txq| self.split[usize::from(txq)].len()).sum();
        self.dev.count_lost(left as u64);
        self.forget_waker();
        self.counters.settle(&self.cache);
        self.dev.unregister(&self.counters);
    }
}
