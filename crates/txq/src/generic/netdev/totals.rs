//! The counters of a whole device.

use std::sync::atomic::Ordering::Acquire;

use txq_core::arch::{Arch, Atomic};
use txq_core::drop::DropReason;

use crate::generic::shared::Shared;
use crate::generic::stats::device::{DeviceStats, QueueStats};
use crate::generic::txqueue::TxQueue;

impl<A: Arch> Shared<A> {
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
                stats.hand_offs += c.hand_offs;
                // Wrapping: a qdisc may report any number of packets; the audit reports a wrong one.
                stats.queued = stats.queued.wrapping_add(c.held).wrapping_add(c.in_driver);
            });
            let burst = root.burst_drops.load(Acquire);
            taken += burst;
            stats.dropped.add(DropReason::QdiscBurstDrop, burst);
        }
        let lost = [
            (DropReason::NotSpecified, &*self.lost),
            (DropReason::RecursionLimit, &self.looped),
            (DropReason::TcEgress, &self.hooks.dropped),
        ];
        for (reason, count) in lost {
            let n = count.load(Acquire);
            taken += n;
            stats.dropped.add(reason, n);
        }
        // After the roots: a sender counts a packet before it hands the packet in, so no packet that was taken is missed
        // here. The excess is on its way to a qdisc. A packet that moves from one root to another meanwhile may be seen in
        // both; it was then also taken twice.
        stats.accepted = self.senders.submitted();
        stats.queued = stats.queued.wrapping_add(stats.accepted).wrapping_sub(taken);
        stats.queues = self.txqs.iter().map(|txq| self.queue_stats(txq)).collect();
        stats.handed_on = stats.queues.iter().map(|q| q.counters.handed_on).sum();
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
