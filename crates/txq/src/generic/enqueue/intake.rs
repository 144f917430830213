//! The intake: batches that an owner has taken off a list and not yet given to the qdisc.
//!
//! The owner takes the whole list: if it took single nodes, another thread could see a node leave and return (ABA). It gives
//! the qdisc a part at a time, so that the work between two calls of the driver is bounded.

use std::ptr::{self, NonNull};

use txq_core::arch::{Arch, CellApi};
use txq_core::packet::PacketList;
use txq_core::pool::slot::Slot;
use txq_core::sync::llist::{self, Linked};

/// Batches in the order in which they were pushed.
pub(super) struct Intake<A: Arch> {
    /// The first packet of the oldest batch; null if there is none. It stands for its batch (`PacketList::take_chain`) and
    /// links to the batch pushed after it.
    oldest: *mut Slot<A>,
    /// Packets behind all these batches.
    last: PacketList<A>,
}

// SAFETY: an intake owns its packets, and a packet is `Send`.
unsafe impl<A: Arch> Send for Intake<A> {}

impl<A: Arch> Intake<A> {
    pub(super) fn new() -> Self {
        Self { oldest: ptr::null_mut(), last: PacketList::new() }
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.oldest.is_null() && self.last.is_empty()
    }

    /// Fills the empty intake with a list of batches, newest first.
    ///
    /// # Safety
    /// `newest` came from `LList::take_all` or an equivalent exchange. Its nodes are batches given up by
    /// `PacketList::take_chain`; the caller has acquired them from the pushing threads and now owns them.
    #[inline]
    pub(super) unsafe fn refill(&mut self, newest: *mut Slot<A>) {
        debug_assert!(self.is_empty());
        // SAFETY: the caller's promise.
        self.oldest = unsafe { llist::reverse::<A, _>(newest) };
    }

    /// Appends packets behind all others.
    pub(super) fn append(&mut self, packets: &mut PacketList<A>) {
        self.last.append(packets);
    }

    /// Moves the oldest batches to `chunk` until it holds `packets` or more, or until the intake is empty; returns the
    /// number of batches moved.
    #[inline]
    pub(super) fn next(&mut self, packets: usize, chunk: &mut PacketList<A>) -> usize {
        let mut batches = 0;
        while chunk.len() < packets {
            let Some(head) = NonNull::new(self.oldest) else {
                if !self.last.is_empty() {
                    batches += 1;
                    chunk.append(&mut self.last);
                }
                break;
            };
            // SAFETY: the intake owns the node. The link is read before `from_chain` reuses the node as the head of a list.
            self.oldest = unsafe { head.as_ref().link().with(|l| *l) };
            // SAFETY: `refill`'s caller promised that `take_chain` gave the node up; each node is used once.
            chunk.append(&mut unsafe { PacketList::from_chain(head) });
            batches += 1;
        }
        batches
    }
}

impl<A: Arch> Drop for Intake<A> {
    fn drop(&mut self) {
        let mut rest = PacketList::new();
        self.next(usize::MAX, &mut rest);
    }
}
