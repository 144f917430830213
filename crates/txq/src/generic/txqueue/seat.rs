//! The seat: a txq that one queue alone feeds needs no locks of its own.
//!
//! An owner that keeps its queue's core while it is in the driver (all but those of the root lock) already excludes every other
//! thread from the transmitting half of a driver that this queue alone feeds, and with inline completions from its completing
//! half too. Such a queue has the *seat* of the txq, and its owner takes neither the tx lock nor the completion lock. A worker that
//! must reap the txq runs the queue, whose owner reaps ([`Errand`](crate::generic::datapath::Errand)).
//!
//! Two queues feed a txq only while the rule changes by which senders choose queues (`datapath/selector.rs`). The thread that
//! changes the rule first revokes the seat; from then on all threads take the locks. Once the old queue only relays and no
//! thread is in the driver for it, the new queue is granted the seat.
//!
//! | seat | the transmitting half belongs to | the completing half belongs to |
//! |---|---|---|
//! | [`LOCKS`] | the holder of the tx lock | the holder of the completion lock |
//! | root + 1 | the owner of that root's core | the same with inline completions; else the holder of the completion lock |
//!
//! Happens-before: the discipline's own hand-over orders one owner of a root before the next. From locks to seat, `grant`
//! stores the seat (Release) with both locks held, and the owner loads it (Acquire). From seat to locks, `revoke` runs as
//! the owner of the core and stores (Release); a thread that loads [`LOCKS`] (Acquire) then takes a lock and loads the seat
//! again.

use std::sync::atomic::Ordering::{Acquire, Release};

use txq_core::arch::{Arch, Atomic};

use super::{DoneSide, TxQueue, TxSide};

/// No queue has the seat.
const LOCKS: u32 = 0;

/// The root that has the seat: [`LOCKS`], or the root's number plus 1. Written by control operations only (`grant`, `revoke`:
/// Release); read at each transmission and each reap (Acquire).
pub(crate) struct Seat<A: Arch>(A::AtomicU32);

/// How a thread may use the driver for a root.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    /// Ownership of the root is enough.
    Owner,
    /// Only with the lock held, after loading the seat again.
    Lock,
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
            _ => Access::Wait,
        }
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
        self.0.load(Acquire).checked_sub(1).map(|root| root as usize)
    }

    /// Grants the vacant seat to a root. The caller holds both locks; no thread is in the driver for another root.
    pub(crate) fn grant(&self, root: usize) {
        self.0.store(root as u32 + 1, Release);
    }

    /// Revokes the seat. The caller owns the core of the root that has it.
    pub(crate) fn revoke(&self) {
        self.0.store(LOCKS, Release);
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
}
