//! A short way through the qdisc, for an owner whose batch may not bypass it: enqueues the batch, dequeues once and gives
//! the driver what comes, without a turn.
//!
//! Most qdiscs cannot be bypassed: they shape, or sort packets into classes, or note their times. A lone sender of single packets still
//! finds the queue and the txq as a bypass would, and a turn's loop, its quota and its hand-over have nothing to do. The result is that
//! of a turn which sends one batch. If packets are left that may be sent, a turn sends them.

use txq_core::arch::Arch;
use txq_core::packet::PacketList;
use txq_sched::qdisc::Verdict;

use crate::datapath::{Core, Ctx, Root};
use crate::run::QUOTA;
use crate::run::bypass::{Bypass, give};
use crate::txqueue::TxQueue;

/// Passes a batch through the qdisc. The batch meets the conditions of a bypass ([`bypass`](super::bypass())), except that
/// the qdisc does not let it by.
#[inline(never)]
pub(super) fn through<A: Arch>(
    core: &mut Core<A>,
    root: &Root<A>,
    txq: &TxQueue<A>,
    batch: &mut PacketList<A>,
    cx: &mut Ctx<'_, A>,
) -> Bypass {
    // A sender that waits for room is a turn's concern.
    if root.txq.is_none() || core.qdisc.is_none() || !root.fill.word().is_quiet() {
        return Bypass::No;
    }
    core.counters.taken += batch.len() as u64;
    let verdict = core.enqueue(root, batch, cx);
    if verdict != Verdict::Success || core.qlen() >= core.marks.high {
        return Bypass::Run(verdict);
    }
    if core.qlen() == 0 || core.dequeue(root, QUOTA, batch, cx).is_none() {
        return Bypass::Done(verdict);
    }
    if batch.len() > txq.room() as usize {
        // The qdisc has exceeded its budget.
        core.put_in_front(batch);
        return Bypass::Run(verdict);
    }
    match give(core, root, txq, batch, cx) {
        None if core.qlen() > 0 => Bypass::Run(verdict),
        Some(Bypass::Run(_)) => Bypass::Run(verdict),
        // A timer runs the queue with refused packets, and nothing may before.
        None | Some(_) => Bypass::Done(verdict),
    }
}
