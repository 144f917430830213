//! The law of RED: an average of the queue's length, and the decision about each packet.
//!
//! The average follows the length with the weight `2^-ewma`. Below `min` no packet is marked, from `max` on each one is.
//! Between them the probability of a mark grows from 0 to `probability`, and with the number of packets since the last mark,
//! so that marks come in even gaps: a packet is marked once the sum of the probabilities exceeds a random number that was drawn
//! at the last mark. While the queue is empty the average falls as if packets of the mean length left at the link's rate.
//!
//! Shared by red, choke and sfq. Sources: Floyd and Jacobson, "Random Early Detection Gateways for Congestion Avoidance"
//! (1993), sections 4, 7 and 11; Floyd, Gummadi, Shenker, "Adaptive RED" (2001), section 4.

use txq_core::arch::Nanos;

use crate::generic::qdisc::random::Rng;

/// The period of Adaptive RED.
const ADAPT_EVERY: Nanos = 500_000_000;
/// Steps of Adaptive RED that one call makes up for: after so many the probability is at its bound.
const ADAPT_STEPS: u64 = 64;
/// A share of one in 2^32.
const ONE_Q32: f64 = 4_294_967_296.0;

/// The parameters. Lengths are in bytes for red and sfq, in packets for choke.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::generic::qdisc) struct Curve {
    pub(in crate::generic::qdisc) min: u32,
    pub(in crate::generic::qdisc) max: u32,
    /// The weight of a packet in the average is `2^-ewma`.
    pub(in crate::generic::qdisc) ewma: u8,
    /// The highest probability between `min` and `max`, in parts of 2^32.
    pub(in crate::generic::qdisc) probability: u32,
    /// The time that a packet of the mean length takes on the link; 0 if an empty queue leaves the average as it is.
    pub(in crate::generic::qdisc) packet_time: Nanos,
    /// Whether the probability adapts itself.
    pub(in crate::generic::qdisc) adaptive: bool,
}

impl Curve {
    /// Returns the `ewma` with which a burst of `burst` packets from an empty queue is just not marked (equation 3 of the
    /// paper, with the sum over `burst` packets as tc takes it), where `min` packets are the lower bound; `None` if the burst is
    /// too small or none is large enough.
    pub(in crate::generic::qdisc) fn ewma(min: f64, burst: u32) -> Option<u8> {
        let arrived = f64::from(burst) + 1.0 - min;
        if arrived < 1.0 {
            return None;
        }
        (1..=31u8).find(|&ewma| {
            let weight = 0.5f64.powi(ewma.into());
            arrived <= (1.0 - (1.0 - weight).powf(burst.into())) / weight
        })
    }

    /// Returns the binary logarithm of the ticks that one of 512 cells stands for in a table of the decay over 31 natural
    /// logarithms, which tc shows as `Scell_log`.
    pub(in crate::generic::qdisc) fn cell_log(&self) -> u8 {
        const TICK: f64 = 64.0;
        let falls = -(1.0 - 0.5f64.powi(self.ewma.into())).ln() / (self.packet_time as f64 / TICK);
        (0..32u8).find(|&log| 31.0 / falls / 2f64.powi(log.into()) < 512.0).unwrap_or(32)
    }

    /// Returns a share as parts of 2^32; `None` outside of 0 to 1.
    pub(in crate::generic::qdisc) fn share(value: f64) -> Option<u32> {
        (0.0..=1.0).contains(&value).then_some((value * ONE_Q32).min(ONE_Q32 - 1.0) as u32)
    }

    /// Returns parts of 2^32 as a share.
    pub(in crate::generic::qdisc) fn shown(parts: u32) -> f64 {
        f64::from(parts) / ONE_Q32
    }

    fn scaled(&self, length: u32) -> u64 {
        u64::from(length) << self.ewma
    }

