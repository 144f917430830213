//! Wakes of the server's thread, and of a client that waits for credit or a buffer.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::task;

/// The eventfd on which the thread sleeps. No client has it: one that had could fill its counter and make a write wait.
#[derive(Clone, Debug)]
pub(super) struct Wake(Arc<OwnedFd>);

impl Wake {
    pub(super) fn new(fd: Arc<OwnedFd>) -> Self {
        Self(fd)
    }

    /// Wakes the thread.
    pub(super) fn ring(&self) {
        // It fails only when the counter is full; then the descriptor is readable anyway.
        let _ = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
    }

    /// Makes the descriptor unreadable again.
    pub(super) fn drain(&self) {
        let _ = rustix::io::read(&self.0, &mut [0; 8]);
    }
}

impl AsFd for Wake {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// The waker of a client's sender.
#[derive(Debug)]
pub(super) struct Ready {
    /// Set by the thread that frees a buffer (Release: its credit), cleared by the server's thread (Acquire).
    is: AtomicBool,
    wake: Wake,
}

impl Ready {
    pub(super) fn new(wake: Wake) -> Self {
        Self { is: AtomicBool::new(false), wake }
    }

    /// Returns whether it was woken since the last call.
    pub(super) fn take(&self) -> bool {
        self.is.swap(false, Acquire)
    }
}

impl task::Wake for Ready {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.is.store(true, Release);
        self.wake.ring();
    }
}
