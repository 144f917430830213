//! What a device's handle, its senders and its workers share.

use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed};

use super::Sampling;
use crate::arch::{Arch, Atomic, Nanos};
use crate::driver::DeviceInfo;
use crate::drop::DropReason;
use crate::enqueue::Discipline;
use crate::flow::FlowHasher;
use crate::pool::Pool;
use crate::qdisc::{Env, Parent};
use crate::schedule::Schedule;
use crate::sender::SenderCounters;
use crate::stats::device::{DeviceStats, QueueStats};
use crate::steering::Steering;
use crate::sync::rcu::Rcu;
use crate::sync::spinlock::SpinLock;
use crate::tc::Handle;
use crate::txqueue::TxQueue;

/// A qdisc that senders reach, and the way in (`struct Qdisc` at the root of a `netdev_queue`).
pub(crate) struct Root<A: Arch> {
    pub(crate) index: usize,
    /// The txq that all its packets go to; `None` where it serves all txqs.
    pub(crate) txq: Option<u16>,
    pub(crate) kind: &'static str,
    pub(crate) handle: Handle,
    pub(crate) parent: Handle,
    pub(crate) discipline: Box<dyn Discipline<A>>,
    /// Packets dropped before the qdisc saw them.
    pub(super) burst_drops: A::AtomicU64,
}

impl<A: Arch> Root<A> {
    pub(crate) fn count_burst_drops(&self, packets: u32) {
        self.burst_drops.fetch_add(packets.into(), Relaxed);
    }
}

/// What senders, workers and the handle share.
pub(crate) struct Shared<A: Arch> {
    pub(crate) info: DeviceInfo,
    pub(crate) env: Env,
    pub(crate) txqs: Box<[TxQueue<A>]>,
    pub(crate) roots: Box<[Root<A>]>,
    /// The mq or mqprio above the roots, if there is one.
    pub(super) mq: Option<(Handle, Parent)>,
    pub(crate) sched: Box<[Schedule<A>]>,
    pub(crate) steering: Arc<Rcu<A, Steering>>,
    /// For whoever makes a new version of `steering` from the old one.
    pub(super) steer_lock: SpinLock<A, ()>,
    /// How long a choice of txqs may be kept although another is due, 0 for ever (`net.core.txq_reselection_ms`).
    pub(crate) reselection: Nanos,
    pub(crate) hasher: FlowHasher,
    pub(crate) sampling: Sampling,
    pub(super) senders: SpinLock<A, Senders<A>>,
    pub(super) stopping: A::AtomicU32,
    pub(super) created: Nanos,
    /// Last, so that it is dropped after everything that may still hold its packets.
    pub(crate) pool: Pool<A>,
}

pub(super) struct Senders<A: Arch> {
    pub(super) alive: Vec<Arc<SenderCounters<A>>>,
    /// What those that are gone had handed in.
    pub(super) gone: u64,
}

impl<A: Arch> Shared<A> {
    /// The root that a txq's packets enter.
    #[inline]
    pub(crate) fn root_of(&self, txq: u16) -> usize {
        // Either one root for all, or one for each.
        usize::from(txq).min(self.roots.len() - 1)
    }

    /// The schedule of the worker that looks after a txq.
    pub(crate) fn sched_of(&self, txq: u16) -> &Schedule<A> {
        &self.sched[usize::from(txq) % self.sched.len()]
    }

    fn sched_of_root(&self, root: usize) -> &Schedule<A> {
        &self.sched[root % self.sched.len()]
    }

    /// Has a worker run a queue.
    pub(crate) fn schedule(&self, root: usize) {
        self.sched_of_root(root).run(root);
    }

    /// Has a worker run a queue after some time.
    pub(crate) fn retry(&self, root: usize, after: Nanos) {
        self.sched_of_root(root).run_at(root, A::now().saturating_add(after));
    }

    /// Whether no packet is on its way through a txq.
    pub(crate) fn is_idle(&self, txq: u16) -> bool {
        self.roots[self.root_of(txq)].discipline.is_idle() && self.txqs[usize::from(txq)].in_flight() == 0
    }

    pub(crate) fn register(&self, counters: &Arc<SenderCounters<A>>) {
        self.senders.with(|held| held.data().alive.push(counters.clone()));
    }

    pub(crate) fn unregister(&self, counters: &Arc<SenderCounters<A>>) {
        self.senders.with(|held| {
            let senders = held.data();
            senders.alive.retain(|c| !Arc::ptr_eq(c, counters));
            senders.gone += counters.submitted.load(Relaxed);
        });
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Acquire) != 0
    }

    /// Packets handed in by all senders there ever were.
    fn submitted(&self) -> u64 {
        self.senders.with(|held| {
            let senders = held.data();
            senders.gone + senders.alive.iter().map(|c| c.submitted.load(Relaxed)).sum::<u64>()
        })
    }

    pub(super) fn stats(&self) -> DeviceStats {
        let mut stats = DeviceStats::default();
        let mut taken = 0;
        for root in &self.roots {
            root.discipline.with_core(&mut |core| {
                let c = core.counters();
                taken += c.taken;
                stats.sent += c.sent;
                stats.bytes_sent += c.sent_bytes;
                stats.dropped.merge(&c.drops);
                stats.requeues += c.requeues;
                stats.queued += c.held + c.in_driver;
            });
            let burst = root.burst_drops.load(Acquire);
            taken += burst;
            stats.dropped.add(DropReason::QdiscBurstDrop, burst);
        }
        // After the roots: a sender counts a packet before it hands it in, so none that was taken is missed here. What
        // is in excess is on its way to a qdisc.
        stats.accepted = self.submitted();
        stats.queued += stats.accepted - taken;
        stats.queues = self.txqs.iter().map(|txq| self.queue_stats(txq)).collect();
        stats.in_flight = stats.queues.iter().map(|q| u64::from(q.in_flight)).sum();
        stats
    }

    fn queue_stats(&self, txq: &TxQueue<A>) -> QueueStats {
        QueueStats {
            txq: txq.index,
            counters: txq.counters(),
            in_flight: txq.in_flight(),
            stopped: txq.stopped(),
        }
    }
}
