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

/// Returns the head of a closed inbox: no buffer has this address.
fn closed<T>() -> *mut T {
    ptr::without_provenance_mut(1)
}

/// A stack of runs.
pub(super) struct Inbox<A: Arch> {
    /// The first buffer of the run pushed last; null when empty; [`closed`] while senders wait for buffers of the pool. A
    /// push replaces it by compare-exchange (release), and fails if it is closed. `take_all` replaces it by null (acquire),
    /// unless it is closed. `close` swaps `closed` in (acquire); `open` replaces `closed` by null, under the parking lock
    /// while no sender waits. No pop of single runs, so no ABA.
    head: A::AtomicPtr<Slot<A>>,
}

impl<A: Arch> Inbox<A> {
    pub(super) fn new() -> Self {
        Self { head: A::AtomicPtr::new(ptr::null_mut()) }
    }

    /// Pushes a run and leaves it empty; returns false, and leaves the run as it is, if the inbox is closed. Touches no
    /// memory of the pool after the successful exchange. Calls `again` for each failed exchange.
    #[inline]
    pub(super) fn push(&self, run: &mut Run<A>, again: impl Fn()) -> bool {
        let mut head = self.head.load(Relaxed);
        loop {
            if head == closed() {
                return false;
            }
            run.link_to(head);
            // Release: the links, and the last owners' accesses to the buffers; pairs with the acquire in `take_all`.
            match self.head.compare_exchange_weak(head, run.head(), Release, Relaxed) {
                Ok(_) => {
                    run.forget();
                    return true;
                }
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
        let mut head = self.head.load(Relaxed);
        while !head.is_null() && head != closed() {
            // Acquire: pairs with the release in `push`.
            match self.head.compare_exchange(head, ptr::null_mut(), Acquire, Relaxed) {
                Ok(_) => return head,
                Err(now) => head = now,
            }
        }
        ptr::null_mut()
    }

    /// Closes the inbox, and takes all buffers, as [`take_all`](Inbox::take_all) does. No push succeeds until `open`.
    pub(super) fn close(&self) -> *mut Slot<A> {
        // Acquire: pairs with the release in `push`.
        let head = self.head.swap(closed(), Acquire);
        if head == closed() { ptr::null_mut() } else { head }
    }

    /// Opens the inbox. Only under the parking lock, while no sender waits for a buffer: a sender that waits later closes
    /// the inbox after it has held that lock.
    pub(super) fn open(&self) {
        // Relaxed: a closed inbox holds no buffer. A failure means that it is open.
        let _ = self.head.compare_exchange(closed(), ptr::null_mut(), Relaxed, Relaxed);
    }

    /// Whether the inbox is empty or closed. Relaxed: a hint.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        let head = self.head.load(Relaxed);
        head.is_null() || head == closed()
    }
}
