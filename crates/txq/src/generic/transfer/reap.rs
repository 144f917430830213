//! Completions: takes completed packets back from the device, frees their buffers and wakes a stopped txq (`napi_poll` of a
//! driver).

use std::mem;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::time::Duration;

use txq_core::arch::{Arch, Atomic, Memory, Nanos, Work};
use txq_core::clock::Clock;
use txq_core::packet::PacketList;
use txq_core::stats::contention::Site;

use crate::generic::bql;
use crate::generic::datapath::Ctx;
use crate::generic::datapath::{Datapath, Root};
use crate::generic::tuning::{FULL_POLLS, REAPED_TOGETHER};
use crate::generic::txqueue::watchdog::Standstill;
use crate::generic::txqueue::{
    Access, DoneSide, DriverBug, Issued, NOBODY, OWNERS, REAP, SENDERS, TxQueue, TxTimeout, Watchdog,
};

/// Counts the packets that a driver returned from its ring. If the driver panics, they are counted on drop, and the worker
/// polls again.
struct Polled<'d, A: Arch> {
    txq: &'d TxQueue<A>,
    dev: &'d Datapath<A>,
    bql: Option<&'d mut bql::Consumer>,
    done: &'d mut PacketList<A>,
    /// Bound on the packets that the driver was asked for.
    budget: usize,
}

/// The result of a poll of the device.
enum Reaped {
    /// No poll: another thread polls, or only the seat's owner may.
    Busy,
    /// As many packets as one poll may return; more may be complete.
    Full,
    /// All complete packets. Holds when to poll again, if the driver knows.
    Dry(Option<Nanos>),
}

impl Reaped {
    /// Returns when to poll again, if that is known.
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
    /// Reaps complete packets if senders may and a reap is due, and schedules the worker for the others. The caller is in the
    /// driver for `root`, after [`transmit`](TxQueue::transmit), and has recorded the result of the batch.
    #[inline]
    pub(crate) fn reap_or_leave(&self, root: usize, cx: &mut Ctx<'_, A>) {
        // A txq that is stopped with nothing in flight: the driver panicked in the poll of the last completions.
        if self.in_flight() == 0 && !self.stopped() {
            return;
        }
        if self.inline.load(Relaxed) == SENDERS && (self.stopped() || self.is_reap_due()) {
            let before = self.in_flight();
            self.reap_for(root, cx);
            self.moderate(before.saturating_sub(self.in_flight()));
        }
        if self.needs_reaping() {
            let sched = &cx.dev.sched[self.reaper];
            sched.reap(self.index);
            if self.stopped() {
                sched.hurry();
            }
        }
    }

    /// Returns whether a sender reaps now: not if its next reap is planned for one of the next [`REAPED_TOGETHER`] packets.
    #[inline]
    fn is_reap_due(&self) -> bool {
        let Issued { packets, reap_at, .. } = &*self.issued;
        // Any other distance is from a plan long ago, before the count of packets wrapped or the driver was replaced.
        !(1..=REAPED_TOGETHER).contains(&reap_at.load(Relaxed).wrapping_sub(packets.load(Relaxed)))
    }

    /// Returns the number of packets after which a sender reaps again, and up to which completions may wait.
    #[inline]
    pub(super) fn coalesced(&self) -> u32 {
        self.deferred.coalesced.load(Relaxed)
    }

    /// Adapts the number of packets between two reaps to a poll that has returned `got` packets, as network cards moderate
    /// interrupts (`ethtool -C adaptive-tx on`): doubles it after a full poll, halves it after an empty one. A device that keeps
    /// packets must not run dry, so there it is a quarter of the ring at most. Plans the sender's next reap.
    #[inline]
    fn moderate(&self, got: u32) {
        let Issued { packets, reap_at, .. } = &*self.issued;
        let now = self.coalesced();
        let (ring, is_empty) = (self.ring.load(Relaxed), self.in_flight() == 0);
        let most = REAPED_TOGETHER.min(if is_empty { ring } else { ring / 4 }).max(1);
        let next = match got {
            0 => now / 2,
            got if got >= now => now * 2,
            _ => now,
        };
        let next = next.clamp(1, most);
        self.deferred.coalesced.store(next, Relaxed);
        // A device that is empty completes at once: what does not defer its completion is reaped with the next packet.
        let after = if is_empty { 1 } else { next };
        reap_at.store(packets.load(Relaxed).wrapping_add(after), Relaxed);
    }

