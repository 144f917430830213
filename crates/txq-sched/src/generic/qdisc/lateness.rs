//! Credit for late calls, so that the lateness of timers costs no class its rate.
//!
//! A qdisc that holds packets back names the time at which it can send the next one. A thread calls it then, but threads wake
//! later than timers fire. A bucket that is full before the call would lose the tokens of the rest of that time. So a bucket
//! with packets that wait may save, beyond its depth, the tokens of the time by which the call was late. In any time `t` at
//! most `rate * (t + 16 ms) + burst` leaves, and `rate * t + burst` if no call is late.
//!
//! The credit lasts until a dequeue finds nothing that may leave. A pause without packets gives none, nor does a device that
//! takes no more packets: in both cases the qdisc has not named a time.

use txq_core::arch::Nanos;

/// The most that counts as lateness of a timer; a longer pause is one of the machine. It is how long a woken thread waits behind
/// four busy threads of its CPU, each with a tick of 4 ms (Linux at 250 Hz).
pub(super) const MOST_LATE: Nanos = 16_000_000;

/// How late a qdisc is called.
#[derive(Debug, Default)]
pub(super) struct Lateness {
    /// When the qdisc asked to be called, if packets wait for that time.
    asked: Option<Nanos>,
    credit: Nanos,
}

impl Lateness {
    /// Begins a dequeue; returns the credit.
    #[inline]
    pub(super) fn begin(&mut self, now: Nanos) -> Nanos {
        if let Some(asked) = self.asked.take() {
            self.credit = now.saturating_sub(asked).min(MOST_LATE);
        }
        self.credit
    }

    /// Ends a dequeue that found nothing that may leave before `at`. `None` says that no packet waits for tokens.
    #[inline]
    pub(super) fn wait(&mut self, at: Option<Nanos>) {
        (self.asked, self.credit) = (at, 0);
    }

    /// Returns the credit of the dequeue that runs or was the last.
    #[inline]
    pub(super) fn credit(&self) -> Nanos {
        self.credit
    }

    /// Returns whether the next dequeue may have credit.
    #[inline]
    pub(super) fn may_credit(&self) -> bool {
        self.credit > 0 || self.asked.is_some()
    }
}
