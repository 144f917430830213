//! The law of PIE (RFC 8033): the probability with which packets are dropped at enqueue, from the delay of the queue.
//!
//! Every `tupdate` the probability changes by the distance of the delay from `target` and by the delay's change since the last
//! time. The delay is that of the last dequeued packet or, with the estimator, the queue's bytes divided by the measured
//! rate. Between two calls the queue does not change, so the updates of a pause are made up for at the next call: the result
//! is that of a timer.
//!
//! Shared by pie and fq_pie.

use txq_core::arch::Nanos;

use crate::generic::qdisc::random::Rng;

/// The probability 1.
pub(in crate::generic::qdisc) const MAX: u64 = u64::MAX >> 8;
/// How long a burst may last that is not dropped (RFC 8033, section 4.4).
const MAX_BURST: Nanos = 150_000_000;
/// Above this delay the probability grows faster (section 5.5).
const HIGH_DELAY: Nanos = 250_000_000;
/// Bytes from which on the estimator measures (section 5.2, DQ_THRESHOLD).
const THRESHOLD: u64 = 1 << 14;
/// Updates that one call makes up for: after so many the probability no longer changes.
const UPDATES: u64 = 4096;

/// The parameters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::generic::qdisc) struct Goal {
    pub(in crate::generic::qdisc) target: Nanos,
    pub(in crate::generic::qdisc) tupdate: Nanos,
    /// Weights of the delay's distance from the target and of its change, in 1/16 for each second.
    pub(in crate::generic::qdisc) alpha: u32,
    pub(in crate::generic::qdisc) beta: u32,
    /// Whether long packets are dropped with a higher probability than short ones.
    pub(in crate::generic::qdisc) bytemode: bool,
    /// Whether the delay is computed from the rate.
    pub(in crate::generic::qdisc) estimator: bool,
    /// The longest packet.
    pub(in crate::generic::qdisc) mtu: u32,
}

/// The state of a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::generic::qdisc) struct Law {
    /// The probability, in parts of [`MAX`].
    pub(in crate::generic::qdisc) prob: u64,
    /// The sum of the probabilities since the last drop, in parts of [`MAX`].
    sum: u64,
    /// How long packets are still not dropped.
    burst: Nanos,
    pub(in crate::generic::qdisc) delay: Nanos,
    delay_before: Nanos,
    /// Bytes of the present measurement.
    counted: Option<u64>,
    /// When the measurement began or, without estimator, the last dequeue.
    since: Option<Nanos>,
    /// The measured rate, in bytes a second.
    pub(in crate::generic::qdisc) rate: u64,
    /// When the next update is due; `None` before the first packet.
    next: Option<Nanos>,
}

impl Default for Law {
    fn default() -> Self {
        Self {
            prob: 0,
            sum: 0,
            burst: MAX_BURST,
            delay: 0,
            delay_before: 0,
            counted: None,
            since: None,
            rate: 0,
            next: None,
        }
    }
}

impl Law {
    /// Makes the updates whose time has come. `backlog` are the bytes queued since the last call.
    pub(in crate::generic::qdisc) fn pass_time(&mut self, goal: &Goal, backlog: u64, now: Nanos) {
        let next = *self.next.get_or_insert(now.saturating_add(goal.tupdate));
        let Some(late) = now.checked_sub(next) else { return };
        let updates = late / goal.tupdate + 1;
        (0..updates.min(UPDATES)).for_each(|_| self.update(goal, backlog));
        self.next = Some(next.saturating_add(updates.saturating_mul(goal.tupdate)));
    }

    /// Computes the probability anew (section 5.2 of the RFC, with the scaling of its section 4.2).
    fn update(&mut self, goal: &Goal, backlog: u64) {
        let mut may_decay = true;
        if goal.estimator {
            self.delay_before = self.delay;
            self.delay = match u128::from(backlog) * 1_000_000_000 {
                0 => 0,
                bytes => Nanos::try_from(bytes / u128::from(self.rate.max(1))).unwrap_or(Nanos::MAX),
            };
            if self.rate == 0 {
                self.delay = 0;
            }
            // Bytes of which the rate says nothing.
            may_decay = self.delay > 0 || backlog == 0;
        }
        let (delay, before) = (i128::from(self.delay), i128::from(self.delay_before));
        let distance = i128::from(goal.alpha) * (delay - i128::from(goal.target));
        let change = i128::from(goal.beta) * (delay - before);
        // Small probabilities change by small steps: a factor of 2 below 0.1, and of 4 more below each power of 10.
        let below = |power: u64| self.prob < MAX / power;
        let powers = [100, 1_000, 10_000, 100_000, 1_000_000];
        let shift = if below(10) { 1 + 2 * powers.iter().filter(|&&power| below(power)).count() } else { 0 };
        let mut delta = ((distance + change) * i128::from(MAX) / 16_000_000_000) >> shift;
        if self.prob >= MAX / 10 {
            delta = delta.min(i128::from(MAX / 50));
        }
        if self.delay > HIGH_DELAY {
            delta += i128::from(MAX / 50);
        }
        let prob = i128::from(self.prob) + delta;
        may_decay &= prob <= i128::from(MAX);
        self.prob = prob.clamp(0, MAX.into()) as u64;
        if self.delay == 0 && self.delay_before == 0 && may_decay {
            self.prob -= self.prob / 64;
        }
        let is_short = self.delay < goal.target / 2 && self.delay_before < goal.target / 2;
        if is_short && self.prob == 0 && (!goal.estimator || self.rate > 0) {
            *self = Self { next: self.next, delay: self.delay, ..Self::default() };
        }
        self.delay_before = self.delay;
    }

