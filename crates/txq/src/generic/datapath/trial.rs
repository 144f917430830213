//! A trial: whether what senders share sends more if they lease it to one another than if they hand packets over, or take locks by
//! turns (`enqueue/lease.rs`). Measurement decides.

use txq_core::arch::{Arch, Nanos};

/// How long a phase with the worse rule lasts, in nanoseconds.
const TRY: Nanos = 2_000_000;
/// How long a phase with the better rule lasts, in nanoseconds.
const KEEP: Nanos = 60_000_000;
/// How long it lasts at most, while one rule sends twice as much as the other, in nanoseconds.
const LONGEST: Nanos = 240_000_000;
/// Delay from the beginning of a phase to its measurement, in nanoseconds: the backlog of the phase before is sent first.
const SETTLE: Nanos = 500_000;
/// An owner reads the clock each time it has found packets of others so many times.
const LOOKS: u32 = 4;

/// Compares what a contended queue, or a device, sends with and without leases.
///
/// The two rules alternate, each for a phase: the better one for [`KEEP`], the other for [`TRY`]. While the better one sends twice as
/// much, its phases double, up to [`LONGEST`]. Waiting costs the waiting senders CPU time, so leases count as better only if they
/// send more than a sixteenth more. Not a larger part: where leases fill the links, nothing can send much more than what hands
/// over.
pub(crate) struct Trial {
    /// Whether this phase uses leases.
    leases: bool,
    /// Whether leases were better at the last comparison.
    better: bool,
    /// When the measurement of this phase begins.
    from: Nanos,
    /// When this phase ends.
    end: Nanos,
    /// How long the next phase with the better rule lasts.
    keep: Nanos,
    /// Packets sent when the measurement began; `None` before.
    sent: Option<u64>,
    /// Packets a millisecond without leases and with them; 0 if not known.
    rates: [u64; 2],
    looks: u32,
}

impl Trial {
    pub(crate) const fn new() -> Self {
        Self {
            leases: false,
            better: false,
            from: 0,
            end: 0,
            keep: KEEP,
            sent: None,
            rates: [0; 2],
            looks: 0,
        }
    }

    /// Counts that an owner has found packets of others; returns whether it is time to [`judge`](Trial::judge).
    #[inline]
    pub(crate) fn is_due<A: Arch>(&mut self) -> bool {
        self.looks = self.looks.wrapping_add(1);
        A::lease() > 0 && self.looks.is_multiple_of(LOOKS)
    }

    /// Returns the time before which [`judge`](Trial::judge) changes nothing.
    pub(crate) fn due(&self) -> Nanos {
        if self.sent.is_none() { self.from.min(self.end) } else { self.end }
    }

    /// Ends the phase if its time is over. `sent` is the number of packets sent so far. Returns true if leases begin, false if
    /// they end, and `None` if nothing changes.
    pub(crate) fn judge(&mut self, now: Nanos, sent: u64) -> Option<bool> {
        if now < self.end {
            if self.sent.is_none() && now >= self.from {
                (self.from, self.sent) = (now, Some(sent));
            }
            return None;
        }
        let took = now - self.from;
        let Some(before) = self.sent.filter(|_| took <= 2 * (self.end - self.from)) else {
            // No senders met for a while: the phase measures nothing.
            self.begin(now);
            return None;
        };
        let rate = ((sent - before) * 1_000_000 / took.max(1)).max(1);
        let known = &mut self.rates[usize::from(self.leases)];
        *known = if *known == 0 { rate } else { (*known + rate) / 2 };
        let [without, with] = self.rates;
        if without > 0 && with > 0 {
            self.better = with > without + without / 16;
            let clear = without.max(with) / 2 > without.min(with);
            self.keep = if clear { (self.keep * 2).min(LONGEST) } else { KEEP };
        }
        self.leases = !self.leases;
        self.begin(now);
        Some(self.leases)
    }

    fn begin(&mut self, now: Nanos) {
        let tried = self.leases != self.better || self.rates.contains(&0);
        (self.from, self.sent) = (now + SETTLE, None);
        self.end = now + if tried { TRY } else { self.keep };
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
            [(10_000, 80_000, 0.99), (10_000, 11_000, 0.97), (10_000, 10_500, 0.03), (80_000, 10_000, 0.01)]
        {
            let leases = run(without, with);
            assert!((leases - part).abs() < 0.01, "{without} and {with} packets a millisecond: {leases}");
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
