//! The departure times of one remote's packets.

use std::time::Duration;

use txq::Nanos;

use crate::turn::Rate;

/// The departure times of one remote's packets. They never decrease, so that no qdisc reorders the packets: QUIC takes a
/// packet that three others overtake for lost.
#[derive(Debug, Default)]
pub(crate) struct Pacer {
    /// When the next packet departs, at the rate of those before.
    next: Nanos,
    /// The departure time of the last packet, and of the bundle that it is in.
    last: Nanos,
}

impl Pacer {
    /// Returns the departure time of a packet of so many bytes; 0 for one that departs at once. Packets less than `bundle`
    /// apart depart together, in bundles no longer than that.
    pub(crate) fn departure(&mut self, bytes: u64, rate: Rate, bundle: Nanos) -> Nanos {
        if self.next == 0 && rate.is_none() {
            return 0;
        }
        self.depart(bytes, rate, bundle, txq::now())
    }

    fn depart(&mut self, bytes: u64, rate: Rate, bundle: Nanos, now: Nanos) -> Nanos {
        let at = if self.next <= now {
            (self.next, self.last) = (now, now);
            0
        } else {
            if self.next - self.last >= bundle {
                self.last = self.next;
            }
            self.last
        };
        if let Some(rate) = rate {
            let gap = u128::from(bytes) * 1_000_000_000 / u128::from(rate.get());
            self.next = self.next.saturating_add(Nanos::try_from(gap).unwrap_or(Nanos::MAX));
        }
        at
    }

    /// Returns whether packets have yet to depart.
    pub(crate) fn is_ahead(&self, now: Nanos) -> bool {
        self.next > now
    }

    /// Returns the time until the next packet would depart.
    pub(crate) fn ahead(&self, now: Nanos) -> Duration {
        Duration::from_nanos(self.next.saturating_sub(now))
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU64;

    use super::*;

    /// A byte a microsecond.
    const RATE: Rate = NonZeroU64::new(1_000_000);

    #[test]
    fn packets_are_their_time_at_the_rate_apart() {
        let mut pacer = Pacer::default();
        let times: Vec<_> = (0..4).map(|_| pacer.depart(1000, RATE, 0, 5)).collect();
        assert_eq!(times, [0, 1_000_005, 2_000_005, 3_000_005]);
        // A pause is not made up for.
        assert_eq!(pacer.depart(1000, RATE, 0, 50_000_000), 0);
        assert_eq!(pacer.depart(1000, RATE, 0, 50_000_000), 51_000_000);
    }

    #[test]
    fn packets_that_are_close_depart_together_at_the_same_rate() {
        let mut pacer = Pacer::default();
        let times: Vec<_> = (0..7).map(|_| pacer.depart(10, RATE, 30_000, 5)).collect();
        assert_eq!(times, [0, 5, 5, 30_005, 30_005, 30_005, 60_005]);
    }

    /// A packet without a rate does not overtake those with one.
    #[test]
    fn times_never_decrease() {
        let mut pacer = Pacer::default();
        assert_eq!(pacer.depart(1000, None, 0, 7), 0);
        let _ = pacer.depart(1000, RATE, 0, 7);
        assert_eq!(pacer.depart(1000, None, 0, 8), 1_000_007);
        assert_eq!(pacer.depart(1000, NonZeroU64::new(u64::MAX), 0, 8), 1_000_007);
        assert!(pacer.is_ahead(8) && !pacer.is_ahead(1_000_007));
    }

    #[test]
    fn a_rate_that_is_almost_none_does_not_overflow() {
        let mut pacer = Pacer::default();
        let _ = pacer.depart(u64::MAX, NonZeroU64::new(1), 0, 7);
        assert_eq!(pacer.depart(1, NonZeroU64::new(1), 0, 8), Nanos::MAX);
        assert_eq!(pacer.depart(1, NonZeroU64::new(1), 0, 9), Nanos::MAX);
    }
}
