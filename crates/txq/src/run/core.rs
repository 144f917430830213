//! A queue's state, which has one owner at a time.

use std::mem;

use crate::arch::{Arch, Memory, Work};
use crate::ctx::Ctx;
use crate::drop::{DropCounts, DropReason};
use crate::netdev::Root;
use crate::packet::{Packet, PacketList};
use crate::qdisc::{Budget, Qdisc};
use crate::run::gate::Gate;
use crate::run::marks::Marks;
use crate::run::permit::Permit;
use crate::run::unwind::{Back, InQdisc};
use crate::run::{Driven, Going};
use crate::stats::QdiscStats;
use crate::sync::contention::{HandOff, OwnerRecord};
use crate::txqueue::TxQueue;

/// Packets of one batch where the qdisc serves several txqs (`try_bulk_dequeue_skb_slow`).
const BULK_SHARED: usize = 8;
/// Packets that are dequeued together there.
const LOOK_AHEAD: usize = 2 * BULK_SHARED;

/// A queue's state: the qdisc and what goes with it. Plain data with one owner.
pub(crate) struct Core<A: Arch> {
    /// None for noqueue.
    pub(crate) qdisc: Option<Box<dyn Qdisc<A>>>,
    /// Dequeued and not sent: refused by the driver (`gso_skb`), or found to be for another txq than the batch
    /// (`skb_bad_txq`). Sent before everything else, and still part of the queue.
    pub(super) requeued: PacketList<A>,
    /// What the qdisc was to be given when it panicked over another packet. Goes to it before everything that comes.
    pub(super) unadmitted: PacketList<A>,
    /// Whether an owner is in the driver, with the core laid aside.
    pub(super) running: bool,
    pub(super) gate: Gate,
    /// Times that what is queued was dropped. What the driver had then is not queued again when it comes back.
    pub(super) purges: u32,
    pub(super) counters: CoreCounters,
    /// What the owners record, since that was first asked for.
    pub(crate) record: Option<Box<OwnerRecord>>,
    /// Packets that senders dropped in the qdisc's name (`enqueue/lockless.rs`).
    pub(super) refused: u64,
    /// Requeues before this qdisc came.
    pub(super) requeues_before: u64,
    /// Packets queued from which on the queue is full, and below which it has room again (`run/marks.rs`).
    pub(super) marks: Marks,
    /// Packets that may go past the qdisc without a further look.
    pub(super) permit: Permit,
}

/// What has happened to the packets that reached a [`Core`]. At any time, for whoever has the core:
/// `taken + created = sent + drops + in_driver + held`.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct CoreCounters {
    pub(crate) taken: u64,
    /// Copies that a qdisc has had made, and those that there was no memory for, which count as dropped, too.
    pub(crate) created: u64,
    pub(crate) sent: u64,
    pub(crate) sent_bytes: u64,
    pub(crate) drops: DropCounts,
    pub(crate) requeues: u64,
    /// In the driver's hands at this moment.
    pub(crate) in_driver: u64,
    /// Queued here.
    pub(crate) held: u64,
}

