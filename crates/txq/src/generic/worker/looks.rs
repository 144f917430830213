//! When a worker looks again at a txq whose device keeps packets: interrupt moderation (`ethtool -C tx-usecs`).
//!
//! A worker that reaped each packet when it is complete would be awake all the time, and compete for the queue with its
//! senders. So it waits until the device has completed half of the packets that it keeps, by its rate since the last look,
//! for [`LONGEST_POLL_WAIT`] at most. The device does not run dry meanwhile, and a sender that waits for half of its limit is woken in
//! time. A worker that is awake for one txq also looks at the others whose wait is half over, so that the looks at many txqs
//! fall together.
//!
//! A device that has completed all packets may get the next one soon. The worker looks at it again after [`EMPTY_DEVICE_WAIT`].
//!
//! Where senders reap, the worker first checks whether they have reaped since its last look. If they have, they need no help: the
//! worker leaves the device alone, and checks again after [`LEFT_TO_SENDERS`].
//!
//! Both waits end early if the txq stops, or if a sender lacks a buffer or credit
//! ([`Schedule::hurry`](crate::generic::schedule::Schedule::hurry)).

use txq_core::arch::Nanos;

use crate::generic::tuning::{EMPTY_DEVICE_WAIT, LEFT_TO_SENDERS, LONGEST_POLL_WAIT, UNTIMED_POLL};

/// The part of the packets in flight that the worker leaves until they are complete.
const PART: u64 = 2;

/// A worker's looks at one txq. The default is due at once.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Looks {
    /// Time of the last look; 0 if there was none.
    last: Nanos,
    /// Count of completed packets then.
    completed: u32,
    /// The count after the worker last reaped or ran queues. A higher count means that senders have reaped since.
    seen: u32,
    /// A worker that runs before this time, for other work, does not look; 0 if it does at any time.
    not_before: Nanos,
    /// Time for which the worker is woken for the next look.
    next: Nanos,
    /// Whether a hurry ends the wait for the next look.
    patient: bool,
}

impl Looks {
    /// Returns the time of the next look if it is too early to look now; `hurried` says whether a txq has stopped, or a sender
    /// lacks a buffer or credit.
    pub(crate) fn too_early(&self, now: Nanos, hurried: bool) -> Option<Nanos> {
        (now < self.not_before && !(hurried && self.patient)).then_some(self.next)
    }

    /// Returns whether a hurry ends the wait for the next look.
    pub(crate) fn is_patient(&self) -> bool {
        self.patient
    }

    /// Returns the time before which no look is made; 0 for none.
    pub(crate) fn not_before(&self) -> Nanos {
        self.not_before
    }

    /// Makes the next look at `at`, if that is earlier.
    pub(crate) fn look_by(&mut self, at: Nanos) {
        self.not_before = self.not_before.min(at);
        self.next = self.next.min(at);
    }

