//! Completions: what the device is done with goes home, and a txq that was stopped goes on (`napi_poll` of a driver).

use std::mem;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};

use super::watchdog::Standstill;
use super::{Access, DoneSide, DriverBug, NOBODY, REAP, SENDERS, TxQueue, TxTimeout, Watchdog};
use crate::arch::{Arch, Atomic, Memory, Nanos, Work};
use crate::bql;
use crate::ctx::Ctx;
use crate::driver::Clock;
use crate::netdev::{Root, Shared};
use crate::packet::PacketList;
use crate::sync::contention::Site;

/// What a driver returned from its ring. It is counted also if the driver panics, and somebody looks again then.
struct Polled<'d, A: Arch> {
    txq: &'d TxQueue<A>,
    dev: &'d Shared<A>,
    bql: Option<&'d mut bql::Consumer>,
    done: &'d mut PacketList<A>,
    /// Packets that the driver was asked for.
    budget: usize,
}

/// Polls of an owner that finds its txq stopped.
const LOOKS: u32 = 4;

/// What a poll of the device has brought.
enum Reaped {
    /// Nothing: another thread polls.
    Busy,
    /// As many packets as one poll may return; there may be more.
    Full,
    /// All that is complete. When to look again, if the driver knows.
    Dry(Option<Nanos>),
}

impl Reaped {
    /// When to look again, if that is known.
    fn next(self) -> Option<Nanos> {
        match self {
            Self::Busy => None,
            Self::Full => Some(0),
            Self::Dry(next) => next,
        }
    }
}

impl<A: Arch> Polled<'_, A> {
    #[inline(always)]
    fn count(mut self, clock: &mut Clock<A>) {
        self.add(clock);
        mem::forget(self);
    }

    #[inline(always)]
    fn add(&mut self, clock: &mut Clock<A>) {
        if !self.done.is_empty() {
            let TxQueue { issued, completed, .. } = self.txq;
            let packets = completed.packets.load(Relaxed).wrapping_add(self.done.len() as u32);
            completed.packets.store(packets, Release);
            if let Some(bql) = &mut self.bql {
                let bytes = self.done.bytes() as u32;
                if bytes > bql.in_flight(&issued.bytes) && self.txq.ahead() == 0 {
                    self.txq.lengths_differ(self.dev);
                }
                bql.completed(bytes, &issued.bytes, &completed.adj_limit, clock);
            }
            if self.done.len() > self.budget {
                self.txq.note_bug(DriverBug::OverBudget, 0, self.dev);
            }
        }
    }
}

impl<A: Arch> Drop for Polled<'_, A> {
    fn drop(&mut self) {
        self.add(&mut Clock::new());
        self.dev.sched[self.txq.reaper].reap(self.txq.index);
    }
}

impl<A: Arch> TxQueue<A> {
    /// Reaps what is complete if whoever sends may, and leaves the rest to the worker. For the thread that is in the driver
    /// for `root`, after [`transmit`](TxQueue::transmit), when what became of the batch is known.
    #[inline]
    pub(crate) fn reap_or_leave(&self, root: usize, cx: &mut Ctx<'_, A>) {
        // Stopped with nothing in flight: the driver has panicked over the last completions.
        if self.in_flight() == 0 && !self.stopped() {
            return;
        }
        if self.inline.load(Relaxed) == SENDERS {
            self.reap_for(root, cx);
        }
        if self.needs_reaping() {
            cx.dev.sched[self.reaper].reap(self.index);
        }
    }

    /// Whether somebody must look at its completions: packets are in flight, or it has not been woken since the last were.
    pub(crate) fn needs_reaping(&self) -> bool {
        self.in_flight() > 0 || self.stopped()
    }

    /// The root whose owner alone may reap; `None` where anybody may who gets the completion lock.
    pub(crate) fn reaped_by(&self) -> Option<usize> {
        if self.inline.load(Relaxed) == SENDERS { self.seat.root() } else { None }
    }

    /// As [`reap`](TxQueue::reap), for the thread that is in the driver for `root`, or has its core while nobody is.
    #[inline]
    pub(crate) fn reap_for(&self, root: usize, cx: &mut Ctx<'_, A>) -> Option<Nanos> {
        if !self.is_reaped_by(root) {
            return self.reap(cx);
        }
        self.reap_as_owner(cx).next()
    }

    /// As [`reap_for`](TxQueue::reap_for), on an errand of the worker.
    pub(crate) fn reap_for_worker(&self, root: usize, cx: &mut Ctx<'_, A>) -> Option<Nanos> {
        let next = self.reap_for(root, cx);
        if self.is_reaped_by(root) {
            // SAFETY: as in `with_done`.
            self.done.as_owner(|side| self.end_deferring(unsafe { &mut *side }));
        }
        next
    }

