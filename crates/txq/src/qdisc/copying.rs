//! Copies of packets: netem's `duplicate`; and of their parts: the segments of a GSO packet (`segment.rs`).
//!
//! A qdisc that has a packet copied keeps the packet and leaves the copy with its caller ([`Cx::duplicate`]). When the call
//! is over, whoever owns the queue hands the copy to the root of the tree ([`Cx::enqueue_copies`]), so that all
//! qdiscs above count it as they count any packet. The kernel enqueues at the root in the middle of the call, which has
//! confused the counts of many a parent. As there, a copy is not copied again. And as there (since 6.16), a qdisc
//! that copies must be the only one of its tree that could ([`Others`]): others would copy what it has
//! copied.
//!
//! A copy is a packet of its own, with a buffer from the stock of whoever runs the queue. Its credit is nobody's: no
//! sender's limit is charged for it, and it is on no flow's count of what is outstanding. Its latency is not sampled. It is
//! counted as created ([`DeviceStats::created`](crate::stats::device::DeviceStats::created)). One that there is no buffer for
//! is counted as created, and as dropped with the reason `NOMEM`.

use std::ops::Range;

use crate::arch::Arch;
use crate::drop::DropReason;
use crate::packet::{Packet, PacketList};
use crate::pool::Cache;
use crate::qdisc::{Cx, Qdisc};
use crate::tc::{Handle, ParseError};

/// What it takes to copy packets.
pub(crate) struct Copying<'a, A: Arch> {
    cache: &'a mut Cache<A>,
    copies: &'a mut PacketList<A>,
    created: &'a mut u64,
    /// What is enqueued now is a copy.
    at_root: bool,
    pub(crate) others: Others,
}

impl<'a, A: Arch> Copying<'a, A> {
    /// With buffers from `cache`. Copies wait on `copies`, and are counted in `created`.
    #[inline]
    pub(crate) fn new(cache: &'a mut Cache<A>, copies: &'a mut PacketList<A>, created: &'a mut u64) -> Self {
        Self { cache, copies, created, at_root: false, others: Others::default() }
    }
}

impl<A: Arch> Cx<'_, A> {
    /// Has a copy of a packet queued at the root of the tree when this call is over. Returns whether there will be one: not
    /// of what is a copy, and not without a buffer for it.
    pub fn duplicate(&mut self, packet: &Packet<A>) -> bool {
        let Copying { cache, copies, created, at_root, .. } = &mut self.copying;
        if *at_root {
            return false;
        }
        **created += 1;
        match cache.copy(packet, packet.len(), 0..0) {
            Ok(copy) => copies.push_back(copy),
            Err(_) => {
                self.drops.add(DropReason::NoMem, 1);
                return false;
            }
        }
        true
    }

    /// Copies of a packet's first `head` bytes, each with one of `parts` of it behind them: all, or none without buffers for
    /// all. They are the caller's to queue.
    pub(crate) fn parts(
        &mut self,
        packet: &Packet<A>,
        head: usize,
        parts: impl Iterator<Item = Range<usize>>,
    ) -> Option<PacketList<A>> {
        let Copying { cache, created, .. } = &mut self.copying;
        let mut list = PacketList::new();
        for part in parts {
            match cache.copy(packet, head, part) {
                Ok(copy) => list.push_back(copy),
                Err(_) => {
                    cache.free(&mut list);
                    return None;
                }
            }
        }
        **created += list.len() as u64;
        Some(list)
    }

    /// Whether what is enqueued is a copy, which is not copied again.
    pub(crate) fn is_copy(&self) -> bool {
        self.copying.at_root
    }

    /// Whether copies wait to be queued.
    #[inline]
    pub(crate) fn has_copies(&self) -> bool {
        !self.copying.copies.is_empty()
    }

    /// Bytes of the copies that wait to be queued.
    #[cfg(test)]
    pub(crate) fn copied_bytes(&self) -> u64 {
        self.copying.copies.bytes()
    }

    /// Queues the copies that the last call of `root` has left.
    #[inline]
    pub(crate) fn enqueue_copies(&mut self, root: &mut dyn Qdisc<A>) {
        if self.has_copies() {
            self.enqueue_waiting(root);
        }
    }

    #[cold]
    fn enqueue_waiting(&mut self, root: &mut dyn Qdisc<A>) {
        self.copying.at_root = true;
        while let Some(copy) = self.copying.copies.pop_front() {
            let _ = root.enqueue(copy, self);
        }
        self.copying.at_root = false;
    }
}

/// The qdiscs of a tree that could copy packets.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Others {
    pub(super) could: usize,
    do_so: usize,
}

impl Others {
    /// A qdisc and those below it, but for the leaf of a class (`without`, by the handle of its qdisc) and what is below
    /// that.
    pub(crate) fn of<A: Arch>(qdisc: &mut dyn Qdisc<A>, own: Handle, without: Option<(Handle, u16)>) -> Self {
        let mut all = Self::default();
        if let Some(copies) = qdisc.copies() {
            all = Self { could: 1, do_so: copies.into() };
        }
        all.and(Self::under(qdisc, own, without))
    }

    /// Those below a qdisc, without itself.
    pub(crate) fn below<A: Arch>(qdisc: &mut dyn Qdisc<A>, own: Handle) -> Self {
        Self::under(qdisc, own, None)
    }

    fn under<A: Arch>(qdisc: &mut dyn Qdisc<A>, own: Handle, without: Option<(Handle, u16)>) -> Self {
        let mut all = Self::default();
        let Some(classes) = qdisc.classes() else { return all };
        for minor in classes.minors() {
            if without == Some((own, minor)) {
                continue;
            }
            if let Some((leaf, _)) = classes.leaf(minor) {
                let handle = leaf.handle();
                all = all.and(Self::of(leaf.qdisc_mut(), handle, without));
            }
        }
        all
    }

    /// These and others.
    pub(crate) fn and(self, others: Self) -> Self {
        Self { could: self.could + others.could, do_so: self.do_so + others.do_so }
    }

    /// Whether a qdisc that could copy, and does so or not, may be where these are.
    pub(crate) fn allow(self, copies: bool) -> Result<(), ParseError> {
        if self.do_so > 0 || (self.could > 0 && copies) {
            let error =
                ParseError::new("Error: netem: cannot mix duplicating netems with other netems in tree.");
            return Err(error.with_remedy("a netem that duplicates must be the only one below its root"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
