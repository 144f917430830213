//! Loads of 64 lines: each of an address that the load before returned, or all of known addresses, which overlap.
//!
//! Another CPU has written the lines; or they are in this CPU's own cache. The lines are in an order that no prefetcher
//! predicts; or each returns the address of the next in memory, which a prefetcher fetches ahead.

use std::hint::black_box;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::time::Duration;

use txq_core::arch::{Arch, Atomic, CellApi, Native};

use super::CalibrateError;
use super::pairs::{Alone, beside};
use super::sample::{Samples, middle_one};

/// Number of lines; in order there are more, since a prefetcher needs some to begin.
const LINES: usize = 64;
const IN_ORDER: usize = 640;
/// The distance of two lines that no prefetcher predicts, without a common factor with `LINES`: the order is 0, 37, 10, ...
const STEP: usize = 37;

/// The turns of reader and writer.
const WRITE: u32 = 0;
const READ: u32 = 1;
const END: u32 = 2;

/// The ways to load the lines, with the names of their samples: remote, and in the first-level cache.
pub(super) const WAYS: [(Loads, &str, &str); 3] = [
    (Loads::Dependent, "loads.dependent", "hits.dependent"),
    (Loads::InOrder, "loads.in_order", "hits.in_order"),
    (Loads::Independent, "loads.independent", "hits.independent"),
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Loads {
    /// Each line holds the next one's number.
    Dependent,
    /// As `Dependent`, in the order of their addresses.
    InOrder,
    /// The numbers are known.
    Independent,
}

impl Loads {
    /// Returns the number of lines.
    pub(super) fn count(self) -> usize {
        if self == Self::InOrder { IN_ORDER } else { LINES }
    }

    /// Returns the number of the line behind the `index`th.
    fn next(self, index: usize) -> usize {
        (index + if self == Self::InOrder { 1 } else { STEP }) % self.count()
    }
}

/// A line that holds the number of the next one, twice.
struct Line<A: Arch> {
    next: A::AtomicU32,
    plain: A::Cell<u32>,
}

/// The lines, and whose turn it is.
pub(super) struct Lines<A: Arch> {
    loads: Loads,
    lines: Box<[Alone<Line<A>>]>,
    turn: Alone<A::AtomicU32>,
}

// SAFETY: the plain numbers are accessed in turns, by the turn's release stores and acquire loads.
unsafe impl<A: Arch> Sync for Lines<A> {}

/// The times of one round, per line, in nanoseconds.
#[derive(Debug, Default)]
pub(super) struct Times {
    remote: Vec<f64>,
    near: Vec<f64>,
}

impl<A: Arch> Lines<A> {
    pub(super) fn new(loads: Loads) -> Self {
        let line = |index: usize| {
            let next = loads.next(index) as u32;
            Alone(Line { next: A::AtomicU32::new(next), plain: A::Cell::new(next) })
        };
        let lines: Box<[_]> = (0..loads.count()).map(line).collect();
        A::array(&lines);
        Self { loads, lines, turn: Alone(A::AtomicU32::new(WRITE)) }
    }

    /// Loads all lines; returns the time per line.
    fn load(&self) -> f64 {
        let begin = A::now();
        let mut at = 0;
        for index in 0..self.lines.len() {
            match self.loads {
                Loads::Dependent | Loads::InOrder => at = self.lines[at as usize].0.next.load(Relaxed),
                Loads::Independent => {
                    let plain = &self.lines[index * STEP % LINES].0.plain;
                    // SAFETY: it is the reader's turn.
                    at ^= plain.with(|next| unsafe { *next });
                }
            }
        }
        // A fence's work is part of the time on every machine, and ends all loads.
        A::fence(std::sync::atomic::Ordering::SeqCst);
        black_box(at);
        (A::now() - begin) as f64 / self.lines.len() as f64
    }

    /// Loads the lines once after each turn of the writer and once more, until the clock says `until`.
    pub(super) fn read(&self, until: u64) -> Times {
        let mut times = Times::default();
        while A::now() < until {
            if self.turn.0.wait_until(Acquire, |turn| turn != WRITE) == END {
                break;
            }
            times.remote.push(self.load());
            times.near.push(self.load());
            self.turn.0.store(WRITE, Release);
        }
        self.end();
        times
    }

    /// Writes the lines at each turn, until the end.
    pub(super) fn write(&self) {
        while self.turn.0.wait_until(Acquire, |turn| turn != READ) != END {
            for (index, line) in self.lines.iter().enumerate() {
                let next = self.loads.next(index) as u32;
                line.0.next.store(next, Relaxed);
                // SAFETY: it is the writer's turn.
                line.0.plain.with_mut(|plain| unsafe { *plain = next });
            }
            // Fails if the end has come meanwhile.
            if self.turn.0.compare_exchange(WRITE, READ, Release, Relaxed).is_err() {
                break;
            }
        }
    }

    /// Ends reader and writer.
    fn end(&self) {
        self.turn.0.store(END, Release);
    }
}

impl Times {
    /// Returns the median times of a remote and of a near line.
    pub(super) fn medians(self) -> [Option<f64>; 2] {
        [middle_one(self.remote), middle_one(self.near)]
    }
}

/// Measures all ways to load lines that CPU `b` has written, on CPU `a`.
pub(super) fn loads(a: u32, b: u32, time: Duration, samples: &mut Samples) -> Result<(), CalibrateError> {
    for (loads, remote, near) in WAYS {
        let lines = Lines::<Native>::new(loads);
        let until = || Native::now() + time.as_nanos() as u64 / WAYS.len() as u64;
        let times = beside((a, b), || Some(lines.read(until())), || lines.write(), || lines.end())?;
        let [far, hit] = times.map(Times::medians).unwrap_or_default();
        samples.add(remote, far);
        samples.add(near, hit);
    }
    Ok(())
}
