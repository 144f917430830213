//! Transmission: gives a batch to the driver and counts the result (`dev_hard_start_xmit`).

use std::sync::atomic::Ordering::{Relaxed, Release};

use txq_core::arch::{Arch, Atomic, Memory, Nanos, Work};
use txq_core::drop::DropCounts;
use txq_core::packet::PacketList;
use txq_core::stats::contention::Site;
use txq_core::stats::latency::Latency;

use super::border::Call;
use crate::generic::datapath::Ctx;
use crate::generic::driver::{HandedOn, Status, TxCx};
use crate::generic::trace::EventKind;
use crate::generic::tuning::RETRY;
use crate::generic::txqueue::{Access, DRV_XOFF, LONGEST_RETRY, STACK_XOFF, TxQueue, TxSide};

/// The result of a transmission, beside the packets left in the batch.
#[derive(Clone, Copy)]
pub(crate) struct Transmitted {
    /// Packets that the driver took and did not drop.
    pub(crate) packets: u64,
    /// Their bytes.
    pub(crate) bytes: u64,
    /// Nanoseconds until the next attempt; `None` if the wake of the txq runs the queue.
    pub(crate) retry: Option<Nanos>,
}

/// Packets that a driver call sent or dropped, which are freed after every lock is released; and how many it handed on.
pub(super) struct Ended<A: Arch> {
    pub(super) sent: PacketList<A>,
    pub(super) dropped: PacketList<A>,
    pub(super) handed_on: HandedOn,
}

impl<A: Arch> Ended<A> {
    #[inline]
    pub(super) fn new() -> Self {
        Self { sent: PacketList::new(), dropped: PacketList::new(), handed_on: HandedOn::default() }
    }

    /// Returns the number of packets sent or dropped.
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.sent.len() + self.dropped.len()
    }

    /// Returns the number of packets that the device has not kept, of those taken.
    #[inline]
    fn gone(&self) -> usize {
        self.len() + self.handed_on.packets
    }

    /// Frees the packets, and counts the dropped ones in `drops`.
    #[inline]
    pub(super) fn free(&mut self, cx: &mut Ctx<'_, A>, drops: &mut DropCounts) {
        if self.len() > 0 {
            self.free_all(cx, drops);
        }
    }

    #[inline(never)]
    fn free_all(&mut self, cx: &mut Ctx<'_, A>, drops: &mut DropCounts) {
        if !self.sent.is_empty() {
            cx.cache.free(&mut self.sent);
        }
        if !self.dropped.is_empty() {
            self.dropped.iter().for_each(|p| drops.add(p.drop_reason(), 1));
            cx.free_list(&mut self.dropped);
        }
    }
}

impl<A: Arch> TxQueue<A> {
    /// Gives a batch to the driver (`dev_hard_start_xmit`). The caller is in the driver for `root`. Packets that the driver
    /// refuses stay in the batch; `drops` counts those that it drops.
    pub(crate) fn transmit(
        &self,
        root: usize,
        batch: &mut PacketList<A>,
        cx: &mut Ctx<'_, A>,
        drops: &mut DropCounts,
    ) -> Transmitted {
        let mut ended = Ended::new();
        let access = self.seat.access(root);
        let sent = if access == Access::Owner {
            // SAFETY: the caller is in the driver for the root that has the seat.
            self.tx.as_owner(|side| self.send(unsafe { &mut *side }, root, batch, cx, &mut ended))
        } else {
            self.send_locked(access, root, batch, cx, &mut ended)
        };
        ended.free(cx, drops);
        sent
    }

    /// Forgets by how much the driver has lengthened packets that it refused: the caller, which was in the driver for `root`, has
    /// dropped them.
    #[cold]
    pub(crate) fn forget_growth(&self, root: usize) {
        match self.seat.access(root) {
            // SAFETY: the caller owns the root that has the seat, and no thread is in the driver for it.
            Access::Owner => self.tx.as_owner(|side| unsafe { (*side).grown = 0 }),
            Access::Lock => self.tx.with_at(Site::Driver, |held| held.data().grown = 0),
            Access::Wait => {}
        }
    }

