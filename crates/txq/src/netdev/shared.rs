//! The state that a device's handle, its senders and its workers share.

use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed};

use crossbeam_utils::CachePadded;

use txq_core::arch::inside::Entered;
use txq_core::arch::{Arch, Atomic, Nanos};
use txq_core::drop::DropReason;
use txq_core::flow::FlowHasher;
use txq_core::packet::PacketList;
use txq_core::pool::Pool;
use txq_core::stats::contention::ContentionReport;
use txq_core::sync::contention::{Lock, Recorded, Retries, Retry};
use txq_core::sync::fill::Fill;
use txq_core::sync::rcu::Rcu;
use txq_core::sync::spinlock::SpinLock;

use super::Sampling;
use super::senders::Senders;
use super::tree::Tree;
use crate::ctx::Ctx;
use crate::driver::DeviceInfo;
use crate::enqueue::Discipline;
use crate::run::Core;
use crate::run::owners::OwnerRecord;
use crate::schedule::Schedule;
use crate::stats::device::{DeviceStats, QueueStats};
use crate::steering::Steering;
use crate::txqueue::{DriverBugHook, TxQueue, Watchdog};

/// One queue: a qdisc and the discipline through which senders enter it (`struct Qdisc` at the root of a `netdev_queue`). On
/// lines of its own.
#[repr(align(128))]
pub(crate) struct Root<A: Arch> {
    pub(crate) index: usize,
    /// The txq of all its packets; `None` if it serves all txqs.
    pub(crate) txq: Option<u16>,
    pub(crate) discipline: Box<dyn Discipline<A>>,
    /// Whether senders find room in it. An owner loads its word once a turn. The word is written when the queue fills up or
    /// a sender waits.
    pub(crate) fill: Fill<A>,
    /// Packets dropped because the list in front of the qdisc was full. Added by any sender (Relaxed), read by `totals`.
    pub(super) burst_drops: A::AtomicU64,
}

impl<A: Arch> Root<A> {
    /// Drops a batch because the list in front of the qdisc has no room (`qdisc_max_burst`).
    pub(crate) fn drop_burst(&self, batch: &mut PacketList<A>, cx: &mut Ctx<'_, A>) {
        self.burst_drops.fetch_add(batch.len() as u64, Relaxed);
        // The queue is partly full until the owner's next turn ends: that turn empties the list.
        self.fill.note_partial(usize::MAX);
        batch.for_each_mut(|p| p.set_drop_reason(DropReason::QdiscBurstDrop));
        cx.cache.free_dropped(batch);
    }

    /// Runs the queue, as a worker does.
    pub(crate) fn run(&self, dev: &Shared<A>, cx: &mut Ctx<'_, A>) {
        let _inside = Entered::<A>::new(dev);
        self.discipline.run(self, cx);
    }

    /// Waits until the core has no owner, and calls `f` with it.
    pub(crate) fn with_core(&self, dev: &Shared<A>, mut f: impl FnMut(&mut Core<A>)) {
        self.visit(dev, &mut |core, _| {
            f(core);
            core.note_limit();
        });
    }

    /// Returns whether nothing is queued, nothing waits for an owner, and there is no owner. Does not wait, since senders
    /// call it on their way.
    pub(crate) fn is_idle(&self, dev: &Shared<A>) -> bool {
        let mut idle = false;
        if self.discipline.try_visit(&mut |core, waiting| idle = core.is_idle() && !waiting) == Some(false) {
            dev.hand_over(self.index);
        }
        idle
    }

    fn visit(&self, dev: &Shared<A>, f: &mut dyn FnMut(&mut Core<A>, bool)) {
        let _inside = Entered::<A>::new(dev);
        let f = &mut |core: &mut Core<A>, waiting| {
            core.end_permit();
            f(core, waiting);
        };
        if !self.discipline.visit(f) {
            dev.hand_over(self.index);
        }
    }
}

