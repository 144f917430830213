//! Times at which queues are run, one a queue: any thread sets them, one takes those that are due (`qdisc_watchdog`).
//!
//! A timer is set to an earlier time only, until it is taken. The taker takes a time with one exchange, so a set comes before
//! it and is taken, or after it and finds `NEVER`. A set that finds an earlier time changes nothing, and publishes nothing:
//! its caller owns the queue, and the run that the earlier time brings is by a later owner, which sets the next time itself.
//! The caller may even find a time that is taken already, for its load is relaxed. The queue is then still to be run: a run
//! in the past would have been by an earlier owner, whose exchange the caller sees.

use std::fmt::Display;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::arch::{Arch, Atomic, Nanos};
use crate::sync::words::Words;

/// No time is set.
const NEVER: Nanos = Nanos::MAX;

/// The times, each `NEVER` or nanoseconds on the clock of the [`Arch`].
pub struct Timers<A: Arch>(Words<A>);

impl<A: Arch> Timers<A> {
    /// `n` timers that are not set.
    pub fn new(n: usize) -> Self {
        Self(Words::new(n, NEVER))
    }

    /// Names its lines ([`Arch::name`]).
    pub(crate) fn name_lines(&self, what: impl Display) {
        self.0.name_lines(what);
    }

    /// Sets timer `i` to `at`, unless an earlier time is set; returns whether it did. The caller then notifies the taker,
    /// which may have computed its sleep from a later time.
    pub fn set(&self, i: usize, at: Nanos) -> bool {
        let timer = self.0.at(i);
        let mut set = timer.load(Relaxed);
        while at < set {
            // Release: what the caller has written before; pairs with the swap in `take_due`.
            match timer.compare_exchange_weak(set, at, Release, Relaxed) {
                Ok(_) => return true,
                Err(now) => set = now,
            }
        }
        false
    }

    /// Returns the earliest time that is set.
    pub fn earliest(&self) -> Option<Nanos> {
        // Relaxed: it tells how long to sleep, and `take_due` acquires.
        self.0.iter().map(|timer| timer.load(Relaxed)).min().filter(|&at| at != NEVER)
    }

    /// Takes the timers that are due and calls `f` with each. Asks for the time only if one is set.
    pub fn take_due(&self, now: impl FnOnce() -> Nanos, mut f: impl FnMut(usize)) {
        let Some(earliest) = self.earliest() else { return };
        let now = now();
        if earliest > now {
            return;
        }
        for (i, timer) in self.0.iter().enumerate() {
            if timer.load(Relaxed) <= now {
                // Since the load only an earlier time can have been set: it is due, too. Acquire: what the thread that set it
                // had written; pairs with the exchange in `set`.
                timer.swap(NEVER, Acquire);
                f(i);
            }
        }
    }
}
