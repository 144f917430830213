//! A sender: one thread's handle on a device.

use std::cell::Cell;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use txq_core::arch::{Arch, CpuId, Nanos, Native, Work};
use txq_core::drop::DropReason;
use txq_core::packet::{Packet, PacketList};
use txq_core::pool::{AllocError, Cache, Pool};
use txq_sched::generic::qdisc::{self, Verdict};

use crate::generic::datapath::{Ctx, RootSelector, SendWindows};
use crate::generic::panics::Panics;
use crate::generic::shared::{Sampling, Shared};
use crate::generic::steering::{Here, Steer};
use crate::generic::tuning::CALLS_ON_ONE_CPU;

mod checksum;
mod flow;
mod hooked;
mod reclaim;
mod room;
mod send;
mod waiting;

use crate::generic::registry::SenderCounters;
pub use flow::Flow;
use hooked::Hooked;
pub use hooked::Ingress;
pub use room::Room;
use room::Waits;
pub use waiting::{SendError, WaitError};

/// How often drivers may send a packet on through further devices (`XMIT_RECURSION_LIMIT`).
const RECURSION_LIMIT: u32 = 8;

/// Which packets of a call go on to the queues: those in the batch, and the parts for which an action has chosen a txq.
enum Begun {
    All,
    /// Filters have dropped others.
    Some,
    None(Verdict),
}

impl Begun {
    /// Returns the verdict on the whole call, where the queues gave this one.
    #[inline]
    fn verdict(&self, queues: Verdict) -> Verdict {
        match (self, queues) {
            (Self::Some, Verdict::Success) => Verdict::Congested,
            _ => queues,
        }
    }
}

/// One thread's handle on a device: its CPU, its stock of buffers, its counters. It may move between threads; one thread at
/// a time uses it. When it is dropped, also by a panic, its buffers return to the pool, and packets that it has handed in
/// stay on their way.
pub struct Sender<A: Arch = Native> {
    dev: Arc<Shared<A>>,
    cache: Cache<A>,
    counters: Arc<SenderCounters<A>>,
    /// Its number among the device's senders.
    serial: u64,
    steer: Steer<A>,
    /// The steering state of its flows; `None` until a flow sends.
    here: Option<Here<A>>,
    /// The rule that its packets follow: the device's, as of the last call that was not made inside a data path.
    rule: RootSelector,
    turns: u32,
    /// Whether a new choice of txqs is due, but waits for packets that are still on their way.
    renewing: bool,
    /// The CPU given by the program; `None` to ask for the current CPU once in [`CALLS_ON_ONE_CPU`] calls.
    pinned: Option<CpuId>,
    /// Calls until the next measured one, which samples the latency of packets or takes its own time. Set to `u64::MAX` if
    /// the device does neither.
    until_measured: u64,
    /// Calls until the next one whose latency is sampled. Used only if every call is measured.
    until_sample: u32,
    /// The parts of a batch that is being split, by txq; `parts` lists the txqs that have one.
    split: Vec<PacketList<A>>,
    parts: Vec<u16>,
    /// The state of its waits for room.
    waits: Waits<A>,
    /// How busy it is.
    pace: SendWindows,
    /// The txq to poll first at its limit, among those that it uses.
    polled: usize,
    /// Packets that [`cut`](Self::cut) has added.
    added: u64,
    /// What it needs for the filters of hooks; `None` until its packets meet one.
    hooked: Option<Box<Hooked<A>>>,
    /// How many senders' filters have sent its packets here.
    depth: u8,
    not_sync: PhantomData<Cell<()>>,
}

impl<A: Arch> fmt::Debug for Sender<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sender").field("dev", &self.dev.info.name).finish_non_exhaustive()
    }
}

impl<A: Arch> Sender<A> {
    pub(crate) fn new(dev: Arc<Shared<A>>, name: &str, pinned: Option<CpuId>) -> Self {
        let cpu = pinned.unwrap_or_else(A::cpu);
        let mut cache = dev.cache(name, cpu);
        cache.set_link(dev.info.link);
        cache.guarantee();
        let txqs = dev.txqs.len() as u16;
        let steer = Steer::new(&dev.steering, cpu, txqs, dev.hasher, dev.reselection);
        let counters = Arc::new(SenderCounters::new(name, dev.xmit_times, &cache));
        counters.name_lines();
        let serial = dev.senders.register(&counters);
        let rule = dev.rule();
        let pace = SendWindows::new(serial);
        let split = (0..txqs).map(|_| PacketList::new()).collect();
        Self {
            dev,
            cache,
            counters,
            serial,
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
            pace,
            polled: 0,
            added: 0,
            hooked: None,
            depth: 0,
            not_sync: PhantomData,
        }
    }

