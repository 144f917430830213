//! The line of senders that wait for a buffer.
//!
//! A sender that finds no buffer joins the line, in the order of arrival, under the parking lock (`pool/size.rs`). While the
//! line is not empty, no free buffer rests anywhere on its way:
//!
//! - The stock is closed, as while a pool shrinks. A push onto a closed depot fails, and takes the parking lock instead.
//! - The inboxes are closed ([`Inbox::close`](super::inbox::Inbox::close)). A push onto a closed inbox fails, and the
//!   buffers go to the stock.
//! - The senders are kicked. Each gives its stack to the stock at its next call, and keeps no buffer while the line exists.
//!
//! So each free buffer reaches the parking lock, whose holder hands it to the first sender of the line
//! ([`Line::serve`]). That sender leaves the line with the buffer. A free of `n` buffers wakes `n` senders at most, no sender
//! is overtaken, and a wake cannot be lost: the buffer is the wake. A sender that gives up its wait puts the buffer back,
//! and the next sender of the line gets it.
//!
//! All three closings change a word that a free exchanges anyway. So a free pays nothing while no sender waits, and no fence
//! is needed: either the free comes before the closing, and the sender that closes finds the buffer, or the free fails.
//!
//! A sender that makes no call does not answer the kick, and keeps up to [`CACHE_SIZE`](super::CACHE_SIZE) buffers.

use std::collections::VecDeque;
use std::task::Waker;
use std::{mem, ptr};

use crate::arch::{Arch, CellApi};
use crate::pool::home::Home;
use crate::pool::slot::Slot;

/// A sender's place in the line.
struct Place<A: Arch> {
    /// The home of the waiting sender. Valid while the place exists: the sender keeps the pool alive, and leaves the line
    /// before it ends.
    home: *const Home<A>,
    /// `None` after the sender was woken to check its device.
    waker: Option<Waker>,
}

/// The line. Lies under the parking lock.
pub(super) struct Line<A: Arch>(VecDeque<Place<A>>);

impl<A: Arch> Line<A> {
    pub(super) fn new() -> Self {
        Self(VecDeque::new())
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Appends the sender of `home`, which is not in the line.
    pub(super) fn join(&mut self, home: *const Home<A>, waker: Waker) {
        self.0.push_back(Place { home, waker: Some(waker) });
    }

    /// Exchanges the waker of the sender of `home`, which stays in the line, with `waker`. Returns false and leaves `waker` if
    /// the sender has left the line with a buffer. The caller drops wakers with no lock held.
    pub(super) fn renew(&mut self, home: *const Home<A>, waker: &mut Option<Waker>) -> bool {
        let place = self.0.iter_mut().find(|place| ptr::eq(place.home, home));
        place.map(|place| mem::swap(&mut place.waker, waker)).is_some()
    }

    /// Removes the sender of `home` if it is still in the line; returns its waker. The caller drops it with no lock held.
    pub(super) fn leave(&mut self, home: *const Home<A>) -> Option<Waker> {
        let at = self.0.iter().position(|place| ptr::eq(place.home, home))?;
        self.0.remove(at)?.waker
    }

    /// Gives the buffers linked from `first` up to a null to the senders of the line, one each, in order. Appends the wakers
    /// of these senders to `woken`, for the caller to wake with no lock held. Returns the first of the other buffers, or
    /// null.
    ///
    /// # Safety
    /// The caller owns the buffers, and they are linked up to a null.
    pub(super) unsafe fn serve(&mut self, mut first: *mut Slot<A>, woken: &mut Vec<Waker>) -> *mut Slot<A> {
        while !first.is_null()
            && let Some(place) = self.0.pop_front()
        {
            // SAFETY: the caller's promise.
            let next = unsafe { (*first).next.with(|n| *n) };
            // SAFETY: the place was in the line until now, so its home is alive; the lock keeps the sender from leaving.
            unsafe { &*place.home }.grant(first);
            woken.extend(place.waker);
            first = next;
        }
        first
    }
}