    /// Returns whether a packet of `len` bytes that finds `backlog` bytes is dropped or marked.
    pub(in crate::generic::qdisc) fn drops(
        &mut self,
        goal: &Goal,
        backlog: u64,
        len: usize,
        random: &mut Rng,
    ) -> bool {
        let is_short = self.delay < goal.target / 2 && self.prob < MAX / 5;
        if self.burst > 0 || is_short || backlog < 2 * u64::from(goal.mtu) {
            return false;
        }
        let mtu = u64::from(goal.mtu.max(1));
        let prob = match goal.bytemode && (len as u64) <= mtu {
            true => (u128::from(self.prob) * len as u128 / u128::from(mtu)) as u64,
            false => self.prob,
        };
        // Drops in even gaps (section 5.4): none before the sum is 0.85, and one when it is 8.5.
        self.sum = if prob == 0 { 0 } else { self.sum.saturating_add(prob) };
        if self.sum < MAX / 100 * 85 {
            return false;
        }
        let drops = self.sum >= MAX / 2 * 17 || u64::from(random.next()) << 24 < prob;
        if drops {
            self.sum = 0;
        }
        drops
    }

    /// Returns whether the state of a queue that has been empty since the last call differs at `now` from that of a new queue, the
    /// phase of the updates aside. May return true for a state that differs no more.
    pub(in crate::generic::qdisc) fn remembers(&self, goal: &Goal, now: Nanos) -> bool {
        let Some(next) = self.next else { return false };
        let updates = now.checked_sub(next).map_or(0, |late| late / goal.tupdate + 1);
        let resets = if goal.estimator { self.rate > 0 } else { self.delay == 0 };
        // The first update makes the last delay 0, and the second one begins anew where the probability is 0.
        !(resets && updates >= if self.prob == 0 { 2 } else { UPDATES })
    }

    /// Notes that a packet was dropped for another reason.
    pub(in crate::generic::qdisc) fn dropped(&mut self) {
        self.sum = 0;
    }