    /// Notes a look that has left `in_flight` packets in the device. Another packet is complete at `soonest`, if the driver
    /// knows; 0 if the look has not taken all complete packets. `poll` returns when to look if nobody knows. Returns the time of the next look.
    pub(crate) fn note(
        &mut self,
        completed: u32,
        in_flight: u32,
        now: Nanos,
        soonest: Option<Nanos>,
        poll: impl FnOnce() -> Nanos,
    ) -> Nanos {
        let wait = match (self.last, completed.wrapping_sub(self.completed)) {
            (0, _) | (_, 0) => 0,
            (last, done) => {
                let part = now.saturating_sub(last).saturating_mul(in_flight.into()) / u64::from(done) / PART;
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
            None => poll(),
        };
        let not_before = if next == at && wait > 0 { now.saturating_add(wait / 2) } else { 0 };
        *self = Self { last: now, completed, seen: completed, not_before, next, patient: false };
        next
    }

    /// Notes a look that has left no packet in the device. Returns the time of the next look, if packets were complete since
    /// the last one: a sender whose packets come before it does not wake the worker for each.
    pub(crate) fn note_empty(&mut self, completed: u32, now: Nanos) -> Option<Nanos> {
        if self.last == 0 || completed == self.completed {
            return None;
        }
        Some(self.wait(EMPTY_DEVICE_WAIT, completed, now))
    }

    /// Notes that the worker has run queues, and has reaped as their owner.
    pub(crate) fn note_run(&mut self, completed: u32) {
        self.seen = completed;
    }

    /// Returns when to look again if senders have reaped since the worker last did; `None` if the worker must look.
    pub(crate) fn note_tended(&mut self, completed: u32, now: Nanos) -> Option<Nanos> {
        (self.last != 0 && completed != self.seen).then(|| self.wait(LEFT_TO_SENDERS, completed, now))
    }

    /// Waits for `wait`, or for half of it if the worker is awake for other work. Returns the time of the next look.
    fn wait(&mut self, wait: Nanos, completed: u32, now: Nanos) -> Nanos {
        let (not_before, next) = (now.saturating_add(wait / 2), now.saturating_add(wait));
        *self = Self { last: now, completed, seen: completed, not_before, next, patient: true };
        next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(looks: &mut Looks, completed: u32, in_flight: u32, now: Nanos, soonest: Nanos) -> Nanos {
        looks.note(completed, in_flight, now, Some(soonest), || unreachable!())
    }

    #[test]
    fn the_first_look_is_followed_by_one_at_the_next_completion() {
        let mut looks = Looks::default();
        assert_eq!(looks.too_early(1, false), None);
        assert_eq!(note(&mut looks, 7, 3, 1000, 1200), 1200);
        // The driver may be wrong: other work of the worker is an occasion to look.
        assert_eq!(looks.too_early(1100, false), None);
        // Nothing was completed since.
        assert_eq!(note(&mut looks, 7, 3, 1300, 1500), 1500);
    }

    #[test]
    fn a_look_leaves_half_of_the_packets_in_flight() {
        let mut looks = Looks::default();
        note(&mut looks, 0, 40, 1000, 2000);
        // A packet in 1000 ns: twenty of the forty take 20,000 ns.
        assert_eq!(note(&mut looks, 10, 40, 11_000, 12_000), 31_000);
        // A worker that is awake for another txq looks when half of the wait is over.
        assert_eq!((looks.too_early(20_999, false), looks.too_early(21_000, false)), (Some(31_000), None));
        // Few packets are left: at the next completion, at the latest.
        assert_eq!(note(&mut looks, 30, 1, 31_000, 32_000), 32_000);
    }

    #[test]
    fn packets_that_are_complete_are_not_left() {
        let mut looks = Looks::default();
        note(&mut looks, 0, 140, 1000, 2000);
        assert_eq!(note(&mut looks, 64, 76, 200_000, 0), 0);
        assert_eq!(looks.too_early(200_001, false), None);
    }

    #[test]
    fn a_slow_device_is_looked_at_when_it_completes_a_packet_and_a_long_ring_in_time() {
        let mut looks = Looks::default();
        note(&mut looks, 0, 20, 1000, 2000);
        assert_eq!(note(&mut looks, 100, 20, 1_001_000, 1_102_000), 1_102_000);
        assert_eq!(looks.not_before(), 0);
        assert_eq!(note(&mut looks, 102, 100_000, 1_201_000, 1_202_000), 1_301_000);
        looks.look_by(1_211_000);
        assert_eq!(
            (looks.too_early(1_210_999, false), looks.too_early(1_211_000, false)),
            (Some(1_211_000), None)
        );
    }

    #[test]
    fn a_driver_that_knows_no_time_is_polled_until_its_rate_is_known() {
        let mut looks = Looks::default();
        assert_eq!(looks.note(0, 40, 1000, None, || 51_000), 51_000);
        assert_eq!(looks.not_before(), 0);
        assert_eq!(looks.note(40, 48, 51_000, None, || unreachable!()), 81_000);
        assert_eq!((looks.too_early(65_999, false), looks.too_early(66_000, false)), (Some(81_000), None));
        assert_eq!(looks.note(80, 8, 66_000, None, || 116_000), 116_000);
        assert_eq!(looks.not_before(), 0);
    }

    #[test]
    fn a_device_that_was_emptied_is_left_alone_unless_a_txq_stops() {
        let mut looks = Looks::default();
        assert_eq!(looks.note_empty(7, 1000), None, "whether packets come is not known");
        note(&mut looks, 7, 1, 1000, 1200);
        assert_eq!(looks.note_empty(8, 1200), Some(51_200));
        assert_eq!((looks.too_early(26_199, false), looks.too_early(26_200, false)), (Some(51_200), None));
        assert_eq!(looks.too_early(2000, true), None);
        // A device that keeps packets has its time.
        note(&mut looks, 18, 40, 11_200, 12_000);
        assert_eq!(looks.too_early(11_201, true), Some(31_200));
        assert_eq!(looks.note_empty(58, 61_200), Some(111_200));
        assert_eq!(looks.note_empty(58, 111_200), None, "none has come");
    }

    #[test]
    fn a_device_whose_senders_reap_is_left_alone_until_they_pause_or_need_help() {
        let mut looks = Looks::default();
        assert_eq!(looks.note_tended(7, 1000), None, "whether senders reap is not known");
        note(&mut looks, 7, 3, 1000, 1200);
        assert_eq!(looks.note_tended(7, 1200), None, "nobody has reaped");
        note(&mut looks, 9, 3, 1200, 1400);
        assert_eq!(looks.note_tended(10, 1400), Some(1_001_400));
        assert_eq!(
            (looks.too_early(501_399, false), looks.too_early(501_400, false)),
            (Some(1_001_400), None)
        );
        assert_eq!(looks.too_early(1500, true), None);
        assert_eq!(looks.note_tended(10, 1_001_400), None, "the senders have paused");
        note(&mut looks, 12, 40, 1_001_400, 1_002_000);
        looks.note_run(15);
        assert_eq!(looks.note_tended(15, 1_041_400), None, "the worker itself has reaped");
    }
}
