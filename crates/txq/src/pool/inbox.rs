//! Free buffers on their way to a sender: pushed by anyone, a whole run at a time, taken by one, all of them
//! (`llist_add_batch`, `llist_del_all`).
//!
//! What [`LList`](crate::sync::llist::LList) is for lists of packets, with one difference: runs are linked behind one
//! another by the last buffer's `next`, which a push writes anyway. So a push touches two cache lines, this one and that
//! buffer's, however long the run is.

use std::ptr;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::arch::{Arch, AtomicPtr};
use crate::pool::retired::Run;
use crate::pool::slot::Slot;

/// A stack of runs.
pub(super) struct Inbox<A: Arch> {
    head: A::AtomicPtr<Slot<A>>,
}

impl<A: Arch> Inbox<A> {
    pub(super) fn new() -> Self {
        Self { head: A::AtomicPtr::new(ptr::null_mut()) }
    }

    /// Pushes a run, which is empty afterwards. Nothing of the pool is touched after that. Calls `again` for each attempt
    /// that failed.
    #[inline]
    pub(super) fn push(&self, run: &mut Run<A>, again: impl Fn()) {
        let mut head = self.head.load(Relaxed);
        loop {
            run.link_to(head);
            // Release: the links, and what the last owners did to the buffers; pairs with the acquire in `take_all`.
            match self.head.compare_exchange_weak(head, run.head(), Release, Relaxed) {
                Ok(_) => return run.forget(),
                Err(now) => {
                    again();
                    head = now;
                }
            }
        }
    }

    /// Takes all buffers, linked by `next` up to a null.
    #[inline]
    pub(super) fn take_all(&self) -> *mut Slot<A> {
        self.head.swap(ptr::null_mut(), Acquire)
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.head.load(Relaxed).is_null()
    }
}
