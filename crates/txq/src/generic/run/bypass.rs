//! Bypass of the qdisc: an owner's own batch goes straight to the driver if it overtakes no queued packet
//! (`TCQ_F_CAN_BYPASS`).
//!
//! Most programs send single packets, and most of these find the queue empty and the txq open. A turn then has nothing to
//! decide. A bypass has the same result as a turn that enqueues and dequeues the batch, without moving it between lists. It
//! needs the seat of the txq (`txqueue/seat.rs`), and the owner keeps the core while it is in the driver.

use std::mem;

use txq_core::arch::{Arch, Memory};
use txq_core::packet::{Packet, PacketList};
use txq_sched::generic::qdisc::Verdict;

use crate::generic::datapath::Core;
use crate::generic::datapath::Ctx;
use crate::generic::datapath::Gate;
use crate::generic::datapath::Root;
use crate::generic::run::through::through;
use crate::generic::run::{Driven, QUOTA};
use crate::generic::transfer::Transmitted;
use crate::generic::txqueue::TxQueue;

/// The result of [`bypass`].
#[derive(Clone, Copy)]
pub(crate) enum Bypass {
    /// Nothing: the batch needs a turn.
    No,
    /// The queue has the batch, and no queued packet can be sent now. Holds the verdict on the batch.
    Done(Verdict),
    /// The queue has the batch, and the caller must run the queue. Holds the verdict on the batch.
    Run(Verdict),
}

impl Bypass {
    /// Returns the verdict on the batch; `of_turn` is that of the turn that follows.
    #[inline]
    pub(crate) fn verdict_or(self, of_turn: Verdict) -> Verdict {
        match self {
            Self::No => of_turn,
            Self::Done(verdict) | Self::Run(verdict) => verdict,
        }
    }
}

/// Gives a batch to the driver if it may bypass the qdisc, or passes it through the qdisc without a turn. The caller owns the
/// core, and no packet waits for it.
#[inline(always)]
pub(crate) fn bypass<A: Arch>(
    core: &mut Core<A>,
    root: &Root<A>,
    batch: &mut PacketList<A>,
    cx: &mut Ctx<'_, A>,
) -> Bypass {
    A::touch(|| &*core, Memory::Queue);
    match root.txq {
        Some(txq) if core.permit.covers(batch, cx) => permitted(core, root, txq, batch, 1, cx),
        _ => checked(core, root, batch, cx),
    }
}

/// Gives the driver a batch of `packets` that the permit covers.
#[inline(always)]
fn permitted<A: Arch>(
    core: &mut Core<A>,
    root: &Root<A>,
    txq: u16,
    batch: &mut PacketList<A>,
    packets: u64,
    cx: &mut Ctx<'_, A>,
) -> Bypass {
    let txq = &cx.dev.txqs[usize::from(txq)];
    core.counters.taken += packets;
    let passing = Passing { core, batch, packets };
    let sent = txq.pass_permitted(root.index, passing.batch, cx, &mut passing.core.counters.drops);
    let Passing { core, batch, .. } = &mut *mem::ManuallyDrop::new(passing);
    core.counters.sent += sent.packets;
    core.counters.sent_bytes += sent.bytes;
    match batch.is_empty() {
        true => Bypass::Done(Verdict::Success),
        false => refused(core, root, txq, batch, &sent, cx),
    }
}