/// The state that senders, workers and the handle share.
pub(crate) struct Shared<A: Arch> {
    pub(crate) info: DeviceInfo,
    pub(crate) txqs: Box<[TxQueue<A>]>,
    /// The queues of all rules (`rule.rs`).
    pub(crate) roots: Box<[Root<A>]>,
    /// The rule in force ([`Rule`](super::Rule)). Read at each call of xmit (Acquire), stored by a control operation after
    /// it has opened the queues of the new rule (Release).
    pub(super) rule: CachePadded<A::AtomicU32>,
    /// The qdiscs that are attached, and the lock of all control operations (the kernel's RTNL).
    pub(super) tree: SpinLock<A, Tree>,
    /// The thread that holds the lock of `tree` ([`Arch::thread`]), 0 for none. Only that thread writes its own number and
    /// clears it, and each thread compares it with its own number only, so all accesses are relaxed.
    pub(super) controller: A::AtomicU64,
    /// Packets dropped on their way to a queue: `lost` by a panic, `looped` because drivers sent them in a circle.
    pub(super) lost: CachePadded<A::AtomicU64>,
    pub(super) looped: A::AtomicU64,
    pub(super) worker_deaths: A::AtomicU64,
    /// The inboxes of the workers, followed by those of the completers, one for each txq, if there are completers.
    pub(crate) sched: Box<[Schedule<A>]>,
    /// The worker of each txq.
    pub(super) affinity: Box<[usize]>,
    /// Whether the locks of a txq are taken also if one queue alone feeds it.
    pub(super) tx_lock: bool,
    pub(super) workers: usize,
    /// 1 when the workers have threads of their own; 0 while the program drives them.
    pub(super) has_threads: A::AtomicU32,
    /// How long before a packet's time a worker begins to poll the clock.
    pub(crate) spin: Nanos,
    pub(crate) watchdog: Option<Watchdog>,
    pub(crate) driver_bug_hook: Option<DriverBugHook>,
    pub(crate) steering: Arc<Rcu<A, Steering>>,
    /// Held while a new version of `steering` is made from the old one.
    pub(super) steer_lock: SpinLock<A, ()>,
    /// How long a choice of txqs may be kept although another is due; 0 for ever (`net.core.txq_reselection_ms`).
    pub(crate) reselection: Nanos,
    pub(crate) hasher: FlowHasher,
    pub(crate) sampling: Sampling,
    /// Whether senders measure their calls of xmit.
    pub(crate) xmit_times: bool,
    pub(super) senders: SpinLock<A, Senders<A>>,
    pub(crate) retries: Retries<A>,
    pub(super) stopping: A::AtomicU32,
    pub(super) created: Nanos,
    /// The last field, so that it is dropped after all fields that may still hold its packets.
    pub(crate) pool: Pool<A>,
}

impl<A: Arch> Shared<A> {
    /// Names its lines ([`Arch::name`]).
    pub(super) fn name_lines(&self) {
        A::name(self, "device: setup");
        A::name(&self.rule, "device: which queues are in force");
        A::name(&self.lost, "device: counters");
        A::name(&*self.steering, "device: steering map");
        self.retries.name_lines("device: failed attempts");
        for root in &self.roots {
            A::name(root, "queue: setup");
            root.discipline.name_lines();
        }
        self.txqs.iter().for_each(TxQueue::name_lines);
        let who = (0..).map(|index| if index < self.workers { "softirq" } else { "interrupt" });
        self.sched.iter().zip(who).for_each(|(sched, who)| sched.name_lines(who));
    }

    /// Returns the schedule of the worker of a queue: the worker of its txq, or of txq 0 if it serves all txqs.
    fn sched_of_root(&self, root: usize) -> &Schedule<A> {
        &self.sched[self.affinity[usize::from(self.roots[root].txq.unwrap_or(0))]]
    }

    /// Checks that the caller is outside the data path of this device. Inside it, `call` would wait for its own caller.
    ///
    /// # Panics
    /// When the caller is inside.
    pub(crate) fn assert_outside(&self, call: &str) {
        if self.is_inside() {
            panic!(
                "{call} of device \"{}\" would wait for its own caller: it is called from a driver, qdisc, filter or completion \
                 that works for the device; call it from another thread",
                self.info.name
            );
        }
    }

    /// Returns whether the calling thread is inside the data path of this device.
    pub(crate) fn is_inside(&self) -> bool {
        A::inside(|inside| inside.is_in(self))
    }

    /// Calls `f` inside the data path of this device.
    pub(crate) fn inside<R>(&self, f: impl FnOnce() -> R) -> R {
        let _inside = Entered::<A>::new(self);
        f()
    }

    /// Makes the owner of a queue look at it again, or the thread that is about to own it; if there is none, a worker
    /// (`__netif_schedule`).
    pub(crate) fn schedule(&self, root: usize) {
        if !self.roots[root].discipline.look_again() {
            self.hand_over(root);
        }
    }

    /// Makes a worker run a queue.
    pub(crate) fn hand_over(&self, root: usize) {
        self.sched_of_root(root).run(root);
    }

    /// Makes a worker run a queue after some time.
    pub(crate) fn retry(&self, root: usize, after: Nanos) {
        self.run_at(root, A::now().saturating_add(after));
    }

    /// Makes a worker run a queue at a time (`qdisc_watchdog_schedule_ns`).
    pub(crate) fn run_at(&self, root: usize, at: Nanos) {
        self.sched_of_root(root).run_at(root, at);
    }

