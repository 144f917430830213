//! A line that one CPU uses without pause and another visits: how long the owner is without it for each visit.
//!
//! The owner adds to a number and reads the clock, again and again. An addition that finds more than it left follows a visit;
//! the step in which that happened took longer than the others, by the time without the line.

use std::sync::atomic::Ordering::{AcqRel, Relaxed};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::Duration;

use txq_core::arch::{Arch, Atomic, Nanos, Native};

use super::pairs::{Alone, beside};
use super::sample::{Samples, middle_one};
use super::{CalibrateError, pin};

/// The time between two visits in nanoseconds, and the name of the samples.
pub(super) const PERIODS: [(Nanos, &str); 3] =
    [(200, "visit.200"), (1000, "visit.1000"), (5000, "visit.5000")];
/// Steps without a visit that are kept for comparison.
const USUAL_STEPS: usize = 4096;

/// The lengths of an owner's steps.
#[derive(Debug, Default)]
pub(super) struct Steps {
    usual: Vec<f64>,
    visited: Vec<f64>,
}

impl Steps {
    /// Adds to `number` until the clock says `until`.
    pub(super) fn take<A: Arch>(&mut self, number: &A::AtomicU64, until: Nanos) {
        let (mut before, mut expected) = (A::now(), number.load(Relaxed));
        while before < until {
            let found = number.fetch_add(1, AcqRel);
            let now = A::now();
            let step = (now - before) as f64;
            if found != expected {
                self.visited.push(step);
            } else if self.usual.len() < USUAL_STEPS {
                self.usual.push(step);
            }
            (before, expected) = (now, found + 1);
        }
    }

    /// Returns the median time without the line; `None` without visits.
    pub(super) fn loss(self) -> Option<f64> {
        Some(middle_one(self.visited)? - middle_one(self.usual)?)
    }
}

/// Measures the loss of an owner on CPU `a` for each visit from CPU `b`, at each of [`PERIODS`].
pub(super) fn visits(a: u32, b: u32, time: Duration, samples: &mut Samples) -> Result<(), CalibrateError> {
    for (period, name) in PERIODS {
        let number = Alone(AtomicU64::new(0));
        let end = AtomicBool::new(false);
        let loss = beside(
            (a, b),
            || {
                let mut steps = Steps::default();
                steps
                    .take::<Native>(&number.0, Native::now() + time.as_nanos() as u64 / PERIODS.len() as u64);
                steps.loss()
            },
            || {
                let mut next = Native::now();
                while !end.load(Relaxed) {
                    if Native::now() >= next {
                        number.0.fetch_add(1, AcqRel);
                        next += period;
                    }
                }
            },
            || end.store(true, Relaxed),
        )?;
        samples.add(name, loss);
    }
    Ok(())
}

/// Names of the samples by the number of threads.
pub(super) const CROWD_NAMES: [(u32, &str); 10] = [
    (1, "adds.1"),
    (2, "adds.2"),
    (4, "adds.4"),
    (8, "adds.8"),
    (16, "adds.16"),
    (32, "adds.32"),
    (64, "adds.64"),
    (128, "adds.128"),
    (256, "adds.256"),
    (512, "adds.512"),
];

/// Measures how long an addition takes while the CPUs add to the same number without pause: the time divided by the
/// additions of all.
pub(super) fn crowd(
    cpus: &[u32],
    name: &'static str,
    time: Duration,
    samples: &mut Samples,
) -> Result<(), CalibrateError> {
    let number = Alone(AtomicU64::new(0));
    let end = AtomicBool::new(false);
    let added = std::thread::scope(|scope| {
        let adds = |cpu| {
            let (number, end) = (&number.0, &end);
            std::thread::Builder::new().spawn_scoped(scope, move || {
                pin::pin_to(cpu)?;
                while !end.load(Relaxed) {
                    for _ in 0..64 {
                        number.fetch_add(1, AcqRel);
                    }
                }
                Ok(())
            })
        };
        let threads: Vec<_> = cpus.iter().map(|&cpu| adds(cpu)).collect();
        // Every thread is at work after a quarter of the time.
        std::thread::sleep(time / 4);
        let (before, from) = (number.0.load(Relaxed), Native::now());
        std::thread::sleep(time - time / 4);
        let (after, until) = (number.0.load(Relaxed), Native::now());
        end.store(true, Relaxed);
        for thread in threads {
            pin::join(thread.map_err(CalibrateError::thread)?)?;
        }
        Ok::<f64, CalibrateError>((until - from) as f64 / (after - before) as f64)
    })?;
    samples.add(name, Some(added));
    Ok(())
}
