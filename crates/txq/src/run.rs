//! Running a queue: the one owner dequeues in bulk and feeds the driver (`__qdisc_run`, `sch_direct_xmit`).
//!
//! Everything that belongs to a queue is in its [`Core`], and one thread at a time has it. How a thread comes to have it is
//! the enqueue discipline's affair; to this file it is an [`Owner`], who can lay the core aside while the driver works
//! (a lock is released there; an ownership without a lock is just kept).
//!
//! A run ends when there is nothing to send, when the txq is stopped (its wake schedules the queue), when the driver
//! refuses (a timer does), or when its quota is used up (the worker goes on, so that no sender is held captive).

use crate::arch::Arch;
use crate::ctx::Ctx;
use crate::drop::{DropCounts, DropReason};
use crate::netdev::{Root, Shared};
use crate::packet::{Packet, PacketList};
use crate::qdisc::{Budget, Cx, Qdisc, Verdict};
use crate::stats::QdiscStats;
use crate::sync::contention::{HandOff, OwnerRecord};
use crate::txqueue::TxQueue;

/// Packets of one run (`dev_tx_weight`).
const QUOTA: usize = 64;
/// Packets of one batch where the qdisc serves several txqs (`try_bulk_dequeue_skb_slow`).
const BULK_SHARED: usize = 8;

/// A queue's state: the qdisc and what goes with it. Plain data with one owner.
pub(crate) struct Core<A: Arch> {
    /// None for noqueue.
    pub(crate) qdisc: Option<Box<dyn Qdisc<A>>>,
    /// Dequeued and not sent: refused by the driver (`gso_skb`), or found to be for another txq than the packet before
    /// (`skb_bad_txq`). Sent before everything else, and still part of the queue.
    requeued: PacketList<A>,
    /// Whether an owner is in the driver, with the core laid aside.
    running: bool,
    /// False once the device shuts down: everything that arrives is dropped (`__QDISC_STATE_DEACTIVATED`).
    active: bool,
    counters: CoreCounters,
    /// What the owners record, since that was first asked for.
    pub(crate) record: Option<Box<OwnerRecord>>,
}

/// What has happened to the packets that reached a [`Core`]. At any time, for whoever has the core:
/// `taken = sent + drops + in_driver + held`.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct CoreCounters {
    pub(crate) taken: u64,
    pub(crate) sent: u64,
    pub(crate) sent_bytes: u64,
    pub(crate) drops: DropCounts,
    pub(crate) requeues: u64,
    /// In the driver's hands at this moment.
    pub(crate) in_driver: u64,
    /// Queued here.
    pub(crate) held: u64,
}

/// Who has a [`Core`].
pub(crate) trait Owner<A: Arch> {
    /// The core.
    fn core(&mut self) -> &mut Core<A>;
    /// Lays the core aside while `f` runs. Others may have had it when this returns.
    fn unlocked<R>(&mut self, f: impl FnOnce() -> R) -> R;
}

impl<A: Arch> Core<A> {
    pub(crate) fn new(qdisc: Option<Box<dyn Qdisc<A>>>) -> Self {
        Self {
            qdisc,
            requeued: PacketList::new(),
            running: false,
            active: true,
            counters: CoreCounters::default(),
            record: None,
        }
    }

    /// The owner has taken packets that others had left for it.
    #[inline]
    pub(crate) fn note_drained(&mut self, packets: usize) {
        if let Some(record) = self.recording() {
            record.drained.record(packets as u64);
        }
    }

    /// The owner leaves the queue to somebody else, with packets in it.
    #[inline]
    pub(crate) fn note_hand_off(&mut self, to: HandOff) {
        if let Some(record) = self.recording() {
            record.hand_offs.note(to);
        }
    }

    /// Switches the owners' record on, with `fresh`, unless it is on, or off. What is not needed stays in `fresh`.
    pub(crate) fn set_recording(&mut self, fresh: &mut Option<Box<OwnerRecord>>) {
        let on = fresh.is_some();
        if on && self.recording().is_none() {
            std::mem::swap(&mut self.record, fresh);
        }
        if let Some(record) = &mut self.record {
            record.on = on;
        }
    }

    #[inline]
    fn recording(&mut self) -> Option<&mut OwnerRecord> {
        self.record.as_deref_mut().filter(|record| record.on)
    }

    /// The counters at this moment.
    pub(crate) fn counters(&self) -> CoreCounters {
        CoreCounters { held: self.qlen() as u64, ..self.counters }
    }

    /// Packets queued.
    pub(crate) fn qlen(&self) -> usize {
        self.qdisc.as_ref().map_or(0, |q| q.qlen()) + self.requeued.len()
    }

    /// The qdisc's counters, with those of the packets that wait to be sent again.
    pub(crate) fn stats(&self) -> QdiscStats {
        let mut stats = self.qdisc.as_ref().map(|q| q.stats()).unwrap_or_default();
        stats.backlog += self.requeued.bytes();
        stats.qlen += self.requeued.len() as u64;
        stats.requeues += self.counters.requeues;
        stats
    }

