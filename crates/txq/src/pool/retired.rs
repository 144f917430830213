//! Buffers on their way home: no packets any more, not yet in anybody's stock.

use std::ptr::{self, NonNull};

use crate::arch::{Arch, CellApi};
use crate::pool::home::Home;
use crate::pool::slot::Slot;
use crate::sync::contention::Retry;

/// A list of free buffers of one home. It must be sent home or kept; it is not dropped.
pub(crate) struct Retired<A: Arch> {
    home: *const Home<A>,
    head: *mut Slot<A>,
}

impl<A: Arch> Retired<A> {
    /// An empty list, for buffers of no home yet.
    pub(crate) const fn new() -> Self {
        Self { home: ptr::null(), head: ptr::null_mut() }
    }

    /// Whether buffers of `home` may be added.
    #[inline]
    pub(crate) fn is_for(&self, home: *const Home<A>) -> bool {
        ptr::eq(self.home, home)
    }

    /// Sends home what there is and starts a list for `home`.
    #[inline]
    pub(crate) fn restart(&mut self, home: *const Home<A>) {
        self.send_home();
        self.home = home;
    }

    /// Adds a buffer of the list's home, which the caller gives up.
    #[inline]
    pub(crate) fn push(&mut self, slot: NonNull<Slot<A>>) {
        let old = std::mem::replace(&mut self.head, slot.as_ptr());
        // SAFETY: the buffer was the caller's alone, and now is the list's.
        unsafe { slot.as_ref().next.with_mut(|n| *n = old) };
    }

    /// Puts the list into the inbox of its home: one compare-and-swap, however many they are.
    #[inline]
    pub(crate) fn send_home(&mut self) {
        let head = std::mem::replace(&mut self.head, ptr::null_mut());
        if !head.is_null() {
            // SAFETY: buffers of a home were pushed, and a buffer's home lives as long as its pool.
            let home = unsafe { &*self.home };
            // SAFETY: the list owns its buffers, and gives them up.
            unsafe { home.inbox.push_or(head, || home.retries.note(Retry::Inbox)) };
        }
    }
}
