//! What an owner has taken off a list of senders' batches and not yet handed to the qdisc.
//!
//! A list is taken whole, for taking it apart would let another thread see a node leave and come back; it is handed on
//! in parts, so that the work between two looks at the driver is bounded.

use std::ptr::{self, NonNull};

use crate::arch::{Arch, CellApi};
use crate::packet::PacketList;
use crate::pool::slot::Slot;
use crate::sync::llist::{self, Linked};

/// Batches in the order in which they were pushed.
pub(super) struct Intake<A: Arch> {
    /// The oldest; each is a list by its first packet (`PacketList::take_chain`) and links to the one pushed after it.
    oldest: *mut Slot<A>,
    /// Packets that come after all of these.
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

    /// Takes a list of batches, the newest first. The intake is empty.
    ///
    /// # Safety
    /// `newest` came from `LList::take_all` or an exchange like it: its nodes are batches given up by
    /// `PacketList::take_chain`, acquired from those who did, and the caller's now.
    #[inline]
    pub(super) unsafe fn refill(&mut self, newest: *mut Slot<A>) {
        debug_assert!(self.is_empty());
        // SAFETY: the caller's promise.
        self.oldest = unsafe { llist::reverse::<A, _>(newest) };
    }

    /// Adds packets behind everything else.
    pub(super) fn append(&mut self, packets: &mut PacketList<A>) {
        self.last.append(packets);
    }

    /// Moves the oldest batches to `chunk` until it has about `packets`, and tells how many batches that were.
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
            // SAFETY: a node of a list that is ours. The link is read before the list that the node heads is made.
            self.oldest = unsafe { head.as_ref().link().with(|l| *l) };
            // SAFETY: `refill`'s caller promised that it was given up by `take_chain`; it comes once.
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
