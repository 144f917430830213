//! The short way through the qdisc, for an owner whose batch may not bypass it: enqueues the batch and gives the driver what the
//! qdisc lets go, without a turn.
//!
//! Most qdiscs cannot be bypassed: they shape, or sort packets into classes, or note their times. A sender that finds no other
//! at the queue needs nothing else of a turn ([`turn`](super::turn)): it gathers no packets of others, keeps the core while it is
//! in the driver, and sends at most one quota. A turn follows if packets are left that may be sent, or if it finds anything
//! that is a turn's concern.

use txq_core::arch::Arch;
use txq_core::packet::PacketList;
use txq_sched::generic::qdisc::Verdict;

use crate::generic::datapath::{Core, Ctx, Root};
use crate::generic::run::QUOTA;
use crate::generic::run::bypass::{Bypass, give};

/// Passes a batch of at most [`QUOTA`] packets through the qdisc. The caller owns the core, no thread is in the driver for the
/// queue, the gate is open, and no packet waits in front of the qdisc.
#[inline(never)]
pub(super) fn through<A: Arch>(
    core: &mut Core<A>,
    root: &Root<A>,
    batch: &mut PacketList<A>,
    cx: &mut Ctx<'_, A>,
) -> Bypass {
    // Senders that wait for room are a turn's concern.
    if core.qdisc.is_none() || !root.fill.word().is_quiet() {
        return Bypass::No;
    }
    core.end_permit();
    core.counters.taken += batch.len() as u64;
    let verdict = core.enqueue(root, batch, cx);
    let mut queued = core.qlen();
    if verdict != Verdict::Success || queued >= core.marks.high {
        return Bypass::Run(verdict);
    }
    let mut left = QUOTA;
    while queued > 0 {
        if left == 0 {
            return Bypass::Run(verdict);
        }
        let Some(txq) = core.dequeue(root, left, batch, cx) else { break };
        let txq = &cx.dev.txqs[usize::from(txq)];
        left -= batch.len().min(left);
        if !txq.takes(root.index, batch.len()) {
            // A turn takes the locks. Or the qdisc has exceeded its budget.
            core.put_in_front(batch);
            return Bypass::Run(verdict);
        }
        match give(core, root, txq, batch, cx) {
            None => queued = core.qlen(),
            Some(Bypass::Run(_)) => return Bypass::Run(verdict),
            // A timer runs the queue with refused packets, and nothing may before.
            Some(_) => break,
        }
    }
    Bypass::Done(verdict)
}