    /// Returns how many packets this sender has added by cutting packets with segments, for a device that does not cut: a
    /// packet of n segments is counted as n packets handed in, which adds n - 1.
    #[inline(never)]
    pub fn added_by_cuts(&self) -> u64 {
        self.added
    }

    /// Returns the pool that it allocates from.
    #[inline(never)]
    pub fn pool(&self) -> &Pool<A> {
        &self.dev.pool
    }

    /// Returns a packet of `len` bytes to fill.
    #[inline]
    pub fn alloc(&mut self, len: usize) -> Result<Packet<A>, AllocError> {
        self.cache.alloc(len).or_else(|error| {
            self.reclaim();
            self.cache.alloc(len).inspect_err(|_| self.counters.refused(&error))
        })
    }

    /// Appends up to `n` packets of `len` bytes to `list`; returns how many, or an error if there is no buffer.
    #[inline]
    pub fn alloc_batch(
        &mut self,
        n: usize,
        len: usize,
        list: &mut PacketList<A>,
    ) -> Result<usize, AllocError> {
        self.cache.alloc_batch(n, len, list).or_else(|error| {
            self.reclaim();
            self.cache.alloc_batch(n, len, list).inspect_err(|_| self.counters.refused(&error))
        })
    }

    /// Returns a packet with a copy of `bytes`.
    #[inline]
    pub fn packet(&mut self, bytes: &[u8]) -> Result<Packet<A>, AllocError> {
        let mut packet = self.alloc(bytes.len())?;
        packet.data_mut().copy_from_slice(bytes);
        Ok(packet)
    }

    /// Limits the packets that this sender may have on their way (`SO_SNDBUF`, counted in packets).
    #[inline(never)]
    pub fn set_limit(&mut self, packets: u64) {
        self.cache.set_limit(packets);
    }

    /// Sleeps until the limit allows an allocation, or until `deadline` on the clock of [`now`](Sender::now); returns
    /// whether it allows one.
    #[inline(never)]
    pub fn wait_credit(&mut self, deadline: Option<Nanos>) -> bool {
        self.reclaim();
        let dev = &self.dev;
        let allows = self.cache.wait_credit_unless(deadline, || dev.is_stopping());
        self.pace.unblock(A::now());
        allows
    }

    /// Sends one packet (`dev_queue_xmit`).
    #[inline]
    pub fn xmit(&mut self, packet: Packet<A>) -> Verdict {
        let mut batch = PacketList::new();
        batch.push_back(packet);
        self.xmit_batch(&mut batch)
    }

    /// Sends a list of packets, in order within each flow, and leaves the list empty.
    #[inline(never)]
    pub fn xmit_batch(&mut self, batch: &mut PacketList<A>) -> Verdict {
        if batch.is_empty() {
            return Verdict::Success;
        }
        self.call(batch, Self::hand_in)
    }

    /// Runs a call of xmit with `batch`, and measures it if it is due.
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

