//! The executor's code runs with no lock of a lane held.
//!
//! A waker is the executor's code: waking or dropping one may call the socket. So a thread that holds a lane keeps the wakers that
//! it should wake or drop, and does so when it has released the lane.

use std::cell::{Cell, RefCell};
use std::mem;
use std::panic::{self, AssertUnwindSafe};
use std::task::Waker;

/// A use of a waker.
pub(crate) enum Due {
    Wake(Waker),
    Drop(Waker),
}

impl Due {
    fn run(self) {
        let use_it = || match self {
            Self::Wake(waker) => waker.wake(),
            Self::Drop(waker) => drop(waker),
        };
        // A panic of the executor's is not the caller's, and nothing more can be done for the task.
        drop(panic::catch_unwind(AssertUnwindSafe(use_it)));
    }
}

thread_local! {
    /// How many lanes this thread holds.
    static HELD_LANES: Cell<usize> = const { Cell::new(0) };
    static DUE: RefCell<Vec<Due>> = const { RefCell::new(Vec::new()) };
}

/// Uses wakers when the thread holds no lane: at once, or later.
pub(crate) fn run(due: impl IntoIterator<Item = Due>) {
    // A thread that ends has no list any more.
    if HELD_LANES.get() > 0 && DUE.try_with(|_| ()).is_ok() {
        DUE.with_borrow_mut(|list| list.extend(due));
    } else {
        due.into_iter().for_each(Due::run);
    }
}

/// Keeps wakers back while the thread holds a lane. Dropped after the lane's lock.
pub(crate) struct Held(());

impl Held {
    pub(crate) fn new() -> Self {
        HELD_LANES.set(HELD_LANES.get() + 1);
        Self(())
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        HELD_LANES.set(HELD_LANES.get() - 1);
        if HELD_LANES.get() == 0 {
            let due = DUE.try_with(|list| mem::take(&mut *list.borrow_mut()));
            due.into_iter().flatten().for_each(Due::run);
        }
    }
}
