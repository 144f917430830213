//! The FIFO inside pfifo, bfifo and pfifo_fast, with its counters (`qdisc_enqueue_tail`, `qdisc_dequeue_head`).

use txq_core::arch::Arch;
use txq_core::drop::DropReason;
use txq_core::packet::{Packet, PacketList};
use txq_core::stats::QdiscStats;

use crate::qdisc::child::Total;
use crate::qdisc::{Budget, Cx, Verdict};

/// A first-in first-out queue and its counters. A dequeued packet counts as sent, a refused one as dropped.
pub(super) struct Fifo<A: Arch> {
    queue: PacketList<A>,
    stats: QdiscStats,
}

impl<A: Arch> Fifo<A> {
    pub(super) fn new() -> Self {
        Self { queue: PacketList::new(), stats: QdiscStats::default() }
    }

    pub(super) fn len(&self) -> usize {
        self.queue.len()
    }

    pub(super) fn bytes(&self) -> u64 {
        self.queue.bytes()
    }

    pub(super) fn front(&self) -> Option<&Packet<A>> {
        self.queue.front()
    }

    #[inline]
    pub(super) fn push(&mut self, packet: Packet<A>) -> Verdict {
        self.queue.push_back(packet);
        Verdict::Success
    }

    #[inline]
    pub(super) fn push_all(&mut self, packets: &mut PacketList<A>) {
        self.queue.append(packets);
    }

    /// Dequeues packets within the budget, appends them to `out`, counts them as sent and spends the budget.
    #[inline]
    pub(super) fn pop(&mut self, budget: &mut Budget, out: &mut PacketList<A>) {
        let (packets, segs, bytes) = (out.len(), out.segs(), out.bytes());
        self.queue.move_within(budget.packets, budget.bytes, out);
        let moved = out.bytes() - bytes;
        budget.spend(out.len() - packets, moved);
        self.stats.count_sent(out.segs() - segs, moved);
    }

    /// Requeues dequeued packets at the front, in their order, and takes them back from the sent counters. Leaves `packets`
    /// empty.
    pub(super) fn put_back(&mut self, packets: &mut PacketList<A>) {
        self.stats.count_sent(packets.segs().wrapping_neg(), packets.bytes().wrapping_neg());
        packets.append(&mut self.queue);
        self.queue.append(packets);
    }

    /// Drops a packet that was not queued as `QDISC_OVERLIMIT`, counts the drop and returns [`Verdict::Drop`].
    pub(super) fn refuse(&mut self, packet: Packet<A>, cx: &mut Cx<'_, A>) -> Verdict {
        self.stats.drops += 1;
        cx.drop(packet, DropReason::QdiscOverlimit);
        Verdict::Drop
    }

    /// Drops all queued packets as `QUEUE_PURGE`. The counters stay, and none of them counts the purge (`qdisc_reset`).
    pub(super) fn purge(&mut self, cx: &mut Cx<'_, A>) {
        while let Some(packet) = self.queue.pop_front() {
            cx.drop(packet, DropReason::QueuePurge);
        }
    }

    /// Drops the newest packets beyond `len`.
    pub(super) fn trim(&mut self, len: usize, cx: &mut Cx<'_, A>) {
        if self.len() > len {
            let mut kept = PacketList::new();
            self.queue.move_front(len, &mut kept);
            while let Some(packet) = self.queue.pop_front() {
                let _ = self.refuse(packet, cx);
            }
            self.queue = kept;
        }
    }

    pub(super) fn stats(&self) -> QdiscStats {
        QdiscStats { backlog: self.queue.bytes(), qlen: self.queue.len() as u64, ..self.stats }
    }

    #[inline]
    pub(super) fn total(&self) -> Total {
        Total { qlen: self.queue.len(), backlog: self.queue.bytes(), drops: self.stats.drops }
    }

    /// Counts packets that bypassed the queue as sent (`TCQ_F_CAN_BYPASS`).
    #[inline]
    pub(super) fn bypassed(&mut self, packets: u64, bytes: u64) {
        self.stats.count_sent(packets, bytes);
    }
}
