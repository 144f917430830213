//! [`Instant`]: a time on the clock of departure times.

use std::ops::{Add, AddAssign, Sub};
use std::time::{self, Duration};

use txq_core::arch::{Arch, Native};

/// An instant, in nanoseconds on the clock of departure times. Durations are [`std::time::Duration`].
///
/// The clock of a device is `CLOCK_MONOTONIC`, and [`now`](Instant::now) reads it. An instant converts from a
/// [`std::time::Instant`] and to one. A [`Scheduler`](crate::Scheduler) reads no clock, so a program may as well count
/// nanoseconds itself: a `u64` converts to an instant, too. Functions that take a time accept all three.
///
/// ```
/// use std::time::Instant;
/// use txq_sched::{Item, Next, Scheduler};
///
/// // 1500 bytes at 12 Mbit/s take a millisecond.
/// let mut link = Scheduler::new("tbf rate 12mbit burst 1600 latency 1s")?;
/// let start = Instant::now();
/// for number in 0..3 {
///     let _verdict = link.enqueue(start, Item::new(1500, number));
/// }
/// let mut sent = Vec::new();
/// loop {
///     match link.poll(Instant::now()) {
///         Next::Packet(packet) => sent.push(packet.value),
///         Next::Until(at) => {
///             let left = Instant::from(at).saturating_duration_since(Instant::now());
///             std::thread::sleep(left);
///         }
///         Next::Idle => break,
///     }
/// }
/// assert_eq!(sent, [0, 1, 2]);
/// # Ok::<(), txq_sched::scheduler::SchedulerError>(())
/// ```
///
/// Arithmetic saturates at both ends of the clock: the difference to a later instant is zero.
///
/// ```
/// use std::time::Duration;
/// use txq_sched::Instant;
///
/// let at = Instant::from_nanos(5_000_000);
/// assert_eq!(at + Duration::from_millis(1) - at, Duration::from_millis(1));
/// assert_eq!(at - Duration::from_secs(1), Instant::ZERO);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct Instant(u64);

impl Instant {
    /// The start of the clock. As a packet's departure time it means as soon as possible.
    pub const ZERO: Self = Self(0);

    /// Returns the time on the clock of departure times, deadlines and counters: `CLOCK_MONOTONIC`.
    ///
    /// On x86-64, where Linux keeps the time by the processor's time stamp counter, so does this: it asks the kernel once in a
    /// millisecond, and differs from it by less than a microsecond meanwhile. On a system other than Linux the clock starts
    /// when the process first reads it.
    #[inline]
    pub fn now() -> Self {
        Self(Native::now())
    }

    /// Returns the instant `nanos` nanoseconds after the start of the clock.
    #[inline]
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Returns the nanoseconds since the start of the clock.
    #[inline]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }
}

/// Returns a duration in nanoseconds; the longest one that a `u64` holds for a longer duration.
fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

impl From<u64> for Instant {
    /// Returns the instant `nanos` nanoseconds after the start of the clock, which may be a clock of the program's own.
    #[inline]
    fn from(nanos: u64) -> Self {
        Self(nanos)
    }
}

impl From<time::Instant> for Instant {
    /// Returns the same moment on the clock of [`now`](Instant::now), for a departure time or a deadline that a program has as
    /// a [`std::time::Instant`]. An instant before the clock's start becomes that start.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// let deadline = std::time::Instant::now() + Duration::from_millis(5);
    /// assert!(txq_sched::Instant::from(deadline) > txq_sched::Instant::now());
    /// ```
    fn from(instant: time::Instant) -> Self {
        let (base, clock) = (time::Instant::now(), Self::now());
        match instant.checked_duration_since(base) {
            Some(ahead) => clock + ahead,
            None => clock - (base - instant),
        }
    }
}

