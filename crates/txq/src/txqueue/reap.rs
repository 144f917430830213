//! Completions: what the device is done with goes home, and a txq that was stopped goes on (`napi_poll` of a driver).

use std::mem;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};

use super::{DoneSide, REAP, Standstill, TxQueue, TxTimeout, Watchdog};
use crate::arch::{Arch, Atomic, Memory, Nanos, Work};
use crate::bql;
use crate::ctx::Ctx;
use crate::driver::Clock;
use crate::netdev::Shared;
use crate::packet::PacketList;
use crate::sync::contention::Site;

/// What a driver returned from its ring. It is counted also if the driver panics, and somebody looks again then.
struct Polled<'d, A: Arch> {
    txq: &'d TxQueue<A>,
    dev: &'d Shared<A>,
    bql: Option<&'d mut bql::Consumer>,
    done: &'d mut PacketList<A>,
}

impl<A: Arch> Polled<'_, A> {
    #[inline]
    fn count(mut self, clock: &mut Clock<A>) {
        self.add(clock);
        mem::forget(self);
    }

    #[inline]
    fn add(&mut self, clock: &mut Clock<A>) {
        if !self.done.is_empty() {
            let TxQueue { issued, completed, .. } = self.txq;
            let packets = completed.packets.load(Relaxed).wrapping_add(self.done.len() as u32);
            completed.packets.store(packets, Release);
            if let Some(bql) = &mut self.bql {
                bql.completed(self.done.bytes() as u32, &issued.bytes, &completed.adj_limit, clock);
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
    /// Reaps what is complete if whoever sends may, and leaves the rest to the worker. Comes after
    /// [`transmit`](TxQueue::transmit), when what became of the batch is known.
    #[inline]
    pub(crate) fn reap_or_leave(&self, cx: &mut Ctx<'_, A>) {
        if self.in_flight() == 0 {
            return;
        }
        if self.inline.load(Relaxed) != 0 {
            self.reap(cx);
        }
        if self.in_flight() > 0 {
            cx.dev.sched[self.reaper].reap(self.index);
        }
    }

    /// Takes what is complete from the device, wakes the txq if that makes room, and frees the buffers. Returns when
    /// to look again, if the driver knows.
    pub(crate) fn reap(&self, cx: &mut Ctx<'_, A>) -> Option<Nanos> {
        let mut done = PacketList::new();
        let next = self.done.try_with_at(Site::Reap, |held| {
            let DoneSide { driver, bql, to_completion, .. } = held.data();
            // To the byte queue limits all that is complete now is one completion: in portions it would never leave the device
            // empty. So there are as many polls as what is in flight needs.
            let most = if bql.is_some() { self.in_flight() as usize } else { 0 };
            let polled = Polled { txq: self, dev: cx.dev, bql: bql.as_mut(), done: &mut done };
            A::touch(|| &**driver, Memory::Driver);
            let mut budget = REAP;
            let mut next = driver.poll(REAP, polled.done, &mut cx.clock);
            while polled.done.len() == budget && budget < most {
                budget += REAP;
                next = driver.poll(REAP, polled.done, &mut cx.clock);
            }
            A::spend(|| Work::Reap(polled.done.len()));
            if polled.done.stamped() {
                to_completion.record_all(polled.done, A::now());
            }
            polled.count(&mut cx.clock);
            next
        });
        if !done.is_empty() || self.stopped() {
            // Store `completed` and `adj_limit` before load XOFF: pairs with the fence in `stop`.
            A::fence(SeqCst);
            self.wake(cx);
        }
        if !done.is_empty() {
            let full = done.len() >= REAP;
            cx.cache.free(&mut done);
            if full {
                // There may be more that is complete already.
                return Some(0);
            }
        }
        next.flatten()
    }

    /// Takes back the reasons to be stopped that do not hold any more. Whoever takes the last one runs the queue: the
    /// transmitter goes on by itself, from here the worker does.
    fn wake(&self, cx: &mut Ctx<'_, A>) {
        let gone = self.gone(self.state.load(Acquire));
        if gone == 0 {
            return;
        }
        let was = self.state.fetch_and(!gone, Release);
        if was & gone != 0 && was & !gone == 0 {
            cx.dev.schedule(cx.dev.root_of(self.index));
        }
    }

    /// A look of the watchdog, by the worker that reaps, at a txq whose device keeps packets. Returns when to look again.
    pub(crate) fn watch(&self, watchdog: &Watchdog, now: impl FnOnce() -> Nanos) -> Option<Nanos> {
        if !self.stopped() {
            // A standstill that was seen is over: without a completion there was no wake.
            return None;
        }
        let mut event = None;
        let next = self.done.with(|held| {
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
