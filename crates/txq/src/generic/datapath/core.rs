//! A queue's state, which one thread at a time owns.

use std::mem;

use txq_core::arch::Arch;
use txq_core::drop::{DropCounts, DropReason};
use txq_core::packet::PacketList;
use txq_core::stats::QdiscStats;
use txq_sched::generic::qdisc::Qdisc;

use crate::generic::datapath::Ctx;
use crate::generic::datapath::Gate;
use crate::generic::datapath::OwnerRecord;
use crate::generic::datapath::lateness::Lateness;
use crate::generic::datapath::marks::Marks;
use crate::generic::datapath::permit::Permit;

/// A queue's state: the qdisc, the packets around it and the counters. Plain data with one owner.
///
/// The fields lie in this order: a packet that bypasses the qdisc writes the first line only, so one line of the core moves
/// between the CPUs of senders that take turns.
#[repr(C, align(64))]
pub(crate) struct Core<A: Arch> {
    /// Packets that may bypass the qdisc without further checks.
    pub(crate) permit: Permit,
    pub(crate) counters: CoreCounters,
    /// `None` for noqueue.
    pub(crate) qdisc: Option<Box<dyn Qdisc<A>>>,
    /// Packets dequeued and not sent: refused by the driver (`gso_skb`), or for another txq than the batch (`skb_bad_txq`).
    /// Sent before all others, and still part of the queue.
    pub(crate) requeued: PacketList<A>,
    /// Packets taken for the qdisc and not yet given to it, because it panicked over another packet or an owner left them
    /// for later. The qdisc gets them before all that arrive later.
    pub(crate) unadmitted: PacketList<A>,
    /// Whether an owner is in the driver, or has returned from it with a result that is not yet absorbed. Other threads may
    /// own the core meanwhile.
    pub(crate) running: bool,
    pub(crate) gate: Gate,
    /// How often in a row the owner has left the stopped txq without a poll (`run/dequeue.rs`).
    pub(crate) left_stopped: u32,
    /// Bytes in the driver, while an owner is in it.
    pub(crate) driven_bytes: u64,
    /// Number of purges. A batch that was in the driver during a purge is not requeued when the driver returns it.
    pub(crate) purges: u32,
    /// The owners' record; `None` until recording is first switched on.
    pub(crate) record: Option<Box<OwnerRecord>>,
    /// Packets that senders dropped in the qdisc's name (`enqueue/refused.rs`).
    pub(crate) refused: u64,
    /// Requeues before this qdisc was attached.
    pub(crate) requeues_before: u64,
    /// Backlogs at which the queue counts as full and as having room again (`datapath/marks.rs`).
    pub(crate) marks: Marks,
    /// How late packets leave that the qdisc holds back for a time.
    pub(crate) lateness: Lateness,
}

/// Counts the packets that reached a [`Core`], by what happened to them. At any time, the owner finds
/// `taken + created = sent + drops + in_driver + held`.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub(crate) struct CoreCounters {
    pub(crate) taken: u64,
    pub(crate) sent: u64,
    pub(crate) sent_bytes: u64,
    /// Copies that a qdisc asked for, also those that there was no memory for: they count as dropped, too.
    pub(crate) created: u64,
    pub(crate) drops: DropCounts,
    pub(crate) requeues: u64,
    /// Queues with packets in them that an owner left to another thread.
    pub(crate) hand_offs: u64,
    /// In the driver now.
    pub(crate) in_driver: u64,
    /// Queued here.
    pub(crate) held: u64,
}

#[cfg(target_pointer_width = "64")]
const _: () = {
    use txq_core::arch::Native;
    let counters = mem::offset_of!(Core<Native>, counters);
    assert!(counters + mem::offset_of!(CoreCounters, created) <= 64, "a bypass writes one line");
};

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
            left_stopped: 0,
            driven_bytes: 0,
            purges: 0,
            counters: CoreCounters::default(),
            record: None,
            refused: 0,
            requeues_before: 0,
            permit: Permit::default(),
            lateness: Lateness::default(),
        }
    }

    /// Records that the owner has taken packets that senders queued for it.
    #[inline]
    pub(crate) fn note_drained(&mut self, packets: usize) {
        if let Some(record) = self.recording() {
            record.drained.record(packets as u64);
        }
    }

    /// Counts that the owner leaves a queue with packets in it to the worker.
    #[inline]
    pub(crate) fn note_hand_off(&mut self) {
        self.counters.hand_offs += 1;
        if let Some(record) = self.recording() {
            record.hand_offs += 1;
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

    /// Returns the number of packets queued.
    pub(crate) fn qlen(&self) -> usize {
        let aside = self.requeued.len() + self.unadmitted.len();
        self.qdisc.as_ref().map_or(aside, |q| q.qlen().saturating_add(aside))
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

    pub(crate) fn drop_all(&mut self, batch: &mut PacketList<A>, reason: DropReason, cx: &mut Ctx<'_, A>) {
        self.counters.drops.add(reason, batch.len() as u64);
        batch.for_each_mut(|p| p.set_drop_reason(reason));
        cx.to_free.append(batch);
    }
}
