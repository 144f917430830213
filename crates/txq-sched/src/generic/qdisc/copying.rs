//! Copies of whole packets, for netem's `duplicate`, and of parts of packets, for the segments of a GSO packet
//! (`segment.rs`).
//!
//! A qdisc that copies a packet keeps the packet and leaves the copy with its caller ([`Cx::duplicate`]). After the call
//! the queue's owner enqueues the copy at the root of the tree ([`Cx::enqueue_copies`]), so that all qdiscs above count it
//! like any other packet. The kernel enqueues at the root during the call, which has broken the counts of several parents.
//! A copy is not copied again, as in the kernel. As in the kernel since 6.16, a qdisc that copies must be the only one of
//! its tree that can ([`Others`]): another one would copy the copies.
//!
//! A copy is a packet of its own, with a buffer from the stock of the queue's owner. It is charged to no sender's limit,
//! belongs to no flow's count of outstanding packets, and its latency is not sampled. It is counted as created
//! (`DeviceStats::created`). A copy for which there is no buffer is counted
//! as created, and as dropped with the reason `NOMEM`.

use std::ops::Range;

use txq_core::arch::Arch;
use txq_core::drop::{DropCounts, DropReason};
use txq_core::packet::{Packet, PacketList};
use txq_core::pool::Cache;

use crate::generic::qdisc::{Cx, Qdisc};
use crate::tc::{Handle, ParseError};

/// The buffers, the list and the counter that copying packets needs.
pub struct Copying<'a, A: Arch> {
    cache: &'a mut Cache<A>,
    copies: &'a mut PacketList<A>,
    created: &'a mut u64,
    /// Whether the packet enqueued now is a copy. Set only in [`Cx::enqueue_copies`].
    at_root: bool,
    /// The other qdiscs of the tree that can copy, while a tc command adds or changes one.
    pub(crate) others: Others,
}

impl<'a, A: Arch> Copying<'a, A> {
    /// Takes buffers from `cache`, keeps copies on `copies` until they are enqueued, and counts them in `created`.
    #[inline]
    pub fn new(cache: &'a mut Cache<A>, copies: &'a mut PacketList<A>, created: &'a mut u64) -> Self {
        Self { cache, copies, created, at_root: false, others: Others::default() }
    }
}

impl<A: Arch> Cx<'_, A> {
    /// Copies a packet. The owner enqueues the copy at the root of the tree after this call. Returns false, without a copy,
    /// if `packet` is a copy itself or if there is no buffer; a missing buffer is counted as a drop (`NOMEM`).
    pub fn duplicate(&mut self, packet: &Packet<A>) -> bool {
        let Copying { cache, copies, created, at_root, .. } = &mut self.copying;
        if *at_root {
            return false;
        }
        **created += 1;
        match cache.copy(packet, packet.data().len(), 0..0) {
            Ok(copy) => copies.push_back(copy),
            Err(_) => {
                self.drops.add(DropReason::NoMem, 1);
                return false;
            }
        }
        true
    }

    /// Copies the packet once for each of `parts`: its first `head` bytes, and the part behind them. Returns the copies,
    /// which the caller queues, or `None` if there are not buffers for all.
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

    /// Returns whether the packet enqueued now is a copy, which is not copied again.
    pub(crate) fn is_copy(&self) -> bool {
        self.copying.at_root
    }

    /// Calls `f` with the copies not yet enqueued at the root, and the counts of drops.
    pub(crate) fn with_copies(&mut self, f: impl FnOnce(&mut PacketList<A>, &mut DropCounts)) {
        f(self.copying.copies, self.drops);
    }

    /// Returns whether there are copies not yet enqueued at the root.
    #[inline]
    pub(crate) fn has_copies(&self) -> bool {
        !self.copying.copies.is_empty()
    }

    /// Returns the bytes of the copies not yet enqueued at the root.
    #[cfg(test)]
    pub(crate) fn copied_bytes(&self) -> u64 {
        self.copying.copies.bytes()
    }

    /// Enqueues the copies that the last call of `root` made, at `root`.
    #[inline]
    pub fn enqueue_copies(&mut self, root: &mut dyn Qdisc<A>) {
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

/// The number of qdiscs of a tree that can copy packets: netems.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Others {
    /// Qdiscs that can copy, whether they do or not.
    pub(super) could: usize,
    /// Qdiscs that do copy.
    do_so: usize,
}

impl Others {
    /// Counts a qdisc and the qdiscs below it. `without` names a class by its qdisc's handle and its minor number: its leaf
    /// and the qdiscs below that are left out.
    pub fn of<A: Arch>(qdisc: &mut dyn Qdisc<A>, own: Handle, without: Option<(Handle, u16)>) -> Self {
        let mut all = Self::default();
        if let Some(copies) = qdisc.copies() {
            all = Self { could: 1, do_so: copies.into() };
        }
        all.and(Self::under(qdisc, own, without))
    }

    /// Counts the qdiscs below a qdisc, without itself.
    pub fn below<A: Arch>(qdisc: &mut dyn Qdisc<A>, own: Handle) -> Self {
        Self::under(qdisc, own, None)
    }

    fn under<A: Arch>(qdisc: &mut dyn Qdisc<A>, own: Handle, without: Option<(Handle, u16)>) -> Self {
        let mut all = Self::default();
        let Some(classes) = qdisc.classes().filter(|classes| classes.has_leaves()) else { return all };
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

    /// Returns the sum of both counts.
    pub fn and(self, others: Self) -> Self {
        Self { could: self.could + others.could, do_so: self.do_so + others.do_so }
    }

    /// Checks whether a qdisc that can copy may join these qdiscs. `copies` says whether it does copy.
    ///
    /// # Errors
    /// Returns the kernel's error if one of these copies, or if `copies` is true and one of these can copy.
    pub fn allow(self, copies: bool) -> Result<(), ParseError> {
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
