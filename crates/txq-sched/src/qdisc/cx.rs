//! The context of a call to a qdisc.

use std::fmt;

use txq_core::arch::Native;
use txq_core::drop::DropReason;

use crate::Instant;
use crate::generic::qdisc as generic;
use crate::packet::Packet;

/// The context of a call: the owner of the queue passes it to the qdisc.
#[repr(transparent)]
pub struct Cx<'a>(#[doc(hidden)] pub generic::Cx<'a, Native>);

txq_core::transparent!(pub Cx<'a>, generic::Cx<'a, Native>, 'a);

impl Cx<'_> {
    /// Returns the time of the batch.
    #[inline]
    pub fn now(&mut self) -> Instant {
        Instant::from_nanos(self.0.clock.now())
    }

    /// Drops a packet: counts `reason` at once, and frees the packet after the owner has released every lock.
    pub fn drop(&mut self, packet: Packet, reason: DropReason) {
        self.0.drop(packet.0, reason);
    }

    /// Copies a packet. The owner enqueues the copy at the root of the tree after this call. Returns false, without a copy,
    /// if `packet` is a copy itself or if there is no buffer; a missing buffer is counted as a drop (`NOMEM`).
    pub fn duplicate(&mut self, packet: &Packet) -> bool {
        self.0.duplicate(&packet.0)
    }
}

impl fmt::Debug for Cx<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
