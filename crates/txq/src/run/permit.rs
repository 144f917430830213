//! A permit: single packets that may go past an empty queue without a further look.
//!
//! Before a packet bypasses the qdisc ([`bypass`](super::bypass)) a dozen conditions are looked at: the gate, what waits, the
//! seat, the txq, its room, the qdisc. Each changes only by a thread that has the core. So after a bypass that leaves its
//! completion for later ([`defer`](crate::txqueue)) they hold until the core is accessed for anything else, for as many packets
//! as the device may keep until the owner reaps. A turn and a visit end the permit ([`Core::end_permit`]).
//!
//! The qdisc counts the packets that went past it when the permit ends: nothing reads its counters before.

use std::mem;

use crate::arch::Arch;
use crate::ctx::Ctx;
use crate::packet::PacketList;
use crate::run::Core;

/// Plain data of the core's owner.
#[derive(Debug, Default)]
pub(super) struct Permit {
    /// Packets that may pass.
    left: u32,
    /// Their priority.
    priority: u32,
    /// Their sender ([`Cache::id`](crate::pool::Cache::id)).
    sender: usize,
    /// Segments and bytes that have passed and that the qdisc has not counted.
    passed: (u64, u64),
}

impl Permit {
    /// Spends the permit on `batch`; returns whether it covers that.
    #[inline(always)]
    pub(super) fn covers<A: Arch>(&mut self, batch: &PacketList<A>, cx: &Ctx<'_, A>) -> bool {
        let Some(packet) = batch.front().filter(|_| self.left > 0 && batch.len() == 1) else { return false };
        let covers = packet.priority() == self.priority
            && cx.cache.id() == self.sender
            && cx.cache.is_home_of(batch)
            && !batch.stamped();
        if covers {
            self.left -= 1;
            self.passed = (self.passed.0 + batch.segs(), self.passed.1 + batch.bytes());
        }
        covers
    }

    /// Lets nothing pass any more.
    #[inline]
    pub(super) fn withdraw(&mut self) {
        self.left = 0;
    }
}

impl<A: Arch> Core<A> {
    /// Whether packets may pass without a further look.
    #[inline]
    pub(crate) fn has_permit(&self) -> bool {
        self.permit.left > 0
    }

    /// Permits `packets` of the caller and of a priority to pass, where a single packet of it has just passed.
    pub(super) fn grant_permit(&mut self, packets: u32, priority: u32, cx: &Ctx<'_, A>) {
        if packets > 0 && self.qdisc.as_ref().is_none_or(|qdisc| qdisc.can_bypass()) {
            (self.permit.left, self.permit.priority) = (packets, priority);
            self.permit.sender = cx.cache.id();
        }
    }

    /// Ends the permit, and has the qdisc count what has passed. For whoever accesses the core for anything but a bypass.
    #[inline]
    pub(crate) fn end_permit(&mut self) {
        self.permit.left = 0;
        if self.permit.passed.0 > 0 {
            self.count_passed();
        }
    }

    #[cold]
    fn count_passed(&mut self) {
        let (segs, bytes) = mem::take(&mut self.permit.passed);
        if let Some(qdisc) = &mut self.qdisc {
            qdisc.bypassed_by(self.permit.priority, segs, bytes);
        }
    }
}
