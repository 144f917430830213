//! Leases: one sender at a time uses a cheap queue, and the others wait for their turn instead of handing packets over or taking
//! the queue's lock by turns.
//!
//! A packet that one CPU hands to another moves cache lines there and back: the descriptor, the list, and the account and
//! inbox of its home. A lock that two CPUs take by turns moves itself and the queue's state. Where all other work on a packet
//! is cheaper than that, one CPU alone sends more than two that hand over. A lease gives the queue to one sender for
//! [`Arch::lease`]: its packets, its pool and the queue's state stay in one cache. Then the first waiting sender to find it over
//! takes it (`sync/lease.rs`).
//!
//! A lease is advice: the discipline's own word still decides the ownership of the queue. A sender that may not wait, or has
//! waited for [`WAIT`], continues as if there were no lease. A sender begins to wait when it has handed in [`LIGHT`] packets
//! within the length of a lease, none of them to another queue. So a sender that sends seldom never waits. Nor does one that sends to
//! several queues by turns: it would wait at each of them for senders that wait elsewhere, while its own lease passes unused.
//!
//! Measurement decides whether senders wait or hand over ([`Trial`]): the owners of a contended queue compare what it sends
//! under each rule, and try the worse one again now and then.

use txq_core::arch::{Arch, Nanos};
use txq_core::sync::lease::{Lease, tag};

use crate::datapath::Ctx;

/// Packets in the length of a lease from which a sender without a recent lease waits for one.
const LIGHT: usize = 32;
/// How long after it took a lease a sender counts as busy and waits from its first packet on, in nanoseconds.
const BUSY: Nanos = 20_000_000;
/// The longest wait for a lease in one call, in nanoseconds.
const WAIT: Nanos = 2_000_000;
/// How long after its end a sender that does not wait may take a lease, in nanoseconds. Longer than a holder is likely to be
/// without a CPU while no sender waits.
const STALE: Nanos = 10_000_000;

/// Returns the tag of the sender whose call this is.
#[inline]
fn own_tag<A: Arch>(cx: &Ctx<'_, A>) -> u16 {
    tag(cx.cache.id())
}

/// Whether another sender has the lease, or had it last.
#[inline]
pub(super) fn is_anothers<A: Arch>(lease: &Lease<A>, cx: &Ctx<'_, A>) -> bool {
    A::lease() > 0 && lease.held().is_anothers(own_tag(cx))
}

/// Waits until the sender of `packets` can take the lease, until there is no lease, or until [`WAIT`] is over. Returns
/// whether the sender has just taken the lease. A sender inside another call, from a driver or a qdisc, does not wait: the
/// holder may wait for that call.
#[cold]
pub(super) fn wait<A: Arch>(lease: &Lease<A>, packets: usize, cx: &mut Ctx<'_, A>) -> bool {
    let start = A::now();
    // The caller's own entry is one.
    let nested = A::inside(|inside| inside.depth()) > 1;
    let past = cx.cache.leases();
    let busy = past.count(packets, start, A::lease()) >= LIGHT || start < past.took + BUSY;
    let light = nested || !busy;
    let grace = if light { STALE } else { 0 };
    let mut now = start;
    loop {
        let held = lease.held();
        if held.is_none() {
            return false;
        }
        if now >= held.end() + grace && lease.take(held, own_tag(cx), now + A::lease()) {
            cx.cache.leases().took = if light { 0 } else { now };
            return true;
        }
        if light || now >= start + WAIT || cx.dev.is_stopping() {
            return false;
        }
        A::yield_cpu();
        now = A::now();
    }
}

/// How long a phase with the worse rule lasts, in nanoseconds.
const TRY: Nanos = 2_000_000;
/// How long a phase with the better rule lasts, in nanoseconds.
const KEEP: Nanos = 60_000_000;
/// Delay from the beginning of a phase to its measurement, in nanoseconds: the queue first sends the backlog of the phase
/// before.
const SETTLE: Nanos = 500_000;
/// An owner reads the clock each time it has found packets of others so many times.
const LOOKS: u32 = 4;