    /// Notes a dequeue at `now` of a packet of `len` bytes that was queued at `queued`, and `backlog` bytes with it.
    pub(in crate::generic::qdisc) fn dequeued(
        &mut self,
        goal: &Goal,
        queued: Nanos,
        len: usize,
        backlog: u64,
        now: Nanos,
    ) {
        if !goal.estimator {
            let passed = self.since.replace(now).map_or(0, |since| now.saturating_sub(since));
            self.delay = if backlog <= len as u64 { 0 } else { now.saturating_sub(queued) };
            self.burst = self.burst.saturating_sub(passed);
            return;
        }
        if backlog >= THRESHOLD && self.counted.is_none() {
            (self.counted, self.since) = (Some(0), Some(now));
        }
        let Some(counted) = &mut self.counted else { return };
        *counted += len as u64;
        if *counted < THRESHOLD {
            return;
        }
        let passed = now.saturating_sub(self.since.unwrap_or(now));
        if passed == 0 {
            return;
        }
        let rate = *counted * 1_000_000_000 / passed;
        self.rate = if self.rate == 0 { rate } else { self.rate - self.rate / 8 + rate / 8 };
        (self.counted, self.since) = if backlog < THRESHOLD { (None, None) } else { (Some(0), Some(now)) };
        self.burst = self.burst.saturating_sub(passed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Nanos = 1_000_000;
    const GOAL: Goal = Goal {
        target: 15 * MS,
        tupdate: 15 * MS,
        alpha: 2,
        beta: 20,
        bytemode: false,
        estimator: false,
        mtu: 1514,
    };

    fn percent(law: &Law) -> f64 {
        law.prob as f64 / MAX as f64 * 100.0
    }

    /// The RFC's equation by hand: 0.125 * 0.085 + 1.25 * 0.1, scaled by 1/2048.
    #[test]
    fn the_probability_follows_the_rfc() {
        let mut law = Law { delay: 100 * MS, ..Law::default() };
        law.update(&GOAL, 50_000);
        let expected = (0.125 * 0.085 + 1.25 * 0.1) / 2048.0 * 100.0;
        assert!((percent(&law) / expected - 1.0).abs() < 1e-6, "{} {expected}", percent(&law));
        law = Law { prob: MAX / 2, delay: 100 * MS, ..Law::default() };
        law.update(&GOAL, 50_000);
        assert!((percent(&law) - 52.0).abs() < 1e-6, "at most 2 % at a time: {}", percent(&law));
        law = Law { prob: MAX / 2, delay: 300 * MS, delay_before: 300 * MS, ..Law::default() };
        law.update(&GOAL, 50_000);
        assert!((percent(&law) - 54.0).abs() < 1e-6, "2 % more above 250 ms: {}", percent(&law));
        law = Law { prob: MAX / 2, ..Law::default() };
        law.update(&GOAL, 0);
        let expected = (0.5 - 0.125 * 0.015) * 63.0 / 64.0 * 100.0;
        assert!((percent(&law) - expected).abs() < 1e-6, "{} {expected}", percent(&law));
    }

    /// The updates of a pause are those of a timer.
    #[test]
    fn a_pause_is_made_up_for() {
        let start = Law { prob: MAX / 4, delay: 20 * MS, burst: 0, ..Law::default() };
        let (mut timer, mut late) = (start, start);
        timer.pass_time(&GOAL, 9000, 0);
        late.pass_time(&GOAL, 9000, 0);
        (1..=100).for_each(|n| timer.pass_time(&GOAL, 9000, n * 15 * MS));
        late.pass_time(&GOAL, 9000, 100 * 15 * MS);
        assert_eq!((timer.prob, timer.next), (late.prob, late.next));
        late.pass_time(&GOAL, 0, Nanos::MAX);
        assert!(late.prob == 0 || late.prob == MAX || late.prob < MAX);
    }

    /// With a probability of 5 % the gaps are between 17 and 171 packets.
    #[test]
    fn drops_come_in_even_gaps() {
        let law = Law { prob: MAX / 20, delay: 20 * MS, burst: 0, ..Law::default() };
        let (mut state, mut random) = (law, Rng::new(1));
        let (mut gap, mut drops) = (0, 0);
        for _ in 0..100_000 {
            gap += 1;
            if state.drops(&GOAL, 90_000, 1000, &mut random) {
                assert!((17..=171).contains(&gap), "{gap}");
                (gap, drops) = (0, drops + 1);
            }
        }
        // The mean gap is 17 and 1 / 0.05.
        assert!((2500..2950).contains(&drops), "{drops}");
        let mut bytes = Law { prob: MAX / 2, ..law };
        let goal = Goal { bytemode: true, ..GOAL };
        let short = (0..10_000).filter(|_| bytes.drops(&goal, 90_000, 151, &mut random)).count();
        let long = (0..10_000).filter(|_| bytes.drops(&goal, 90_000, 1514, &mut random)).count();
        assert!(long > 6 * short, "{short} {long}");
    }

    #[test]
    fn bursts_short_delays_and_short_queues_pass() {
        let law = Law { prob: MAX, delay: 20 * MS, burst: 0, ..Law::default() };
        let drops = |law: Law, backlog| {
            let (mut law, mut random) = (law, Rng::new(1));
            (0..20).any(|_| law.drops(&GOAL, backlog, 1000, &mut random))
        };
        assert!(drops(law, 90_000));
        assert!(!drops(law, 3000));
        assert!(!drops(Law { burst: 1, ..law }, 90_000));
        assert!(!drops(Law { delay: MS, prob: MAX / 6, ..law }, 90_000));
    }

    /// A state that is said to be forgotten is a new one after the updates that are due.
    #[test]
    fn what_is_forgotten_is_as_new() {
        let mut forgotten = 0;
        for (estimator, target) in [(false, 15 * MS), (true, 15 * MS), (false, 1000)] {
            let goal = Goal { estimator, target, ..GOAL };
            for prob in [0, 1, MAX / 100, MAX / 2, MAX] {
                for (delay, delay_before) in [(0, 0), (0, 300 * MS), (20 * MS, 0)] {
                    for (rate, burst) in [(0, MAX_BURST), (50_000, 3)] {
                        let since = Some(0);
                        let used = Law {
                            prob,
                            sum: prob,
                            burst,
                            delay,
                            delay_before,
                            rate,
                            since,
                            ..Law::default()
                        };
                        for after in [0, 14, 15, 29, 30, 45, 1000, 61_425, 61_440, 100_000] {
                            let mut law = Law { next: Some(15 * MS), ..used };
                            if !law.remembers(&goal, after * MS) {
                                law.pass_time(&goal, 0, after * MS);
                                assert_eq!(Law { next: None, ..law }, Law::default(), "{used:?} {after}");
                                forgotten += 1;
                            }
                        }
                    }
                }
            }
        }
        assert!(forgotten > 100, "{forgotten}");
        assert!(!Law::default().remembers(&GOAL, 0));
    }

    /// 100 packets of 1000 bytes, one each millisecond, are a million bytes a second.
    #[test]
    fn the_estimator_measures_the_rate() {
        let goal = Goal { estimator: true, ..GOAL };
        let mut law = Law::default();
        (0..100).for_each(|n| law.dequeued(&goal, 0, 1000, 100_000, n * MS));
        assert!((950_000..1_070_000).contains(&law.rate), "{}", law.rate);
        law.update(&goal, 100_000);
        assert!((93 * MS..106 * MS).contains(&law.delay), "{}", law.delay);
        assert!(law.burst < MAX_BURST);
    }
}
