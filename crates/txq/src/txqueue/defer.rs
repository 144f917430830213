//! Completions that a lone sender leaves to its next calls.
//!
//! With inline completions a sender reaps after each batch. That is a third of what a single packet costs, and where the
//! device is done with a packet as soon as it has it, nothing waits for the result but the sender's own stock. So the owner of
//! a queue that has the seat ([`seat`](super::seat)) and finds the queue empty at each call reaps when [`DEFERRED`] packets are
//! in the device, and not before.
//!
//! Only packets may stay there that nothing else waits for: no byte limit counts them, no flow does, their latency is not
//! sampled, and the txq is open. And only where the device completes at once: [`Arch::PROMPT`] reaps in a row have left nothing
//! in it. A sender that finds no buffer, that has reached its limit, that chooses its txqs anew, or that ends, reaps first
//! ([`Shared::reap_deferred`]).
//!
//! When the sender sends no more, the worker reaps. The owner schedules it when it first defers; from then on the worker looks
//! once in [`LOOK`] whether anything was completed since its last look. If so, the sender still sends and reaps. If not, the
//! worker reaps as the owner of the queue, and ends the watch when nothing is left in the device. The owner then needs
//! [`Arch::PROMPT`] prompt reaps again, so a sender that pauses wakes the worker once in that many calls at most.

use std::sync::atomic::Ordering::Relaxed;

use super::{DoneSide, TxQueue};
use crate::arch::{Arch, Atomic, Nanos};
use crate::ctx::Ctx;
use crate::netdev::Shared;
use crate::packet::PacketList;

/// Packets that the device keeps until the owner reaps.
const DEFERRED: u32 = 32;
/// How often the worker looks whether the owner still reaps, in nanoseconds.
const LOOK: Nanos = 1_000_000;

/// The owner has left nothing to the worker.
const UNWATCHED: u32 = 0;
/// The worker has the txq, or its schedule has the txq's bit. The owner reaps after each batch.
const WATCHED: u32 = 1;
/// The same, and the owner defers.
const DEFERRING: u32 = 2;

/// What owner and worker tell each other.
pub(super) struct Deferred<A: Arch> {
    /// [`UNWATCHED`], [`WATCHED`] or [`DEFERRING`]. Written by the owner of the completing half alone, and set to `UNWATCHED`
    /// only on the worker's errand. The worker reads it after its errand, and after it has taken the txq's bit, which orders
    /// the store that came before the bit. Relaxed: an owner that follows is ordered by the queue's own hand-over.
    watch: A::AtomicU32,
    /// Packets that were complete at the worker's last look. Accessed by that worker alone, relaxed.
    seen: A::AtomicU32,
}

impl<A: Arch> Deferred<A> {
    pub(super) fn new() -> Self {
        Self { watch: A::AtomicU32::new(UNWATCHED), seen: A::AtomicU32::new(0) }
    }

    /// Has the owner reap after each batch.
    fn suspend(&self) {
        if self.watch.load(Relaxed) == DEFERRING {
            self.watch.store(WATCHED, Relaxed);
        }
    }
}

impl<A: Arch> DoneSide<A> {
    /// Counts a reap by the owner, which has left something in the device or not.
    #[inline]
    pub(super) fn note_reap(&mut self, left: bool, deferred: &Deferred<A>) {
        self.prompt = if left { 0 } else { self.prompt.saturating_add(1) };
        if left {
            deferred.suspend();
        }
    }
}

impl<A: Arch> TxQueue<A> {
    /// Returns whether the completion of `batch` may wait. The caller hands it to the driver next.
    #[inline]
    pub(crate) fn may_defer(&self, batch: &PacketList<A>, cx: &Ctx<'_, A>) -> bool {
        self.defers && !batch.stamped() && cx.cache.is_home_of(batch)
    }

    /// As [`reap_or_leave`](TxQueue::reap_or_leave), after [`pass`](TxQueue::pass) of a batch that
    /// [`may_defer`](TxQueue::may_defer) and that the driver has taken. The caller has the core of `root`. Returns how many
    /// packets more the device may keep before the owner reaps, if nobody else accesses the core until then.
    #[inline]
    pub(crate) fn reap_or_defer(&self, root: usize, cx: &mut Ctx<'_, A>) -> u32 {
        let defers = || self.deferred.watch.load(Relaxed) == DEFERRING;
        let in_flight = self.in_flight();
        if !defers() || in_flight >= DEFERRED || self.stopped() {
            self.reap_or_begin(root, in_flight, cx);
            if !defers() || self.stopped() {
                return 0;
            }
        }
        cx.cache.note_deferred();
        // One less than the ring holds: the txq does not stop.
        let most = (DEFERRED - 1).min(self.ring.load(Relaxed).saturating_sub(1));
        most.saturating_sub(self.in_flight())
    }

    /// As [`reap_or_defer`](TxQueue::reap_or_defer), where the owner reaps or does not defer yet.
    #[inline]
    fn reap_or_begin(&self, root: usize, in_flight: u32, cx: &mut Ctx<'_, A>) {
        if (1..DEFERRED).contains(&in_flight) && !self.stopped() && self.is_reaped_by(root) {
            // SAFETY: the caller alone may reap.
            let prompt = self.done.as_owner(|side| unsafe { (*side).prompt });
            if prompt >= A::PROMPT {
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
            // The schedule's bit orders the store before the worker's look.
            cx.dev.sched[self.reaper].reap(self.index);
        }
    }

    /// The owner of the completing half has reaped for the worker, or the driver is another.
    pub(super) fn end_deferring(&self, side: &mut DoneSide<A>) {
        side.prompt = 0;
        let watch = &self.deferred.watch;
        if watch.load(Relaxed) != UNWATCHED {
            watch.store(if self.in_flight() == 0 { UNWATCHED } else { WATCHED }, Relaxed);
        }
    }

    /// Whether completions may have been left to the worker that the schedule does not tell of.
    #[inline]
    pub(crate) fn is_watched(&self) -> bool {
        self.deferred.watch.load(Relaxed) != UNWATCHED
    }

    /// A look of the worker. Returns when it looks again, if the owner has reaped since the last look.
    pub(crate) fn next_look(&self, now: impl FnOnce() -> Nanos) -> Option<Nanos> {
        let Deferred { watch, seen } = &*self.deferred;
        if watch.load(Relaxed) != DEFERRING || self.stopped() {
            return None;
        }
        let completed = self.completed.packets.load(Relaxed);
        let tended = seen.load(Relaxed) != completed;
        seen.store(completed, Relaxed);
        tended.then(|| now().saturating_add(LOOK))
    }
}

impl<A: Arch> Shared<A> {
    /// Reaps what was left in a txq's device to be reaped later. The caller is not in the device's data path.
    pub(crate) fn reap_deferred(&self, txq: u16, cx: &mut Ctx<'_, A>) {
        let txq = &self.txqs[usize::from(txq)];
        if txq.is_watched() && txq.in_flight() > 0 {
            self.inside(|| self.reap(txq, cx));
            cx.free_dropped();
        }
    }
}
