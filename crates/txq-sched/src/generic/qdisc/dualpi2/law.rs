//! The law of PI2 (RFC 9332, appendix A.1): one base probability, from the delay of both queues.
//!
//! Every `tupdate` the base probability changes by the distance of the delay from `target` and by the delay's change since the
//! last time. The delay is that of the packet that has waited longest in either queue. Between two calls the queues do not
//! change, so the updates of a pause are made up for at the next call, each with the delay that the packet had by then: the
//! result is that of a timer.

use txq_core::arch::Nanos;

use crate::generic::qdisc::random::Rng;

/// Updates that one call makes up for: after so many the probability no longer changes.
const UPDATES: u64 = 4096;
const SECOND: f64 = 1e9;

/// The parameters.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Goal {
    pub(super) target: Nanos,
    pub(super) tupdate: Nanos,
    /// Weights of the delay's distance from the target and of its change, in 1/256 Hz.
    pub(super) alpha: u32,
    pub(super) beta: u32,
    /// The largest base probability.
    pub(super) most: f64,
}

/// The state of both queues.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Law {
    /// The base probability.
    pub(super) prob: f64,
    before: Nanos,
    /// When the next update is due; `None` before the first packet.
    next: Option<Nanos>,
}

impl Law {
    /// Makes the updates whose time has come. `oldest` is when the packet was queued that has waited longest since the last
    /// call, if packets are queued.
    pub(super) fn pass_time(&mut self, goal: &Goal, oldest: Option<Nanos>, now: Nanos) {
        let next = *self.next.get_or_insert(now.saturating_add(goal.tupdate));
        let Some(late) = now.checked_sub(next) else { return };
        let updates = late / goal.tupdate + 1;
        for update in updates.saturating_sub(UPDATES)..updates {
            let at = next.saturating_add(update.saturating_mul(goal.tupdate));
            self.update(goal, oldest.map_or(0, |oldest| at.saturating_sub(oldest)));
        }
        self.next = Some(next.saturating_add(updates.saturating_mul(goal.tupdate)));
    }

    fn update(&mut self, goal: &Goal, delay: Nanos) {
        let (alpha, beta) = (f64::from(goal.alpha) / 256.0, f64::from(goal.beta) / 256.0);
        let distance = delay as f64 - goal.target as f64;
        let change = delay as f64 - self.before as f64;
        let prob = self.prob + (alpha * distance + beta * change) / SECOND;
        self.prob = prob.clamp(0.0, goal.most);
        self.before = delay;
    }
}

/// Returns true with this probability.
pub(super) fn happens(probability: f64, random: &mut Rng) -> bool {
    f64::from(random.next()) < probability * 4_294_967_296.0
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Nanos = 1_000_000;
    const GOAL: Goal = Goal { target: 15 * MS, tupdate: 16 * MS, alpha: 41, beta: 819, most: 1.0 };

    /// The RFC's equation by hand: 0.16 Hz times 85 ms, and 3.2 Hz times 100 ms.
    #[test]
    fn the_probability_follows_the_rfc() {
        let mut law = Law::default();
        law.update(&GOAL, 100 * MS);
        let expected = 41.0 / 256.0 * 0.085 + 819.0 / 256.0 * 0.1;
        assert!((law.prob / expected - 1.0).abs() < 1e-9, "{} {expected}", law.prob);
        law.update(&GOAL, 100 * MS);
        let grown = expected + 41.0 / 256.0 * 0.085;
        assert!((law.prob / grown - 1.0).abs() < 1e-9, "{} {grown}", law.prob);
        law.update(&GOAL, 0);
        assert!(law.prob < expected, "it falls faster than it grows: {}", law.prob);
        law.update(&GOAL, 10_000 * MS);
        assert_eq!(law.prob, 1.0);
        law.update(&Goal { most: 0.5, ..GOAL }, 10_000 * MS);
        assert_eq!(law.prob, 0.5);
        law.update(&GOAL, 0);
        assert_eq!(law.prob, 0.0);
    }

    /// The updates of a pause are those of a timer, while the packet in front waits longer and longer.
    #[test]
    fn a_pause_is_made_up_for() {
        let (mut timer, mut late) = (Law::default(), Law::default());
        timer.pass_time(&GOAL, Some(0), 0);
        late.pass_time(&GOAL, Some(0), 0);
        (1..=5).for_each(|n| timer.pass_time(&GOAL, Some(0), n * 16 * MS));
        late.pass_time(&GOAL, Some(0), 5 * 16 * MS + 3);
        assert_eq!((timer.prob, timer.next, timer.before), (late.prob, late.next, late.before));
        assert!(late.prob > 0.1);
        late.pass_time(&GOAL, None, Nanos::MAX);
        assert_eq!(late.prob, 0.0);
    }
}
