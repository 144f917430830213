//! What it costs to enqueue, beside what it takes to send.

use txq_core::arch::Nanos;

/// A portion may be enqueued ahead if it takes less than this part of the time between two portions.
const SHARE: u64 = 8;
/// One of so many portions is timed.
const TIMED: u32 = 16;

/// How much time packets take to enqueue, beside the time in which the queue sends as many.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Pace {
    /// Portions since the last one that was timed.
    portions: u32,
    /// Whether the last one that was timed took so little of the time that more may follow.
    pub(crate) is_cheap: bool,
    /// When the last one was timed, and the packets that were sent until then.
    since: Nanos,
    sent: u64,
}

impl Pace {
    /// Counts a portion; returns whether it is to be timed.
    pub(crate) fn is_due(&mut self) -> bool {
        self.portions += 1;
        self.portions >= TIMED
    }

    /// Notes that a portion of `packets` took from `from` to `now` to enqueue, when `sent` packets had been sent.
    pub(crate) fn note(&mut self, packets: u64, from: Nanos, now: Nanos, sent: u64) {
        let took = now.saturating_sub(from);
        let passed = now.saturating_sub(self.since);
        let left = sent.wrapping_sub(self.sent);
        // took / packets * SHARE < passed / left, without the divisions.
        let cost = u128::from(took) * u128::from(SHARE) * u128::from(left);
        self.is_cheap = self.since > 0 && left > 0 && cost < u128::from(passed) * u128::from(packets);
        (self.portions, self.since, self.sent) = (0, now, sent);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A portion of 64 packets that takes `took` to enqueue, when as many take `sending` to send.
    fn is_cheap(took: Nanos, sending: Nanos) -> bool {
        let mut pace = Pace::default();
        pace.note(64, 1000, 1000 + took, 100);
        assert!(!pace.is_cheap, "nothing is known of the first portion");
        let now = 1000 + took + 16 * sending;
        pace.note(64, now - took, now, 100 + 16 * 64);
        pace.is_cheap
    }

    #[test]
    fn a_portion_is_cheap_below_an_eighth_of_the_time_to_send_it() {
        assert!(is_cheap(3_000, 64_000));
        assert!(is_cheap(7_900, 64_000));
        assert!(!is_cheap(8_000, 64_000));
        assert!(!is_cheap(300, 640));
    }

    #[test]
    fn time_that_stands_still_or_sends_nothing_is_not_cheap() {
        assert!(!is_cheap(0, 0));
        let mut pace = Pace::default();
        for now in [5, 50, 500] {
            pace.note(64, now, now, 7);
            assert!(!pace.is_cheap);
        }
    }

    #[test]
    fn one_portion_of_sixteen_is_timed() {
        let mut pace = Pace::default();
        let due: Vec<bool> = (0..16).map(|_| pace.is_due()).collect();
        assert_eq!(due.iter().filter(|due| **due).count(), 1);
        assert!(due[15]);
    }
}
