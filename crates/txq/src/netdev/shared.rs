//! What a device's handle, its senders and its workers share.

use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed};

use crossbeam_utils::CachePadded;

use super::Sampling;
use super::senders::Senders;
use super::tree::Tree;
use crate::arch::inside::Entered;
use crate::arch::{Arch, Atomic, Nanos};
use crate::ctx::Ctx;
use crate::driver::DeviceInfo;
use crate::drop::DropReason;
use crate::enqueue::Discipline;
use crate::flow::FlowHasher;
use crate::packet::PacketList;
use crate::pool::Pool;
use crate::run::Core;
use crate::schedule::Schedule;
use crate::stats::contention::ContentionReport;
use crate::stats::device::{DeviceStats, QueueStats};
use crate::steering::Steering;
use crate::sync::contention::{Lock, OwnerRecord, Recorded, Retries, Retry};
use crate::sync::fill::Fill;
use crate::sync::rcu::Rcu;
use crate::sync::spinlock::SpinLock;
use crate::txqueue::{DriverBugHook, TxQueue, Watchdog};

/// A qdisc that senders reach, and the way in (`struct Qdisc` at the root of a `netdev_queue`). On lines of its own.
#[repr(align(128))]
pub(crate) struct Root<A: Arch> {
    pub(crate) index: usize,
    /// The txq that all its packets go to; `None` where it serves all txqs.
    pub(crate) txq: Option<u16>,
    pub(crate) discipline: Box<dyn Discipline<A>>,
    /// Whether senders find room in it. Owners load its word once a turn, and it is written when the queue fills up or a sender
    /// waits.
    pub(crate) fill: Fill<A>,
    /// Packets dropped before the qdisc saw them.
    pub(super) burst_drops: A::AtomicU64,
}

impl<A: Arch> Root<A> {
    /// Drops a batch for which there is no room in front of the qdisc (`qdisc_max_burst`).
    pub(crate) fn drop_burst(&self, batch: &mut PacketList<A>, cx: &mut Ctx<'_, A>) {
        self.burst_drops.fetch_add(batch.len() as u64, Relaxed);
        // Until the owner has emptied the list, which the next turn's end tells.
        self.fill.note_partial(usize::MAX);
        batch.for_each_mut(|p| p.set_drop_reason(DropReason::QdiscBurstDrop));
        cx.cache.free_dropped(batch);
    }

    /// Runs the queue, as a worker does.
    pub(crate) fn run(&self, dev: &Shared<A>, cx: &mut Ctx<'_, A>) {
        let _inside = Entered::<A>::new(dev);
        self.discipline.run(self, cx);
    }

    /// Calls `f` with the core when it has no owner.
    pub(crate) fn with_core(&self, dev: &Shared<A>, mut f: impl FnMut(&mut Core<A>)) {
        self.visit(dev, &mut |core, _| {
            f(core);
            core.note_limit();
        });
    }

    /// Whether nothing is queued, nothing waits for an owner, and there is no owner. Does not wait: senders ask on their way.
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

/// What senders, workers and the handle share.
pub(crate) struct Shared<A: Arch> {
    pub(crate) info: DeviceInfo,
    pub(crate) txqs: Box<[TxQueue<A>]>,
    /// The queues of all rules (`rule.rs`).
    pub(crate) roots: Box<[Root<A>]>,
    /// Which of them are in force. Read at each call, hardly ever written.
    pub(super) rule: CachePadded<A::AtomicU32>,
    /// What is attached where, and the lock of all who change it (the kernel's RTNL).
    pub(super) tree: SpinLock<A, Tree>,
    /// The thread that holds the lock of `tree` ([`Arch::thread`]), 0 for none. Written by that thread, compared by each with
    /// its own number: relaxed.
    pub(super) controller: A::AtomicU64,
    /// Packets dropped on their way to a queue: lost by a panic, and sent in a loop.
    pub(super) lost: CachePadded<A::AtomicU64>,
    pub(super) looped: A::AtomicU64,
    pub(super) worker_deaths: A::AtomicU64,
    /// The inboxes of the workers, and after them those of the completers, one a txq where there are some.
    pub(crate) sched: Box<[Schedule<A>]>,
    /// The worker that looks after each txq.
    pub(super) affinity: Box<[usize]>,
    /// Whether the locks of a txq are taken also where one queue alone feeds it.
    pub(super) tx_lock: bool,
    pub(super) workers: usize,
    /// 1 when the workers have threads of their own; 0 while the program drives them.
    pub(super) has_threads: A::AtomicU32,
    /// How long before a packet's time a worker begins to look at the clock.
    pub(crate) spin: Nanos,
    pub(crate) watchdog: Option<Watchdog>,
    pub(crate) driver_bug_hook: Option<DriverBugHook>,
    pub(crate) steering: Arc<Rcu<A, Steering>>,
    /// For whoever makes a new version of `steering` from the old one.
    pub(super) steer_lock: SpinLock<A, ()>,
    /// How long a choice of txqs may be kept although another is due, 0 for ever (`net.core.txq_reselection_ms`).
    pub(crate) reselection: Nanos,
    pub(crate) hasher: FlowHasher,
    pub(crate) sampling: Sampling,
    /// Whether senders measure their calls of xmit.
    pub(crate) xmit_times: bool,
    pub(super) senders: SpinLock<A, Senders<A>>,
    pub(crate) retries: Retries<A>,
    pub(super) stopping: A::AtomicU32,
    pub(super) created: Nanos,
    /// Last, so that it is dropped after everything that may still hold its packets.
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

