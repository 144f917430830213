//! The samples: a few numbers for each field, of which the median counts.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// All samples, by field.
#[derive(Debug, Default)]
pub(super) struct Samples(BTreeMap<&'static str, Vec<f64>>);

/// The summary of a field's samples.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Summary {
    pub(super) median: f64,
    /// The lower and the upper quartile.
    pub(super) low: f64,
    pub(super) high: f64,
    pub(super) count: usize,
}

impl Samples {
    /// Adds a sample, if there is one.
    pub(super) fn add(&mut self, field: &'static str, value: Option<f64>) {
        if let Some(value) = value.filter(|value| value.is_finite()) {
            self.0.entry(field).or_default().push(value);
        }
    }

    /// Returns the summary of a field; `None` without samples.
    pub(super) fn get(&self, field: &str) -> Option<Summary> {
        let mut sorted = self.0.get(field)?.clone();
        sorted.sort_by(f64::total_cmp);
        let (median, count) = (middle(&sorted)?, sorted.len());
        Some(Summary { median, low: sorted[count / 4], high: sorted[count - 1 - count / 4], count })
    }
}

/// Returns the median of sorted numbers.
fn middle(sorted: &[f64]) -> Option<f64> {
    sorted.get(sorted.len() / 2).copied()
}

/// Runs `chunk`, which does `operations` operations, repeatedly for `time`, at least once. Returns the nanoseconds per
/// operation in the median chunk: a chunk during which the CPU was preempted counts no more than any other.
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

/// Returns the median of numbers in any order.
pub(super) fn middle_one(mut numbers: Vec<f64>) -> Option<f64> {
    numbers.sort_by(f64::total_cmp);
    middle(&numbers)
}
