//! Sending on time: all threads have one start, so the pace does not drift and does not depend on which
//! thread sends which frame.

use std::num::NonZeroU64;
use std::sync::{Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::common::stop::Stop;

/// The longest sleep of a thread before it checks for a stop again.
const LONGEST_PACE_SLEEP: Duration = Duration::from_millis(10);
/// The time before a frame is due in which the thread yields its CPU instead of sleeping: about the time of a wakeup.
const CLOSE: Duration = Duration::from_micros(20);
/// The timer slack of a sleep, in nanoseconds. The kernel's default, 50 us, is a packet's time at 20 kpps.
const SLACK: Option<NonZeroU64> = NonZeroU64::new(1000);

/// The common start of all threads; a thread that is ready waits for it.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    opened: Mutex<Option<Instant>>,
    bell: Condvar,
}

impl Gate {
    /// Releases the waiting threads; returns the time of the start.
    pub(crate) fn open(&self) -> Instant {
        let now = Instant::now();
        *self.opened.lock().unwrap_or_else(PoisonError::into_inner) = Some(now);
        self.bell.notify_all();
        now
    }

    /// Waits for the start; returns the time base of the run. It also reduces the calling thread's timer slack.
    pub(crate) fn pass(&self) -> Pace {
        // A refusal costs punctuality, which the report shows.
        let _ = rustix::thread::set_current_timer_slack(SLACK);
        let mut opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            match *opened {
                Some(start) => return Pace { start },
                None => opened = self.bell.wait(opened).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }
}

/// The time base of a run: its common start.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    start: Instant,
}

impl Pace {
    /// Returns the nanoseconds since the start.
    pub(crate) fn now(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }

    /// Returns the time of the request to stop, in nanoseconds since the start; `None` before that request.
    pub(crate) fn end(&self, stop: &Stop) -> Option<u64> {
        stop.at().map(|at| at.saturating_duration_since(self.start).as_nanos() as u64)
    }

    /// Waits until `due`, and returns the time after the wait; `None` if a stop is requested before `due`. Both times are in
    /// nanoseconds since the start.
    pub(crate) fn wait(&self, due: u64, stop: &Stop) -> Option<u64> {
        loop {
            if stop.asked() && self.end(stop).is_none_or(|end| end < due) {
                return None;
            }
            let now = self.now();
            if now >= due {
                return Some(now);
            }
            let left = Duration::from_nanos(due - now);
            if left > CLOSE {
                thread::sleep((left - CLOSE).min(LONGEST_PACE_SLEEP));
            } else {
                thread::yield_now();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_waits_for_a_time_that_has_passed_or_after_a_stop() {
        let gate = Gate::default();
        gate.open();
        let pace = gate.pass();
        let stop = Stop::default();
        assert!(pace.wait(0, &stop).is_some());
        assert!(pace.wait(200_000, &stop).is_some_and(|now| now >= 200_000));
        stop.ask();
        assert_eq!(pace.wait(u64::MAX, &stop), None);
        let end = pace.end(&stop).unwrap();
        assert!(pace.wait(end, &stop).is_some(), "it was due when the end was asked for");
        assert_eq!(pace.wait(end + 1, &stop), None);
    }
}
