//! The clock of departure times, deadlines and counters, and its conversion from and to `std::time::Instant`.

use std::time::{Duration, Instant};

use txq_core::arch::{Arch, Nanos, Native};

/// Returns the time on the clock of departure times, deadlines and counters: `CLOCK_MONOTONIC`, in nanoseconds.
///
/// On x86-64, where Linux keeps the time by the processor's time stamp counter, so does this: it asks the kernel once in a
/// millisecond, and differs from it by less than a microsecond meanwhile.
pub fn now() -> Nanos {
    Native::now()
}

/// Returns the time of an instant on the clock of [`now`], for a departure time or a deadline that a program has as an
/// [`Instant`]. An instant before the clock's start is 0.
///
/// ```
/// use std::time::{Duration, Instant};
///
/// let deadline = Instant::now() + Duration::from_millis(5);
/// assert!(txq::nanos_of(deadline) > txq::now());
/// ```
pub fn nanos_of(instant: Instant) -> Nanos {
    let (base, clock) = (Instant::now(), now());
    let nanos = |time: Duration| Nanos::try_from(time.as_nanos()).unwrap_or(Nanos::MAX);
    match instant.checked_duration_since(base) {
        Some(ahead) => clock.saturating_add(nanos(ahead)),
        None => clock.saturating_sub(nanos(base - instant)),
    }
}

/// Returns the instant of a time on the clock of [`now`], for a sleep until the deadline of
/// [`Worker::poll`](crate::Worker::poll). A time before the system's start is the present instant.
pub fn instant_of(time: Nanos) -> Instant {
    let (base, clock) = (Instant::now(), now());
    let instant = match time.checked_sub(clock) {
        Some(ahead) => base.checked_add(Duration::from_nanos(ahead)),
        None => base.checked_sub(Duration::from_nanos(clock - time)),
    };
    instant.unwrap_or(base)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads of both clocks lie between those of one, and a thread may be preempted in between: so bounds come from reads
    /// around the call.
    #[test]
    fn an_instant_and_its_time_are_the_same_moment() {
        // The clock may differ from the kernel's by a microsecond.
        const SLACK: Nanos = 10_000;
        for offset in [-1_000_000_000_i64, -1000, 0, 1000, 1_000_000_000, 3_600_000_000_000] {
            let shift = Duration::from_nanos(offset.unsigned_abs());
            let moved = |at: Instant| if offset < 0 { at.checked_sub(shift) } else { Some(at + shift) };
            let before = now();
            let Some(instant) = moved(Instant::now()) else { continue };
            let after = now();
            let range = before.saturating_add_signed(offset) - SLACK..=after.saturating_add_signed(offset);
            let (begin, time) = (now(), nanos_of(instant));
            let delay = now() - begin + SLACK;
            assert!(
                (range.start() - delay..=range.end() + delay).contains(&time),
                "{offset}: {time} in {range:?}"
            );

            let (begin, back) = (now(), instant_of(time));
            let away = back.max(instant) - back.min(instant);
            assert!(away <= Duration::from_nanos(now() - begin + 2 * delay), "{offset}: {away:?}");
        }
    }

    #[test]
    fn times_out_of_range_end_at_the_clocks_ends() {
        let _ = (instant_of(0), instant_of(Nanos::MAX));
        assert!(nanos_of(instant_of(0)) <= now());
        if let Some(old) = Instant::now().checked_sub(Duration::from_nanos(now() + 1_000_000_000)) {
            assert_eq!(nanos_of(old), 0);
        }
    }
}
