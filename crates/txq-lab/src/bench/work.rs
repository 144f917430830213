//! Work that takes a known time without clock reads: a loop whose speed was measured once.
//!
//! A clock read takes about half as long as the measured work, and under a lock it would be measured with it.

use std::hint::black_box;
use std::time::Instant;

/// How often the loop's speed is measured; the fastest try counts, because any disturbance makes the loop slower.
const SPEED_TRIES: usize = 50;
/// Turns of the loop in each try: about 80 us.
const TURNS: u32 = 1 << 16;

/// An amount of work.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Work {
    turns: u32,
}

impl Work {
    /// Does the work.
    #[inline]
    pub(super) fn spend(self) {
        if self.turns > 0 {
            turn(self.turns);
        }
    }
}

/// The speed of this machine's loop.
#[derive(Clone, Copy, Debug)]
pub(super) struct Calibration {
    turns_per_ns: f64,
}

impl Calibration {
    pub(super) fn measure() -> Self {
        let time = |_| {
            let start = Instant::now();
            turn(TURNS);
            start.elapsed().as_secs_f64() * 1e9
        };
        let best = (0..SPEED_TRIES).map(time).fold(f64::INFINITY, f64::min);
        Self { turns_per_ns: f64::from(TURNS) / best.max(1.0) }
    }

    /// Returns the work of `ns` nanoseconds.
    pub(super) fn work(&self, ns: u64) -> Work {
        Work { turns: (ns as f64 * self.turns_per_ns).round().max(if ns > 0 { 1.0 } else { 0.0 }) as u32 }
    }
}

/// Computes a chain of multiplications, each of which needs the one before; touches no memory.
#[inline(never)]
fn turn(turns: u32) {
    let mut x = black_box(1_u64);
    for i in 0..turns {
        x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(i.into());
    }
    black_box(x);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn twice_the_time_is_twice_the_work() {
        let calibration = Calibration::measure();
        let (one, two) = (calibration.work(100_000), calibration.work(200_000));
        assert!(one.turns > 0 && two.turns.abs_diff(2 * one.turns) <= 1, "{one:?} {two:?}");
        assert_eq!(calibration.work(0).turns, 0);
        one.spend();
    }
}
