//! A place where a thread sleeps, and the wake of a task.

use std::panic::{self, AssertUnwindSafe};
use std::sync::Arc;
use std::task::{Wake, Waker};

use crate::arch::{Arch, Event, Nanos};

/// A place where a thread sleeps, kept for its next wait. As a [`Wake`] it is the waker of that thread, so a thread can wait
/// for whatever wakes a task.
pub struct Waiter<A: Arch> {
    event: A::Event,
}

impl<A: Arch> Waiter<A> {
    /// Creates a place where no thread sleeps.
    pub fn new() -> Arc<Self> {
        Arc::new(Self { event: A::Event::new() })
    }

    /// Wakes the thread that sleeps here, or ends its next sleep.
    pub fn notify(&self) {
        self.event.notify();
    }

    /// Sleeps until a notification, or until `deadline`. A notification that came before ends the sleep at once.
    pub fn sleep(&self, deadline: Option<Nanos>) {
        self.event.wait(deadline);
    }
}

impl<A: Arch> Wake for Waiter<A> {
    fn wake(self: Arc<Self>) {
        self.notify();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.notify();
    }
}

/// Wakes a task. Drops the panic of a waker: it is not the caller's, and nothing more can be done for the task.
pub fn wake(waker: Waker) {
    drop(panic::catch_unwind(AssertUnwindSafe(|| waker.wake())));
}
