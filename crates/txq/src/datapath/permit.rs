//! The permit: single packets of one sender may bypass an empty queue without further checks.
//!
//! Before a packet bypasses the qdisc ([`bypass`](super::bypass)), its owner checks a dozen conditions: the gate, the
//! waiting packets, the seat, the txq, its room, the qdisc. Only a thread that owns the core changes any of them. So after a
//! bypass that leaves its completion for later (`transfer/defer.rs`), they hold until the core is accessed for
//! anything else, for as many packets as the device may keep until the owner reaps. A turn and a visit end the permit
//! ([`Core::end_permit`]).
//!
//! A part of these conditions holds for any sender: while the core is not accessed for anything else, the qdisc stays empty,
//! and a single packet bypasses it as the last one of its priority did. So the qdisc is asked once ([`Permit::passes`]).
//!
//! The qdisc counts the packets that bypassed it when the permit ends: nothing reads its counters before. Until then the
//! counts stay on the core's own line, and none of the qdisc's moves to the CPU of the next sender.

use std::mem;

use txq_core::arch::Arch;
use txq_core::packet::{Packet, PacketList};

use crate::datapath::Core;
use crate::datapath::Ctx;

/// Plain data of the core's owner.
#[derive(Debug, Default)]
pub(crate) struct Permit {
    /// Whether the empty qdisc lets single packets of the priority by.
    open: bool,
    /// Packets that may still bypass the qdisc without further checks.
    left: u32,
    /// Their priority, and that of the packets that have passed.
    priority: u32,
    /// Their sender ([`Cache::id`](txq_core::pool::Cache::id)).
    sender: usize,
    /// Segments and bytes that have bypassed the qdisc and that it has not counted.
    passed: (u64, u64),
}

impl Permit {
    /// Returns whether the permit covers `batch`; if so, takes one packet off it.
    #[inline(always)]
    pub(crate) fn covers<A: Arch>(&mut self, batch: &PacketList<A>, cx: &Ctx<'_, A>) -> bool {
        let Some(packet) = batch.front().filter(|_| self.left > 0 && batch.len() == 1 && !cx.is_traced())
        else {
            return false;
        };
        let covers = packet.priority() == self.priority
            && cx.cache.id() == self.sender
            && cx.cache.is_home_of(batch)
            && !batch.stamped();
        if covers {
            self.left -= 1;
            self.count(batch);
        }
        covers
    }

    /// Returns whether the qdisc need not be asked, because it has let a packet like the only one of `batch` by and is still
    /// empty; if so, counts the packet.
    #[inline]
    fn passes<A: Arch>(&mut self, batch: &PacketList<A>) -> bool {
        let single = batch.front().filter(|_| self.open && batch.len() == 1);
        let passes = single.is_some_and(|packet| packet.priority() == self.priority);
        if passes {
            self.count(batch);
        }
        passes
    }

    #[inline]
    fn count<A: Arch>(&mut self, batch: &PacketList<A>) {
        self.passed = (self.passed.0 + batch.segs(), self.passed.1 + batch.bytes());
    }

    /// Clears the permit; keeps the count of packets that have bypassed the qdisc.
    #[inline]
    pub(crate) fn withdraw(&mut self) {
        self.open = false;
        self.check_again();
    }

    /// Makes the next packet fulfil all conditions but those of the qdisc.
    #[inline]
    pub(crate) fn check_again(&mut self) {
        // Written only if it changes: most txqs grant no permit.
        if self.left > 0 {
            self.left = 0;
        }
    }
}

impl<A: Arch> Core<A> {
    /// Whether a permit is in force.
    #[inline]
    pub(crate) fn has_permit(&self) -> bool {
        self.permit.left > 0
    }

    /// Returns whether `batch` may bypass the qdisc, as far as the qdisc is concerned; if so, the batch is counted as sent by
    /// it.
    #[inline]
    pub(crate) fn qdisc_lets_by(&mut self, batch: &PacketList<A>) -> bool {
        self.permit.passes(batch) || self.ask_qdisc(batch)
    }

    #[inline(never)]
    fn ask_qdisc(&mut self, batch: &PacketList<A>) -> bool {
        self.end_permit();
        let Some(qdisc) = &mut self.qdisc else { return false };
        let passes = qdisc.bypass(batch);
        if passes && batch.len() == 1 && qdisc.can_bypass() {
            self.permit.open = true;
            self.permit.priority = batch.front().map_or(0, Packet::priority);
        }
        passes
    }

    /// Permits `packets` more single packets of the caller with `priority`; one such packet has just bypassed the qdisc, or
    /// there is none.
    pub(crate) fn grant_permit(&mut self, packets: u32, priority: u32, cx: &Ctx<'_, A>) {
        if packets > 0 && (self.permit.open || self.qdisc.is_none()) {
            (self.permit.left, self.permit.priority) = (packets, priority);
            self.permit.sender = cx.cache.id();
        }
    }

    /// Ends the permit; the qdisc counts the packets that have bypassed it. Every access to the core but a bypass calls this
    /// first.
    #[inline]
    pub(crate) fn end_permit(&mut self) {
        self.permit.withdraw();
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
