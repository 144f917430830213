//! Free buffers on their way to a sender. Any thread pushes a whole run; the taker takes all buffers at once
//! (`llist_add_batch`, `llist_del_all`).
//!
//! It is to buffers as [`LList`](crate::sync::llist::LList) is to lists of packets, with one difference: the last buffer's
//! `next` links a run to the one pushed before, and a push writes that field anyway. So a push touches two cache lines, the
//! inbox's and that buffer's, for a run of any length.

use std::ptr;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::arch::{Arch, AtomicPtr};
use crate::pool::retired::Run;
use crate::pool::slot::Slot;

/// A stack of runs.
pub(super) struct Inbox<A: Arch> {
    /// The first buffer of the run pushed last; null when empty. A push replaces it by compare-exchange (release);
    /// `take_all` swaps null in (acquire). No pop of single runs, so no ABA.
    head: A::AtomicPtr<Slot<A>>,
}

impl<A: Arch> Inbox<A> {
    pub(super) fn new() -> Self {
        Self { head: A::AtomicPtr::new(ptr::null_mut()) }
    }

    /// Pushes a run and leaves it empty. Touches no memory of the pool after the successful exchange. Calls `again` for each
    /// failed exchange.
    #[inline]
    pub(super) fn push(&self, run: &mut Run<A>, again: impl Fn()) {
        let mut head = self.head.load(Relaxed);
        loop {
            run.link_to(head);
            // Release: the links, and the last owners' accesses to the buffers; pairs with the acquire in `take_all`.
            match self.head.compare_exchange_weak(head, run.head(), Release, Relaxed) {
                Ok(_) => return run.forget(),
                Err(now) => {
                    again();
                    head = now;
                }
            }
        }
    }

    /// Takes all buffers; returns the first, which links the others by `next` up to a null, or null if there are none.
    #[inline]
    pub(super) fn take_all(&self) -> *mut Slot<A> {
        self.head.swap(ptr::null_mut(), Acquire)
    }

    /// Whether the inbox is empty. Relaxed: a hint.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.head.load(Relaxed).is_null()
    }
}
