//! The seat: a txq that one queue alone feeds needs no locks of its own.
//!
//! A queue has one owner, and at most one thread is in the driver for it (`Core::running`). So while one queue alone feeds a
//! txq, that ownership already excludes every other thread from the driver's transmitting half, and with inline completions
//! from its completing half too. Such a queue has the *seat* of the txq, and its owner takes neither the tx lock nor the
//! completion lock. A worker that must reap the txq runs the queue, whose owner reaps ([`Errand`](crate::ctx::Errand)).
//!
//! Two queues feed a txq only while the rule changes by which senders choose queues (`datapath/selector.rs`). The thread that
//! changes the rule first revokes the seat; from then on all threads take the locks. Once the old queue only relays and no
//! thread is in the driver for it, the new queue is granted the seat.
//!
//! | seat | the transmitting half belongs to | the completing half belongs to |
//! |---|---|---|
//! | [`LOCKS`] | the holder of the tx lock | the holder of the completion lock |
//! | root + 1 | the thread that is in the driver for that root, or owns its core while no thread is | the same with inline completions; else the holder of the completion lock |
//! | the same + [`SUSPENDED`] | as above, but no transmission begins | as above, but no reap begins |
//!
//! Happens-before: the discipline's own hand-over orders one owner of a root before the next. From locks to seat, `grant`
//! stores the seat (Release) with both locks held, and the owner loads it (Acquire). From seat to locks, `revoke` runs as
//! the owner of the core and stores (Release); a thread that loads [`LOCKS`] (Acquire) then takes a lock and loads the seat
//! again.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use txq_core::arch::{Arch, Atomic};

use super::{DoneSide, TxQueue, TxSide};

/// No queue has the seat.
const LOCKS: u32 = 0;
/// A thread waits until the driver is idle. The owner begins no transmission and no reap, so that the wait is short.
const SUSPENDED: u32 = 1 << 31;

/// The root that has the seat: [`LOCKS`], or the root's number plus 1, with or without [`SUSPENDED`]. Written by control
/// operations only (`grant`, `revoke`: Release; `suspend`, `resume`: Relaxed, a hint); read at each transmission and each
/// reap (Acquire).
pub(crate) struct Seat<A: Arch>(A::AtomicU32);

/// How a thread may use the driver for a root.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    /// Ownership of the root is enough.
    Owner,
    /// Only with the lock held, after loading the seat again.
    Lock,
    /// Not until the thread that has suspended the seat resumes it.
    Suspended,
    /// Not while another root has the seat.
    Wait,
}

impl<A: Arch> Seat<A> {
    pub(crate) fn new() -> Self {
        Self(A::AtomicU32::new(LOCKS))
    }

    /// Returns how a thread that is in the driver for `root` may use it.
    #[inline]
    pub(crate) fn access(&self, root: usize) -> Access {
        match self.0.load(Acquire) {
            seat if seat == root as u32 + 1 => Access::Owner,
            LOCKS => Access::Lock,
            seat if seat & SUSPENDED != 0 => Access::Suspended,
            _ => Access::Wait,
        }
    }

    /// Whether the seat is suspended.
    fn is_suspended(&self) -> bool {
        // Relaxed: orders nothing. The thread that resumes the seat runs the queue afterwards.
        self.0.load(Relaxed) & SUSPENDED != 0
    }

    /// Whether no queue has the seat, so that the caller's lock gives access.
    #[inline]
    pub(crate) fn is_vacant(&self) -> bool {
        // Acquire: the last owner's writes; pairs with `revoke`.
        self.0.load(Acquire) == LOCKS
    }

    /// Returns the root that has the seat.
    #[inline]
    pub(crate) fn root(&self) -> Option<usize> {
        (self.0.load(Acquire) & !SUSPENDED).checked_sub(1).map(|root| root as usize)
    }

    /// Grants the vacant seat to a root. The caller holds both locks; no thread is in the driver for another root.
    pub(crate) fn grant(&self, root: usize) {
        self.0.store(root as u32 + 1, Release);
    }

    /// Revokes the seat. The caller owns the core of the root that has it, and no thread is in the driver.
    pub(crate) fn revoke(&self) {
        self.0.store(LOCKS, Release);
    }

    /// Suspends the seat if `root` still has it. A vacant seat is never suspended: a queue that uses the locks would be
    /// refused, and noqueue drops refused packets.
    pub(crate) fn suspend(&self, root: usize) {
        let seat = root as u32 + 1;
        // Relaxed: orders nothing. The owner may begin once more, and the caller waits for it.
        let _ = self.0.compare_exchange(seat, seat | SUSPENDED, Relaxed, Relaxed);
    }

    /// Ends [`suspend`](Seat::suspend), for all threads: another waiting thread suspends the seat again at its next check.
    pub(crate) fn resume(&self) {
        self.0.fetch_and(!SUSPENDED, Relaxed);
    }
}

impl<A: Arch> TxQueue<A> {
    /// Returns the root that has the seat.
    pub(crate) fn seated(&self) -> Option<usize> {
        self.seat.root()
    }

    /// Takes both locks and calls `f` with both halves, if the caller may access them: the seat is vacant, or `owns_seat`
    /// says that the caller owns it. Otherwise returns `None`.
    pub(crate) fn with_locks<R>(
        &self,
        owns_seat: bool,
        f: impl FnOnce(&mut TxSide<A>, &mut DoneSide<A>) -> R,
    ) -> Option<R> {
        self.tx.with(|tx| {
            // Makes no reference to a half before it is certain that the locks, or the caller's seat, guard it.
            self.done.with(|done| (owns_seat || self.seat.is_vacant()).then(|| f(tx.data(), done.data())))
        })
    }

    /// Grants the vacant seat to a root, with both locks held. No thread is in the driver for another root.
    pub(crate) fn grant(&self, root: usize) {
        self.tx.with(|_| self.done.with(|_| self.seat.grant(root)));
    }

    /// Revokes the seat. The caller owns the driver.
    pub(crate) fn revoke(&self) {
        self.seat.revoke();
    }

    /// Suspends the seat if `root` still has it, so that a thread that waits for the driver gets it.
    pub(crate) fn suspend(&self, root: usize) {
        self.seat.suspend(root);
    }

    /// Whether the seat is suspended. The thread that has suspended it runs the owner's queue afterwards.
    pub(crate) fn is_suspended(&self) -> bool {
        self.seat.is_suspended()
    }

    /// Ends [`suspend`](TxQueue::suspend). The caller then schedules the queue, for packets that were refused meanwhile.
    pub(crate) fn resume(&self) {
        self.seat.resume();
    }
}

#[cfg(test)]
mod tests {
    use txq_core::arch::Native;

    use super::*;

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
