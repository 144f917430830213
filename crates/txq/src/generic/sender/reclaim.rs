//! A sender that finds no buffer, or has reached its limit, reaps before it sleeps.
//!
//! Its packets may be complete already, and no other thread may have polled. The kernel needs no such thing: an interrupt reaps. So
//! the sender polls the txqs that it uses for about as long as a sleep and a wake would take ([`POLL_BEFORE_SLEEP`]), and sleeps if that
//! returns no buffer.

use txq_core::arch::{Arch, Nanos};

use super::Sender;
use crate::generic::datapath::Ctx;
use crate::generic::tuning::POLL_BEFORE_SLEEP;

/// Txqs that one round polls at most.
const TXQS_PER_ROUND: usize = 16;

impl<A: Arch> Sender<A> {
    /// Reaps the completions that earlier calls have deferred.
    #[cold]
    pub(super) fn reap_deferred(&mut self) {
        // Inside a data path the wait could be for the caller itself; the worker reaps then.
        if A::inside(|inside| inside.depth()) == 0 && self.cache.take_deferred() {
            let mut cx = Ctx::new(&self.dev, &mut self.cache);
            self.steer.used().iter().for_each(|txq| self.dev.reap_deferred(txq, &mut cx));
        }
    }

    /// Reaps for want of a buffer or credit. If that does not help, makes the workers check the other packets on their way.
    #[cold]
    pub(super) fn reclaim(&mut self) {
        let now = A::now();
        self.pace.block(now);
        self.reap_deferred();
        // A limit that was lowered may need more packets than it has got.
        match self.reap_own(now) {
            Some(end) if !self.cache.is_at_limit() => self.pace.unblock(end),
            _ => self.dev.sched.iter().for_each(|sched| sched.hurry()),
        }
    }

    /// Polls the txqs that the sender uses until it gets a buffer back, from `now` on for [`POLL_BEFORE_SLEEP`] at most; returns the time at
    /// which it got one.
    fn reap_own(&mut self, now: Nanos) -> Option<Nanos> {
        if !self.dev.senders_help || A::inside(|inside| inside.depth()) > 0 {
            return None;
        }
        let (before, _) = self.cache.credit();
        let (mut last, end) = (now, now.saturating_add(POLL_BEFORE_SLEEP));
        loop {
            let polls = self.poll_own();
            let now = A::now();
            if self.cache.credit().0 < before {
                return Some(now);
            }
            // A clock that stands still would never end this.
            if polls == 0 || now >= end || now == last {
                return None;
            }
            last = now;
        }
    }

    /// Polls the txqs that have packets, up to [`TXQS_PER_ROUND`]; returns how many polls it has made.
    fn poll_own(&mut self) -> u32 {
        let used = self.steer.used();
        let mut cx = Ctx::new(&self.dev, &mut self.cache);
        let mut polls = 0;
        let from = self.polled % used.len().max(1);
        for txq in used.iter().skip(from).chain(used.iter().take(from)).take(TXQS_PER_ROUND) {
            let txq = &self.dev.txqs[usize::from(txq)];
            self.polled += 1;
            if txq.in_flight() == 0 || !txq.is_polled_by_owners() {
                continue;
            }
            polls += 1;
            if self.dev.inside(|| self.dev.try_reap(txq, &mut cx)).is_none() {
                break;
            }
        }
        cx.free_dropped();
        polls
    }
}