/// As [`bypass`], where no permit covers a single packet: checks all conditions, unless one covers the batch. A batch that may
/// not bypass the qdisc goes through it.
#[inline(never)]
fn checked<A: Arch>(
    core: &mut Core<A>,
    root: &Root<A>,
    batch: &mut PacketList<A>,
    cx: &mut Ctx<'_, A>,
) -> Bypass {
    if let Some(txq) = root.txq.filter(|_| core.permit.covers_batch(batch, cx)) {
        return permitted(core, root, txq, batch, batch.len() as u64, cx);
    }
    core.permit.check_again();
    let blocked = core.running || core.gate != Gate::Open || core.has_unadmitted();
    // A qdisc that measures how long its packets wait must see the sampled ones.
    if blocked || batch.len() > QUOTA || batch.stamped() || cx.is_traced() {
        return Bypass::No;
    }
    let Some(txq) = root.txq.or_else(|| batch.front().map(Packet::txq)) else { return Bypass::No };
    let txq = &cx.dev.txqs[usize::from(txq)];
    txq.fetch_to_write(root.index);
    if !txq.takes_all(root.index, batch) {
        return Bypass::No;
    }
    if core.requeued.is_empty() {
        let for_one_txq = root.txq.is_some() || batch.len() == 1;
        if for_one_txq && core.qdisc_lets_by(batch) {
            core.counters.taken += batch.len() as u64;
            return give(core, root, txq, batch, cx).unwrap_or(Bypass::Done(Verdict::Success));
        }
    } else if root.txq.is_some() {
        // The driver has refused packets. In a queue for several txqs, these may be packets dequeued ahead for other txqs.
        return Bypass::No;
    }
    through(core, root, batch, cx)
}

/// Gives the driver a batch that it takes whole, and reaps or leaves the completions. The core counts the batch as taken.
/// Returns how to go on if the driver has refused packets.
#[inline]
pub(super) fn give<A: Arch>(
    core: &mut Core<A>,
    root: &Root<A>,
    txq: &TxQueue<A>,
    batch: &mut PacketList<A>,
    cx: &mut Ctx<'_, A>,
) -> Option<Bypass> {
    let n = batch.len() as u64;
    let defers = txq.may_defer(batch, cx).then(|| batch.front().map_or(0, Packet::priority));
    let passing = Passing { core, batch, packets: n };
    let sent = txq.pass(root.index, passing.batch, cx, &mut passing.core.counters.drops);
    let Passing { core, batch, .. } = &mut *mem::ManuallyDrop::new(passing);
    core.counters.sent += sent.packets;
    core.counters.sent_bytes += sent.bytes;
    if !batch.is_empty() {
        return Some(refused(core, root, txq, batch, &sent, cx));
    }
    match defers {
        None => txq.reap_or_leave(root.index, cx),
        Some(priority) => {
            let more = txq.reap_or_defer(root.index, cx);
            core.grant_permit(more, priority, cx);
        }
    }
    None
}

/// Requeues packets that the driver has refused.
#[cold]
fn refused<A: Arch>(
    core: &mut Core<A>,
    root: &Root<A>,
    txq: &TxQueue<A>,
    batch: &mut PacketList<A>,
    sent: &Transmitted,
    cx: &mut Ctx<'_, A>,
) -> Bypass {
    core.end_permit();
    core.requeue(root, batch, cx);
    txq.reap_or_leave(root.index, cx);
    if let Some(after) = sent.retry {
        cx.dev.retry(root.index, after);
        // The timer runs the queue, and nothing may before.
        return Bypass::Done(Verdict::Success);
    }
    Bypass::Run(Verdict::Success)
}

/// Guards a batch that bypasses the qdisc. Forgotten when the driver returns; dropped when it panics.
struct Passing<'c, A: Arch> {
    core: &'c mut Core<A>,
    batch: &'c mut PacketList<A>,
    packets: u64,
}

impl<A: Arch> Drop for Passing<'_, A> {
    /// Inlined, so that the guard's fields need not be in memory.
    #[inline(always)]
    fn drop(&mut self) {
        self.core.passing_panicked(self.batch, self.packets);
    }
}

impl<A: Arch> Core<A> {
    #[cold]
    fn passing_panicked(&mut self, batch: &mut PacketList<A>, packets: u64) {
        let mut driven = Driven::new();
        driven.batch.append(batch);
        driven.packets = packets;
        driven.purges = self.purges;
        self.counters.in_driver = packets;
        self.driver_panicked(&mut driven);
    }
}
