//! A sleep with a token ([`Event`]): a thread that is awake is notified by one exchange, without a lock and without a system
//! call.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::arch::{Arch, Atomic, Event, Nanos};

/// The thread is awake, and has no token.
const NONE: u32 = 0;
/// The token is set: the next sleep ends at once.
const GIVEN: u32 = 1;
/// The thread sleeps, or is about to: the thread that sets the token must wake it.
const ASLEEP: u32 = 2;

/// A lock and a place to sleep: a mutex and a condition variable.
pub trait Parking: Send + Sync + 'static {
    /// Creates a place where no thread sleeps.
    fn new() -> Self;
    /// Takes the lock and calls `begin`. If that returns true, sleeps until `is_over` returns true or the time `deadline` has
    /// passed. Calls `is_over` with the lock held, before each sleep; the lock is released during the sleep alone.
    fn park(&self, begin: impl FnOnce() -> bool, is_over: impl Fn() -> bool, deadline: Option<Nanos>);
    /// Takes and releases the lock, then wakes the thread that sleeps. The lock makes it wait for a thread that is between
    /// `begin` and its sleep.
    fn unpark(&self);
}

/// The token, and the place where its one thread sleeps.
#[derive(Debug)]
pub struct Token<A: Arch, P> {
    /// [`NONE`], [`GIVEN`] or [`ASLEEP`]. Any thread swaps in `GIVEN` (Release: its writes before the notification). The
    /// sleeper swaps in `NONE` (Acquire: pairs with the swaps of all notifiers since its last one, which are one release
    /// sequence), and moves from `NONE` to `ASLEEP` under the lock of `parking` (Relaxed: that lock orders the move before the
    /// wake). All writes are read-modify-writes of one word, so a notification either precedes the move, which then fails, or
    /// finds `ASLEEP`.
    state: A::AtomicU32,
    parking: P,
}

impl<A: Arch, P: Parking> Event for Token<A, P> {
    fn new() -> Self {
        Self { state: A::AtomicU32::new(NONE), parking: P::new() }
    }

    fn notify(&self) {
        if self.state.swap(GIVEN, Release) == ASLEEP {
            self.parking.unpark();
        }
    }

    fn wait(&self, deadline: Option<Nanos>) {
        if self.state.swap(NONE, Acquire) == GIVEN {
            return;
        }
        let begin = || self.state.compare_exchange(NONE, ASLEEP, Relaxed, Relaxed).is_ok();
        let is_over = || self.state.load(Relaxed) != ASLEEP;
        self.parking.park(begin, is_over, deadline);
        // The token that ended the sleep, or one that came when the time was over.
        self.state.swap(NONE, Acquire);
    }
}