    /// Wakes the senders that wait for room, because their queue was replaced or emptied: they look again.
    pub(super) fn reset_fill(&self, down: bool) {
        self.roots.iter().for_each(|root| root.fill.reset(down));
    }

    /// Returns whether the device's workers have threads of their own.
    pub(crate) fn has_threads(&self) -> bool {
        self.has_threads.load(Relaxed) != 0
    }

    /// Returns whether no packet is on its way through a txq.
    pub(crate) fn is_idle(&self, txq: u16) -> bool {
        let serves = |root: &&Root<A>| root.txq.is_none_or(|t| t == txq);
        let mut roots = self.roots_used().iter().filter(serves);
        roots.all(|root| root.is_idle(self)) && self.txqs[usize::from(txq)].in_flight() == 0
    }

    /// Counts packets that a panic lost on their way to a queue.
    pub(crate) fn count_lost(&self, packets: u64) {
        if packets > 0 {
            self.lost.fetch_add(packets, Relaxed);
        }
    }

    /// Counts a panic that a worker's thread has survived.
    pub(crate) fn count_worker_death(&self) {
        self.worker_deaths.fetch_add(1, Relaxed);
    }

    /// Counts packets that drivers sent in a circle.
    pub(crate) fn count_looped(&self, packets: u64) {
        self.looped.fetch_add(packets, Relaxed);
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Acquire) != 0
    }

    /// Calls `f` with each lock of the data path.
    fn locks(&self, f: &mut dyn FnMut(Lock, &dyn Recorded)) {
        self.roots.iter().for_each(|root| root.discipline.locks(f));
        self.txqs.iter().for_each(|txq| txq.locks(f));
    }

    pub(super) fn set_contention(&self, on: bool) {
        self.locks(&mut |_, lock| lock.set_recording(on));
        for root in &self.roots {
            let mut fresh = on.then(Box::<OwnerRecord>::default);
            root.with_core(self, |core| core.set_recording(&mut fresh));
        }
        self.retries.set(on);
        self.pool.retries().set(on);
    }

    /// Returns the recorded contention; `None` if recording was never on.
    pub(super) fn contention(&self) -> Option<ContentionReport> {
        let mut report = ContentionReport::default();
        let mut recorded = false;
        self.locks(&mut |kind, lock| recorded |= lock.report(kind, &mut report));
        for root in &self.roots {
            root.with_core(self, |core| {
                if let Some(record) = &core.record {
                    report.drained.merge(&record.drained);
                    report.hand_offs.merge(record.hand_offs);
                }
            });
        }
        for retry in Retry::ALL {
            report.retries[retry as usize] = self.retries.count(retry) + self.pool.retries().count(retry);
        }
        recorded.then_some(report)
    }

    /// Returns the counters, without the rows of the senders.
    pub(super) fn totals(&self) -> DeviceStats {
        let mut stats = DeviceStats::default();
        let mut taken = 0;
        for root in self.roots_used() {
            root.with_core(self, |core| {
                let c = core.counters();
                taken += c.taken;
                stats.created += c.created;
                stats.sent += c.sent;
                stats.bytes_sent += c.sent_bytes;
                stats.dropped.merge(&c.drops);
                stats.requeues += c.requeues;
                // Wrapping: a qdisc may report any number of packets; the audit reports a wrong one.
                stats.queued = stats.queued.wrapping_add(c.held).wrapping_add(c.in_driver);
            });
            let burst = root.burst_drops.load(Acquire);
            taken += burst;
            stats.dropped.add(DropReason::QdiscBurstDrop, burst);
        }
        let lost = [(DropReason::NotSpecified, &*self.lost), (DropReason::RecursionLimit, &self.looped)];
        for (reason, count) in lost {
            let n = count.load(Acquire);
            taken += n;
            stats.dropped.add(reason, n);
        }
        // After the roots: a sender counts a packet before it hands the packet in, so no packet that was taken is missed
        // here. The excess is on its way to a qdisc. A packet that moves from one root to another meanwhile may be seen in
        // both; it was then also taken twice.
        stats.accepted = self.submitted();
        stats.queued = stats.queued.wrapping_add(stats.accepted).wrapping_sub(taken);
        stats.queues = self.txqs.iter().map(|txq| self.queue_stats(txq)).collect();
        stats.in_flight = stats.queues.iter().map(|q| u64::from(q.in_flight)).sum();
        stats
    }

    fn queue_stats(&self, txq: &TxQueue<A>) -> QueueStats {
        // First, because it may detect driver bugs, which the counters include.
        let bql = self.settle(txq);
        QueueStats {
            txq: txq.index,
            counters: txq.counters(),
            in_flight: txq.in_flight(),
            stopped: txq.stopped(),
            bql,
        }
    }
}