    /// Returns `average` after `packets` packets that found the queue empty.
    fn decayed(&self, average: u64, packets: u64) -> u64 {
        // Powers of `1 - 2^-ewma` by squaring, in parts of 2^32.
        let mut factor = (1u128 << 32) - (1 << (32 - u32::from(self.ewma)));
        let (mut left, mut power) = (u128::from(average), packets);
        while power > 0 && left > 0 {
            if power & 1 == 1 {
                left = (left * factor) >> 32;
            }
            factor = (factor * factor) >> 32;
            power >>= 1;
        }
        left as u64
    }
}

/// What to do with a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::generic::qdisc) enum Decision {
    /// Nothing.
    Pass,
    /// Mark it, chosen at random.
    Early,
    /// Mark it: the average has reached `max`.
    Forced,
}

/// The average of a queue's length, and the random state.
#[derive(Debug, Clone, Copy)]
pub(in crate::generic::qdisc) struct Average {
    /// The average, shifted left by `ewma`.
    scaled: u64,
    /// Packets since the last mark, while the average is between the bounds.
    since: Option<u32>,
    /// The random number for the next mark, in parts of 2^32.
    random: u32,
    /// Since when the queue is empty.
    idle: Option<Nanos>,
    /// The highest probability, which adapts itself.
    pub(in crate::generic::qdisc) probability: u32,
    adapted: Nanos,
}

impl Average {
    /// Returns the average of an empty queue.
    pub(in crate::generic::qdisc) fn new(curve: &Curve) -> Self {
        let probability = curve.probability;
        Self { scaled: 0, since: None, random: 0, idle: None, probability, adapted: 0 }
    }

    /// Forgets the past, except for the probability that adapts itself.
    pub(in crate::generic::qdisc) fn restart(&mut self, curve: &Curve) {
        *self = Self { probability: self.probability, adapted: self.adapted, ..Self::new(curve) };
    }

    /// Returns the average as a length.
    pub(in crate::generic::qdisc) fn length(&self, curve: &Curve) -> u64 {
        self.scaled >> curve.ewma
    }

    /// Notes that the queue is empty.
    pub(in crate::generic::qdisc) fn empty(&mut self, now: Nanos) {
        self.idle.get_or_insert(now);
    }

    /// Takes the queue's length before a packet into the average.
    pub(in crate::generic::qdisc) fn update(&mut self, curve: &Curve, length: u64, now: Nanos) {
        match self.idle.take() {
            Some(since) => {
                let packets = now.saturating_sub(since).checked_div(curve.packet_time).unwrap_or(0);
                self.scaled = curve.decayed(self.scaled, packets);
            }
            None => self.scaled = (self.scaled + length).saturating_sub(self.scaled >> curve.ewma),
        }
        if curve.adaptive {
            self.adapt(curve, now);
        }
    }

    /// Raises or lowers the probability for each period that has passed, so that the average stays in the middle between the
    /// bounds.
    fn adapt(&mut self, curve: &Curve, now: Nanos) {
        const PERCENT: u32 = (ONE_Q32 / 100.0) as u32;
        let periods = now.saturating_sub(self.adapted) / ADAPT_EVERY;
        if periods == 0 {
            return;
        }
        self.adapted = now;
        let fifth = u64::from(curve.max.saturating_sub(curve.min)) / 5;
        let (low, high) = (u64::from(curve.min) + 2 * fifth, u64::from(curve.min) + 3 * fifth);
        let average = self.length(curve);
        for _ in 0..periods.min(ADAPT_STEPS) {
            let probability = &mut self.probability;
            if average > high && *probability <= 50 * PERCENT {
                *probability += (*probability / 4).min(PERCENT);
            } else if average < low && *probability >= PERCENT {
                *probability = *probability / 10 * 9;
            }
        }
    }

