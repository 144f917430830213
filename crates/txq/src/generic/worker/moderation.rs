//! The time at which a worker polls a txq whose device keeps packets: interrupt moderation (`ethtool -C tx-usecs`).
//!
//! A worker that reaped each packet when it is complete would be awake all the time, and compete for the queue with its
//! senders. So it waits until the device has completed half of the packets that it keeps, by its rate since the last poll,
//! for [`LONGEST_POLL_WAIT`] at most. The device does not run dry meanwhile, and a sender that waits for half of its limit is woken in
//! time. A worker that is awake for one txq also polls the others whose wait is half over, so that the polls of many txqs
//! coincide.
//!
//! A device that has completed all packets may get the next one soon. The worker polls it again when [`REAP`] packets may be complete, by
//! the same rate, and after [`EMPTY_DEVICE_WAIT`] at most.
//!
//! Where senders reap, the worker first checks whether they have reaped since its last poll. If they have, they need no help: the
//! worker leaves the device alone, and checks again after [`LEFT_TO_SENDERS`].
//!
//! Both waits end early if the txq stops, or if a sender lacks a buffer or credit
//! ([`Schedule::hurry`](crate::generic::schedule::Schedule::hurry)).

use txq_core::arch::Nanos;

use crate::generic::tuning::{EMPTY_DEVICE_WAIT, LEFT_TO_SENDERS, LONGEST_POLL_WAIT, UNTIMED_POLL};
use crate::generic::txqueue::REAP;

/// The part of the packets in flight that the worker leaves until they are complete.
const IN_FLIGHT_DIVISOR: u64 = 2;

/// When the worker polls one txq. By default a poll is due at once.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Moderation {
    /// Time of the last poll; 0 if there was none.
    last: Nanos,
    /// Count of completed packets then.
    completed: u32,
    /// The count after the worker last reaped or ran queues. A higher count means that senders have reaped since.
    seen: u32,
    /// A worker that runs for other work before this time does not poll the txq; 0 if it polls at any time.
    not_before: Nanos,
    /// Time at which the worker is woken for the next poll.
    next: Nanos,
    /// Whether a hurry ends the wait for the next poll.
    patient: bool,
}

impl Moderation {
    /// Returns the time of the next poll if it is too early to poll now; `hurried` says whether a txq has stopped, or a sender
    /// lacks a buffer or credit.
    pub(crate) fn too_early(&self, now: Nanos, hurried: bool) -> Option<Nanos> {
        (now < self.not_before && !(hurried && self.patient)).then_some(self.next)
    }

    /// Returns whether a hurry ends the wait for the next poll.
    pub(crate) fn is_patient(&self) -> bool {
        self.patient
    }

    /// Returns the time before which the worker does not poll; 0 for none.
    pub(crate) fn not_before(&self) -> Nanos {
        self.not_before
    }

    /// Moves the next poll to `at`, if that is earlier.
    pub(crate) fn poll_by(&mut self, at: Nanos) {
        self.not_before = self.not_before.min(at);
        self.next = self.next.min(at);
    }

    /// Notes a poll that has left `in_flight` packets in the device. The driver expects the next completion at `soonest`; 0 if the
    /// poll has not taken all complete packets, `None` if the driver knows no time. `untimed` supplies the time of the next poll if
    /// neither the driver nor the device's rate gives it. Returns the time of the next poll.
    pub(crate) fn note_poll(
        &mut self,
        completed: u32,
        in_flight: u32,
        now: Nanos,
        soonest: Option<Nanos>,
        untimed: impl FnOnce() -> Nanos,
    ) -> Nanos {
        let wait = match (self.last, completed.wrapping_sub(self.completed)) {
            (0, _) | (_, 0) => 0,
            (last, done) => {
                let part = now.saturating_sub(last).saturating_mul(in_flight.into())
                    / u64::from(done)
                    / IN_FLIGHT_DIVISOR;
                part.min(LONGEST_POLL_WAIT)
            }
        };
        let at = now.saturating_add(wait);
        let next = match soonest {
            Some(0) => 0,
            Some(soonest) if soonest < at => at,
            // A device whose next packet takes longer needs no moderation.
            Some(soonest) => soonest,
            None if wait >= UNTIMED_POLL => at,
            // Polls in short succession would be a busy loop: senders wake the worker.
            None => untimed(),
        };
        let not_before = if next == at && wait > 0 { now.saturating_add(wait / 2) } else { 0 };
        *self = Self { last: now, completed, seen: completed, not_before, next, patient: false };
        next
    }

