//! Quantiles of times, reported only for enough samples: of three samples, every quantile above the median is the maximum.

use std::time::Duration;

use txq::stats::latency::Latency;

/// A quantile, and the fewest samples of which one lies at or above the quantile.
#[derive(Clone, Copy, Debug)]
pub(super) struct Quantile {
    /// The name in tables.
    pub(super) name: &'static str,
    /// The key in JSON.
    pub(super) key: &'static str,
    share: f64,
    samples: u64,
}

pub(super) const P50: Quantile = Quantile { name: "p50", key: "p50", share: 0.5, samples: 2 };
pub(super) const P90: Quantile = Quantile { name: "p90", key: "p90", share: 0.9, samples: 10 };
pub(super) const P99: Quantile = Quantile { name: "p99", key: "p99", share: 0.99, samples: 100 };
pub(super) const P999: Quantile = Quantile { name: "p99.9", key: "p999", share: 0.999, samples: 1000 };

impl Quantile {
    /// Returns the quantile in nanoseconds; `None` for too few samples.
    pub(super) fn of(self, latency: &Latency) -> Option<u64> {
        self.known(latency.count(), latency.quantile(self.share)?)
    }

    /// Returns `time`, the quantile of so many `samples`, in nanoseconds; `None` if those are too few.
    pub(super) fn known(self, samples: u64, time: Duration) -> Option<u64> {
        (samples >= self.samples).then(|| nanos(time))
    }
}

/// Returns a time in nanoseconds.
pub(super) fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantile_needs_a_sample_at_or_above_it() {
        for quantile in [P50, P90, P99, P999] {
            let needed = (1.0 / (1.0 - quantile.share)).round() as u64;
            assert_eq!(quantile.samples, needed, "{quantile:?}");
            assert_eq!(quantile.known(needed, Duration::from_nanos(7)), Some(7), "{quantile:?}");
            assert_eq!(quantile.known(needed - 1, Duration::from_nanos(7)), None, "{quantile:?}");
        }
    }
}
