//! A queue's state, which one thread at a time owns.

use std::mem;

use txq_core::arch::{Arch, Memory, Work};
use txq_core::drop::{DropCounts, DropReason};
use txq_core::packet::{Packet, PacketList};
use txq_core::stats::QdiscStats;
use txq_core::sync::contention::HandOff;
use txq_sched::qdisc::{Budget, Qdisc};

use crate::ctx::Ctx;
use crate::netdev::Root;
use crate::run::gate::Gate;
use crate::run::marks::Marks;
use crate::run::owners::OwnerRecord;
use crate::run::permit::Permit;
use crate::run::unwind::{Back, InQdisc};
use crate::run::{Driven, Going};
use crate::txqueue::TxQueue;

/// Packets of one batch where the qdisc serves several txqs (`try_bulk_dequeue_skb_slow`).
const BULK_SHARED: usize = 8;
/// Packets that such a qdisc dequeues together.
const LOOK_AHEAD: usize = 2 * BULK_SHARED;

/// A queue's state: the qdisc, the packets around it and the counters. Plain data with one owner.
pub(crate) struct Core<A: Arch> {
    /// `None` for noqueue.
    pub(crate) qdisc: Option<Box<dyn Qdisc<A>>>,
    /// Packets dequeued and not sent: refused by the driver (`gso_skb`), or for another txq than the batch (`skb_bad_txq`).
    /// Sent before all others, and still part of the queue.
    pub(super) requeued: PacketList<A>,
    /// Packets taken for the qdisc and not yet given to it, because it panicked over another packet or an owner left them
    /// for later. The qdisc gets them before all that arrive later.
    pub(super) unadmitted: PacketList<A>,
    /// Whether an owner is in the driver, or has returned from it with a result that is not yet absorbed. Other threads may
    /// own the core meanwhile.
    pub(super) running: bool,
    pub(super) gate: Gate,
    /// Number of purges. A batch that was in the driver during a purge is not requeued when the driver returns it.
    pub(super) purges: u32,
    pub(super) counters: CoreCounters,
    /// The owners' record; `None` until recording is first switched on.
    pub(crate) record: Option<Box<OwnerRecord>>,
    /// Packets that senders dropped in the qdisc's name (`enqueue/refused.rs`).
    pub(super) refused: u64,
    /// Requeues before this qdisc was attached.
    pub(super) requeues_before: u64,
    /// Backlogs at which the queue counts as full and as having room again (`run/marks.rs`).
    pub(super) marks: Marks,
    /// Packets that may bypass the qdisc without further checks.
    pub(super) permit: Permit,
}