    /// The schedule of the worker that looks after a queue: that of its txq, or of txq 0 where it serves all.
    fn sched_of_root(&self, root: usize) -> &Schedule<A> {
        &self.sched[self.affinity[usize::from(self.roots[root].txq.unwrap_or(0))]]
    }

    /// Checks that the caller is not in the data path of this device, which `call` would wait for.
    ///
    /// # Panics
    /// When it is.
    pub(crate) fn assert_outside(&self, call: &str) {
        if self.is_inside() {
            panic!(
                "{call} of device \"{}\" would wait for its own caller: it is called from a driver, qdisc, filter or completion \
                 that works for the device; call it from another thread",
                self.info.name
            );
        }
    }

    /// Whether the calling thread is in the data path of this device.
    pub(crate) fn is_inside(&self) -> bool {
        A::inside(|inside| inside.is_in(self))
    }

    /// Calls `f` in the data path of this device.
    pub(crate) fn inside<R>(&self, f: impl FnOnce() -> R) -> R {
        let _inside = Entered::<A>::new(self);
        f()
    }

    /// Has a queue looked at again: by who has it or is about to, else by a worker (`__netif_schedule`).
    pub(crate) fn schedule(&self, root: usize) {
        if !self.roots[root].discipline.look_again() {
            self.hand_over(root);
        }
    }

    /// Has a worker run a queue.
    pub(crate) fn hand_over(&self, root: usize) {
        self.sched_of_root(root).run(root);
    }

    /// Has a worker run a queue after some time.
    pub(crate) fn retry(&self, root: usize, after: Nanos) {
        self.run_at(root, A::now().saturating_add(after));
    }

    /// Has a worker run a queue at a time (`qdisc_watchdog_schedule_ns`).
    pub(crate) fn run_at(&self, root: usize, at: Nanos) {
        self.sched_of_root(root).run_at(root, at);
    }

    /// What senders wait for room in is another now, or empty: they look again.
    pub(super) fn reset_fill(&self, down: bool) {
        self.roots.iter().for_each(|root| root.fill.reset(down));
    }

    /// Whether the device's workers have threads of their own.
    pub(crate) fn has_threads(&self) -> bool {
        self.has_threads.load(Relaxed) != 0
    }

    /// Whether no packet is on its way through a txq.
    pub(crate) fn is_idle(&self, txq: u16) -> bool {
        let serves = |root: &&Root<A>| root.txq.is_none_or(|t| t == txq);
        let mut roots = self.roots_used().iter().filter(serves);
        roots.all(|root| root.is_idle(self)) && self.txqs[usize::from(txq)].in_flight() == 0
    }

    /// Counts packets that a panic took along on their way to a queue.
    pub(crate) fn count_lost(&self, packets: u64) {
        if packets > 0 {
            self.lost.fetch_add(packets, Relaxed);
        }
    }

    /// Counts that a worker's thread has survived a panic.
    pub(crate) fn count_worker_death(&self) {
        self.worker_deaths.fetch_add(1, Relaxed);
    }

    /// Counts packets that were sent by a driver that they had come from.
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

    /// What was recorded; `None` when it never was.
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

    /// The counters, without the rows of the senders.
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
                // Wrapping: a qdisc may say that it holds any number, and the audit tells.
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
        // After the roots: a sender counts a packet before it hands it in, so none that was taken is missed here. What
        // is in excess is on its way to a qdisc. A packet that goes from one root to another meanwhile may be seen in
        // both, and was taken twice then.
        stats.accepted = self.submitted();
        stats.queued = stats.queued.wrapping_add(stats.accepted).wrapping_sub(taken);
        stats.queues = self.txqs.iter().map(|txq| self.queue_stats(txq)).collect();
        stats.in_flight = stats.queues.iter().map(|q| u64::from(q.in_flight)).sum();
        stats
    }

    fn queue_stats(&self, txq: &TxQueue<A>) -> QueueStats {
        // First: it may find out what a driver did wrong, which the counters tell.
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
