//! The tasks that wait for one sender.
//!
//! A sender has one waker, and a lane's sender serves many connections. So the sender's waker is the lane's list of tasks,
//! and wakes all of them: each then tries again, and waits again if it lost.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Wake, Waker};

/// The tasks that wait, by the number of their poller.
#[derive(Debug, Default)]
pub(crate) struct Wakers(Mutex<Vec<(u64, Waker)>>);

impl Wakers {
    fn lock(&self) -> MutexGuard<'_, Vec<(u64, Waker)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds the task of a poller, or replaces the poller's earlier one.
    pub(crate) fn add(&self, poller: u64, waker: &Waker) {
        let mut list = self.lock();
        match list.iter_mut().find(|(number, _)| *number == poller) {
            Some((_, known)) => known.clone_from(waker),
            None => list.push((poller, waker.clone())),
        }
    }

    /// Removes the task of a poller; returns whether none is left.
    pub(crate) fn remove(&self, poller: u64) -> bool {
        let mut list = self.lock();
        list.retain(|(number, _)| *number != poller);
        list.is_empty()
    }

    /// Wakes all tasks, and forgets them.
    pub(crate) fn wake_all(&self) {
        // Woken without the lock: a waker is the executor's code.
        let list = std::mem::take(&mut *self.lock());
        list.into_iter().for_each(|(_, waker)| waker.wake());
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
