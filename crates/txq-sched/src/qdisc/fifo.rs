//! A first-in first-out queue, for a qdisc of a program's own.

use std::fmt;

use txq_core::stats::QdiscStats;

use crate::generic::qdisc as generic;
use crate::packet::{Packet, PacketList};
use crate::qdisc::{Budget, Cx, Verdict};

/// A first-in first-out queue and its counters. A dequeued packet counts as sent, a refused one as dropped.
#[derive(Default)]
pub struct Fifo(generic::Fifo);

impl Fifo {
    /// Creates an empty queue.
    pub fn new() -> Self {
        Self(generic::Fifo::new())
    }

    /// Returns the number of packets queued.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns whether no packet is queued.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the number of bytes queued.
    pub fn bytes(&self) -> u64 {
        self.0.bytes()
    }

    /// Returns the first packet.
    pub fn front(&self) -> Option<&Packet> {
        self.0.front().map(Packet::from_ref)
    }

    /// Queues a packet, and returns [`Verdict::Success`].
    #[inline]
    pub fn push(&mut self, packet: Packet) -> Verdict {
        self.0.push(packet.0)
    }

    /// Queues all of `packets`, and leaves it empty.
    #[inline]
    pub fn push_all(&mut self, packets: &mut PacketList) {
        self.0.push_all(&mut packets.0);
    }

    /// Dequeues packets within the budget, appends them to `out`, counts them as sent and spends the budget.
    #[inline]
    pub fn pop(&mut self, budget: &mut Budget, out: &mut PacketList) {
        self.0.pop(budget, &mut out.0);
    }

    /// Requeues dequeued packets at the front, in their order, and takes them back from the sent counters. Leaves `packets`
    /// empty.
    pub fn put_back(&mut self, packets: &mut PacketList) {
        self.0.put_back(&mut packets.0);
    }

    /// Drops a packet that was not queued as `QDISC_OVERLIMIT`, counts the drop and returns [`Verdict::Drop`].
    pub fn refuse(&mut self, packet: Packet, cx: &mut Cx<'_>) -> Verdict {
        self.0.refuse(packet.0, &mut cx.0)
    }

    /// Drops all queued packets as `QUEUE_PURGE`. The counters stay, and none of them counts the purge (`qdisc_reset`).
    pub fn purge(&mut self, cx: &mut Cx<'_>) {
        self.0.purge(&mut cx.0);
    }

    /// Counts packets that bypassed the queue as sent (`TCQ_F_CAN_BYPASS`).
    #[inline]
    pub fn bypassed(&mut self, packets: u64, bytes: u64) {
        self.0.bypassed(packets, bytes);
    }

    /// Returns the counters, with `backlog` and `qlen`.
    pub fn stats(&self) -> QdiscStats {
        self.0.stats()
    }
}

impl fmt::Debug for Fifo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
