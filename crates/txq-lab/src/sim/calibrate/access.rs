//! Operations of one CPU alone: reading and changing a line in its cache, reading the clock, and reading a line in no cache.

use std::hint::black_box;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use txq_core::arch::{Arch, Atomic, Native};

use super::sample::{Samples, middle_of};
use super::{CalibrateError, pin};

/// Number of lines that fit into every first-level cache: 4 KiB.
const NEAR_LINES: usize = 64;
/// Sums of independent loads that no other sum waits for.
const ADDERS: usize = 8;
/// Number of lines of a window, 2 MiB: more than half of all CPUs' second-level caches keep between two visits, and few
/// enough pages that their translations stay in the TLB.
const WINDOW_LINES: usize = 1 << 15;

/// A line that holds the index of the next one.
#[repr(align(64))]
#[derive(Clone)]
struct Line(usize);

/// Measures operations on cached lines: `access.hit`, `access.hit_gap`, `access.rmw`, `os.clock`, `os.spin`.
pub(super) fn own(cpu: u32, time: Duration, samples: &mut Samples) -> Result<(), CalibrateError> {
    let time = time / 5;
    let [hit, gap, rmw, clock, spin] = pin::on(cpu, || {
        let few = circle(NEAR_LINES, NEAR_LINES).ok_or_else(|| no_memory(NEAR_LINES))?;
        let mut at = 0;
        let hit = middle_of(time, 4096, || at = walk(&few, at, 4096));
        let row: [AtomicU32; NEAR_LINES] = std::array::from_fn(|_| AtomicU32::new(1));
        let gap = middle_of(time, 4096, || {
            let mut sums = [0_u32; ADDERS];
            for _ in 0..4096 / NEAR_LINES {
                for loads in black_box(&row).chunks_exact(ADDERS) {
                    sums.iter_mut().zip(loads).for_each(|(sum, load)| *sum += load.load(Ordering::Relaxed));
                }
            }
            black_box(sums);
        });
        let counter = AtomicU64::new(0);
        let rmw = middle_of(time, 1024, || {
            for _ in 0..1024 {
                black_box(&counter).fetch_add(1, Ordering::AcqRel);
            }
        });
        let clock = middle_of(time, 256, || {
            for _ in 0..256 {
                black_box(Native::now());
            }
        });
        let never = AtomicU32::new(0);
        let spin = middle_of(time, 8, || {
            for _ in 0..8 {
                black_box(black_box(&never).spin_until(Ordering::Relaxed, |value| value != 0));
            }
        });
        Ok([hit, gap, rmw, clock, spin])
    })?;
    samples.add("access.hit", hit);
    samples.add("access.hit_gap", gap);
    samples.add("access.rmw", rmw);
    samples.add("os.clock", clock);
    samples.add("os.spin", spin);
    Ok(())
}

/// Memory to walk through. One CPU touched it first, so it is in that CPU's node; another may walk through it.
pub(super) struct Walk {
    lines: Vec<Line>,
    at: usize,
}

impl Walk {
    /// Allocates `bytes` in the node of a CPU.
    pub(super) fn new(bytes: usize, cpu: u32) -> Result<Self, CalibrateError> {
        let count = (bytes / size_of::<Line>()).max(NEAR_LINES);
        let lines = pin::on(cpu, || circle(count, WINDOW_LINES).ok_or_else(|| no_memory(count)))?;
        Ok(Self { lines, at: 0 })
    }

    /// Measures the cost of reading one of its lines from a CPU.
    pub(super) fn measure(
        &mut self,
        cpu: u32,
        field: &'static str,
        time: Duration,
        samples: &mut Samples,
    ) -> Result<(), CalibrateError> {
        let took = pin::on(cpu, || Ok(middle_of(time, 512, || self.at = walk(&self.lines, self.at, 512))))?;
        samples.add(field, took);
        Ok(())
    }
}

/// Walks from line to line; returns the last index.
#[inline(never)]
fn walk(lines: &[Line], mut at: usize, steps: u32) -> usize {
    for _ in 0..steps {
        at = lines[at].0;
    }
    black_box(at)
}

/// Returns `count` lines linked in a circle through all of them: window after window, and within each in an order that no
/// prefetcher predicts. Returns `None` when there is not enough memory.
fn circle(count: usize, window: usize) -> Option<Vec<Line>> {
    let mut order: Vec<u32> = Vec::new();
    order.try_reserve_exact(count).ok()?;
    order.extend(0..u32::try_from(count).ok()?);
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    for lines in order.chunks_mut(window) {
        for last in (1..lines.len()).rev() {
            // xorshift64; the quality of the numbers does not matter here.
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            lines.swap(last, (state % (last as u64 + 1)) as usize);
        }
    }
    let mut lines = Vec::new();
    lines.try_reserve_exact(count).ok()?;
    lines.resize(count, Line(0));
    for (index, &line) in order.iter().enumerate() {
        lines[line as usize].0 = order[(index + 1) % count] as usize;
    }
    Some(lines)
}

fn no_memory(lines: usize) -> CalibrateError {
    CalibrateError::Refused {
        what: format!("{} MiB of memory to wander about in", (lines * size_of::<Line>()) >> 20),
        source: std::io::ErrorKind::OutOfMemory.into(),
        remedy: "free as much",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_circle_goes_through_every_line_once() {
        for (count, window) in [(1, 64), (64, 64), (1000, 64), (4096, 1 << 15)] {
            let lines = circle(count, window).unwrap();
            let mut seen = vec![false; count];
            let mut at = 0;
            for _ in 0..count {
                assert!(!std::mem::replace(&mut seen[at], true), "{count} lines: line {at} twice");
                at = lines[at].0;
            }
            assert_eq!(at, walk(&lines, 0, count as u32), "back where it began");
            assert!(seen.iter().all(|&seen| seen));
        }
    }
}