    /// Whether only the thread that is in the driver for `root`, or has its core while nobody is, may reap.
    #[inline]
    pub(super) fn is_reaped_by(&self, root: usize) -> bool {
        self.inline.load(Relaxed) == SENDERS && self.seat.access(root) == Access::Owner
    }

    /// Reaps, where [`is_reaped_by`](TxQueue::is_reaped_by) says that the caller alone may.
    #[inline]
    fn reap_as_owner(&self, cx: &mut Ctx<'_, A>) -> Reaped {
        let mut done = PacketList::new();
        let next = self.done.as_owner(|side| {
            // SAFETY: as in `with_done`.
            let side = unsafe { &mut *side };
            let next = self.poll(side, &mut done, cx);
            side.note_reap(self.in_flight() > 0, &self.deferred);
            next
        });
        let state = self.state.load(Relaxed);
        if state != 0 {
            // The caller runs the queue next. Nobody else writes the state.
            self.state.store(state & !self.gone(state), Release);
        }
        self.free(&mut done, next, cx)
    }

    /// Takes what is complete from the device, wakes the txq if that makes room, and frees the buffers. Returns when
    /// to look again, if the driver knows.
    pub(crate) fn reap(&self, cx: &mut Ctx<'_, A>) -> Option<Nanos> {
        self.reap_with_lock(None, cx).next()
    }

    /// As [`reap`](TxQueue::reap), by the owner of the queue `owned`, if there is one: the owner need not be told of the wake.
    fn reap_with_lock(&self, owned: Option<usize>, cx: &mut Ctx<'_, A>) -> Reaped {
        let mut done = PacketList::new();
        let next = self.done.try_with_at(Site::Reap, |held| {
            // A queue has got the seat meanwhile: its owner reaps.
            let ours = self.inline.load(Relaxed) != SENDERS || self.seat.is_vacant();
            ours.then(|| {
                let next = self.poll(held.data(), &mut done, cx);
                if self.is_watched() {
                    self.end_deferring(held.data());
                }
                next
            })
        });
        if !done.is_empty() || self.stopped() {
            // Store `completed` and `adj_limit` before load XOFF: pairs with the fence in `stop`.
            A::fence(SeqCst);
            if owned.is_none() && self.bql && self.stopped() && self.in_flight() == 0 {
                // No completion will wake it: bytes may be missing. Whoever may call the driver sees to it.
                cx.dev.hand_over(cx.dev.root_of(self.index));
            }
            self.wake(owned, cx);
        }
        match next.flatten() {
            Some(next) => self.free(&mut done, next, cx),
            None => Reaped::Busy,
        }
    }

    /// Does what is due at a txq that the owner of `root` found stopped: reaps until the txq is open or nothing more is
    /// complete. Returns whether it is open. There is no interrupt: the owner has the CPU that the worker would need.
    ///
    /// Where the caller could not look, because the driver wants the worker to, or because another thread reaps and may
    /// have been preempted at it, the caller's next drop gives the CPU away ([`Ctx::held_up`]).
    #[cold]
    pub(crate) fn reopen(&self, root: &Root<A>, cx: &mut Ctx<'_, A>) -> bool {
        if self.inline.load(Relaxed) == NOBODY {
            cx.held_up = true;
        } else {
            // The turn may have begun long ago.
            cx.clock.advance();
            for _ in 0..LOOKS {
                let alone = self.is_reaped_by(root.index);
                match if alone { self.reap_as_owner(cx) } else { self.reap_with_lock(Some(root.index), cx) } {
                    Reaped::Busy => {
                        cx.held_up = true;
                        break;
                    }
                    Reaped::Full if self.stopped() => {}
                    _ => break,
                }
            }
        }
        if self.stopped() && self.bql && self.in_flight() == 0 {
            self.settle_stopped(root.index, cx);
        }
        !self.stopped()
    }

    /// Reaps a stopped txq where anybody may, for a sender that owns no queue; the wake has the queue run.
    #[cold]
    pub(crate) fn reap_if_stopped(&self, cx: &mut Ctx<'_, A>) {
        if self.stopped() && self.inline.load(Relaxed) != NOBODY && self.reaped_by().is_none() {
            cx.clock.advance();
            let _ = self.reap(cx);
        }
    }

