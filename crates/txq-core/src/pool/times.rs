//! A histogram of times that threads share: the latency of one sender's sampled packets.

use std::sync::atomic::Ordering::Relaxed;

use crate::arch::{Arch, Atomic, Nanos};
use crate::sync::words::AtomicWords;

/// 2^4 buckets for each power of two: a relative error of at most 1/16.
const POOL_TIME_GROUPING: u32 = 4;
/// The longest time is 2^40 ns. Longer ones count as this long.
const MAX_POOL_TIME_LOG2_NS: u32 = 40;
/// Each value below 2^5 has a bucket of its own; each power of two from there on has 2^4 buckets.
const POOL_TIME_BUCKETS: usize =
    ((MAX_POOL_TIME_LOG2_NS - POOL_TIME_GROUPING) as usize + 1) << POOL_TIME_GROUPING;

/// The histogram: one counter per bucket. Any thread increments a counter with one atomic addition, and any thread reads.
/// All accesses are relaxed: the counters are only displayed.
pub struct Times<A: Arch>(AtomicWords<A>);

impl<A: Arch> Times<A> {
    pub(crate) fn new() -> Self {
        Self(AtomicWords::new(POOL_TIME_BUCKETS, 0))
    }

    pub(crate) fn record(&self, time: Nanos) {
        // Relaxed: the counters are only displayed.
        self.0.at(index(time)).fetch_add(1, Relaxed);
    }

    pub(crate) fn clear(&self) {
        self.0.iter().for_each(|count| count.store(0, Relaxed));
    }

    /// Returns the number of samples, and for each share the time that this share of them does not exceed.
    pub fn summary<const N: usize>(&self, shares: [f64; N]) -> (u64, [Nanos; N]) {
        let counts: Vec<u64> = self.0.iter().map(|count| count.load(Relaxed)).collect();
        let total = counts.iter().sum::<u64>();
        let at = |share: f64| {
            let rank = ((share * total as f64).ceil() as u64).clamp(1, total.max(1));
            let mut seen = 0;
            let bucket = counts.iter().position(|count| {
                seen += count;
                seen >= rank
            });
            bucket.map_or(0, last)
        };
        (total, shares.map(at))
    }
}

/// Returns the index of the bucket for a time.
fn index(time: Nanos) -> usize {
    let time = time.min((1 << MAX_POOL_TIME_LOG2_NS) - 1);
    let shift = (time.max(1).ilog2()).saturating_sub(POOL_TIME_GROUPING);
    ((shift as usize) << POOL_TIME_GROUPING) + (time >> shift) as usize
}

/// Returns the longest time of a bucket.
fn last(index: usize) -> Nanos {
    let shift = (index >> POOL_TIME_GROUPING).saturating_sub(1);
    let first = (index - (shift << POOL_TIME_GROUPING)) as Nanos;
    ((first + 1) << shift) - 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arch::Native;

    #[test]
    fn each_time_is_in_the_bucket_that_ends_at_or_after_it() {
        let mut before = 0;
        for time in (0..5000).chain([65_535, 65_536, 1_000_000_007, (1 << 40) - 1]) {
            let index = index(time);
            assert!(index >= before && index < POOL_TIME_BUCKETS, "{time}");
            before = index;
            let last = last(index);
            assert!(last >= time && last <= time + time / 16, "{time} in {index}, which ends at {last}");
        }
        assert_eq!((index(u64::MAX), last(POOL_TIME_BUCKETS - 1)), (POOL_TIME_BUCKETS - 1, (1 << 40) - 1));
    }

    #[test]
    fn shares_of_the_samples() {
        let times: Times<Native> = Times::new();
        assert_eq!(times.summary([0.5]), (0, [0]));
        (1..=1000).for_each(|n| times.record(n * 1000));
        let (samples, [p50, p99]) = times.summary([0.5, 0.99]);
        assert_eq!(samples, 1000);
        assert!((500_000..532_000).contains(&p50) && (990_000..1_052_000).contains(&p99), "{p50} {p99}");
        times.clear();
        assert_eq!(times.summary([0.99]), (0, [0]));
    }
}
