//! What one CPU does alone: reading and changing a line that it has, reading the clock, and reading what no cache has.

use std::hint::black_box;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use txq::arch::{Arch, Atomic, Native};

use super::sample::{Samples, middle_of};
use super::{CalibrateError, pin};

/// Lines that fit into every first-level cache: 4 KiB.
const FEW: usize = 64;
/// Lines of a window, 2 MiB: more than a second-level cache of half the CPUs there are has room for between two visits, and
/// pages few enough that their translations stay at hand.
const WINDOW: usize = 1 << 15;

/// A line that names the next one.
#[repr(align(64))]
#[derive(Clone)]
struct Line(usize);

/// Measures what a CPU does with what it has: `access.hit`, `access.rmw`, `os.clock`, `os.spin`.
pub(super) fn own(cpu: u32, time: Duration, samples: &mut Samples) -> Result<(), CalibrateError> {
    let time = time / 4;
    let [hit, rmw, clock, spin] = pin::on(cpu, || {
        let few = circle(FEW, FEW).ok_or_else(|| no_memory(FEW))?;
        let mut at = 0;
        let hit = middle_of(time, 4096, || at = walk(&few, at, 4096));
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
        Ok([hit, rmw, clock, spin])
    })?;
    samples.add("access.hit", hit);
    samples.add("access.rmw", rmw);
    samples.add("os.clock", clock);
    samples.add("os.spin", spin);
    Ok(())
}

/// Memory that was first touched by one CPU, which is thus beside it, to be wandered about in by another.
pub(super) struct Walk {
    lines: Vec<Line>,
    at: usize,
}

impl Walk {
    /// So many bytes beside a CPU.
    pub(super) fn new(bytes: usize, cpu: u32) -> Result<Self, CalibrateError> {
        let count = (bytes / size_of::<Line>()).max(FEW);
        let lines = pin::on(cpu, || circle(count, WINDOW).ok_or_else(|| no_memory(count)))?;
        Ok(Self { lines, at: 0 })
    }

    /// Measures what a line of it costs a CPU.
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

/// Goes from line to line; where it got to.
#[inline(never)]
fn walk(lines: &[Line], mut at: usize, steps: u32) -> usize {
    for _ in 0..steps {
        at = lines[at].0;
    }
    black_box(at)
}

/// So many lines, each of which names the next, in a circle through all: window after window, and in each in an order that no
/// prefetcher guesses. `None` when there is not as much memory.
fn circle(count: usize, window: usize) -> Option<Vec<Line>> {
    let mut order: Vec<u32> = Vec::new();
    order.try_reserve_exact(count).ok()?;
    order.extend(0..u32::try_from(count).ok()?);
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    for lines in order.chunks_mut(window) {
        for last in (1..lines.len()).rev() {
            // xorshift64: no number is better than another here.
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
