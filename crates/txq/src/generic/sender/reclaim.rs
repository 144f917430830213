//! A sender that finds no buffer, or has reached its limit, reaps before it waits.
//!
//! Its packets may be complete already, without anybody having looked: a sender reaps a txq after its own packets alone
//! (`transfer/reap.rs`), and the worker rests while senders reap (`worker/looks.rs`). Eight links of 10 Gbit/s send the 400 packets of
//! a sender in 60 us. If it must wake the worker, sleep and be woken in that time, they run dry. So the sender first reaps the
//! txqs that it uses. The kernel needs no such thing: an interrupt reaps.
//!
//! It then goes on with the buffers that it has got, and soon comes again. That pays only if it gets several buffers for a
//! few polls. Otherwise it waits, which costs less, and does not reap here again until it has sent a quarter of its limit
//! anew. It also waits at once where other senders send through the same txqs, unless it has the queue's lease: most packets
//! that it would get are theirs, and the lines of txqs and packets would go from CPU to CPU. Not under
//! [`Completions::PerQueue`](crate::generic::netdev::Completions::PerQueue): there those lines go to a completer's CPU anyway.
//!
//! A sender that has just got the lease finds its packets behind those of the last holder. If it slept, it would be woken when the
//! links have sent half of its own, and they would run dry while it wakes up. So it polls until the first of its own is complete.

use txq_core::arch::{Arch, Nanos};
use txq_core::sync::lease::tag;

use super::Sender;
use crate::generic::datapath::Ctx;

/// Txqs that one call polls at most.
const TXQS: usize = 16;
/// A reap pays if it brings a packet for each so many polls. Of 2, 4, 8 and 16, a lone sender filled eight links with 4 and more.
const POLLS_PER_PACKET: u32 = 8;
/// The longest time that the holder of a lease polls for its first packet behind those of the last holder, in nanoseconds: eight
/// links of 10 Gbit/s send 400 packets in that time.
const BEHIND: Nanos = 60_000;
/// Times that it sends all its packets before it looks again whether it is alone. In a shorter time the others may just be asleep.
const AMONG_OTHERS: u64 = 8;

/// What a sender knows of its reaps for want of a buffer or credit.
#[derive(Debug, Default)]
pub(super) struct Reclaims {
    /// Packets that it had handed in when it last looked whether it is alone.
    handed_in: u64,
    /// Packets that its txqs had issued then, wrapping.
    issued: u32,
    /// The count of packets handed in from which on a reap may pay again.
    rests_until: u64,
    /// The count from which on it looks again whether it is alone.
    among_others_until: u64,
    /// Index of the txq to poll first, among those that the sender uses.
    first: usize,
}

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

    /// Reaps for want of a buffer or credit. If that does not help, makes the workers look at the other packets on their way.
    #[cold]
    pub(super) fn reclaim(&mut self) {
        self.reap_deferred();
        // A limit that was lowered may need more packets than it has got.
        if !self.reap_own() || self.cache.is_at_limit() {
            self.dev.sched.iter().for_each(|sched| sched.hurry());
        }
    }

    /// Reaps the txqs that the sender uses, if that may pay; returns whether the sender has got buffers back.
    fn reap_own(&mut self) -> bool {
        if !self.dev.senders_help || A::inside(|inside| inside.depth()) > 0 {
            return false;
        }
        let handed_in = self.counters.submitted();
        if handed_in < self.reclaims.rests_until {
            return false;
        }
        let (before, _) = self.cache.credit();
        if !self.has_completers() && !self.has_leases() {
            if handed_in < self.reclaims.among_others_until {
                return false;
            }
            if !self.is_alone(handed_in) {
                self.reclaims.among_others_until = handed_in + u64::from(before) * AMONG_OTHERS;
                return false;
            }
        }
        let mut polls = self.poll_own();
        let mut got = self.got_since(before);
        if got == 0 && self.has_leases() {
            (polls, got) = self.poll_behind(before);
        }
        if polls == 0 || got * POLLS_PER_PACKET < polls {
            self.reclaims.rests_until = handed_in + u64::from(before / 4).max(1);
        }
        got > 0
    }

    /// Returns how many buffers the sender has got back since it had `before` packets on their way.
    fn got_since(&self, before: u32) -> u32 {
        before.saturating_sub(self.cache.credit().0)
    }

    /// Polls until the sender gets a buffer back, while it has the leases, for [`BEHIND`] at most. Returns the number of polls in the
    /// last round, and that of buffers.
    fn poll_behind(&mut self, before: u32) -> (u32, u32) {
        let until = A::now() + BEHIND;
        loop {
            let polls = self.poll_own();
            let got = self.got_since(before);
            if got > 0 || polls == 0 || A::now() >= until || !self.has_leases() {
                return (polls, got);
            }
        }
    }

    /// Whether completers reap, which have no CPU of their own if the senders use all.
    fn has_completers(&self) -> bool {
        self.dev.sched.len() > self.dev.workers
    }

    /// Whether the sender has the leases of all queues that it sends through, or that of the device if it takes turns for all.
    pub(super) fn has_leases(&self) -> bool {
        let (dev, own) = (&self.dev, tag(self.cache.id()));
        if self.cache.alternates() {
            return dev.lease.word.held().is_of(own);
        }
        let mut last = None;
        self.steer.used().iter().all(|txq| {
            let root = dev.root_at(self.rule, txq);
            last.replace(root) == Some(root)
                || dev.roots[root].discipline.lease().is_some_and(|lease| lease.held().is_of(own))
        })
    }

    /// Returns whether the txqs that the sender uses have issued hardly more packets than it has handed in since the last look.
    fn is_alone(&mut self, handed_in: u64) -> bool {
        let issued = self.steer.used().iter().map(|txq| self.dev.txqs[usize::from(txq)].issued_packets());
        let issued = issued.fold(0, u32::wrapping_add);
        let own = handed_in.wrapping_sub(self.reclaims.handed_in);
        let all = u64::from(issued.wrapping_sub(self.reclaims.issued));
        (self.reclaims.handed_in, self.reclaims.issued) = (handed_in, issued);
        all <= own + own / 8
    }

    /// Polls the txqs that have packets, up to [`TXQS`]; returns how many polls it has made.
    fn poll_own(&mut self) -> u32 {
        let used = self.steer.used();
        let mut cx = Ctx::new(&self.dev, &mut self.cache);
        let mut polls = 0;
        let from = self.reclaims.first % used.len().max(1);
        for txq in used.iter().skip(from).chain(used.iter().take(from)).take(TXQS) {
            let txq = &self.dev.txqs[usize::from(txq)];
            self.reclaims.first += 1;
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
