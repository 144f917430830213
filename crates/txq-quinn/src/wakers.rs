//! The tasks that wait for one sender.
//!
//! A sender has one waker, and a lane's sender serves many connections. So the sender's waker is the lane's list of tasks,
//! and wakes all of them: each then tries again, and waits again if it lost.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Wake, Waker};

use crate::later::{self, Due};

/// The tasks that wait, by the number of their poller.
#[derive(Debug, Default)]
pub(crate) struct Wakers(Mutex<Vec<(u64, Waker)>>);

impl Wakers {
    fn lock(&self) -> MutexGuard<'_, Vec<(u64, Waker)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds the task of a poller, or replaces the poller's earlier one.
    pub(crate) fn add(&self, poller: u64, waker: Waker) {
        self.remove(poller);
        self.lock().push((poller, waker));
    }

    /// Removes the task of a poller; returns whether none is left.
    pub(crate) fn remove(&self, poller: u64) -> bool {
        let (waker, is_empty) = {
            let mut list = self.lock();
            let at = list.iter().position(|(number, _)| *number == poller);
            (at.map(|at| list.swap_remove(at).1), list.is_empty())
        };
        later::run(waker.map(Due::Drop));
        is_empty
    }

    /// Wakes all tasks, and forgets them.
    pub(crate) fn wake_all(&self) {
        let list = std::mem::take(&mut *self.lock());
        later::run(list.into_iter().map(|(_, waker)| Due::Wake(waker)));
    }
}

impl Wake for Wakers {
    fn wake(self: Arc<Self>) {
        self.wake_all();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.wake_all();
    }
}
