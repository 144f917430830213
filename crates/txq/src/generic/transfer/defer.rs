//! Completions that a lone sender leaves to its next calls.
//!
//! A reap after each batch is a third of the cost of a single packet. If the device completes a packet at once, only the
//! sender's own stock waits for the completion. So an owner that has the seat of the txq (`txqueue/seat.rs`) and finds the queue
//! empty at each call reaps only when as many packets are in the device as it reaps together
//! ([`coalesced`](TxQueue::coalesced)).
//!
//! A packet may stay in the device only if nothing else waits for it: no byte limit and no flow counts it, its latency is
//! not sampled, and the txq is open. The device must also complete at once: the last reap has left no packet in it. A sender
//! reaps first if it finds no buffer, reaches its limit, chooses its txqs anew, or ends ([`Datapath::reap_deferred`]).
//!
//! When the sender stops sending, the worker reaps. The owner schedules the worker when it first defers. From then on the
//! worker checks every [`LEFT_TO_SENDERS`] whether packets have completed since its last check. If some have, the sender still sends
//! and reaps. If none has, the worker reaps as the owner of the queue, and ends the watch when no packet is left in the
//! device. The owner then reaps after each packet again, and doubles the number with each full poll.

use std::sync::atomic::Ordering::Relaxed;

use txq_core::arch::{Arch, Atomic, Nanos};
use txq_core::packet::PacketList;

use crate::generic::datapath::{Ctx, Datapath};
use crate::generic::tuning::LEFT_TO_SENDERS;
use crate::generic::txqueue::{DEFERRING, Deferred, DoneSide, TxQueue, UNWATCHED, WATCHED};

impl<A: Arch> DoneSide<A> {
    /// Counts a reap by the owner. `left` says whether packets are left in the device.
    #[inline]
    pub(super) fn note_reap(&mut self, left: bool, deferred: &Deferred<A>) {
        self.is_prompt = !left;
        if left {
            deferred.suspend();
        }
    }
}

impl<A: Arch> TxQueue<A> {
    /// Returns whether the completion of `batch` may wait. The caller gives the batch to the driver next.
    #[inline]
    pub(crate) fn may_defer(&self, batch: &PacketList<A>, cx: &Ctx<'_, A>) -> bool {
        self.defers && !batch.stamped() && cx.cache.is_home_of(batch)
    }

    /// As [`reap_or_leave`](TxQueue::reap_or_leave), or defers the reap. The driver has taken a batch that
    /// [`may_defer`](TxQueue::may_defer) by [`pass`](TxQueue::pass), and the caller owns the core of `root`. Returns how
    /// many more packets the device may keep before the owner reaps, if no other thread accesses the core until then.
    #[inline]
    pub(crate) fn reap_or_defer(&self, root: usize, cx: &mut Ctx<'_, A>) -> u32 {
        let defers = || self.deferred.watch.load(Relaxed) == DEFERRING;
        let in_flight = self.in_flight();
        if !defers() || in_flight >= self.coalesced() || self.stopped() {
            self.reap_or_begin(root, in_flight, cx);
            if !defers() || self.stopped() {
                return 0;
            }
        }
        cx.cache.note_deferred();
        // One less than the ring holds, so that the txq does not stop.
        let most = (self.coalesced() - 1).min(self.ring.load(Relaxed).saturating_sub(1));
        most.saturating_sub(self.in_flight())
    }

    /// Reaps, or begins to defer if the last reap was prompt.
    #[inline]
    fn reap_or_begin(&self, root: usize, in_flight: u32, cx: &mut Ctx<'_, A>) {
        if (1..self.coalesced()).contains(&in_flight) && !self.stopped() && self.is_reaped_by(root) {
            // SAFETY: the caller alone may reap.
            if self.done.as_owner(|side| unsafe { (*side).is_prompt }) {
                return self.begin(cx);
            }
        }
        self.reap_or_leave(root, cx);
    }

    /// Begins to defer.
    #[cold]
    fn begin(&self, cx: &mut Ctx<'_, A>) {
        let watch = &self.deferred.watch;
        let watched = watch.load(Relaxed) != UNWATCHED;
        watch.store(DEFERRING, Relaxed);
        if !watched {
            // The schedule's bit orders the store before the worker's load.
            cx.dev.sched[self.reaper].reap(self.index);
        }
    }

    /// Stops deferring. The caller owns the completing half, and has reaped for the worker or replaced the driver.
    pub(super) fn end_deferring(&self, side: &mut DoneSide<A>) {
        side.is_prompt = false;
        self.deferred.coalesced.store(1, Relaxed);
        let watch = &self.deferred.watch;
        if watch.load(Relaxed) != UNWATCHED {
            watch.store(if self.in_flight() == 0 { UNWATCHED } else { WATCHED }, Relaxed);
        }
    }

    /// Whether completions may be left to the worker without a bit in its schedule.
    #[inline]
    pub(crate) fn is_watched(&self) -> bool {
        self.deferred.watch.load(Relaxed) != UNWATCHED
    }

    /// Checks for the worker whether the owner has reaped since the last check. Returns when to check again if it has;
    /// `None` if the worker must reap.
    pub(crate) fn next_check(&self, now: impl FnOnce() -> Nanos) -> Option<Nanos> {
        let Deferred { watch, seen, .. } = &*self.deferred;
        if watch.load(Relaxed) != DEFERRING || self.stopped() {
            return None;
        }
        let completed = self.completed.packets.load(Relaxed);
        let tended = seen.load(Relaxed) != completed;
        seen.store(completed, Relaxed);
        tended.then(|| now().saturating_add(LEFT_TO_SENDERS))
    }
}

impl<A: Arch> Datapath<A> {
    /// Reaps the deferred completions of a txq. The caller is not in the device's data path.
    pub(crate) fn reap_deferred(&self, txq: u16, cx: &mut Ctx<'_, A>) {
        let txq = &self.txqs[usize::from(txq)];
        if txq.is_watched() && txq.in_flight() > 0 {
            self.inside(|| self.reap(txq, cx));
            cx.free_dropped();
        }
    }
}