    /// As [`send`](TxQueue::send), for a queue that has no seat.
    #[inline(never)]
    fn send_locked(
        &self,
        access: Access,
        root: usize,
        batch: &mut PacketList<A>,
        cx: &mut Ctx<'_, A>,
        ended: &mut Ended<A>,
    ) -> Transmitted {
        let refused = Transmitted { packets: 0, bytes: 0, retry: Some(RETRY) };
        if access == Access::Wait {
            // Another queue has the seat, for a short time.
            return refused;
        }
        self.tx.with_at(Site::Driver, |held| match self.seat.is_vacant() {
            true => self.send(held.data(), root, batch, cx, ended),
            // This queue has been granted the seat meanwhile. Its owner finds the txq open, so no wake will come, and tries
            // again.
            false if self.seat.root() == Some(root) => Transmitted { retry: None, ..refused },
            false => refused,
        })
    }

    /// Calls the driver and counts the result. Refused packets stay in the batch, for the caller.
    #[inline]
    fn send(
        &self,
        side: &mut TxSide<A>,
        root: usize,
        batch: &mut PacketList<A>,
        cx: &mut Ctx<'_, A>,
        ended: &mut Ended<A>,
    ) -> Transmitted {
        let (packets, bytes) = (batch.len(), batch.bytes());
        if self.stopped() {
            return Transmitted { packets: 0, bytes: 0, retry: None };
        }
        // The dequeued packets had room, unless the driver has been replaced since.
        let room = self.settled_room(&mut side.unsure, cx.dev) as usize;
        if room < packets {
            return self.send_part(side, root, room, batch, cx, ended);
        }
        side.note_stamps(batch);
        let counted = self.bql.then(|| {
            let last = batch.back().map_or(0, |packet| packet.len());
            self.issued.bytes.queued(batch.bytes() as u32, last as u32, &mut cx.clock)
        });
        cx.trace_txq(EventKind::NetDevStartXmit, root, self.index, batch);
        A::spend(|| Work::Drive(batch.len()));
        A::touch(|| &*side.driver, Memory::Driver);
        let tx = TxCx::new(&mut cx.clock, &mut ended.sent, &mut ended.dropped);
        let (unsure, to_free) = (&mut side.unsure, &mut cx.to_free);
        let call = Call { txq: self, dev: cx.dev, batch, tx, unsure, to_free };
        let status;
        (status, ended.handed_on) = call.make(&mut *side.driver);
        if let Some(counted) = counted {
            // 0 if the driver has kept no packet: it may have changed the lengths of those it sent.
            let kept = packets > batch.len() + ended.gone();
            let gone = ended.sent.bytes() + ended.dropped.bytes() + ended.handed_on.bytes;
            let others = batch.bytes() + gone;
            counted.kept(if kept { bytes.saturating_sub(others) as u32 } else { 0 });
        }
        self.account(side, root, status, (packets, bytes), batch, cx, ended)
    }

    /// Counts the result of a driver call that was given `packets` and `bytes` and has left `left`; stops the txq if it is
    /// full.
    #[inline]
    #[expect(clippy::too_many_arguments, reason = "all that a call leaves")]
    pub(super) fn account(
        &self,
        side: &mut TxSide<A>,
        root: usize,
        status: Status,
        (packets, bytes): (usize, u64),
        left: &PacketList<A>,
        cx: &mut Ctx<'_, A>,
        ended: &Ended<A>,
    ) -> Transmitted {
        let taken = packets - left.len();
        side.record_stamps(taken, ended.sent.stamped());
        let kept = taken - ended.gone();
        if kept > 0 {
            if self.ring.load(Relaxed) == u32::MAX {
                self.keeps_without_ring(&mut side.unsure, cx.dev);
            }
            let issued = self.issued.packets.load(Relaxed).wrapping_add(kept as u32);
            self.issued.packets.store(issued, Release);
        }
        let sent = (taken - ended.dropped.len()) as u64;
        let sent_bytes = side.bytes_sent(bytes, left, &ended.dropped);
        self.issued.counters.add(sent, sent_bytes, ended.dropped.len() as u64);
        if ended.handed_on.packets > 0 {
            self.border.handed_on.fetch_add(ended.handed_on.packets as u64, Relaxed);
        }
        let full = self.room() == 0 || (status == Status::Busy { retry: None } && self.in_flight() > 0);
        let stop = if full { DRV_XOFF } else { 0 } | if self.avail() < 0 { STACK_XOFF } else { 0 };
        if stop != 0 {
            self.issued.counters.add_stop();
            self.stop(root, stop);
            if self.bql && self.stopped() && self.in_flight() == 0 {
                // No completion will wake the txq: bytes are missing.
                self.with_done(root, |done| self.settle_bytes(done, cx.dev, &mut cx.clock));
                self.state.fetch_and(!self.gone(stop), Relaxed);
            }
        }
        let retry = match status {
            Status::Busy { retry: Some(after) } => Some(after.as_nanos().min(LONGEST_RETRY.into()) as Nanos),
            // Refused, with no packet on the ring that could complete, and not stopped: no wake will come, so only time
            // helps.
            Status::Busy { retry: None } if !self.stopped() => Some(RETRY),
            _ => None,
        };
        Transmitted { packets: sent, bytes: sent_bytes, retry }
    }

