//! [`Deferred`]: what a txq knows of completions that senders leave to their next calls (`transfer/reap.rs`,
//! `transfer/defer.rs`).

use std::sync::atomic::Ordering::Relaxed;

use txq_core::arch::{Arch, Atomic};

/// The owner leaves no completions to the worker.
pub(crate) const UNWATCHED: u32 = 0;
/// The worker watches the txq, or its schedule has the txq's bit. The owner reaps after each batch.
pub(crate) const WATCHED: u32 = 1;
/// As [`WATCHED`], and the owner defers.
pub(crate) const DEFERRING: u32 = 2;

/// The words by which the owner and the worker agree on deferred completions.
pub(crate) struct Deferred<A: Arch> {
    /// [`UNWATCHED`], [`WATCHED`] or [`DEFERRING`]. Written by the owner of the completing half alone; set to `UNWATCHED`
    /// only on the worker's errand, or when the driver is replaced. Read by the owner and by the worker. The worker reads it
    /// after its errand, and after it has taken the txq's bit from the schedule; the bit orders the store made before it.
    /// Relaxed: the queue's own hand-over orders one owner's accesses before the next owner's.
    pub(crate) watch: A::AtomicU32,
    /// The count of completed packets at the worker's last check. Accessed by that worker alone, relaxed.
    pub(crate) seen: A::AtomicU32,
    /// Packets between two reaps of a sender. Written by senders that reap, which adapt it, and by the thread that ends deferring.
    /// Relaxed: a hint that orders nothing.
    pub(crate) coalesced: A::AtomicU32,
}

impl<A: Arch> Deferred<A> {
    pub(crate) fn new() -> Self {
        let [watch, seen, coalesced] = [UNWATCHED, 0, 1].map(A::AtomicU32::new);
        Self { watch, seen, coalesced }
    }

    /// Changes `DEFERRING` to `WATCHED`: the owner reaps after each batch again.
    pub(crate) fn suspend(&self) {
        if self.watch.load(Relaxed) == DEFERRING {
            self.watch.store(WATCHED, Relaxed);
        }
    }
}
