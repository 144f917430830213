//! What was measured: a few numbers for each field, of which the middle one counts.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// All numbers by the field that they are for.
#[derive(Debug, Default)]
pub(super) struct Samples(BTreeMap<&'static str, Vec<f64>>);

/// What the rounds say together.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Summary {
    pub(super) median: f64,
    /// The quarter below and the quarter above are outside of these.
    pub(super) low: f64,
    pub(super) high: f64,
    pub(super) count: usize,
}

impl Samples {
    /// Adds a number, unless there is none.
    pub(super) fn add(&mut self, field: &'static str, value: Option<f64>) {
        if let Some(value) = value.filter(|value| value.is_finite()) {
            self.0.entry(field).or_default().push(value);
        }
    }

    /// What was measured of a field; `None` if nothing was.
    pub(super) fn get(&self, field: &str) -> Option<Summary> {
        let mut sorted = self.0.get(field)?.clone();
        sorted.sort_by(f64::total_cmp);
        let (median, count) = (middle(&sorted)?, sorted.len());
        Some(Summary { median, low: sorted[count / 4], high: sorted[count - 1 - count / 4], count })
    }
}

/// The middle one of sorted numbers.
fn middle(sorted: &[f64]) -> Option<f64> {
    sorted.get(sorted.len() / 2).copied()
}

/// Does a chunk of so many operations again and again for `time`, at least once, and returns the nanoseconds of one
/// operation in the middle chunk: one during which the CPU was taken away does not count for more than any other.
pub(super) fn middle_of(time: Duration, operations: u32, mut chunk: impl FnMut()) -> Option<f64> {
    let start = Instant::now();
    let mut took = Vec::new();
    while took.is_empty() || start.elapsed() < time {
        let begin = Instant::now();
        chunk();
        took.push(begin.elapsed().as_nanos() as f64 / f64::from(operations));
    }
    middle_one(took)
}

/// The middle one of numbers in any order.
pub(super) fn middle_one(mut numbers: Vec<f64>) -> Option<f64> {
    numbers.sort_by(f64::total_cmp);
    middle(&numbers)
}