/// Compares what a contended queue sends with and without leases. Plain data of the queue's owner.
///
/// The two rules alternate, each for a phase: the better one for [`KEEP`], the other for [`TRY`]. Waiting costs the waiting
/// senders CPU time, so leases count as better only if they send more than a sixteenth more. Not a larger part: where
/// leases fill the links, nothing can send much more than what hands over.
pub(super) struct Trial {
    /// Whether this phase uses leases.
    leases: bool,
    /// Whether leases were better at the last comparison.
    better: bool,
    /// When the measurement of this phase begins.
    from: Nanos,
    /// When this phase ends.
    end: Nanos,
    /// Packets sent when the measurement began; `None` before.
    sent: Option<u64>,
    /// Packets a millisecond without leases and with them; 0 if not known.
    rates: [u64; 2],
    looks: u32,
}

impl Trial {
    pub(super) const fn new() -> Self {
        Self { leases: false, better: false, from: 0, end: 0, sent: None, rates: [0; 2], looks: 0 }
    }

    /// Counts that an owner has found packets of others; returns whether it is time to [`look`](Trial::look).
    #[inline]
    pub(super) fn is_due<A: Arch>(&mut self) -> bool {
        self.looks = self.looks.wrapping_add(1);
        A::lease() > 0 && self.looks.is_multiple_of(LOOKS)
    }

    /// Begins or ends leases if the phase is over. The caller owns the queue, which has sent `sent` packets so far.
    #[cold]
    pub(super) fn look<A: Arch>(&mut self, lease: &Lease<A>, sent: u64, cx: &Ctx<'_, A>) {
        let now = A::now();
        match self.judge(now, sent) {
            Some(true) => lease.grant(own_tag(cx), now + A::lease()),
            Some(false) => lease.end(),
            None => {}
        }
    }

    /// Ends the phase if its time is over. `sent` is the number of packets that the queue has sent so far. Returns true if
    /// leases begin, false if they end, and `None` if nothing changes.
    fn judge(&mut self, now: Nanos, sent: u64) -> Option<bool> {
        if now < self.end {
            if self.sent.is_none() && now >= self.from {
                (self.from, self.sent) = (now, Some(sent));
            }
            return None;
        }
        let took = now - self.from;
        let Some(before) = self.sent.filter(|_| took <= 2 * (self.end - self.from)) else {
            // The queue was not contended for a while: the phase measures nothing.
            self.begin(now);
            return None;
        };
        let rate = ((sent - before) * 1_000_000 / took.max(1)).max(1);
        let known = &mut self.rates[usize::from(self.leases)];
        *known = if *known == 0 { rate } else { (*known + rate) / 2 };
        let [without, with] = self.rates;
        if without > 0 && with > 0 {
            self.better = with > without + without / 16;
        }
        self.leases = !self.leases;
        self.begin(now);
        Some(self.leases)
    }

    fn begin(&mut self, now: Nanos) {
        let tried = self.leases != self.better || self.rates.contains(&0);
        (self.from, self.sent) = (now + SETTLE, None);
        self.end = now + if tried { TRY } else { KEEP };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs phases in which the queue sends at these rates, in packets a millisecond; returns the part of the time with leases.
    fn run(without: u64, with: u64) -> f64 {
        let mut trial = Trial::new();
        let (mut now, mut sent, mut leases, mut leased) = (1_000_000_000, 0, false, 0);
        const STEP: Nanos = 50_000;
        for _ in 0..100_000 {
            now += STEP;
            sent += if leases { with } else { without } * STEP / 1_000_000;
            leased += u64::from(leases);
            leases = trial.judge(now, sent).unwrap_or(leases);
        }
        leased as f64 / 1e5
    }

    #[test]
    fn the_better_rule_is_kept_and_the_other_tried() {
        for (without, with, part) in
            [(10_000, 80_000, 0.97), (10_000, 11_000, 0.97), (10_000, 10_500, 0.03), (80_000, 10_000, 0.03)]
        {
            let leases = run(without, with);
            assert!((leases - part).abs() < 0.02, "{without} and {with} packets a millisecond: {leases}");
        }
    }

    #[test]
    fn a_phase_in_which_nobody_met_says_nothing() {
        let mut trial = Trial::new();
        assert_eq!(trial.judge(1 << 40, 0), None);
        // Much was sent, and no owner looked for long after the phase was over.
        assert_eq!(trial.judge((1 << 40) + 10 * KEEP, 1 << 30), None);
        assert!(trial.rates == [0; 2] && !trial.leases);
    }
}
