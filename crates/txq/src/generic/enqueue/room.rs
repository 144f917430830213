//! What a sender does before it drops packets for want of room on the list in front of a queue.
//!
//! That list is full because the queue's owner, or a thread that holds something the owner needs, has been preempted: a
//! running owner empties the list within microseconds, whether the qdisc queues the packets or drops them. In the kernel
//! neither can be preempted. Here the sender has the CPU that the other thread needs. So it first reaps the queue's stopped
//! txqs, then yields its CPU, then sleeps, and drops only if that has not helped for about a slice of the scheduler. The
//! sender waits for a CPU and never for the device, which may be slow or stand still.

use std::mem;

use txq_core::arch::Arch;

use crate::generic::datapath::Ctx;
use crate::generic::datapath::{Datapath, Root};

/// Times that a sender yields its CPU before it sleeps. Other waiting senders yield in between, so each ready thread gets a
/// turn.
const YIELDS: u32 = 4;

/// Packets that a sender still holds while it runs the queue or reaps for others. Counts them as lost if a driver or a qdisc
/// panics meanwhile; the list that holds them frees them.
pub(super) struct InHand<'d, A: Arch> {
    dev: &'d Datapath<A>,
    packets: usize,
}

impl<'d, A: Arch> InHand<'d, A> {
    /// Calls `f`, in which a driver or a qdisc may panic, while the sender holds `packets` packets.
    pub(super) fn during<R>(dev: &'d Datapath<A>, packets: usize, f: impl FnOnce() -> R) -> R {
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

/// Reaps the queue's stopped txqs that any thread may reap. Senders call this before they wait or drop.
pub(super) fn reap_stopped<A: Arch>(root: &Root<A>, cx: &mut Ctx<'_, A>) {
    match root.txq {
        Some(txq) => cx.dev.txqs[usize::from(txq)].reap_if_stopped(cx),
        None => cx.dev.txqs.iter().for_each(|txq| txq.reap_if_stopped(cx)),
    }
}

/// Counts one sender's waits in one call.
pub(super) struct Patience {
    waits: u32,
}

impl Patience {
    pub(super) fn new() -> Self {
        Self { waits: 0 }
    }

    /// Waits once more for the owner of `root` and returns true; returns false at once when the sender must drop.
    ///
    /// A sender inside another call, from a driver or a qdisc, does not wait: the owner may wait for that call.
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
