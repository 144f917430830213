//! What a queue's owner takes from the qdisc: a lone packet that bypasses it, or the next batch for one txq.

use std::mem;

use txq_core::arch::{Arch, Memory, Work};
use txq_core::drop::DropReason;
use txq_core::packet::{Packet, PacketList};
use txq_sched::generic::qdisc::{Budget, Qdisc};

use crate::generic::datapath::{Core, Ctx, Datapath, Root};
use crate::generic::run::unwind::{Back, InQdisc};
use crate::generic::run::{Driven, Going, QUOTA};
use crate::generic::trace::EventKind;
use crate::generic::tuning::REAPED_TOGETHER;
use crate::generic::txqueue::TxQueue;

/// Packets of one batch where the qdisc serves several txqs (`try_bulk_dequeue_skb_slow`).
const BULK_SHARED: usize = 8;
/// Packets that such a qdisc dequeues together.
const PULL_AHEAD: usize = 2 * BULK_SHARED;

impl<A: Arch> Core<A> {
    /// Returns the txq of a lone packet if the packet may bypass the qdisc: it overtakes no other, the txq is open, and the
    /// qdisc allows it.
    pub(super) fn bypass(&mut self, root: &Root<A>, batch: &PacketList<A>, cx: &Ctx<'_, A>) -> Option<u16> {
        if batch.len() != 1
            || cx.is_traced()
            || self.running
            || !self.requeued.is_empty()
            || self.has_unadmitted()
        {
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
        if let Some(txq) = txq {
            cx.trace_txq(EventKind::QdiscDequeue, root.index, txq, batch);
        }
        mem::forget(in_qdisc);
        // A stopped txq runs the queue again when it is woken. A timer would not help before that: for a packet that is due,
        // it would make the worker ask again and again.
        let held_up =
            !self.requeued.is_empty() || root.txq.is_some_and(|txq| cx.dev.txqs[usize::from(txq)].stopped());
        if txq.is_some() {
            self.lateness.leave(&mut cx.clock);
            return txq;
        }
        let at = self.qdisc.as_ref().filter(|_| !held_up).and_then(|q| q.next_event());
        self.lateness.wait(at);
        if let Some(at) = at {
            cx.dev.run_at(root.index, at);
        }
        None
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
        if txq.stopped() && (self.leaves_stopped(txq) || !txq.reopen(root, 1, cx)) {
            return None;
        }
        let budget = txq.budget(quota);
        if self.requeued.is_empty() {
            self.pull(budget, None, batch, cx);
        } else {
            self.requeued.move_within(budget.packets, budget.bytes, batch);
        }
        (!batch.is_empty()).then_some(txq.index)
    }

    /// Returns whether the owner skips the poll of a stopped txq this time. While many packets wait, each one that arrives finds
    /// the txq stopped, and a poll would take one completion and send one packet. A poll for several costs as much. The owner
    /// skips fewer polls than a quarter of the packets in flight, so the device does not run dry. If no more packets arrive, the
    /// worker polls ([`TxQueue::is_tended`]).
    fn leaves_stopped(&mut self, txq: &TxQueue<A>) -> bool {
        let most = if txq.is_polled_by_owners() { (txq.in_flight() / 4).min(REAPED_TOGETHER) } else { 0 };
        let leaves = self.left_stopped < most && self.qlen() >= QUOTA;
        self.left_stopped = if leaves { self.left_stopped + 1 } else { 0 };
        leaves
    }

    /// As [`dequeue`](Core::dequeue), where packets go to several txqs. A batch is those of the next [`PULL_AHEAD`] packets
    /// that go to the first packet's txq; a packet for a stopped txq holds up those behind it, unless the qdisc lets them pass
    /// ([`Qdisc::passes_stopped`]). Where flows alternate between txqs, as they do by hash, a run of packets for one txq is
    /// mostly one packet, which would cost a call of the driver and a poll. A flow's packets all go to one txq and stay in
    /// order.
    fn dequeue_shared(
        &mut self,
        root: &Root<A>,
        quota: usize,
        batch: &mut PacketList<A>,
        cx: &mut Ctx<'_, A>,
    ) -> Option<u16> {
        if self.qdisc.as_ref().is_some_and(|qdisc| qdisc.passes_stopped()) {
            return self.dequeue_open(root, quota, batch, cx);
        }
        if self.requeued.is_empty() {
            self.pull_ahead(batch, cx);
        }
        let index = self.requeued.front()?.txq();
        let txq = &cx.dev.txqs[usize::from(index)];
        if txq.stopped() && !txq.reopen(root, 1, cx) {
            return None;
        }
        let budget = quota.min(BULK_SHARED).min(txq.room() as usize).max(1);
        let (mut ahead, mut others) = (PacketList::new(), PacketList::new());
        self.requeued.move_front(PULL_AHEAD, &mut ahead);
        while let Some(packet) = ahead.pop_front() {
            let takes = packet.txq() == index && batch.len() < budget;
            if takes { batch.push_back(packet) } else { others.push_back(packet) }
        }
        self.requeued.prepend(&mut others);
        Some(index)
    }

    /// As [`dequeue_shared`](Core::dequeue_shared), for a qdisc that lets packets pass those for stopped txqs: a batch is for
    /// the first txq that is open. A txq's packets stay in order.
    fn dequeue_open(
        &mut self,
        root: &Root<A>,
        quota: usize,
        batch: &mut PacketList<A>,
        cx: &mut Ctx<'_, A>,
    ) -> Option<u16> {
        for txq in cx.dev.txqs.iter().filter(|txq| txq.stopped()) {
            txq.reopen(root, 1, cx);
        }
        let open = |core: &Self, dev: &Datapath<A>| {
            core.requeued.iter().map(Packet::txq).find(|&txq| !dev.txqs[usize::from(txq)].stopped())
        };
        let index = open(self, cx.dev).or_else(|| {
            // Packets of stopped txqs stay in `requeued`, at most as many of each as one call dequeues.
            self.pull_ahead(batch, cx);
            open(self, cx.dev)
        })?;
        let budget = quota.min(BULK_SHARED).min(cx.dev.txqs[usize::from(index)].room() as usize).max(1);
        let mut others = PacketList::new();
        while let Some(packet) = self.requeued.pop_front() {
            let takes = packet.txq() == index && batch.len() < budget;
            if takes { batch.push_back(packet) } else { others.push_back(packet) }
        }
        self.requeued.append(&mut others);
        Some(index)
    }

    /// Appends the next packets of a qdisc that serves several txqs to `requeued`.
    fn pull_ahead(&mut self, batch: &mut PacketList<A>, cx: &mut Ctx<'_, A>) {
        // Into `batch`: after a panic of the qdisc, the guard requeues its packets.
        self.pull(Budget::packets(PULL_AHEAD), Some(cx.dev), batch, cx);
        self.requeued.append(batch);
    }

    /// Returns the qdisc.
    ///
    /// # Panics
    /// The queue is noqueue's.
    pub(super) fn qdisc(&self) -> &dyn Qdisc<A> {
        &**self.qdisc.as_ref().expect("noqueue has no qdisc")
    }

    /// Dequeues packets within `budget` from the qdisc to `out`. `dev` is the device if the qdisc serves all of its txqs.
    fn pull(
        &mut self,
        budget: Budget,
        dev: Option<&Datapath<A>>,
        out: &mut PacketList<A>,
        cx: &mut Ctx<'_, A>,
    ) {
        if let Some(qdisc) = &mut self.qdisc {
            A::touch(|| &**qdisc, Memory::Dequeue);
            let mut qcx = cx.for_qdisc(&mut self.counters);
            if let Some(dev) = dev {
                qcx.set_txqs(dev);
            }
            qdisc.dequeue_batch(budget, out, &mut qcx);
            A::spend(|| Work::Dequeue(out.len()));
            A::dequeued(|| (&**qdisc, out.iter().map(|packet| packet.data())));
            qcx.enqueue_copies(&mut **qdisc);
        }
    }
}

impl<A: Arch> Core<A> {
    /// Counts a batch that the driver has returned, and requeues the packets that it refused.
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
            self.requeue(root, batch, cx);
        } else {
            self.drop_all(batch, DropReason::QueuePurge, cx);
        }
        let txq = &cx.dev.txqs[usize::from(*txq)];
        match sent.retry {
            Some(after) => cx.dev.retry(root.index, after),
            // The txq's wake runs the queue. If that has happened already, the thread that it sent has found the queue running
            // and left: schedule the worker.
            None if !txq.stopped() => cx.dev.hand_over(root.index),
            None => {}
        }
        Going::Blocked
    }

    /// Requeues packets that the driver refused: where the qdisc had them, or in front of all others.
    pub(super) fn requeue(&mut self, root: &Root<A>, batch: &mut PacketList<A>, cx: &Ctx<'_, A>) {
        self.counters.requeues += batch.len() as u64;
        cx.trace(EventKind::QdiscRequeue, root, batch);
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