    /// Decides about a packet.
    pub(in crate::generic::qdisc) fn decide(&mut self, curve: &Curve, random: &mut Rng) -> Decision {
        let (min, max) = (curve.scaled(curve.min), curve.scaled(curve.max));
        if self.scaled < min {
            self.since = None;
            return Decision::Pass;
        }
        if self.scaled >= max {
            self.since = None;
            return Decision::Forced;
        }
        let since = self.since.map_or(0, |since| since.saturating_add(1));
        self.since = Some(since);
        if since == 0 {
            self.random = random.next();
            return Decision::Pass;
        }
        let sum = u128::from(self.probability) * u128::from(self.scaled - min) * u128::from(since);
        if sum < u128::from(self.random) * u128::from(max - min) {
            return Decision::Pass;
        }
        (self.since, self.random) = (Some(0), random.next());
        Decision::Early
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CURVE: Curve =
        Curve { min: 5, max: 15, ewma: 3, probability: 1 << 31, packet_time: 1000, adaptive: false };

    fn settled(length: u64, curve: &Curve) -> Average {
        let mut average = Average::new(curve);
        (0..200).for_each(|_| average.update(curve, length, 1));
        average
    }

    #[test]
    fn ewma_and_cells_are_those_of_tc() {
        for (min, burst, ewma) in [
            (5.0, 8, Some(3)),
            (30.0, 55, Some(5)),
            (8.0, 25, Some(6)),
            (5.0, 10, Some(4)),
            (5.0, 100, Some(11)),
            (1.0, 1, Some(1)),
            (1.0, 3, Some(28)),
            (8.533, 1, None),
            (8.533, 1000, Some(17)),
        ] {
            assert_eq!(Curve::ewma(min, burst), ewma, "{min} {burst}");
        }
        for (ewma, packet_time, log) in
            [(3, 800_000, 13), (5, 800_000, 15), (3, 8_000_000_000, 26), (11, 800_000, 21)]
        {
            assert_eq!(Curve { ewma, packet_time, ..CURVE }.cell_log(), log);
        }
    }

    #[test]
    fn the_average_follows_and_decays() {
        let mut average = settled(12, &CURVE);
        assert_eq!(average.length(&CURVE), 12);
        average.empty(1);
        average.empty(500);
        // (7/8)^5 is 0.51.
        average.update(&CURVE, 0, 5_001);
        assert_eq!(average.length(&CURVE), 6);
        average.empty(6_000);
        average.update(&CURVE, 0, u64::MAX);
        assert_eq!(average.length(&CURVE), 0);
    }

    /// With the probability 0.3 the gaps are 1, 2 and 3, and one of ten is 4.
    #[test]
    fn marks_come_in_even_gaps() {
        let (mut average, mut rng) = (settled(11, &CURVE), Rng::new(1));
        let (mut marks, mut gap, mut longest) = (0, 0, 0);
        for _ in 0..100_000 {
            gap += 1;
            if average.decide(&CURVE, &mut rng) == Decision::Early {
                (marks, longest, gap) = (marks + 1, longest.max(gap), 0);
            }
        }
        assert!((44_900..46_000).contains(&marks), "{marks}");
        assert!(longest <= 4, "{longest}");
    }

    #[test]
    fn below_min_and_from_max_on_nothing_is_random() {
        let mut rng = Rng::new(1);
        let (mut low, mut high) = (settled(4, &CURVE), settled(17, &CURVE));
        for _ in 0..1000 {
            assert_eq!(low.decide(&CURVE, &mut rng), Decision::Pass);
            assert_eq!(high.decide(&CURVE, &mut rng), Decision::Forced);
        }
    }

    #[test]
    fn the_probability_adapts_itself() {
        let curve = Curve { adaptive: true, ..CURVE };
        let mut average = settled(14, &curve);
        average.probability = 1 << 26;
        let before = average.probability;
        average.update(&curve, 14, ADAPT_EVERY + 1);
        assert_eq!(average.probability, before + before / 4);
        average.update(&curve, 14, 1000 * ADAPT_EVERY);
        let high = Curve::shown(average.probability);
        assert!((0.5..0.52).contains(&high), "{high}");
        (0..100).for_each(|_| average.update(&curve, 0, 1000 * ADAPT_EVERY));
        average.update(&curve, 0, 2000 * ADAPT_EVERY);
        let low = Curve::shown(average.probability);
        assert!((0.008..0.01).contains(&low), "{low}");
    }
}
