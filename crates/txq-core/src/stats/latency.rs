//! Latency of packets: a histogram with a relative error below 1 %.

use std::time::Duration;

use histogram::Histogram;

use crate::arch::Nanos;
use crate::stats::log2::Log2;

/// 2^7 buckets for each power of two: a relative error of at most 1/128.
const LATENCY_GROUPING: u8 = 7;
/// The longest time is 2^40 ns, 18 minutes. Longer ones count as this long.
const MAX_LATENCY_LOG2_NS: u8 = 40;

/// A distribution of times.
#[derive(Debug, Clone, Default)]
pub struct Latency {
    /// `None` before the first sample: a histogram takes tens of kilobytes, and most queues of a device with thousands are
    /// never sampled.
    histogram: Option<Histogram>,
    max: Nanos,
}

impl Latency {
    /// Creates an empty histogram, which takes no memory.
    pub fn new() -> Self {
        Self { histogram: None, max: 0 }
    }

    fn histogram(&mut self) -> &mut Histogram {
        let new = || Histogram::new(LATENCY_GROUPING, MAX_LATENCY_LOG2_NS).expect("constants in range");
        self.histogram.get_or_insert_with(new)
    }

    /// Records one time, in nanoseconds; longer times than 2^40 ns count as that long.
    pub fn record(&mut self, time: Nanos) {
        let time = time.min((1 << MAX_LATENCY_LOG2_NS) - 1);
        self.max = self.max.max(time);
        self.histogram().increment(time).expect("within the histogram's range");
    }

    /// Adds the samples of `other`.
    pub fn merge(&mut self, other: &Latency) {
        let Some(theirs) = &other.histogram else { return };
        let mine = self.histogram();
        *mine = mine.checked_add(theirs).expect("same parameters, and fewer than 2^64");
        self.max = self.max.max(other.max);
    }

    /// Returns the time that the share `q` of the samples (0.5 for the median) does not exceed; `None` without samples.
    pub fn quantile(&self, q: f64) -> Option<Duration> {
        let total = self.count();
        let rank = ((q * total as f64).ceil() as u64).clamp(1, total.max(1));
        let mut seen = 0;
        for bucket in self.histogram.as_ref()? {
            seen += bucket.count();
            if seen >= rank {
                return Some(Duration::from_nanos(bucket.end().min(self.max)));
            }
        }
        None
    }

    /// Returns the distribution by powers of two, in nanoseconds.
    pub fn log2(&self) -> Log2 {
        let mut log2 = Log2::new();
        // Each bucket lies within one power of two.
        self.histogram.iter().flatten().for_each(|bucket| log2.add(bucket.start(), bucket.count()));
        log2
    }

    /// Returns the longest time; `None` without samples.
    pub fn max(&self) -> Option<Duration> {
        self.histogram.as_ref().map(|_| Duration::from_nanos(self.max))
    }

    /// Returns the number of samples.
    pub fn count(&self) -> u64 {
        self.histogram.as_ref().map_or(0, |h| h.as_slice().iter().sum())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_within_a_percent() {
        let mut latency = Latency::new();
        assert_eq!((latency.quantile(0.5), latency.max()), (None, None));
        (1..=1000).for_each(|n| latency.record(n * 1000));
        for (q, exact) in [(0.5, 500_000.0), (0.9, 900_000.0), (0.999, 999_000.0)] {
            let off = latency.quantile(q).unwrap().as_nanos() as f64 / exact;
            assert!((0.99..1.01).contains(&off), "{q}: {off}");
        }
        assert_eq!(latency.quantile(1.0), Some(Duration::from_millis(1)));
        assert_eq!(latency.max(), Some(Duration::from_millis(1)));
    }

    #[test]
    fn powers_of_two_hold_what_the_finer_buckets_hold() {
        let (mut latency, mut exact) = (Latency::new(), Log2::new());
        for time in (0..3000).chain([65_535, 65_536, 1 << 39]) {
            latency.record(time);
            exact.record(time);
        }
        assert_eq!(latency.log2(), exact);
    }

    #[test]
    fn a_time_beyond_the_range_counts_as_the_longest() {
        let mut latency = Latency::new();
        latency.record(u64::MAX);
        assert_eq!((latency.count(), latency.max()), (1, Some(Duration::from_nanos((1 << 40) - 1))));
    }
}