impl<A: Arch> Core<A> {
    pub(crate) fn new(qdisc: Option<Box<dyn Qdisc<A>>>, gate: Gate) -> Self {
        if let Some(qdisc) = &qdisc {
            A::name(&**qdisc, format_args!("{}'s state", qdisc.kind()));
        }
        let marks = Marks::of(qdisc.as_deref());
        Self {
            marks,
            qdisc,
            requeued: PacketList::new(),
            unadmitted: PacketList::new(),
            running: false,
            gate,
            purges: 0,
            counters: CoreCounters::default(),
            record: None,
            refused: 0,
            requeues_before: 0,
            permit: Permit::default(),
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
            mem::swap(&mut self.record, fresh);
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

    /// Packets that the device has taken.
    #[inline]
    pub(crate) fn sent(&self) -> u64 {
        self.counters.sent
    }

    /// Packets queued.
    pub(crate) fn qlen(&self) -> usize {
        let aside = self.requeued.len() + self.unadmitted.len();
        self.qdisc.as_ref().map_or(aside, |q| q.qlen().saturating_add(aside))
    }

    /// How many more packets would be queued, if that is the same for all ([`Qdisc::room`]) and nothing is in between.
    pub(crate) fn room(&self) -> Option<usize> {
        let open = self.gate == Gate::Open && self.unadmitted.is_empty();
        self.qdisc.as_ref().filter(|_| open).and_then(|q| q.room())
    }

    /// The qdisc's counters, with those of the packets that wait to be sent again.
    pub(crate) fn stats(&self) -> QdiscStats {
        let mut stats = self.qdisc.as_ref().map(|q| q.stats()).unwrap_or_default();
        // Saturating: a program's qdisc may say any number.
        stats.backlog = stats.backlog.saturating_add(self.requeued.bytes() + self.unadmitted.bytes());
        stats.qlen = stats.qlen.saturating_add((self.requeued.len() + self.unadmitted.len()) as u64);
        stats.requeues = stats.requeues.saturating_add(self.counters.requeues - self.requeues_before);
        stats.drops = stats.drops.saturating_add(self.refused);
        stats
    }

    /// Counts packets that found no room in the qdisc, and never reached it.
    pub(crate) fn add_refused(&mut self, packets: u64) {
        self.counters.taken += packets;
        self.counters.drops.add(DropReason::QdiscOverlimit, packets);
        self.refused += packets;
    }

    /// Whether an owner is in the driver, or what it brought back is still to be absorbed.
    #[inline]
    pub(crate) fn is_running(&self) -> bool {
        self.running
    }

    /// Whether nothing is queued and nobody is in the driver.
    pub(crate) fn is_idle(&self) -> bool {
        !self.running && self.qlen() == 0
    }

    pub(super) fn drop_all(&mut self, batch: &mut PacketList<A>, reason: DropReason, cx: &mut Ctx<'_, A>) {
        self.counters.drops.add(reason, batch.len() as u64);
        batch.for_each_mut(|p| p.set_drop_reason(reason));
        cx.to_free.append(batch);
    }

    /// The txq that a lone packet may go to past the qdisc: there is nothing that it could overtake, and room.
    pub(super) fn bypass(&mut self, root: &Root<A>, batch: &PacketList<A>, cx: &Ctx<'_, A>) -> Option<u16> {
        if batch.len() != 1 || self.running || !self.requeued.is_empty() || self.has_unadmitted() {
            return None;
        }
        let qdisc = self.qdisc.as_mut()?;
        let txq = root.txq.or_else(|| batch.front().map(Packet::txq))?;
        if cx.dev.txqs[usize::from(txq)].stopped() {
            return None;
        }
        qdisc.bypass(batch).then_some(txq)
    }

    /// Dequeues the next batch, and tells the txq it is for. None when there is nothing to send now.
    pub(super) fn dequeue(
        &mut self,
        root: &Root<A>,
        quota: usize,
        batch: &mut PacketList<A>,
        cx: &mut Ctx<'_, A>,
    ) -> Option<u16> {
        let mut in_qdisc = InQdisc { core: self, batch, back: Back::InFront };
        let InQdisc { core, batch, .. } = &mut in_qdisc;
        let txq = match root.txq {
            Some(txq) => core.dequeue_one_txq(root, &cx.dev.txqs[usize::from(txq)], quota, batch, cx),
            None => core.dequeue_shared(root, quota, batch, cx),
        };
        mem::forget(in_qdisc);
        // A txq that is stopped runs the qdisc again when it is woken. Until then time changes nothing, and a packet whose
        // time has come would have the worker ask again and again.
        let held_up =
            !self.requeued.is_empty() || root.txq.is_some_and(|txq| cx.dev.txqs[usize::from(txq)].stopped());
        if txq.is_none()
            && !held_up
            && let Some(at) = self.qdisc.as_ref().and_then(|q| q.next_event())
        {
            cx.dev.run_at(root.index, at);
        }
        txq
    }

    /// All packets go to one txq (`TCQ_F_ONETXQUEUE`).
    fn dequeue_one_txq(
        &mut self,
        root: &Root<A>,
        txq: &TxQueue<A>,
        quota: usize,
        batch: &mut PacketList<A>,
        cx: &mut Ctx<'_, A>,
    ) -> Option<u16> {
        if txq.stopped() && !txq.reopen(root, cx) {
            return None;
        }
        let budget = txq.budget(quota);
        if self.requeued.is_empty() {
            self.pull(budget, batch, cx);
        } else {
            self.requeued.move_within(budget.packets, budget.bytes, batch);
        }
        (!batch.is_empty()).then_some(txq.index)
    }

    /// Packets go to several txqs: a batch is what the next [`LOOK_AHEAD`] packets hold for the txq of the first, and a packet for
    /// a stopped txq holds up those behind it. Where flows alternate between txqs, as they do by hash, what comes in a row for one
    /// txq is mostly one packet, and each would cost a call of the driver and a poll. A flow's packets are all for one txq and
    /// stay in order.
    fn dequeue_shared(
        &mut self,
        root: &Root<A>,
        quota: usize,
        batch: &mut PacketList<A>,
        cx: &mut Ctx<'_, A>,
    ) -> Option<u16> {
        if self.requeued.is_empty() {
            // Into `batch`, which a panic of the qdisc puts back.
            self.pull(Budget::packets(LOOK_AHEAD), batch, cx);
            self.requeued.append(batch);
        }
        let index = self.requeued.front()?.txq();
        let txq = &cx.dev.txqs[usize::from(index)];
        if txq.stopped() && !txq.reopen(root, cx) {
            return None;
        }
        let budget = quota.min(BULK_SHARED).min(txq.room() as usize).max(1);
        let (mut ahead, mut others) = (PacketList::new(), PacketList::new());
        self.requeued.move_front(LOOK_AHEAD, &mut ahead);
        while let Some(packet) = ahead.pop_front() {
            let takes = packet.txq() == index && batch.len() < budget;
            if takes { batch.push_back(packet) } else { others.push_back(packet) }
        }
        self.requeued.prepend(&mut others);
        Some(index)
    }

    /// The qdisc of a queue that has one.
    pub(super) fn qdisc(&self) -> &dyn Qdisc<A> {
        &**self.qdisc.as_ref().expect("noqueue has no qdisc")
    }

    /// Dequeues from the qdisc itself.
    fn pull(&mut self, budget: Budget, out: &mut PacketList<A>, cx: &mut Ctx<'_, A>) {
        if let Some(qdisc) = &mut self.qdisc {
            A::touch(|| &**qdisc, Memory::Qdisc);
            let mut qcx = cx.for_qdisc(&mut self.counters);
            qdisc.dequeue_batch(budget, out, &mut qcx);
            A::spend(|| Work::Dequeue(out.len()));
            qcx.enqueue_copies(&mut **qdisc);
        }
    }
}

impl<A: Arch> Core<A> {
    /// Takes back what the driver left of a batch, and counts the rest. For the owner who sent it, or for who has the
    /// core when that one comes back to it.
    pub(super) fn returned(&mut self, root: &Root<A>, driven: &mut Driven<A>, cx: &mut Ctx<'_, A>) -> Going {
        let Driven { batch, txq, packets, purges, sent, drops, .. } = driven;
        self.counters.in_driver = 0;
        self.counters.sent += sent.packets;
        self.counters.sent_bytes += sent.bytes;
        if sent.packets == *packets {
            return Going::On;
        }
        self.counters.drops.merge(drops);
        if batch.is_empty() {
            return Going::On;
        }
        if *purges == self.purges {
            self.requeue(batch);
        } else {
            self.drop_all(batch, DropReason::QueuePurge, cx);
        }
        let txq = &cx.dev.txqs[usize::from(*txq)];
        match sent.retry {
            Some(after) => cx.dev.retry(root.index, after),
            // The txq's wake will run the queue, or the thread that has suspended its seat. If that has come already, whoever it
            // sent found us running and left.
            None if !txq.stopped() && !txq.is_suspended() => cx.dev.hand_over(root.index),
            None => {}
        }
        Going::Blocked
    }

    /// As [`returned`](Core::returned), by who has the core when another thread has left the driver.
    pub(crate) fn absorb(&mut self, root: &Root<A>, driven: &mut Driven<A>, cx: &mut Ctx<'_, A>) {
        self.note_hand_off(HandOff::Sender);
        self.running = false;
        let _ = self.returned(root, driven, cx);
    }

    /// Puts back what the driver refused: to where the qdisc had it, or in front of everything.
    pub(super) fn requeue(&mut self, batch: &mut PacketList<A>) {
        self.counters.requeues += batch.len() as u64;
        let mut in_qdisc = InQdisc { core: self, batch, back: Back::InFront };
        let InQdisc { core, batch, .. } = &mut in_qdisc;
        // Not behind what the qdisc has given up since.
        if let Some(qdisc) = core.qdisc.as_mut().filter(|_| core.requeued.is_empty()) {
            qdisc.requeue(batch);
        }
        core.put_in_front(batch);
        mem::forget(in_qdisc);
    }
}
