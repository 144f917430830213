//! What a sender does before it drops packets for want of room on the list in front of a queue.
//!
//! That list is full because the queue's owner, or a thread that holds something the owner needs, has been preempted: a
//! running owner empties the list within microseconds, whether the qdisc queues the packets or drops them. In the kernel
//! neither can be preempted. Here the sender has the CPU that the other thread needs. So it first reaps the queue's stopped
//! txqs, then yields its CPU, then sleeps, and drops only if that has not helped for about a slice of the scheduler. The
//! sender waits for a CPU and never for the device, which may be slow or stand still.

use txq_core::arch::{Arch, Nanos};

use crate::generic::datapath::{Ctx, Root};
use crate::generic::tuning::{LONGEST_ROOM_WAIT, RETRY};

/// Reaps the queue's stopped txqs that any thread may reap. Senders call this before they wait or drop.
pub(super) fn reap_stopped<A: Arch>(root: &Root<A>, cx: &mut Ctx<'_, A>) {
    match root.txq {
        Some(txq) => cx.dev.txqs[usize::from(txq)].reap_if_stopped(cx),
        None => cx.dev.txqs.iter().for_each(|txq| txq.reap_if_stopped(cx)),
    }
}

/// One sender's waits in one call.
pub(super) struct Patience {
    /// When the sender gives up; `None` before the first wait.
    end: Option<Nanos>,
}

impl Patience {
    pub(super) fn new() -> Self {
        Self { end: None }
    }

    /// Waits once more for the owner of `root` and returns true; returns false at once when the sender must drop.
    ///
    /// A sender inside another call, from a driver or a qdisc, does not wait: the owner may wait for that call.
    #[cold]
    pub(super) fn wait<A: Arch>(&mut self, root: &Root<A>, cx: &mut Ctx<'_, A>) -> bool {
        // The caller's own entry is one.
        let nested = A::inside(|inside| inside.depth()) > 1;
        if nested || cx.dev.is_stopping() {
            return false;
        }
        let now = A::now();
        if self.end.is_some_and(|end| now >= end) {
            return false;
        }
        reap_stopped(root, cx);
        if self.end.is_some() {
            A::sleep(RETRY);
        } else {
            A::yield_cpu();
            self.end = Some(now + LONGEST_ROOM_WAIT);
        }
        cx.waited += A::now().saturating_sub(now);
        true
    }
}
