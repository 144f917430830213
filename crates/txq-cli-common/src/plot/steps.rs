//! The x axis of curves: steps, each at a place and with a name.

use std::ops::Range;

use plotters::coord::ranged1d::{DefaultFormatting, KeyPointHint, Ranged};

/// The x axis, with each step's place.
pub(super) struct Steps(pub(super) Vec<f64>);

/// Steps with names below the axis, at most.
const NAMED: usize = 24;

impl Ranged for Steps {
    type FormatOption = DefaultFormatting;
    type ValueType = f64;

    fn map(&self, &value: &f64, limit: (i32, i32)) -> i32 {
        let Range { start, end } = self.range();
        limit.0 + ((value - start) / (end - start) * f64::from(limit.1 - limit.0)).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, hint: Hint) -> Vec<f64> {
        match hint.weight().allow_light_points() {
            true => Vec::new(),
            false => self.0.iter().copied().step_by(self.0.len().div_ceil(NAMED).max(1)).collect(),
        }
    }

    fn range(&self) -> Range<f64> {
        let low = self.0.iter().copied().fold(f64::MAX, f64::min);
        let high = self.0.iter().copied().fold(f64::MIN, f64::max);
        if low < high { low..high } else { 0.0..1.0 }
    }
}

/// Returns the place of each step: by its logarithm where steps grow by factors, by its value where they are other numbers,
/// and at equal distances where one is no number.
pub fn places(steps: &[String]) -> Vec<f64> {
    let numbers: Vec<f64> = steps.iter().filter_map(|step| step.parse().ok()).collect();
    let count = || (0..steps.len()).map(|step| step as f64).collect();
    if numbers.len() < steps.len() || numbers.iter().any(|n| !n.is_finite()) {
        return count();
    }
    // Steps grow by factors if each is longer than the one before. The last one does not count: it may be cut off by a
    // bound.
    let sure = if numbers.len() > 3 { &numbers[..numbers.len() - 1] } else { &numbers[..] };
    let longer = sure.windows(3).all(|three| three[2] - three[1] > 1.2 * (three[1] - three[0]));
    let grow = sure.len() > 2 && longer && numbers[0] > 0.0;
    match grow && numbers.is_sorted() {
        true => numbers.iter().map(|n| n.log2()).collect(),
        false => numbers,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(steps: &str) -> Vec<f64> {
        places(&steps.split(' ').map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn factors_differences_and_names_have_their_places() {
        assert_eq!(of("1 2 4 8 12"), [0.0, 1.0, 2.0, 3.0, 12_f64.log2()]);
        assert_eq!(of("10 20 30 40"), [10.0, 20.0, 30.0, 40.0]);
        assert_eq!(of("near far hash"), [0.0, 1.0, 2.0]);
        assert_eq!(of("1 4 16"), [0.0, 2.0, 4.0]);
        assert_eq!(of("0 1 2 4"), [0.0, 1.0, 2.0, 4.0]);
        assert_eq!(of("5"), [5.0]);
    }
}