    /// Whether nothing is queued and nobody is in the driver.
    pub(crate) fn is_idle(&self) -> bool {
        !self.running && self.qlen() == 0
    }

    /// Drops everything, and everything that comes after (`dev_deactivate`).
    pub(crate) fn deactivate(&mut self, cx: &mut Ctx<'_, A>) {
        self.active = false;
        let mut qcx = Cx { clock: &mut cx.clock, to_free: &mut cx.to_free, drops: &mut self.counters.drops };
        if let Some(qdisc) = &mut self.qdisc {
            qdisc.reset(&mut qcx);
        }
        while let Some(packet) = self.requeued.pop_front() {
            qcx.drop(packet, DropReason::QueuePurge);
        }
    }

    fn drop_all(&mut self, batch: &mut PacketList<A>, reason: DropReason, cx: &mut Ctx<'_, A>) {
        self.counters.drops.add(reason, batch.len() as u64);
        batch.for_each_mut(|p| p.set_drop_reason(reason));
        cx.to_free.append(batch);
    }

    /// The txq that a lone packet may go to past the qdisc: there is nothing that it could overtake, and room.
    fn bypass(&mut self, root: &Root<A>, batch: &PacketList<A>, cx: &Ctx<'_, A>) -> Option<u16> {
        if batch.len() != 1 || !self.is_idle() {
            return None;
        }
        let qdisc = self.qdisc.as_mut().filter(|q| q.can_bypass())?;
        let txq = root.txq.or_else(|| batch.front().map(Packet::txq))?;
        if cx.dev.txqs[usize::from(txq)].stopped() {
            return None;
        }
        qdisc.bypassed(batch.segs(), batch.bytes());
        Some(txq)
    }

    /// Dequeues the next batch, and tells the txq it is for. None when there is nothing to send now.
    fn dequeue(
        &mut self,
        root: &Root<A>,
        quota: usize,
        batch: &mut PacketList<A>,
        cx: &mut Ctx<'_, A>,
    ) -> Option<u16> {
        match root.txq {
            Some(txq) => self.dequeue_one_txq(&cx.dev.txqs[usize::from(txq)], quota, batch, cx),
            None => self.dequeue_shared(quota, batch, cx),
        }
    }

    /// All packets go to one txq (`TCQ_F_ONETXQUEUE`).
    fn dequeue_one_txq(
        &mut self,
        txq: &TxQueue<A>,
        quota: usize,
        batch: &mut PacketList<A>,
        cx: &mut Ctx<'_, A>,
    ) -> Option<u16> {
        if txq.stopped() {
            return None;
        }
        let budget = quota.min(txq.room() as usize).max(1);
        if self.requeued.is_empty() {
            self.pull(budget, batch, cx);
        } else {
            self.requeued.move_front(budget, batch);
        }
        (!batch.is_empty()).then_some(txq.index)
    }

    /// Packets go to several txqs: a batch is what comes in a row for one of them, and a packet for a stopped txq holds
    /// up those behind it.
    fn dequeue_shared(
        &mut self,
        quota: usize,
        batch: &mut PacketList<A>,
        cx: &mut Ctx<'_, A>,
    ) -> Option<u16> {
        if self.requeued.is_empty() {
            self.pull_aside(cx);
        }
        let index = self.requeued.front()?.txq();
        let txq = &cx.dev.txqs[usize::from(index)];
        if txq.stopped() {
            return None;
        }
        let budget = quota.min(BULK_SHARED).min(txq.room() as usize).max(1);
        while batch.len() < budget && self.requeued.front().is_some_and(|p| p.txq() == index) {
            self.requeued.move_front(1, batch);
            if self.requeued.is_empty() {
                self.pull_aside(cx);
            }
        }
        Some(index)
    }

    /// Dequeues one packet and puts it aside.
    fn pull_aside(&mut self, cx: &mut Ctx<'_, A>) {
        let mut one = PacketList::new();
        self.pull(1, &mut one, cx);
        self.requeued.append(&mut one);
    }

    /// Dequeues from the qdisc itself.
    fn pull(&mut self, packets: usize, out: &mut PacketList<A>, cx: &mut Ctx<'_, A>) {
        if let Some(qdisc) = &mut self.qdisc {
            let mut qcx =
                Cx { clock: &mut cx.clock, to_free: &mut cx.to_free, drops: &mut self.counters.drops };
            qdisc.dequeue_batch(Budget { packets }, out, &mut qcx);
        }
    }
}

