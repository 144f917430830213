//! [`Fifo`]: the queue inside pfifo, bfifo and pfifo_fast, with its counters (`qdisc_enqueue_tail`, `qdisc_dequeue_head`).

use std::fmt;

use txq_core::arch::{Arch, Native};
use txq_core::drop::DropReason;
use txq_core::packet::{Packet, PacketList};
use txq_core::stats::QdiscStats;

use crate::generic::qdisc::child::Total;
use crate::generic::qdisc::{Budget, Cx, Verdict};

/// A first-in first-out queue and its counters. A dequeued packet counts as sent, a refused one as dropped. Most qdiscs hold
/// their packets in such queues.
pub struct Fifo<A: Arch = Native> {
    queue: PacketList<A>,
    stats: QdiscStats,
}

impl<A: Arch> fmt::Debug for Fifo<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fifo").field("len", &self.len()).field("bytes", &self.bytes()).finish_non_exhaustive()
    }
}

impl<A: Arch> Fifo<A> {
    /// Creates an empty queue.
    pub fn new() -> Self {
        Self { queue: PacketList::new(), stats: QdiscStats::default() }
    }

    /// Returns the number of packets queued.
    pub fn len(&self) -> usize {
        self.queue.len()
    }

    /// Returns whether no packet is queued.
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Returns the number of bytes queued.
    pub fn bytes(&self) -> u64 {
        self.queue.bytes()
    }

    /// Returns the first packet.
    pub fn front(&self) -> Option<&Packet<A>> {
        self.queue.front()
    }

    /// Queues a packet, and returns [`Verdict::Success`].
    #[inline]
    pub fn push(&mut self, packet: Packet<A>) -> Verdict {
        self.queue.push_back(packet);
        Verdict::Success
    }

    /// Queues all of `packets`, and leaves it empty.
    #[inline]
    pub fn push_all(&mut self, packets: &mut PacketList<A>) {
        self.queue.append(packets);
    }

    /// Dequeues packets within the budget, appends them to `out`, counts them as sent and spends the budget.
    #[inline]
    pub fn pop(&mut self, budget: &mut Budget, out: &mut PacketList<A>) {
        let (packets, segs, bytes) = (out.len(), out.segs(), out.bytes());
        self.queue.move_within(budget.packets, budget.bytes, out);
        let moved = out.bytes() - bytes;
        budget.spend(out.len() - packets, moved);
        self.stats.count_sent(out.segs() - segs, moved);
    }

    /// Requeues dequeued packets at the front, in their order, and takes them back from the sent counters. Leaves `packets`
    /// empty.
    pub fn put_back(&mut self, packets: &mut PacketList<A>) {
        self.stats.count_sent(packets.segs().wrapping_neg(), packets.bytes().wrapping_neg());
        packets.append(&mut self.queue);
        self.queue.append(packets);
    }

    /// Drops a packet that was not queued as `QDISC_OVERLIMIT`, counts the drop and returns [`Verdict::Drop`].
    pub fn refuse(&mut self, packet: Packet<A>, cx: &mut Cx<'_, A>) -> Verdict {
        self.stats.drops += 1;
        cx.drop(packet, DropReason::QdiscOverlimit);
        Verdict::Drop
    }

    /// Drops all queued packets as `QUEUE_PURGE`. The counters stay, and none of them counts the purge (`qdisc_reset`).
    pub fn purge(&mut self, cx: &mut Cx<'_, A>) {
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

    /// Returns the counters, with `backlog` and `qlen`.
    pub fn stats(&self) -> QdiscStats {
        QdiscStats { backlog: self.queue.bytes(), qlen: self.queue.len() as u64, ..self.stats }
    }

    #[inline]
    pub(super) fn total(&self) -> Total {
        Total { qlen: self.queue.len(), backlog: self.queue.bytes(), drops: self.stats.drops }
    }

    /// Counts packets that bypassed the queue as sent (`TCQ_F_CAN_BYPASS`).
    #[inline]
    pub fn bypassed(&mut self, packets: u64, bytes: u64) {
        self.stats.count_sent(packets, bytes);
    }
}

impl<A: Arch> Default for Fifo<A> {
    fn default() -> Self {
        Self::new()
    }
}