    /// Whether a thread must reap the txq: packets are in flight, or it is stopped, so that it has not been woken since the
    /// last completion.
    pub(crate) fn needs_reaping(&self) -> bool {
        self.in_flight() > 0 || self.stopped()
    }

    /// Whether an owner that finds the txq stopped polls it ([`reopen`](TxQueue::reopen)).
    pub(crate) fn is_polled_by_owners(&self) -> bool {
        self.inline.load(Relaxed) != NOBODY
    }

    /// Whether senders may reap the txq, and still send to it: it is open. `help` says whether a sender reaps before it waits
    /// (`sender/reclaim.rs`).
    pub(crate) fn is_tended(&self, help: bool) -> bool {
        let reapers = self.inline.load(Relaxed);
        (reapers == SENDERS || (help && reapers == OWNERS)) && !self.stopped()
    }

    /// Returns the root whose owner alone may reap; `None` if any holder of the completion lock may.
    pub(crate) fn reaped_by(&self) -> Option<usize> {
        if self.inline.load(Relaxed) == SENDERS { self.seat.root() } else { None }
    }

    /// As [`reap`](TxQueue::reap), for the thread that is in the driver for `root`, or that owns the root's core while no
    /// thread is in the driver.
    #[inline]
    pub(crate) fn reap_for(&self, root: usize, cx: &mut Ctx<'_, A>) -> Option<Nanos> {
        if !self.is_reaped_by(root) {
            return self.reap(cx);
        }
        self.reap_as_owner(cx).next()
    }

    /// As [`reap_for`](TxQueue::reap_for), on an errand of the worker; then ends deferred completions.
    pub(crate) fn reap_for_worker(&self, root: usize, cx: &mut Ctx<'_, A>) -> Option<Nanos> {
        let next = self.reap_for(root, cx);
        if self.is_reaped_by(root) {
            // SAFETY: as in `with_done`.
            self.done.as_owner(|side| self.end_deferring(unsafe { &mut *side }));
        }
        next
    }