/// Hands a batch to the qdisc: into its queue, or past it where it is empty and lets a packet pass. The owner runs the
/// queue next.
pub(crate) fn admit<A: Arch>(
    owner: &mut impl Owner<A>,
    root: &Root<A>,
    batch: &mut PacketList<A>,
    cx: &mut Ctx<'_, A>,
) -> Verdict {
    let core = owner.core();
    let n = batch.len() as u64;
    core.counters.taken += n;
    if !core.active {
        core.drop_all(batch, DropReason::QdiscDrop, cx);
        return Verdict::Drop;
    }
    if let Some(txq) = core.bypass(root, batch, cx) {
        run_batch(owner, root, txq, batch, cx);
        return Verdict::Success;
    }
    let before = cx.to_free.len();
    let mut qcx = Cx { clock: &mut cx.clock, to_free: &mut cx.to_free, drops: &mut core.counters.drops };
    let qdisc = core.qdisc.as_mut().expect("noqueue admits nothing");
    if n == 1 {
        return qdisc.enqueue(batch.pop_front().expect("one packet"), &mut qcx);
    }
    qdisc.enqueue_batch(batch, &mut qcx);
    match (cx.to_free.len() - before) as u64 {
        0 => Verdict::Success,
        dropped if dropped == n => Verdict::Drop,
        _ => Verdict::Congested,
    }
}

/// Sends what is queued, within the quota, unless somebody else does.
pub(crate) fn run<A: Arch>(owner: &mut impl Owner<A>, root: &Root<A>, cx: &mut Ctx<'_, A>) {
    if owner.core().running {
        return;
    }
    let mut quota = QUOTA;
    loop {
        let mut batch = PacketList::new();
        let Some(txq) = owner.core().dequeue(root, quota, &mut batch, cx) else { break };
        quota -= batch.len().min(quota);
        if !run_batch(owner, root, txq, &mut batch, cx) {
            break;
        }
        if quota == 0 {
            if owner.core().qlen() > 0 {
                owner.core().note_hand_off(HandOff::Worker);
                cx.dev.schedule(root.index);
            }
            break;
        }
    }
}

/// An owner while its batch is in the driver. Whatever ends that, a panic of the driver too, the queue goes on.
struct InDriver<'o, A: Arch, O: Owner<A>> {
    owner: &'o mut O,
    dev: &'o Shared<A>,
    root: usize,
}

impl<'o, A: Arch, O: Owner<A>> InDriver<'o, A, O> {
    fn enter(owner: &'o mut O, dev: &'o Shared<A>, root: usize, packets: u64) -> Self {
        let core = owner.core();
        core.running = true;
        core.counters.in_driver = packets;
        Self { owner, dev, root }
    }
}

impl<A: Arch, O: Owner<A>> Drop for InDriver<'_, A, O> {
    fn drop(&mut self) {
        let core = self.owner.core();
        core.running = false;
        let lost = std::mem::take(&mut core.counters.in_driver);
        if lost > 0 {
            core.counters.drops.add(DropReason::NotSpecified, lost);
            // Those who came meanwhile found the queue running, and left.
            self.dev.schedule(self.root);
        }
    }
}

/// Hands a batch to the driver, with the core laid aside, and keeps what it refuses. Tells whether to go on.
fn run_batch<A: Arch>(
    owner: &mut impl Owner<A>,
    root: &Root<A>,
    txq: u16,
    batch: &mut PacketList<A>,
    cx: &mut Ctx<'_, A>,
) -> bool {
    let n = batch.len() as u64;
    let in_driver = InDriver::enter(owner, cx.dev, root.index, n);
    let mut drops = DropCounts::default();
    let sent = in_driver.owner.unlocked(|| cx.dev.txqs[usize::from(txq)].transmit(batch, cx, &mut drops));
    let core = in_driver.owner.core();
    core.counters.in_driver = 0;
    core.counters.sent += sent.packets;
    core.counters.sent_bytes += sent.bytes;
    if sent.packets == n {
        return true;
    }
    core.counters.drops.merge(&drops);
    if batch.is_empty() {
        return true;
    }
    core.counters.requeues += batch.len() as u64;
    if core.active {
        batch.append(&mut core.requeued);
        core.requeued.append(batch);
    } else {
        core.drop_all(batch, DropReason::QueuePurge, cx);
    }
    match sent.retry {
        Some(after) => cx.dev.retry(root.index, after),
        // The txq's wake will run the queue. If it has come already, whoever it sent found us running and left.
        None if !cx.dev.txqs[usize::from(txq)].stopped() => cx.dev.schedule(root.index),
        None => {}
    }
    false
}

/// Sends a batch with no qdisc in between; what the driver refuses is dropped (`__dev_queue_xmit` of a device without
/// a queue).
pub(crate) fn run_noqueue<A: Arch>(
    core: &mut Core<A>,
    txq: u16,
    batch: &mut PacketList<A>,
    cx: &mut Ctx<'_, A>,
) -> Verdict {
    let n = batch.len() as u64;
    core.counters.taken += n;
    if !core.active {
        core.drop_all(batch, DropReason::QdiscDrop, cx);
        return Verdict::Drop;
    }
    let mut drops = DropCounts::default();
    let sent = cx.dev.txqs[usize::from(txq)].transmit(batch, cx, &mut drops);
    core.counters.sent += sent.packets;
    core.counters.sent_bytes += sent.bytes;
    if sent.packets == n {
        return Verdict::Success;
    }
    core.counters.drops.merge(&drops);
    core.drop_all(batch, DropReason::FullRing, cx);
    if sent.packets == 0 { Verdict::Drop } else { Verdict::Congested }
}
