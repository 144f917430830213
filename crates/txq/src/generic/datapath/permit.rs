//! The permit: single packets and short batches of one sender may bypass an empty queue without further checks.
//!
//! Before a packet bypasses the qdisc ([`bypass`](super::bypass)), its owner checks a dozen conditions: the gate, the
//! waiting packets, the seat, the txq, its room, the qdisc. Only a thread that owns the core changes any of them. So after a
//! bypass that leaves its completion for later (`transfer/defer.rs`), they hold until the core is accessed for
//! anything else, for as many packets as the device may keep until the owner reaps. A turn and a visit end the permit
//! ([`Core::end_permit`]).
//!
//! A part of these conditions holds for any sender: while the core is not accessed for anything else, the qdisc stays empty,
//! and packets bypass it as the last ones of their priority did. So the qdisc is asked again only for another priority or a
//! larger batch ([`Permit::passes`]).
//!
//! The qdisc counts the packets that bypassed it when the permit ends: nothing reads its counters before. Until then the
//! counts stay on the core's own line, and none of the qdisc's moves to the CPU of the next sender.

use std::mem;

use txq_core::arch::Arch;
use txq_core::packet::PacketList;

use crate::generic::datapath::Core;
use crate::generic::datapath::Ctx;

/// The longest batch that a permit covers. The device keeps up to 31 packets before the owner reaps: of longer batches, none
/// after the first would have a permit.
const PERMITTED_BATCH: u8 = 15;

/// Plain data of the core's owner.
#[derive(Debug, Default)]
pub(crate) struct Permit {
    /// Whether the empty qdisc lets single packets of the priority by, and batches of at most `most`.
    open: bool,
    /// The packets of the longest batch known to pass.
    most: u8,
    /// Its bytes.
    most_bytes: u32,
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
    /// Returns whether `batch` is a single packet that the permit covers; if so, takes the packet off it.
    #[inline(always)]
    pub(crate) fn covers<A: Arch>(&mut self, batch: &PacketList<A>, cx: &Ctx<'_, A>) -> bool {
        let single = self.left > 0 && batch.len() == 1 && !cx.is_traced();
        single && self.has_priority(batch) && self.is_of_sender(batch, cx) && self.take(batch)
    }

    /// Returns whether `batch` is of several packets that the permit covers; if so, takes the packets off it.
    #[inline]
    pub(crate) fn covers_batch<A: Arch>(&mut self, batch: &PacketList<A>, cx: &Ctx<'_, A>) -> bool {
        let several = batch.len() > 1 && batch.len() <= self.left as usize && !cx.is_traced();
        several && self.is_of_sender(batch, cx) && self.lets_by_batch(batch) && self.take(batch)
    }

    /// Whether the batch is of the permit's sender, and its latency is not sampled.
    #[inline(always)]
    fn is_of_sender<A: Arch>(&self, batch: &PacketList<A>, cx: &Ctx<'_, A>) -> bool {
        cx.cache.id() == self.sender && cx.cache.is_home_of(batch) && !batch.stamped()
    }

    #[inline(always)]
    fn has_priority<A: Arch>(&self, batch: &PacketList<A>) -> bool {
        batch.front().is_some_and(|packet| packet.priority() == self.priority)
    }

    /// Whether the empty qdisc lets the whole batch by, as it did a longer one.
    #[inline]
    fn lets_by_batch<A: Arch>(&self, batch: &PacketList<A>) -> bool {
        batch.len() <= self.most.into()
            && batch.bytes() <= self.most_bytes.into()
            && batch.iter().all(|packet| packet.priority() == self.priority)
    }

    #[inline(always)]
    fn take<A: Arch>(&mut self, batch: &PacketList<A>) -> bool {
        self.left -= batch.len() as u32;
        self.count(batch);
        true
    }

    /// Returns whether the qdisc need not be asked, because it has let packets like those of `batch` by and is still empty; if
    /// so, counts the packets.
    #[inline]
    fn passes<A: Arch>(&mut self, batch: &PacketList<A>) -> bool {
        let passes = self.open
            && match batch.len() {
                1 => self.has_priority(batch),
                _ => self.lets_by_batch(batch),
            };
        if passes {
            self.count(batch);
        }
        passes
    }

    /// Notes that the empty qdisc has let `batch` by, as it does each packet of the first one's priority.
    #[inline(never)]
    fn note_passed<A: Arch>(&mut self, batch: &PacketList<A>) {
        if let Some(first) = batch.front().filter(|_| batch.len() <= PERMITTED_BATCH.into()) {
            self.open = true;
            self.most = batch.len() as u8;
            self.most_bytes = batch.bytes().min(u32::MAX.into()) as u32;
            self.priority = first.priority();
        }
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
        if passes && qdisc.can_bypass() {
            self.permit.note_passed(batch);
        }
        passes
    }

    /// Permits `packets` more packets of the caller with `priority`; such packets have just bypassed the qdisc, or there is
    /// none.
    pub(crate) fn grant_permit(&mut self, packets: u32, priority: u32, cx: &Ctx<'_, A>) {
        if packets == 0 {
            return;
        }
        if self.qdisc.is_none() {
            (self.permit.most, self.permit.most_bytes) = (PERMITTED_BATCH, u32::MAX);
            self.permit.priority = priority;
        } else if !self.permit.open || self.permit.priority != priority {
            return;
        }
        self.permit.left = packets;
        self.permit.sender = cx.cache.id();
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
