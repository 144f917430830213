//! The seat: a txq that one queue alone feeds needs no locks of its own.
//!
//! A queue has one owner, and at most one thread is in the driver for it (`Core::running`). So while one queue alone feeds a
//! txq, that ownership already excludes every other thread from the driver's transmitting half, and with inline completions
//! from its completing half too. Such a queue has the *seat* of the txq, and neither the tx lock nor the completion lock is
//! taken. A worker that has to reap the txq runs the queue, whose owner reaps ([`Errand`](crate::ctx::Errand)).
//!
//! Two queues feed a txq only while the rule changes that senders go by (`netdev/rule.rs`). The thread that changes the rule takes
//! the seat away first; from then on everybody takes the locks; and once the old queue only relays and nobody is in the driver
//! for it, the new queue gets the seat.
//!
//! | seat | the transmitting half belongs to | the completing half belongs to |
//! |---|---|---|
//! | [`LOCKS`] | the holder of the tx lock | the holder of the completion lock |
//! | root + 1 | the thread that is in the driver for that root, or has its core while nobody is | the same with inline completions; else the holder of the completion lock |
//! | the same + [`SUSPENDED`] | as above, but no transmission begins | as above, but no reap begins |
//!
//! Happens-before: two owners of one root follow each other by the discipline's own hand-over. From locks to seat, `grant`
//! stores the seat (Release) with both locks held, and the owner loads it (Acquire). From seat to locks, `revoke` runs as the
//! owner of the core and stores (Release); a thread that loads [`LOCKS`] (Acquire) then takes a lock and loads the seat again.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use super::{DoneSide, TxQueue, TxSide};
use crate::arch::{Arch, Atomic};

/// Nobody has the seat.
const LOCKS: u32 = 0;
/// A thread waits for the driver to be idle. The owner begins nothing, so that the wait is short.
const SUSPENDED: u32 = 1 << 31;

/// Which queue has the seat. Read at each transmission and each reap, written by control operations only.
pub(super) struct Seat<A: Arch>(A::AtomicU32);

/// What the seat says to a thread that wants to use the driver for a root.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Access {
    /// Ownership of the root is enough.
    Owner,
    /// The lock is needed, and the seat read again with the lock held.
    Lock,
    /// Not before the thread that has suspended the seat is done.
    Suspended,
    /// Not while another root has the seat.
    Wait,
}

impl<A: Arch> Seat<A> {
    pub(super) fn new() -> Self {
        Self(A::AtomicU32::new(LOCKS))
    }

    /// How a thread that is in the driver for `root` gets at it.
    #[inline]
    pub(super) fn access(&self, root: usize) -> Access {
        match self.0.load(Acquire) {
            seat if seat == root as u32 + 1 => Access::Owner,
            LOCKS => Access::Lock,
            seat if seat & SUSPENDED != 0 => Access::Suspended,
            _ => Access::Wait,
        }
    }

    /// Whether the owner may begin nothing.
    fn is_suspended(&self) -> bool {
        // Orders nothing: the thread that ends it runs the queue after that.
        self.0.load(Relaxed) & SUSPENDED != 0
    }

    /// Whether a lock is what gives access; for the holder of one.
    #[inline]
    pub(super) fn is_vacant(&self) -> bool {
        // Acquire: what the last owner did.
        self.0.load(Acquire) == LOCKS
    }

    /// The root that has the seat.
    #[inline]
    pub(super) fn root(&self) -> Option<usize> {
        (self.0.load(Acquire) & !SUSPENDED).checked_sub(1).map(|root| root as usize)
    }

    /// Gives the vacant seat to a root. The caller holds both locks; nobody is in the driver for another root.
    pub(super) fn grant(&self, root: usize) {
        self.0.store(root as u32 + 1, Release);
    }

    /// Takes the seat away. The caller has the core of the root that has it, and nobody is in the driver.
    pub(super) fn revoke(&self) {
        self.0.store(LOCKS, Release);
    }

    /// Lets the owner begin nothing, if `root` still has the seat. A vacant seat is never suspended: a queue that uses the locks
    /// would be refused, and noqueue drops what is refused.
    pub(super) fn suspend(&self, root: usize) {
        let seat = root as u32 + 1;
        // Orders nothing: the owner may begin once more, and the caller waits for it.
        let _ = self.0.compare_exchange(seat, seat | SUSPENDED, Relaxed, Relaxed);
    }

    /// Ends [`suspend`](Seat::suspend), for everybody: another thread that waits suspends the seat again when it looks next.
    pub(super) fn resume(&self) {
        self.0.fetch_and(!SUSPENDED, Relaxed);
    }
}

impl<A: Arch> TxQueue<A> {
    /// The root that has the seat.
    pub(crate) fn seated(&self) -> Option<usize> {
        self.seat.root()
    }

    /// Calls `f` with both halves and with both locks held if that gives access to them: the seat is vacant, or its owner is
    /// the caller, who says so by `owns_seat`. Returns `None` without access.
    pub(crate) fn with_locks<R>(
        &self,
        owns_seat: bool,
        f: impl FnOnce(&mut TxSide<A>, &mut DoneSide<A>) -> R,
    ) -> Option<R> {
        self.tx.with(|tx| {
            // No reference to a half is made before it is known that the locks, or the caller's seat, guard it.
            self.done.with(|done| (owns_seat || self.seat.is_vacant()).then(|| f(tx.data(), done.data())))
        })
    }

    /// Gives the vacant seat to a root, with both locks held. Nobody is in the driver for another root.
    pub(crate) fn grant(&self, root: usize) {
        self.tx.with(|_| self.done.with(|_| self.seat.grant(root)));
    }

    /// Takes the seat away. The caller has the driver.
    pub(crate) fn revoke(&self) {
        self.seat.revoke();
    }

    /// Lets the owner begin nothing if `root` still has the seat, so that a thread that waits for the driver gets it.
    pub(crate) fn suspend(&self, root: usize) {
        self.seat.suspend(root);
    }

    /// Whether the seat's owner may begin nothing now. The thread that has suspended it then runs the owner's queue afterwards.
    pub(crate) fn is_suspended(&self) -> bool {
        self.seat.is_suspended()
    }

    /// Ends [`suspend`](TxQueue::suspend). The caller has the queue run afterwards, for what was refused meanwhile.
    pub(crate) fn resume(&self) {
        self.seat.resume();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arch::Native;

    #[test]
    fn only_the_root_that_has_the_seat_is_suspended() {
        let seat = Seat::<Native>::new();
        seat.suspend(3);
        assert!(seat.is_vacant() && seat.access(3) == Access::Lock);
        seat.grant(5);
        seat.suspend(3);
        assert!(seat.access(5) == Access::Owner && seat.access(3) == Access::Wait);
        seat.suspend(5);
        assert!(seat.access(5) == Access::Suspended && seat.root() == Some(5));
        seat.resume();
        assert!(seat.access(5) == Access::Owner);
        seat.suspend(5);
        seat.revoke();
        seat.resume();
        assert!(seat.access(5) == Access::Lock);
    }
}