    /// As [`send`](TxQueue::send), for the first `room` packets. The others stay in the batch, behind those that the driver
    /// refuses, also if it panics.
    #[cold]
    fn send_part(
        &self,
        side: &mut TxSide<A>,
        root: usize,
        room: usize,
        batch: &mut PacketList<A>,
        cx: &mut Ctx<'_, A>,
        ended: &mut Ended<A>,
    ) -> Transmitted {
        /// Appends the rest to the batch when dropped.
        struct Whole<'b, A: Arch>(&'b mut PacketList<A>, PacketList<A>);
        impl<A: Arch> Drop for Whole<'_, A> {
            fn drop(&mut self) {
                self.0.append(&mut self.1);
            }
        }
        let mut whole = Whole(batch, PacketList::new());
        std::mem::swap(whole.0, &mut whole.1);
        whole.1.move_front(room, whole.0);
        let sent = if room == 0 {
            self.issued.counters.add_stop();
            self.stop(root, DRV_XOFF);
            Transmitted { packets: 0, bytes: 0, retry: None }
        } else {
            self.send(side, root, whole.0, cx, ended)
        };
        let retry = sent.retry.or_else(|| (!self.stopped()).then_some(RETRY));
        Transmitted { retry, ..sent }
    }
}

impl<A: Arch> TxSide<A> {
    /// Returns how many of the given bytes were sent. A driver may have lengthened packets that it left: a packet counts with its
    /// length at its first hand-over.
    #[inline]
    fn bytes_sent(&mut self, given: u64, left: &PacketList<A>, dropped: &PacketList<A>) -> u64 {
        let others = self.grown + left.bytes() + dropped.bytes();
        self.grown = others.saturating_sub(given);
        given.saturating_sub(others)
    }

    /// Makes the driver write out all packets that it has ([`Transmit::finish`](crate::generic::driver::Transmit::finish)).
    pub(crate) fn finish(&mut self) -> std::io::Result<()> {
        self.driver.finish()
    }

    /// Adds the recorded latencies from xmit to the driver, and to completion.
    pub(crate) fn add_latency(&self, to_driver: &mut Latency, to_completion: &mut Latency) {
        to_driver.merge(&self.to_driver);
        to_completion.merge(&self.to_completion);
    }

    /// Notes the sampled packets of a batch before the driver call, which may free them.
    fn note_stamps(&mut self, batch: &PacketList<A>) {
        // Seldom: no packet writes this line otherwise.
        if !self.stamps.is_empty() {
            self.stamps.clear();
        }
        if batch.stamped() {
            let stamped = batch.iter().enumerate().filter(|(_, p)| p.stamp() != 0);
            self.stamps.extend(stamped.map(|(i, p)| (i, p.stamp())));
            self.given = A::now();
            batch.note_times(self.given);
        }
    }

    fn record_stamps(&mut self, taken: usize, done: bool) {
        if self.stamps.is_empty() {
            return;
        }
        let now = if done { A::now() } else { 0 };
        for &(_, at) in self.stamps.iter().filter(|(i, _)| *i < taken) {
            self.to_driver.record(self.given.saturating_sub(at));
            if done {
                self.to_completion.record(now.saturating_sub(at));
            }
        }
    }
}