/// Counts the packets that reached a [`Core`], by what happened to them. At any time, the owner finds
/// `taken + created = sent + drops + in_driver + held`.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct CoreCounters {
    pub(crate) taken: u64,
    /// Copies that a qdisc asked for, also those that there was no memory for: they count as dropped, too.
    pub(crate) created: u64,
    pub(crate) sent: u64,
    pub(crate) sent_bytes: u64,
    pub(crate) drops: DropCounts,
    pub(crate) requeues: u64,
    /// In the driver now.
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

    /// Records that the owner has taken packets that senders queued for it.
    #[inline]
    pub(crate) fn note_drained(&mut self, packets: usize) {
        if let Some(record) = self.recording() {
            record.drained.record(packets as u64);
        }
    }

    /// Records that the owner leaves a queue with packets in it to another thread.
    #[inline]
    pub(crate) fn note_hand_off(&mut self, to: HandOff) {
        if let Some(record) = self.recording() {
            record.hand_offs.note(to);
        }
    }

    /// Switches the owners' record on if `fresh` holds one, else off. A record that is already on continues. The record that
    /// is not needed is in `fresh` afterwards.
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

    /// Returns the counters.
    pub(crate) fn counters(&self) -> CoreCounters {
        CoreCounters { held: self.qlen() as u64, ..self.counters }
    }

    /// Returns the number of packets that the device has taken.
    #[inline]
    pub(crate) fn sent(&self) -> u64 {
        self.counters.sent
    }

    /// Returns the number of packets queued.
    pub(crate) fn qlen(&self) -> usize {
        let aside = self.requeued.len() + self.unadmitted.len();
        self.qdisc.as_ref().map_or(aside, |q| q.qlen().saturating_add(aside))
    }

    /// Returns how many more packets the qdisc would queue, if it takes any packet alike ([`Qdisc::room`]), the gate is open
    /// and no packet waits in front of it.
    pub(crate) fn room(&self) -> Option<usize> {
        let open = self.gate == Gate::Open && self.unadmitted.is_empty();
        self.qdisc.as_ref().filter(|_| open).and_then(|q| q.room())
    }

    /// Returns the qdisc's counters, with the packets that are requeued or not yet admitted.
    pub(crate) fn stats(&self) -> QdiscStats {
        let mut stats = self.qdisc.as_ref().map(|q| q.stats()).unwrap_or_default();
        // Saturating: a program's own qdisc may report any number.
        stats.backlog = stats.backlog.saturating_add(self.requeued.bytes() + self.unadmitted.bytes());
        stats.qlen = stats.qlen.saturating_add((self.requeued.len() + self.unadmitted.len()) as u64);
        stats.requeues = stats.requeues.saturating_add(self.counters.requeues - self.requeues_before);
        stats.drops = stats.drops.saturating_add(self.refused);
        stats
    }

    /// Counts packets that senders dropped because the qdisc had no room; they never reached it.
    pub(crate) fn add_refused(&mut self, packets: u64) {
        self.counters.taken += packets;
        self.counters.drops.add(DropReason::QdiscOverlimit, packets);
        self.refused += packets;
    }

    /// Whether an owner is in the driver, or its result is still to be absorbed.
    #[inline]
    pub(crate) fn is_running(&self) -> bool {
        self.running
    }

    /// Whether no packet is queued and no thread is in the driver.
    pub(crate) fn is_idle(&self) -> bool {
        !self.running && self.qlen() == 0
    }

    pub(super) fn drop_all(&mut self, batch: &mut PacketList<A>, reason: DropReason, cx: &mut Ctx<'_, A>) {
        self.counters.drops.add(reason, batch.len() as u64);
        batch.for_each_mut(|p| p.set_drop_reason(reason));
        cx.to_free.append(batch);
    }

    /// Returns the txq of a lone packet if the packet may bypass the qdisc: it overtakes no other, the txq is open, and the
    /// qdisc allows it.
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

    /// Dequeues the next batch into `batch` and returns its txq; `None` if no packet can be sent now. If the qdisc then
    /// waits for a time, sets the queue's timer.
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
        // A stopped txq runs the queue again when it is woken. A timer would not help before that: for a packet that is due,
        // it would make the worker ask again and again.
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

    /// As [`dequeue`](Core::dequeue), where all packets go to one txq (`TCQ_F_ONETXQUEUE`).
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

    /// As [`dequeue`](Core::dequeue), where packets go to several txqs. A batch is those of the next [`LOOK_AHEAD`] packets
    /// that go to the first packet's txq; a packet for a stopped txq holds up those behind it. Where flows alternate between
    /// txqs, as they do by hash, a run of packets for one txq is mostly one packet, which would cost a call of the driver
    /// and a poll. A flow's packets all go to one txq and stay in order.
    fn dequeue_shared(
        &mut self,
        root: &Root<A>,
        quota: usize,
        batch: &mut PacketList<A>,
        cx: &mut Ctx<'_, A>,
    ) -> Option<u16> {
        if self.requeued.is_empty() {
            // Into `batch`: after a panic of the qdisc, the guard requeues its packets.
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

    /// Returns the qdisc.
    ///
    /// # Panics
    /// The queue is noqueue's.
    pub(super) fn qdisc(&self) -> &dyn Qdisc<A> {
        &**self.qdisc.as_ref().expect("noqueue has no qdisc")
    }

    /// Dequeues packets within `budget` from the qdisc to `out`.
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
    /// Counts a batch that the driver has returned, and requeues the packets that it refused. The caller is the owner that
    /// sent the batch, or the owner that absorbs its result.
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
            // The txq's wake runs the queue, or the thread that has suspended the seat. If either has happened already, the
            // thread that it sent has found the queue running and left: schedule the worker.
            None if !txq.stopped() && !txq.is_suspended() => cx.dev.hand_over(root.index),
            None => {}
        }
        Going::Blocked
    }

    /// As [`returned`](Core::returned), for an owner that takes the result of another thread's driver call.
    pub(crate) fn absorb(&mut self, root: &Root<A>, driven: &mut Driven<A>, cx: &mut Ctx<'_, A>) {
        self.note_hand_off(HandOff::Sender);
        self.running = false;
        let _ = self.returned(root, driven, cx);
    }

    /// Requeues packets that the driver refused: where the qdisc had them, or in front of all others.
    pub(super) fn requeue(&mut self, batch: &mut PacketList<A>) {
        self.counters.requeues += batch.len() as u64;
        let mut in_qdisc = InQdisc { core: self, batch, back: Back::InFront };
        let InQdisc { core, batch, .. } = &mut in_qdisc;
        // Not into the qdisc while `requeued` holds packets that were dequeued after these: these would come behind them.
        if let Some(qdisc) = core.qdisc.as_mut().filter(|_| core.requeued.is_empty()) {
            qdisc.requeue(batch);
        }
        core.put_in_front(batch);
        mem::forget(in_qdisc);
    }
}
