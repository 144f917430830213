//! Times at which queues are run, one a queue: any thread sets them, one thread takes those that are due (`qdisc_watchdog`).
//!
//! Until it is taken, a timer only changes to an earlier time. The taker takes a time with one exchange: a set before it is
//! taken, and a set after it finds `NEVER`. A set that finds an earlier time changes and publishes nothing. That is enough:
//! its caller owns the queue, and at the earlier time a later owner runs the queue and sets the next time itself. Since its
//! load is relaxed, the caller may even find a time that is already taken. The queue's run for that time is then still to
//! come: a run in the past was made by an earlier owner, and the caller sees the exchange before that run.

use std::fmt::Display;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::arch::{Arch, Atomic, Nanos};
use crate::sync::words::AtomicWords;

/// No time is set.
const NEVER: Nanos = Nanos::MAX;

/// The times, each `NEVER` or nanoseconds on the clock of the [`Arch`]. A queue's owner lowers its time (Release); the taker
/// swaps it for `NEVER` (Acquire).
pub struct Timers<A: Arch>(AtomicWords<A>);

impl<A: Arch> Timers<A> {
    /// Creates `n` timers that are not set.
    pub fn new(n: usize) -> Self {
        Self(AtomicWords::new(n, NEVER))
    }

    /// Names its lines ([`Arch::name`]).
    pub fn name_lines(&self, what: impl Display) {
        self.0.name_lines(what);
    }

    /// Sets timer `i` to `at`, unless an earlier time is set; returns whether it did. The caller then notifies the taker,
    /// which may have computed its sleep from a later time.
    pub fn set(&self, i: usize, at: Nanos) -> bool {
        let timer = self.0.at(i);
        let mut set = timer.load(Relaxed);
        while at < set {
            // Release: the caller's earlier writes; pairs with the swap in `take_due`.
            match timer.compare_exchange_weak(set, at, Release, Relaxed) {
                Ok(_) => return true,
                Err(now) => set = now,
            }
        }
        false
    }

    /// Returns the earliest time that is set.
    pub fn earliest(&self) -> Option<Nanos> {
        // Relaxed: the result only bounds a sleep; `take_due` acquires.
        self.0.iter().map(|timer| timer.load(Relaxed)).min().filter(|&at| at != NEVER)
    }

    /// Takes the timers that are due and calls `f` with each. Reads the clock only if a timer is set.
    pub fn take_due(&self, now: impl FnOnce() -> Nanos, mut f: impl FnMut(usize)) {
        let Some(earliest) = self.earliest() else { return };
        let now = now();
        if earliest > now {
            return;
        }
        for (i, timer) in self.0.iter().enumerate() {
            if timer.load(Relaxed) <= now {
                // Since the load only an earlier time can have been set, which is due too. Acquire: the writes of the thread
                // that set it; pairs with the exchange in `set`.
                timer.swap(NEVER, Acquire);
                f(i);
            }
        }
    }
}
