//! The departure times of one remote's packets.

use std::time::Duration;

use txq::Instant;

use crate::turn::Rate;

/// The departure times of one remote's packets. They never decrease, so that no qdisc reorders the packets: QUIC takes a
/// packet that three others overtake for lost.
#[derive(Debug, Default)]
pub(crate) struct Pacer {
    /// When the next packet departs, at the rate of those before.
    next: Instant,
    /// The departure time of the last packet, and of the bundle that it is in.
    last: Instant,
}

impl Pacer {
    /// Returns the departure time of a packet of so many bytes; [`Instant::ZERO`] for one that departs at once. Packets less than `bundle`
    /// apart depart together, in bundles no longer than that.
    pub(crate) fn departure(&mut self, bytes: u64, rate: Rate, bundle: Duration) -> Instant {
        if self.next == Instant::ZERO && rate.is_none() {
            return Instant::ZERO;
        }
        self.depart(bytes, rate, bundle, Instant::now())
    }

    fn depart(&mut self, bytes: u64, rate: Rate, bundle: Duration, now: Instant) -> Instant {
        let at = if self.next <= now {
            (self.next, self.last) = (now, now);
            Instant::ZERO
        } else {
            if self.next - self.last >= bundle {
                self.last = self.next;
            }
            self.last
        };
        if let Some(rate) = rate {
            let gap = u128::from(bytes) * 1_000_000_000 / u128::from(rate.get());
            self.next += Duration::from_nanos(u64::try_from(gap).unwrap_or(u64::MAX));
        }
        at
    }

    /// Returns whether packets have yet to depart.
    pub(crate) fn is_ahead(&self, now: Instant) -> bool {
        self.next > now
    }

    /// Returns the time until the next packet would depart.
    pub(crate) fn ahead(&self, now: Instant) -> Duration {
        self.next - now
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU64;

    use super::*;

    fn depart(pacer: &mut Pacer, bytes: u64, rate: Rate, bundle: u64, now: u64) -> u64 {
        pacer.depart(bytes, rate, Duration::from_nanos(bundle), now.into()).as_nanos()
    }

    /// A byte a microsecond.
    const RATE: Rate = NonZeroU64::new(1_000_000);

    #[test]
    fn packets_are_their_time_at_the_rate_apart() {
        let mut pacer = Pacer::default();
        let times: Vec<_> = (0..4).map(|_| depart(&mut pacer, 1000, RATE, 0, 5)).collect();
        assert_eq!(times, [0, 1_000_005, 2_000_005, 3_000_005]);
        // A pause is not made up for.
        assert_eq!(depart(&mut pacer, 1000, RATE, 0, 50_000_000), 0);
        assert_eq!(depart(&mut pacer, 1000, RATE, 0, 50_000_000), 51_000_000);
    }

    #[test]
    fn packets_that_are_close_depart_together_at_the_same_rate() {
        let mut pacer = Pacer::default();
        let times: Vec<_> = (0..7).map(|_| depart(&mut pacer, 10, RATE, 30_000, 5)).collect();
        assert_eq!(times, [0, 5, 5, 30_005, 30_005, 30_005, 60_005]);
    }

    /// A packet without a rate does not overtake those with one.
    #[test]
    fn times_never_decrease() {
        let mut pacer = Pacer::default();
        assert_eq!(depart(&mut pacer, 1000, None, 0, 7), 0);
        let _ = depart(&mut pacer, 1000, RATE, 0, 7);
        assert_eq!(depart(&mut pacer, 1000, None, 0, 8), 1_000_007);
        assert_eq!(depart(&mut pacer, 1000, NonZeroU64::new(u64::MAX), 0, 8), 1_000_007);
        assert!(pacer.is_ahead(8.into()) && !pacer.is_ahead(1_000_007.into()));
    }

    #[test]
    fn a_rate_that_is_almost_none_does_not_overflow() {
        let mut pacer = Pacer::default();
        let _ = depart(&mut pacer, u64::MAX, NonZeroU64::new(1), 0, 7);
        assert_eq!(depart(&mut pacer, 1, NonZeroU64::new(1), 0, 8), u64::MAX);
        assert_eq!(depart(&mut pacer, 1, NonZeroU64::new(1), 0, 9), u64::MAX);
    }
}
