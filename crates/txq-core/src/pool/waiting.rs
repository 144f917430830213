//! A sender's wait for a buffer: joining the line (`pool/line.rs`), leaving it with a buffer, and giving up.

use std::ptr::NonNull;
use std::task::{Poll, Waker};

use crate::arch::Arch;
use crate::packet::Packet;
use crate::pool::Memory;
use crate::pool::cache::Cache;
use crate::pool::error::AllocError;
use crate::pool::retired::Run;
use crate::pool::slot::Slot;

impl<A: Arch> Cache<A> {
    /// Allocates as [`alloc`](Cache::alloc) does. If there is no buffer, the sender joins the line of those that wait for
    /// one, and `waker` is woken when the sender has got one: then the next call returns a packet. A sender has one place
    /// and one waker, the last one. A sender that has its share of a scarce pool does not join: its waker is woken when packets
    /// of its own have been freed. [`stop_waiting`](Cache::stop_waiting) leaves the line.
    #[doc(hidden)]
    #[inline(never)]
    pub fn poll_alloc(&mut self, len: usize, waker: &Waker) -> Poll<Result<Packet<A>, AllocError>> {
        if len > self.room() {
            return Poll::Ready(Err(self.too_long(len)));
        }
        if !self.in_line {
            let refused = loop {
                match self.alloc(len) {
                    Err(AllocError::Reserved { .. }) if self.poll_freed(waker) => {}
                    other => break other,
                }
            };
            match refused {
                Err(AllocError::Exhausted { .. }) => self.join_line(waker),
                Err(AllocError::Reserved { .. }) => return Poll::Pending,
                other => {
                    self.forget_credit();
                    return Poll::Ready(other);
                }
            }
        }
        // Cloned before the lock is taken, and dropped after: both are the program's code.
        let (home, mut waker) = (self.home_ptr(), Some(waker.clone()));
        if self.store().with_line(|line| line.renew(home, &mut waker)) {
            return Poll::Pending;
        }
        self.in_line = false;
        let slot = NonNull::new(self.home().claim()).expect("a sender leaves the line with a buffer");
        Poll::Ready(self.take_granted(slot, len))
    }

    /// Gives up a wait for a buffer or for credit. A buffer that the sender has got meanwhile goes to the next sender that
    /// waits. Costs two loads if the sender does not wait.
    #[doc(hidden)]
    #[inline(never)]
    pub fn stop_waiting(&mut self) {
        self.forget_credit();
        if self.in_line {
            let home = self.home_ptr();
            drop(self.store().with_line(|line| line.leave(home)));
            self.in_line = false;
            if let Some(slot) = NonNull::new(self.home().claim()) {
                self.give_back(slot);
            }
        }
    }

    /// Joins the line; the first sender of the line then gathers all free buffers for it.
    #[cold]
    fn join_line(&mut self, waker: &Waker) {
        self.in_line = true;
        let shared = self.shared.clone();
        if shared.memory.store.wait(self.home(), waker) {
            shared.memory.gather();
        }
    }

    /// Makes a packet of a buffer from the line, or gives the buffer back if the limit allows no packet.
    fn take_granted(&mut self, slot: NonNull<Slot<A>>, len: usize) -> Result<Packet<A>, AllocError> {
        self.note_credit(self.home().account().read());
        if self.out >= self.limit {
            self.give_back(slot);
            return Err(self.at_limit());
        }
        Ok(self.hand_out_own(slot, len))
    }

    /// Puts a buffer of the sender's own into the stock, for the next sender that waits.
    fn give_back(&self, slot: NonNull<Slot<A>>) {
        let mut run = Run::new();
        run.push(slot);
        self.store().put(&mut run);
    }
}

impl<A: Arch> Memory<A> {
    /// Makes all free buffers go to the line, which the caller has just begun: closes the inboxes, kicks the senders, and
    /// gives the stock's buffers to the line. The stock is closed.
    fn gather(&self) {
        for home in self.homes.iter() {
            home.tell_size();
            for first in home.close_inboxes() {
                // SAFETY: buffers taken from an inbox are ours, linked up to a null.
                let mut run = unsafe { Run::of(first) };
                home.account().taken(run.len());
                self.store.put(&mut run);
            }
        }
        self.store.park_stock(&self.slots);
    }
}
