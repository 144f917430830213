//! A queue without a qdisc: the sender's own batch goes to the driver, or is dropped (`__dev_queue_xmit` of a device without a
//! queue).

use txq_core::arch::Arch;
use txq_core::drop::DropReason;
use txq_core::packet::{Packet, PacketList};
use txq_sched::generic::qdisc::Verdict;

use crate::generic::datapath::{Core, Ctx, Gate, Root};
use crate::generic::txqueue::TxQueue;

/// Sends a batch without a qdisc, and drops packets that the driver refuses.
#[inline(always)]
pub(crate) fn run_noqueue<A: Arch>(
    core: &mut Core<A>,
    root: &Root<A>,
    txq: u16,
    batch: &mut PacketList<A>,
    cx: &mut Ctx<'_, A>,
) -> Verdict {
    let txq = &cx.dev.txqs[usize::from(txq)];
    core.counters.taken += batch.len() as u64;
    match core.permit.covers(batch, cx) {
        true => permitted(core, root, txq, batch, cx),
        false => run_noqueue_slow(core, root, txq, batch, cx),
    }
}

/// Sends a batch that the permit covers.
#[inline(always)]
fn permitted<A: Arch>(
    core: &mut Core<A>,
    root: &Root<A>,
    txq: &TxQueue<A>,
    batch: &mut PacketList<A>,
    cx: &mut Ctx<'_, A>,
) -> Verdict {
    let n = batch.len() as u64;
    let mut direct = Direct { core, packets: n };
    let sent = txq.pass_permitted(root.index, batch, cx, &mut direct.core.counters.drops);
    direct.packets = 0;
    direct.core.counters.sent += sent.packets;
    direct.core.counters.sent_bytes += sent.bytes;
    match sent.packets == n {
        true => Verdict::Success,
        false => refused_directly(direct.core, root, txq, batch, sent.packets, cx),
    }
}

/// As [`run_noqueue`], where no permit covers a single packet: checks all conditions, unless one covers the batch. The batch
/// counts as taken.
#[inline(never)]
fn run_noqueue_slow<A: Arch>(
    core: &mut Core<A>,
    root: &Root<A>,
    txq: &TxQueue<A>,
    batch: &mut PacketList<A>,
    cx: &mut Ctx<'_, A>,
) -> Verdict {
    if core.permit.covers_batch(batch, cx) {
        return permitted(core, root, txq, batch, cx);
    }
    let n = batch.len() as u64;
    core.end_permit();
    if core.gate != Gate::Open
        && let Some(verdict) = core.at_gate(batch, cx)
    {
        return verdict;
    }
    let mut direct = Direct { core, packets: n };
    if txq.stopped() || n > u64::from(txq.room()) {
        // No queue keeps what the ring has no room for, and packets may be complete that nobody has reaped.
        txq.reopen(root, batch.len(), cx);
    }
    let passes = !cx.is_traced() && txq.takes_all(root.index, batch);
    let defers = (passes && txq.may_defer(batch, cx)).then(|| batch.front().map_or(0, Packet::priority));
    let drops = &mut direct.core.counters.drops;
    let sent = match passes {
        true => txq.pass(root.index, batch, cx, drops),
        false => txq.transmit(root.index, batch, cx, drops),
    };
    direct.packets = 0;
    let core = &mut *direct.core;
    core.counters.sent += sent.packets;
    core.counters.sent_bytes += sent.bytes;
    match defers {
        Some(priority) if sent.packets == n => {
            let more = txq.reap_or_defer(root.index, cx);
            core.grant_permit(more, priority, cx);
            Verdict::Success
        }
        _ if sent.packets == n => {
            txq.reap_or_leave(root.index, cx);
            Verdict::Success
        }
        _ => refused_directly(core, root, txq, batch, sent.packets, cx),
    }
}

/// Drops packets that the driver has refused, where there is no queue; `sent` others were sent. Returns the verdict.
#[cold]
fn refused_directly<A: Arch>(
    core: &mut Core<A>,
    root: &Root<A>,
    txq: &TxQueue<A>,
    batch: &mut PacketList<A>,
    sent: u64,
    cx: &mut Ctx<'_, A>,
) -> Verdict {
    core.end_permit();
    core.drop_all(batch, DropReason::FullRing, cx);
    txq.forget_growth(root.index);
    if txq.stopped() {
        // The queue counts as full until the txq is woken (`NoQueue::note_wake`).
        root.fill.note_full(0);
    }
    txq.reap_or_leave(root.index, cx);
    if sent == 0 { Verdict::Drop } else { Verdict::Congested }
}

/// Guards a core without a qdisc while the driver has a batch or is polled. Counts the packets as lost if the driver panics.
struct Direct<'c, A: Arch> {
    core: &'c mut Core<A>,
    packets: u64,
}

impl<A: Arch> Drop for Direct<'_, A> {
    /// Inlined, so that the guard's fields need not be in memory.
    #[inline(always)]
    fn drop(&mut self) {
        if self.packets > 0 {
            self.core.direct_panicked(self.packets);
        }
    }
}

impl<A: Arch> Core<A> {
    #[cold]
    fn direct_panicked(&mut self, packets: u64) {
        self.permit.withdraw();
        self.counters.drops.add(DropReason::NotSpecified, packets);
    }
}