    /// Whether only the thread that is in the driver for `root`, or that owns the root's core while no thread is in the
    /// driver, may reap.
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
            // The caller runs the queue next, so no wake is needed. No other thread writes the state.
            self.state.store(state & !self.gone(state), Release);
        }
        self.free(&mut done, next, cx)
    }

    /// Takes complete packets from the device, wakes the txq if that makes room, and frees the buffers. Returns when to poll
    /// again, if the driver knows.
    pub(crate) fn reap(&self, cx: &mut Ctx<'_, A>) -> Option<Nanos> {
        self.reap_with_lock(None, cx).next()
    }

    /// As [`reap`](TxQueue::reap), with the completion lock. `owned` is the queue that the caller owns, if any: a wake need
    /// not schedule that queue.
    fn reap_with_lock(&self, owned: Option<usize>, cx: &mut Ctx<'_, A>) -> Reaped {
        let mut done = PacketList::new();
        let next = self.done.try_with_at(Site::Reap, |held| {
            // If a queue has been granted the seat meanwhile, its owner reaps.
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
            // Orders the stores of `completed` and `adj_limit` before the load of XOFF. Pairs with the fence in `stop`.
            A::fence(SeqCst);
            if owned.is_none() && self.bql && self.stopped() && self.in_flight() == 0 {
                // No completion will wake the txq: bytes may be missing. The queue's owner settles them (`reopen`).
                cx.dev.hand_over(cx.dev.root_of(self.index));
            }
            self.wake(owned, cx);
        }
        match next.flatten() {
            Some(next) => self.free(&mut done, next, cx),
            None => Reaped::Busy,
        }
    }

    /// Reaps a txq that the owner of `root` has found stopped or without room for `packets`, until it is open and has the room,
    /// or no more packets are complete, in [`FULL_POLLS`] polls at most or as many as `packets` need. Returns whether the txq is
    /// open. There is no interrupt: the owner has the CPU that the worker would need.
    ///
    /// If the caller could not poll, because the driver leaves that to the worker or because another thread reaps and may be
    /// preempted, the caller's next drop yields the CPU ([`Ctx::held_up`]).
    #[cold]
    pub(crate) fn reopen(&self, root: &Root<A>, packets: usize, cx: &mut Ctx<'_, A>) -> bool {
        if self.inline.load(Relaxed) == NOBODY {
            cx.held_up = true;
        } else {
            // The clock was last read at the beginning of the turn, perhaps long ago.
            cx.clock.advance();
            for _ in 0..FULL_POLLS.max(packets / REAP + 1) {
                let alone = self.is_reaped_by(root.index);
                match if alone { self.reap_as_owner(cx) } else { self.reap_with_lock(Some(root.index), cx) } {
                    Reaped::Busy => {
                        cx.held_up = true;
                        break;
                    }
                    Reaped::Full if self.stopped() || packets > self.room() as usize => {}
                    _ => break,
                }
            }
        }
        if self.stopped() && self.bql && self.in_flight() == 0 {
            self.settle_stopped(root.index, cx);
        }
        !self.stopped()
    }

    /// Reaps a stopped txq if any thread may, for a sender that owns no queue. The wake schedules the queue.
    #[cold]
    pub(crate) fn reap_if_stopped(&self, cx: &mut Ctx<'_, A>) {
        if self.stopped() && self.inline.load(Relaxed) != NOBODY && self.reaped_by().is_none() {
            cx.clock.advance();
            let _ = self.reap(cx);
        }
    }

    /// Settles the bytes of a txq that is stopped with nothing in flight: the driver has lost bytes, and no completion will
    /// wake the txq.
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
            Access::Wait => {}
        }
    }

    /// Calls `f` with the completing half. The caller is in the driver for `root`, or owns the root's core while no thread
    /// is in the driver.
    pub(super) fn with_done<R>(&self, root: usize, f: impl FnOnce(&mut DoneSide<A>) -> R) -> R {
        if self.is_reaped_by(root) {
            // SAFETY: completions are inline, and the caller owns the driver for the root that has the seat.
            return self.done.as_owner(|side| f(unsafe { &mut *side }));
        }
        self.done.with(|held| f(held.data()))
    }

    /// Polls the driver for complete packets and counts them. Returns when to poll again, if the driver knows.
    #[inline(always)]
    fn poll(&self, side: &mut DoneSide<A>, done: &mut PacketList<A>, cx: &mut Ctx<'_, A>) -> Option<Nanos> {
        let DoneSide { driver, bql, to_completion, .. } = side;
        // The byte queue limit must see all packets that are complete now as one completion: portions would never leave the
        // device empty. So it polls until the packets in flight are covered.
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
            polled.done.record_times(A::now(), to_completion);
        }
        polled.count(&mut cx.clock);
        next
    }

    /// Frees complete packets. Returns the result of the poll; `next` is when to poll again.
    #[inline]
    fn free(&self, done: &mut PacketList<A>, next: Option<Nanos>, cx: &mut Ctx<'_, A>) -> Reaped {
        if !done.is_empty() {
            let full = done.len() >= REAP;
            cx.cache.free(done);
            if full {
                // More packets may be complete already.
                return Reaped::Full;
            }
        }
        Reaped::Dry(next)
    }

    /// Clears the reasons for a stop that no longer hold. If it clears the last one, schedules the queue in force, unless
    /// the caller owns that queue (`owned`) and goes on by itself.
    fn wake(&self, owned: Option<usize>, cx: &mut Ctx<'_, A>) {
        // Acquire: the packets issued before the stop; pairs with the `fetch_or` in `stop`.
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

    /// Runs the watchdog on a txq whose device keeps packets; called by the worker that reaps. Returns when to check again;
    /// `None` if the txq is not stopped.
    pub(crate) fn watch(&self, watchdog: &Watchdog, now: impl FnOnce() -> Nanos) -> Option<Nanos> {
        if !self.stopped() {
            // An open txq ends a standstill: a wake needs a completion, which changes the counts.
            return None;
        }
        let mut event = None;
        let next = self.watched.with(|held| {
            let side = held.data();
            let moved = (self.issued.packets.load(Relaxed), self.completed.packets.load(Relaxed));
            let check = Standstill::check(&mut side.standstill, moved, now(), watchdog.timeo);
            if let Some(stopped_for) = check.expired.map(Duration::from_nanos) {
                side.tx_timeout += 1;
                let (txq, in_flight, tx_timeout) = (self.index, self.in_flight(), side.tx_timeout);
                event = Some(TxTimeout { txq, stopped_for, in_flight, tx_timeout });
            }
            check.next
        });
        if let (Some(event), Some(hook)) = (event, &watchdog.hook) {
            hook(&event);
        }
        Some(next)
    }
}
