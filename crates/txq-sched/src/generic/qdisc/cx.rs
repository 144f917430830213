//! The context of a qdisc's calls: the clock, and where dropped packets go.

use std::fmt;

use txq_core::arch::{Arch, Native};
use txq_core::clock::Clock;
use txq_core::drop::{DropCounts, DropReason};
use txq_core::packet::{Packet, PacketList};

use crate::generic::qdisc::copying::{Copying, Others};

/// The context of a call: the owner of the queue passes it to the qdisc.
pub struct Cx<'a, A: Arch = Native> {
    /// The clock.
    pub clock: &'a mut Clock<A>,
    pub(crate) to_free: &'a mut PacketList<A>,
    pub(crate) drops: &'a mut DropCounts,
    pub(crate) copying: Copying<'a, A>,
    txqs: Option<&'a dyn Txqs>,
}

/// The txqs of a device, for a qdisc that serves several.
#[doc(hidden)]
pub trait Txqs {
    /// Returns whether a txq takes no packets now.
    fn is_stopped(&self, txq: u16) -> bool;
}

impl<A: Arch> fmt::Debug for Cx<'_, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cx").field("clock", &self.clock).field("drops", &self.drops).finish_non_exhaustive()
    }
}

impl<'a, A: Arch> Cx<'a, A> {
    /// Creates a context that collects dropped packets in `to_free` and counts them in `drops`.
    #[doc(hidden)]
    #[inline]
    pub fn new(
        clock: &'a mut Clock<A>,
        to_free: &'a mut PacketList<A>,
        drops: &'a mut DropCounts,
        copying: Copying<'a, A>,
    ) -> Self {
        Self { clock, to_free, drops, copying, txqs: None }
    }

    /// Says which device the qdisc serves all txqs of.
    #[doc(hidden)]
    #[inline]
    pub fn set_txqs(&mut self, txqs: &'a dyn Txqs) {
        self.txqs = Some(txqs);
    }

    /// Returns whether a txq of the device takes no packets now; false without a device.
    pub(crate) fn is_stopped(&self, txq: u16) -> bool {
        self.txqs.is_some_and(|txqs| txqs.is_stopped(txq))
    }

    /// Returns the number of dropped packets that wait to be freed.
    #[doc(hidden)]
    #[inline]
    pub fn to_free(&self) -> usize {
        self.to_free.len()
    }

    /// Says which other qdiscs of the tree make copies of packets.
    #[doc(hidden)]
    pub fn set_others(&mut self, others: Others) {
        self.copying.others = others;
    }

    /// As [`drop`](Cx::drop), for a packet that carries the time at which it was queued.
    pub(crate) fn drop_queued(&mut self, mut packet: Packet<A>, reason: DropReason) {
        packet.take_queued();
        self.drop(packet, reason);
    }

    /// Drops a packet: counts `reason` at once, and frees the packet after the owner has released every lock.
    pub fn drop(&mut self, mut packet: Packet<A>, reason: DropReason) {
        packet.restore_len();
        packet.set_drop_reason(reason);
        self.drops.add(reason, 1);
        self.to_free.push_back(packet);
    }
}