    /// Nothing is in flight that could wake the txq, and yet it is stopped: the driver has lost bytes.
    fn settle_stopped(&self, root: usize, cx: &mut Ctx<'_, A>) {
        let settle = |cx: &mut Ctx<'_, A>| {
            if self.in_flight() == 0 {
                self.with_done(root, |done| self.settle_bytes(done, cx.dev, &mut cx.clock));
                self.state.fetch_and(!self.gone(self.state.load(Acquire)), Release);
            }
        };
        match self.seat.access(root) {
            Access::Owner => settle(cx),
            // No driver is called while the txq is stopped, so the lock is free soon.
            Access::Lock => self.tx.with_at(Site::Reap, |_| settle(cx)),
            Access::Suspended | Access::Wait => {}
        }
    }

    /// Calls `f` with the completing half, for the thread that is in the driver for `root` or has its core while nobody is.
    pub(super) fn with_done<R>(&self, root: usize, f: impl FnOnce(&mut DoneSide<A>) -> R) -> R {
        if self.is_reaped_by(root) {
            // SAFETY: completions are inline, and the caller owns the driver for the root that has the seat.
            return self.done.as_owner(|side| f(unsafe { &mut *side }));
        }
        self.done.with(|held| f(held.data()))
    }

    /// Asks the driver what is complete, and counts it.
    #[inline(always)]
    fn poll(&self, side: &mut DoneSide<A>, done: &mut PacketList<A>, cx: &mut Ctx<'_, A>) -> Option<Nanos> {
        let DoneSide { driver, bql, to_completion, .. } = side;
        // To the byte queue limits all that is complete now is one completion: in portions it would never leave the device
        // empty. So there are as many polls as what is in flight needs.
        let most = if bql.is_some() { self.in_flight() as usize } else { 0 };
        let mut polled = Polled { txq: self, dev: cx.dev, bql: bql.as_mut(), done, budget: REAP };
        A::touch(|| &**driver, Memory::Driver);
        let mut next = driver.poll(REAP, polled.done, &mut cx.clock);
        while polled.done.len() == polled.budget && polled.budget < most {
            polled.budget += REAP;
            next = driver.poll(REAP, polled.done, &mut cx.clock);
        }
        A::spend(|| Work::Reap(polled.done.len()));
        if polled.done.stamped() {
            to_completion.record_all(polled.done, A::now());
        }
        polled.count(&mut cx.clock);
        next
    }

    /// Frees what was complete, and tells when to look again.
    #[inline]
    fn free(&self, done: &mut PacketList<A>, next: Option<Nanos>, cx: &mut Ctx<'_, A>) -> Reaped {
        if !done.is_empty() {
            let full = done.len() >= REAP;
            cx.cache.free(done);
            if full {
                // There may be more that is complete already.
                return Reaped::Full;
            }
        }
        Reaped::Dry(next)
    }

    /// Takes back the reasons to be stopped that do not hold any more. Whoever takes the last one runs the queue: the
    /// transmitter goes on by itself, and so does the owner of the queue in force; from elsewhere the worker does.
    fn wake(&self, owned: Option<usize>, cx: &mut Ctx<'_, A>) {
        // Acquire: what was issued before the stop; pairs with the exchange in `stop`.
        let gone = self.gone(self.state.load(Acquire));
        if gone == 0 {
            return;
        }
        // Release: `completed`, to the transmitter that finds the txq open; pairs with the load in `stopped`.
        let was = self.state.fetch_and(!gone, Release);
        if was & gone != 0 && was & !gone == 0 {
            let root = cx.dev.root_of(self.index);
            if owned != Some(root) {
                cx.dev.schedule(root);
            }
        }
    }

    /// A look of the watchdog, by the worker that reaps, at a txq whose device keeps packets. Returns when to look again.
    pub(crate) fn watch(&self, watchdog: &Watchdog, now: impl FnOnce() -> Nanos) -> Option<Nanos> {
        if !self.stopped() {
            // A standstill that was seen is over: without a completion there was no wake.
            return None;
        }
        let mut event = None;
        let next = self.watched.with(|held| {
            let side = held.data();
            let moved = (self.issued.packets.load(Relaxed), self.completed.packets.load(Relaxed));
            let look = Standstill::look(&mut side.standstill, moved, now(), watchdog.timeo);
            if let Some(stopped_for) = look.expired {
                side.tx_timeout += 1;
                let (txq, in_flight, tx_timeout) = (self.index, self.in_flight(), side.tx_timeout);
                event = Some(TxTimeout { txq, stopped_for, in_flight, tx_timeout });
            }
            look.next
        });
        if let (Some(event), Some(hook)) = (event, &watchdog.hook) {
            hook(&event);
        }
        Some(next)
    }
}
