//! What a sender does before it drops for want of room in front of a queue.
//!
//! The list in front of a queue is full because the queue's owner, or a thread that holds something the owner needs, has
//! been preempted: an owner that runs empties the list within microseconds, whatever the qdisc makes of the packets. In the
//! kernel neither can be preempted. Here the sender has the CPU that the other thread needs. So it first does what is due
//! for the queue's txqs, then gives its CPU away, then sleeps, and drops only when that has not helped for about a slice
//! of the scheduler. The wait is for a CPU and never for the device, which may be slow or stand still.

use std::mem;

use crate::arch::Arch;
use crate::ctx::Ctx;
use crate::netdev::{Root, Shared};

/// Times that a sender gives its CPU away before it sleeps. Others that give theirs away too come in between, so each
/// thread that is ready gets a turn.
const YIELDS: u32 = 4;

/// Packets that a sender still has in its hands while it runs the queue or reaps for others. Counts them as lost if a driver
/// or a qdisc panics in that; the list that has them frees them.
pub(super) struct InHand<'d, A: Arch> {
    dev: &'d Shared<A>,
    packets: usize,
}

impl<'d, A: Arch> InHand<'d, A> {
    /// Calls `f`, in which a driver or a qdisc may panic, while the sender has `packets` in its hands.
    pub(super) fn during<R>(dev: &'d Shared<A>, packets: usize, f: impl FnOnce() -> R) -> R {
        let in_hand = Self { dev, packets };
        let result = f();
        mem::forget(in_hand);
        result
    }
}

impl<A: Arch> Drop for InHand<'_, A> {
    fn drop(&mut self) {
        self.dev.count_lost(self.packets as u64);
    }
}

/// Reaps the queue's stopped txqs where anybody may: what is due before a sender waits or drops.
pub(super) fn reap_stopped<A: Arch>(root: &Root<A>, cx: &mut Ctx<'_, A>) {
    match root.txq {
        Some(txq) => cx.dev.txqs[usize::from(txq)].reap_if_stopped(cx),
        None => cx.dev.txqs.iter().for_each(|txq| txq.reap_if_stopped(cx)),
    }
}

/// One sender's waits in one call.
pub(super) struct Patience {
    waits: u32,
}

impl Patience {
    pub(super) fn new() -> Self {
        Self { waits: 0 }
    }

    /// Waits for the owner of `root` once more; returns false, at once, when the sender shall drop.
    ///
    /// A sender that is inside of another call, from a driver or a qdisc, does not wait: the owner may wait for that call.
    #[cold]
    pub(super) fn wait<A: Arch>(&mut self, root: &Root<A>, cx: &mut Ctx<'_, A>) -> bool {
        // The caller's own entry is one.
        let nested = A::inside(|inside| inside.depth()) > 1;
        if self.waits == A::WAITS_FOR_ROOM || nested || cx.dev.is_stopping() {
            return false;
        }
        reap_stopped(root, cx);
        if self.waits < YIELDS {
            A::yield_cpu()
        } else {
            A::relax()
        }
        self.waits += 1;
        true
    }
}