    /// Runs a measured call, and sets how many calls follow until the next one.
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
        let begun = match self.begin(batch) {
            Begun::None(verdict) => return verdict,
            begun => begun,
        };
        let txq = match self.steer.fixed() {
            Some(txq) if self.parts.is_empty() => txq,
            None if self.parts.is_empty() && batch.len() == 1 => {
                let mut txq = 0;
                batch.for_each_mut(|packet| txq = self.steer.pick(packet));
                txq
            }
            _ => return begun.verdict(self.submit_split(batch)),
        };
        begun.verdict(self.submit(txq, batch))
    }

    /// Begins a call: follows the device's rule, runs the egress filters, counts the packets, and checks the choice of txqs.
    /// Returns which packets are left to send.
    #[inline]
    fn begin(&mut self, batch: &mut PacketList<A>) -> Begun {
        A::spend(|| Work::Xmit);
        let nested = A::inside(|inside| inside.depth()) > 0;
        // Inside a data path the wait could be for the caller itself; there the old queues hand the packets on.
        let rule = self.dev.rule();
        if self.rule != rule {
            self.rule = match nested {
                true => self.rule.traced_as(rule),
                // A driver may panic in this call; the batch is not counted as handed in yet.
                false => self.dev.follow(&mut Ctx::new(&self.dev, &mut self.cache)),
            };
        }
        if batch.segs() != batch.len() as u64 && !self.dev.info.gso {
            self.cut(batch);
        }
        // Before the filters: these may choose txqs.
        if nested && self.hop(batch) == 0 {
            return Begun::None(Verdict::Drop);
        }
        let mut begun = Begun::All;
        if self.rule.is_hooked() {
            begun = self.filter_egress(batch);
            if let Begun::None(_) = begun {
                return begun;
            }
        }
        self.counters.submit(batch.len() as u64);
        if !nested {
            // Not inside a data path either: a new choice of txqs asks which queues are idle.
            self.turn();
        }
        begun
    }

    /// Checks once in [`CALLS_ON_ONE_CPU`] calls, at the first one, and when the map was replaced, whether the choice of txqs still holds.
    #[inline]
    fn turn(&mut self) {
        self.turns = self.turns.wrapping_add(1);
        // The thread that sends may be another than the one that made the sender.
        let is_due = self.turns.is_multiple_of(CALLS_ON_ONE_CPU) || self.turns == 1;
        if is_due || (self.steer.is_stale() && !self.renewing) {
            self.check_steering();
        }
    }

    /// Reads the CPU, and renews the choice of txqs if the CPU or the map has changed.
    fn check_steering(&mut self) {
        let cpu = self.pinned.unwrap_or_else(A::cpu);
        if cpu != self.steer.cpu() || self.steer.is_stale() {
            self.cache.set_cpu(cpu);
            self.reap_deferred();
            // If refused, wait for the next turn: the answer stays the same while packets are on their way, and asking takes
            // locks.
            // Parts that a panic has left were split by the old choice, and are in no queue.
            self.renewing = !self.parts.is_empty()
                || !self.steer.renew(cpu, self.dev.reselection, |txq| self.dev.is_idle(txq));
        } else {
            self.renewing = false;
        }
        if let Some(here) = &mut self.here {
            here.set_cpu(self.dev.reselection, cpu);
        }
    }

    /// Stamps those packets of a measured call whose latency is sampled.
    fn sample(&mut self, batch: &mut PacketList<A>, now: Nanos) {
        match self.dev.sampling {
            Sampling::Off => {}
            Sampling::All => batch.for_each_mut(|p| p.set_stamp(now)),
            // Only sampled calls are measured, unless every call is.
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

    #[inline(always)]
    fn submit(&mut self, txq: u16, batch: &mut PacketList<A>) -> Verdict {
        self.steer.note(txq);
        self.enter(txq, batch)
    }

    /// Hands packets for a txq to its qdisc.
    #[inline(always)]
    fn enter(&mut self, txq: u16, batch: &mut PacketList<A>) -> Verdict {
        if self.pace.count::<A>(batch.len()) && self.dev.lease.is_some() {
            return self.enter_measured(txq, batch);
        }
        self.enter_in_turn(txq, batch)
    }

    #[inline(always)]
    fn enter_in_turn(&mut self, txq: u16, batch: &mut PacketList<A>) -> Verdict {
        let root = self.dev.root_at(self.rule, txq);
        self.pace.wait_for_turn(batch.len(), &self.dev.roots[root], &self.dev);
        let mut cx = Ctx::under(self.rule, &self.dev, &mut self.cache);
        let verdict = self.dev.enter(root, txq, batch, &mut cx);
        if cx.waited > 0 {
            self.pace.note_wait(cx.waited);
        }
        verdict
    }

    /// As [`enter`](Self::enter), for the first call of a window in which the sender measures how busy it is.
    #[cold]
    fn enter_measured(&mut self, txq: u16, batch: &mut PacketList<A>) -> Verdict {
        let packets = batch.len();
        self.pace.begin(A::now(), self.counters.submitted());
        let verdict = self.enter_in_turn(txq, batch);
        self.pace.first_call_ended(A::now(), packets);
        verdict
    }

    #[cfg(test)]
    pub(crate) fn datapath(&self) -> &crate::generic::datapath::Datapath<A> {
        &self.dev
    }

    #[cfg(test)]
    pub(crate) fn number(&self) -> u32 {
        self.pace.number()
    }

    #[cfg(test)]
    pub(crate) fn pace_waited(&self) -> Nanos {
        self.pace.waited()
    }

    #[cfg(test)]
    pub(crate) fn submit_to(&mut self, txq: u16, batch: &mut PacketList<A>) -> Verdict {
        self.submit(txq, batch)
    }

    /// Whether the sender is the last busy user of the queue of a txq: for checkers.
    #[doc(hidden)]
    pub fn uses_queue_of(&self, txq: u16) -> bool {
        self.pace.uses(&self.dev.roots[self.dev.root_of(txq)])
    }

    /// Makes the sender count as busy until it next measures how busy it is: for checkers, whose scenarios are shorter.
    #[doc(hidden)]
    pub fn assume_busy(&mut self) {
        self.pace.assume_busy();
    }

    /// Cuts the packets with segments, for a device that does not. The segments are packets of this sender. A packet stays
    /// whole, for the driver to drop, if the sender has no buffers for its segments.
    #[cold]
    fn cut(&mut self, batch: &mut PacketList<A>) {
        let (mut cut, whole) = (PacketList::new(), batch.len());
        while let Some(packet) = batch.pop_front() {
            cut.append(&mut qdisc::cut(packet, |packet, head, parts| {
                let mut list = PacketList::new();
                for part in parts {
                    match self.cache.copy_own(packet, head, part) {
                        Ok(copy) => list.push_back(copy),
                        Err(_) => {
                            self.cache.free(&mut list);
                            return None;
                        }
                    }
                }
                Some(list)
            }));
        }
        self.added += (cut.len() - whole) as u64;
        batch.append(&mut cut);
    }

    /// Counts one hop for packets that a driver or a qdisc sends on, and drops packets with too many hops: drivers send them
    /// to each other in a circle (`dev_xmit_recursion`). Returns how many packets are left.
    #[cold]
    fn hop(&mut self, batch: &mut PacketList<A>) -> usize {
        let (mut on, mut looped) = (PacketList::new(), PacketList::new());
        let too_deep = A::inside(|inside| inside.depth()) > RECURSION_LIMIT;
        while let Some(mut packet) = batch.pop_front() {
            if !packet.hop() || too_deep {
                packet.set_drop_reason(DropReason::RecursionLimit);
                looped.push_back(packet);
            } else {
                on.push_back(packet);
            }
        }
        batch.append(&mut on);
        if !looped.is_empty() {
            self.counters.submit(looped.len() as u64);
            self.dev.count_looped(looped.len() as u64);
            Ctx::new(&self.dev, &mut self.cache).free_list(&mut looped);
        }
        batch.len()
    }

    /// Adds packets to the part of a txq.
    fn add_part(&mut self, txq: u16, list: &mut PacketList<A>) {
        let part = &mut self.split[usize::from(txq)];
        if part.is_empty() && !list.is_empty() {
            self.parts.push(txq);
        }
        part.append(list);
    }

    /// Splits a batch by txq and hands the parts to their queues; returns the verdict for the whole batch. Packets of one
    /// flow go to one txq, so they keep their order.
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

    /// Returns the time on the clock that departure times use.
    #[inline(never)]
    pub fn now(&self) -> Nanos {
        A::now()
    }
}

impl<A: Arch> Drop for Sender<A> {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            // A panic of the driver goes no further: the sender's other buffers return, too, and the worker polls again.
            let _ = Panics::default().catch(|| self.reap_deferred());
        }
        // A panic while one part of a batch was handed over leaves the other parts here. They are counted as handed in, and
        // are lost.
        let left: usize = self.parts.iter().map(|&txq| self.split[usize::from(txq)].len()).sum();
        self.dev.count_lost(left as u64);
        self.forget_waker();
        self.counters.settle(&self.cache);
        self.dev.senders.unregister(self.serial);
    }
}