impl From<Instant> for time::Instant {
    /// Returns the same moment as a [`std::time::Instant`], for a sleep until a deadline. A time that std cannot express, such
    /// as one before the system's start, becomes the present instant.
    fn from(time: Instant) -> Self {
        let (base, clock) = (time::Instant::now(), Instant::now());
        let instant = match time.0.checked_sub(clock.0) {
            Some(ahead) => base.checked_add(Duration::from_nanos(ahead)),
            None => base.checked_sub(clock - time),
        };
        instant.unwrap_or(base)
    }
}

impl Add<Duration> for Instant {
    type Output = Self;

    #[inline]
    fn add(self, time: Duration) -> Self {
        Self(self.0.saturating_add(nanos(time)))
    }
}

impl AddAssign<Duration> for Instant {
    #[inline]
    fn add_assign(&mut self, time: Duration) {
        *self = *self + time;
    }
}

impl Sub<Duration> for Instant {
    type Output = Self;

    #[inline]
    fn sub(self, time: Duration) -> Self {
        Self(self.0.saturating_sub(nanos(time)))
    }
}

impl Sub for Instant {
    type Output = Duration;

    #[inline]
    fn sub(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const END: Instant = Instant::from_nanos(u64::MAX);

    #[test]
    fn arithmetic_saturates_at_both_ends() {
        let (at, ms) = (Instant::from(5_000_000), Duration::from_millis(1));
        assert_eq!((at + ms, at - ms), (Instant::from_nanos(6_000_000), Instant::from_nanos(4_000_000)));
        assert_eq!((at + ms - at, at - (at + ms)), (ms, Duration::ZERO));
        assert_eq!((END + ms, END + Duration::MAX, at + Duration::MAX), (END, END, END));
        assert_eq!((Instant::ZERO - ms, at - Duration::MAX), (Instant::ZERO, Instant::ZERO));
        assert_eq!(END - Instant::ZERO, Duration::from_nanos(u64::MAX));
        let mut moved = at;
        moved += ms;
        assert_eq!(moved, at + ms);
        moved += Duration::MAX;
        assert_eq!((moved, Instant::default()), (END, Instant::ZERO));
    }

    /// Reads of both clocks lie between those of one, and a thread may be preempted in between: so bounds come from reads
    /// around the call.
    #[test]
    fn both_conversions_keep_the_moment() {
        // The clock may differ from the kernel's by a microsecond.
        const SLACK: u64 = 10_000;
        let now = || Instant::now().as_nanos();
        for offset in [-1_000_000_000_i64, -1000, 0, 1000, 1_000_000_000, 3_600_000_000_000] {
            let shift = Duration::from_nanos(offset.unsigned_abs());
            let moved = |at: time::Instant| if offset < 0 { at.checked_sub(shift) } else { Some(at + shift) };
            let before = now();
            let Some(instant) = moved(time::Instant::now()) else { continue };
            let after = now();
            let range = before.saturating_add_signed(offset).saturating_sub(SLACK)
                ..=after.saturating_add_signed(offset);
            let (begin, time) = (now(), Instant::from(instant).as_nanos());
            let delay = now() - begin + SLACK;
            assert!(
                (range.start().saturating_sub(delay)..=range.end() + delay).contains(&time),
                "{offset}: {time} in {range:?}"
            );

            let (begin, back) = (now(), time::Instant::from(Instant::from(time)));
            let away = back.max(instant) - back.min(instant);
            assert!(away <= Duration::from_nanos(now() - begin + 2 * delay), "{offset}: {away:?}");
        }
    }

    #[test]
    fn conversions_end_at_the_clocks_ends() {
        let (start, _end) = (time::Instant::from(Instant::ZERO), time::Instant::from(END));
        assert!(Instant::from(start) <= Instant::now());
        let before = Duration::from_nanos(Instant::now().as_nanos() + 1_000_000_000);
        if let Some(old) = time::Instant::now().checked_sub(before) {
            assert_eq!(Instant::from(old), Instant::ZERO);
        }
    }
}
