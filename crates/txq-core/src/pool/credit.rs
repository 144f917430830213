//! Sleep of a sender at its limit, until packets are freed (`sock_wait_for_wmem`, `sock_def_write_space`): of a thread on
//! the home's event, and of a task by its waker.

use std::task::Waker;

use crate::arch::{Arch, Event, Nanos};
use crate::pool::account::since;
use crate::pool::cache::Cache;

impl<A: Arch> Cache<A> {
    /// Sleeps until the limit allows an allocation or until `deadline`; returns whether the limit allows it.
    ///
    /// A sleeping sender is woken once half of its limit is free, as in the kernel: one wake for many packets. Packets that
    /// the caller holds count against the limit; it should send or free them first.
    #[inline(never)]
    pub fn wait_credit(&mut self, deadline: Option<Nanos>) -> bool {
        self.wait_credit_unless(deadline, || false)
    }

    /// As [`wait_credit`](Cache::wait_credit), but returns false if `ended` says so: before it sleeps, and when
    /// [`Tally::wake_to_recheck`](super::fate::Tally::wake_to_recheck) wakes it.
    #[doc(hidden)]
    pub fn wait_credit_unless(&mut self, deadline: Option<Nanos>, ended: impl Fn() -> bool) -> bool {
        loop {
            if self.has_credit() {
                return true;
            }
            if ended() || deadline.is_some_and(|at| A::now() >= at) {
                return false;
            }
            if !self.lie_down() {
                self.home().event().wait(deadline);
            }
            self.home().account().rouse();
        }
    }

    /// Returns whether the limit allows an allocation. If not, `waker` is woken once half of the limit is free. A sender has
    /// one waker, the last one.
    #[doc(hidden)]
    #[inline(never)]
    pub fn poll_credit(&mut self, waker: &Waker) -> bool {
        if self.has_credit() {
            self.forget_credit();
            return true;
        }
        // Before `SLEEPS` is set: the thread that clears the bit finds the waker.
        drop(self.home().set_task(Some(waker.clone())));
        self.waits_for_credit = true;
        let has_credit = self.lie_down();
        if has_credit {
            self.forget_credit();
        }
        has_credit
    }

    /// Removes the waker that [`poll_credit`](Cache::poll_credit) has registered.
    pub(super) fn forget_credit(&mut self) {
        if self.waits_for_credit {
            self.waits_for_credit = false;
            self.home().account().rouse();
            drop(self.home().set_task(None));
        }
    }

    /// Returns whether packets of the sender have been freed since the last allocation: half of them, or a batch. If not,
    /// `waker` is woken when they have been.
    pub(super) fn poll_freed(&mut self, waker: &Waker) -> bool {
        drop(self.home().set_task(Some(waker.clone())));
        self.waits_for_credit = true;
        let need = (self.out / 2).clamp(1, self.bulk() as i64) as u32;
        // As in `lie_down`.
        let word = self.home().lie_down(self.seen, need);
        let freed = since(word.freed(), self.seen) >= need;
        if freed {
            self.forget_credit();
        } else if word.backlog() > 0 {
            // These packets are counted, and were not yet pushed when the sender emptied its inbox. No thread wakes the sender
            // when they are pushed, so it checks again.
            self.forget_credit();
            A::yield_cpu();
            waker.wake_by_ref();
        }
        freed
    }

    fn has_credit(&mut self) -> bool {
        self.note_credit(self.home().account().read());
        self.out < self.limit
    }

    /// Announces that the sender sleeps until half of its limit is free; returns whether it has credit already, and so must
    /// not sleep.
    fn lie_down(&mut self) -> bool {
        let need = (self.out - self.limit / 2).max(1);
        let word = self.home().lie_down(self.seen, need as u32);
        // The word counts all packets freed up to this moment; a thread that frees later finds `SLEEPS` set.
        self.note_credit(word);
        self.out < self.limit
    }
}
