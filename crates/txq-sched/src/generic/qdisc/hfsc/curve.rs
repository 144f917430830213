//! Service curves: how many bytes a class may have sent by a time.
//!
//! A [`Service`] is what the user gives: a slope `m1` for the time `d`, and `m2` afterwards. A [`Curve`] is such a curve from a
//! point on, at which the class became active; when it becomes active again, the curve is the minimum of the old one and of
//! the service curve from the new point on (section IV of the paper). Times are in nanoseconds, or virtual; work is in bytes.

use txq_core::arch::Nanos;

/// A time that never comes.
pub(super) const NEVER: i64 = i64::MAX / 4;

const SECOND: i128 = 1_000_000_000;

/// A service curve of two pieces. Slopes are in bytes a second.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Service {
    pub(super) m1: u64,
    /// How long the first piece is.
    pub(super) d: Nanos,
    pub(super) m2: u64,
}

impl Service {
    /// Returns whether the second piece is not flatter than the first.
    pub(super) fn is_convex(&self) -> bool {
        self.m1 <= self.m2
    }
}

/// A service curve from a point on.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Curve {
    /// The point.
    x: i64,
    y: u64,
    /// The length and the height of the first piece.
    dx: i64,
    dy: u64,
    m1: u64,
    m2: u64,
}

/// Returns the work of a time at a slope.
fn work(time: i64, slope: u64) -> u64 {
    u64::try_from(i128::from(time) * i128::from(slope) / SECOND).unwrap_or(0)
}

/// Returns the time of some work at a slope.
fn time(work: u64, slope: u64) -> i64 {
    match slope {
        0 if work == 0 => 0,
        0 => NEVER,
        _ => i64::try_from(i128::from(work) * SECOND / i128::from(slope)).unwrap_or(NEVER).min(NEVER),
    }
}

impl Curve {
    /// Returns a service curve from a point on.
    pub(super) fn new(service: &Service, x: i64, y: u64) -> Self {
        let dx = i64::try_from(service.d).unwrap_or(NEVER).min(NEVER);
        Self { x, y, dx, dy: work(dx, service.m1), m1: service.m1, m2: service.m2 }
    }

    /// Returns the work by a time; that of the point before it.
    pub(super) fn work_at(&self, x: i64) -> u64 {
        match x.saturating_sub(self.x) {
            passed if passed <= 0 => self.y,
            passed if passed <= self.dx => self.y + work(passed, self.m1),
            passed => self.y + self.dy + work(passed - self.dx, self.m2),
        }
    }

    /// Returns the time of some work; that of the point for less work.
    pub(super) fn time_of(&self, y: u64) -> i64 {
        let more = y.saturating_sub(self.y);
        let time = match more.checked_sub(self.dy) {
            _ if more == 0 => 0,
            None | Some(0) if self.dy > 0 => {
                if more == self.dy {
                    self.dx
                } else {
                    time(more, self.m1)
                }
            }
            beyond => self.dx.saturating_add(time(beyond.unwrap_or(0), self.m2)),
        };
        self.x.saturating_add(time).min(NEVER)
    }

    /// Takes the minimum of the curve and of `service` from a point on.
    pub(super) fn min_with(&mut self, service: &Service, x: i64, y: u64) {
        let new = Self::new(service, x, y);
        let here = self.work_at(x);
        if service.is_convex() {
            if here >= y {
                *self = new;
            }
            return;
        }
        if self.work_at(x.saturating_add(new.dx)) >= y + new.dy {
            *self = new;
            return;
        }
        if here <= y {
            return;
        }
        // The curves cross: the new one holds until its first piece has the height of the old one.
        let slopes = i128::from(service.m1 - service.m2);
        let mut dx = i64::try_from(i128::from(here - y) * SECOND / slopes).unwrap_or(NEVER).min(NEVER);
        let first = self.x.saturating_add(self.dx);
        if first > x {
            dx = dx.saturating_add(first - x);
        }
        *self = Self { dx, dy: work(dx, service.m1), ..new };
    }

    /// Returns the curve without its first piece, if `service` is convex: the time by which work must have been done at the
    /// latest for the deadlines to hold.
    pub(super) fn eligible(self, service: &Service) -> Self {
        if service.is_convex() { Self { dx: 0, dy: 0, ..self } } else { self }
    }

    /// Returns the time of the point.
    pub(super) fn start(&self) -> i64 {
        self.x
    }

    /// Moves the curve by some time.
    pub(super) fn shift(&mut self, by: i64) {
        self.x = self.x.saturating_add(by);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MS: i64 = 1_000_000;

    #[test]
    fn times_and_work_are_inverse() {
        // 1000 bytes in 10 ms, then 10 bytes a millisecond.
        let concave = Curve::new(&Service { m1: 100_000, d: 10_000_000, m2: 10_000 }, 5 * MS, 300);
        for (at, work) in [(0, 300), (5 * MS, 300), (10 * MS, 800), (15 * MS, 1300), (25 * MS, 1400)] {
            assert_eq!(concave.work_at(at), work, "{at}");
            assert_eq!(concave.time_of(work), at.max(5 * MS), "{work}");
        }
        let late = Curve::new(&Service { m1: 0, d: 15_000_000, m2: 100_000 }, 0, 0);
        assert_eq!([late.time_of(0), late.time_of(1), late.time_of(100)], [0, 15_010_000, 16 * MS]);
        let stops = Curve::new(&Service { m1: 100_000, d: 10_000_000, m2: 0 }, 0, 0);
        assert_eq!([stops.time_of(1000), stops.time_of(1001)], [10 * MS, NEVER]);
    }

    proptest! {
        /// The minimum is never above the old curve or the new one, up to a byte of rounding and a piece.
        #[test]
        fn a_minimum_is_below_both(
            m1 in 1u64..1_000_000, d in 0u64..50_000_000, m2 in 1u64..1_000_000,
            x in 0i64..100 * MS, y in 0u64..10_000, at in 0i64..500 * MS,
        ) {
            let service = Service { m1, d, m2 };
            let old = Curve::new(&service, 0, 0);
            let mut both = old;
            both.min_with(&service, x, y);
            let new = Curve::new(&service, x, y);
            let at = x + at;
            // A curve of two pieces cannot always be the minimum: the paper lets it be above one of a convex service curve.
            if m1 > m2 {
                prop_assert!(both.work_at(at) <= new.work_at(at) + 2, "{both:?}");
                prop_assert!(both.work_at(at) <= old.work_at(at) + 2, "{both:?}");
            }
            let time = both.time_of(both.work_at(at) + 1);
            prop_assert!(time >= at || time == NEVER || both.x > at, "{time} {at}");
        }
    }
}