    /// Notes a poll that has left no packet in the device. Returns the time of the next poll if packets were completed since
    /// the last one: until then, a sender's packets do not wake the worker.
    pub(crate) fn note_empty(&mut self, completed: u32, now: Nanos) -> Option<Nanos> {
        if self.last == 0 || completed == self.completed {
            return None;
        }
        let packets = u64::from(completed.wrapping_sub(self.completed));
        let full_poll = now.saturating_sub(self.last).saturating_mul(REAP as u64) / packets;
        Some(self.wait(full_poll.min(EMPTY_DEVICE_WAIT), completed, now))
    }

    /// Notes that the worker has run queues, and has reaped as their owner.
    pub(crate) fn note_run(&mut self, completed: u32) {
        self.seen = completed;
    }

    /// Returns the time of the next poll if senders have reaped since the worker last reaped; `None` if the worker must poll now.
    pub(crate) fn note_tended(&mut self, completed: u32, now: Nanos) -> Option<Nanos> {
        (self.last != 0 && completed != self.seen).then(|| self.wait(LEFT_TO_SENDERS, completed, now))
    }

    /// Waits for `wait`, or for half of it if the worker is awake for other work. Returns the time of the next poll.
    fn wait(&mut self, wait: Nanos, completed: u32, now: Nanos) -> Nanos {
        let (not_before, next) = (now.saturating_add(wait / 2), now.saturating_add(wait));
        *self = Self { last: now, completed, seen: completed, not_before, next, patient: true };
        next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note_poll(txq: &mut Moderation, completed: u32, in_flight: u32, now: Nanos, soonest: Nanos) -> Nanos {
        txq.note_poll(completed, in_flight, now, Some(soonest), || unreachable!())
    }

    #[test]
    fn the_first_poll_is_followed_by_one_at_the_next_completion() {
        let mut txq = Moderation::default();
        assert_eq!(txq.too_early(1, false), None);
        assert_eq!(note_poll(&mut txq, 7, 3, 1000, 1200), 1200);
        // The driver may be wrong: other work of the worker is an occasion to poll.
        assert_eq!(txq.too_early(1100, false), None);
        // Nothing was completed since.
        assert_eq!(note_poll(&mut txq, 7, 3, 1300, 1500), 1500);
    }

    #[test]
    fn a_poll_leaves_half_of_the_packets_in_flight() {
        let mut txq = Moderation::default();
        note_poll(&mut txq, 0, 40, 1000, 2000);
        // A packet in 1000 ns: twenty of the forty take 20,000 ns.
        assert_eq!(note_poll(&mut txq, 10, 40, 11_000, 12_000), 31_000);
        // A worker that is awake for another txq polls this one when half of the wait is over.
        assert_eq!((txq.too_early(20_999, false), txq.too_early(21_000, false)), (Some(31_000), None));
        // Few packets are left: at the next completion, at the latest.
        assert_eq!(note_poll(&mut txq, 30, 1, 31_000, 32_000), 32_000);
    }

    #[test]
    fn packets_that_are_complete_are_not_left() {
        let mut txq = Moderation::default();
        note_poll(&mut txq, 0, 140, 1000, 2000);
        assert_eq!(note_poll(&mut txq, 64, 76, 200_000, 0), 0);
        assert_eq!(txq.too_early(200_001, false), None);
    }

    #[test]
    fn a_slow_device_is_polled_when_it_completes_a_packet_and_a_long_ring_in_time() {
        let mut txq = Moderation::default();
        note_poll(&mut txq, 0, 20, 1000, 2000);
        assert_eq!(note_poll(&mut txq, 100, 20, 1_001_000, 1_102_000), 1_102_000);
        assert_eq!(txq.not_before(), 0);
        assert_eq!(note_poll(&mut txq, 102, 100_000, 1_201_000, 1_202_000), 1_301_000);
        txq.poll_by(1_211_000);
        assert_eq!(
            (txq.too_early(1_210_999, false), txq.too_early(1_211_000, false)),
            (Some(1_211_000), None)
        );
    }

    #[test]
    fn a_driver_that_knows_no_time_is_polled_until_its_rate_is_known() {
        let mut txq = Moderation::default();
        assert_eq!(txq.note_poll(0, 40, 1000, None, || 51_000), 51_000);
        assert_eq!(txq.not_before(), 0);
        assert_eq!(txq.note_poll(40, 48, 51_000, None, || unreachable!()), 81_000);
        assert_eq!((txq.too_early(65_999, false), txq.too_early(66_000, false)), (Some(81_000), None));
        assert_eq!(txq.note_poll(80, 8, 66_000, None, || 116_000), 116_000);
        assert_eq!(txq.not_before(), 0);
    }

    #[test]
    fn a_device_that_was_emptied_is_left_alone_unless_a_txq_stops() {
        let mut txq = Moderation::default();
        assert_eq!(txq.note_empty(7, 1000), None, "whether packets come is not known");
        note_poll(&mut txq, 7, 1, 1000, 1200);
        assert_eq!(txq.note_empty(8, 2200), Some(52_200), "64 packets take longer");
        assert_eq!((txq.too_early(27_199, false), txq.too_early(27_200, false)), (Some(52_200), None));
        assert_eq!(txq.too_early(3000, true), None);
        // A device that keeps packets has its time.
        note_poll(&mut txq, 18, 40, 12_200, 13_000);
        assert_eq!(txq.too_early(12_201, true), Some(32_200));
        assert_eq!(txq.note_empty(58, 62_200), Some(112_200));
        assert_eq!(txq.note_empty(58, 112_200), None, "none has come");
    }

    /// Senders may have credit for a few hundred packets: they must not use it up in each wait.
    #[test]
    fn a_device_that_was_emptied_is_polled_in_time_for_64_packets() {
        let mut txq = Moderation::default();
        note_poll(&mut txq, 0, 1, 1000, 1200);
        // 256 packets in 51.2 us.
        assert_eq!(txq.note_empty(256, 52_200), Some(52_200 + 12_800));
        assert_eq!((txq.too_early(58_599, false), txq.too_early(58_600, false)), (Some(65_000), None));
        // 20 ns a packet.
        assert_eq!(txq.note_empty(576, 58_600), Some(58_600 + 1280));
        // They pause.
        assert_eq!(txq.note_empty(577, 158_600), Some(208_600));
    }

    #[test]
    fn a_device_whose_senders_reap_is_left_alone_until_they_pause_or_need_help() {
        let mut txq = Moderation::default();
        assert_eq!(txq.note_tended(7, 1000), None, "whether senders reap is not known");
        note_poll(&mut txq, 7, 3, 1000, 1200);
        assert_eq!(txq.note_tended(7, 1200), None, "nobody has reaped");
        note_poll(&mut txq, 9, 3, 1200, 1400);
        assert_eq!(txq.note_tended(10, 1400), Some(1_001_400));
        assert_eq!((txq.too_early(501_399, false), txq.too_early(501_400, false)), (Some(1_001_400), None));
        assert_eq!(txq.too_early(1500, true), None);
        assert_eq!(txq.note_tended(10, 1_001_400), None, "the senders have paused");
        note_poll(&mut txq, 12, 40, 1_001_400, 1_002_000);
        txq.note_run(15);
        assert_eq!(txq.note_tended(15, 1_041_400), None, "the worker itself has reaped");
    }
}
