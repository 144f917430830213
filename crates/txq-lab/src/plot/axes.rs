//! The axes of curves: steps with places and names on the x axis; values on the y axis, by their logarithms where they span
//! much.

use std::ops::Range;

use plotters::coord::ranged1d::{DefaultFormatting, KeyPointHint, Ranged};
use plotters::coord::types::RangedCoordf64;

/// The x axis: each step's place, and the places that have names below the axis.
pub(super) struct Steps {
    pub(super) places: Vec<f64>,
    pub(super) named: Vec<f64>,
}

impl Steps {
    /// Creates the axis of steps, `width` pixels wide. Of names that would overlap, the first one is kept, and always the
    /// last.
    pub(super) fn new(steps: &[(String, f64)], width: u32, letter: u32) -> Self {
        let places: Vec<f64> = steps.iter().map(|(_, place)| *place).collect();
        let mut axis = Self { places, named: Vec::new() };
        let Range { start, end } = axis.range();
        let half = |name: &str| f64::from(name.chars().count() as u32 * letter + letter) / 2.0;
        let at = |place: f64| (place - start) / (end - start) * f64::from(width);
        let free = |(name, place): &(String, f64), (next, beside): &(String, f64)| {
            at(*beside) - half(next) >= at(*place) + half(name)
        };
        let Some((last, others)) = steps.split_last() else { return axis };
        let mut kept: Vec<&(String, f64)> = Vec::new();
        for step in others {
            if kept.last().is_none_or(|before| free(before, step)) && free(step, last) {
                kept.push(step);
            }
        }
        kept.push(last);
        axis.named = kept.into_iter().map(|(_, place)| *place).collect();
        axis
    }
}

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
            false => self.named.clone(),
        }
    }

    fn range(&self) -> Range<f64> {
        let low = self.places.iter().copied().fold(f64::MAX, f64::min);
        let high = self.places.iter().copied().fold(f64::MIN, f64::max);
        if low < high { low..high } else { 0.0..1.0 }
    }
}

/// Values that span at least this factor are drawn by their logarithms, if the steps double.
const SPAN: f64 = 12.0;

/// The y axis.
pub(super) enum Heights {
    /// From zero, or the least value below it.
    Linear(RangedCoordf64),
    /// By the logarithm.
    Log(Range<f64>),
}

impl Heights {
    /// Creates the axis of these values. `log` permits logarithms.
    pub(super) fn new(values: impl Iterator<Item = f64> + Clone, log: bool) -> Self {
        let (low, high) =
            values.clone().fold((f64::MAX, f64::MIN), |(low, high), y| (low.min(y), high.max(y)));
        if log && low > 0.0 && high / low >= SPAN {
            return Self::Log(low / 1.15..high * 1.15);
        }
        let (low, high) = (low.min(0.0), high.max(0.0));
        Self::Linear((low..if low < high { high + (high - low) * 0.05 } else { low + 1.0 }).into())
    }

    /// Returns whether values are drawn by their logarithms.
    pub(super) fn is_log(&self) -> bool {
        matches!(self, Self::Log(_))
    }
}

impl Ranged for Heights {
    type FormatOption = DefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        match self {
            Self::Linear(linear) => linear.map(value, limit),
            Self::Log(range) => {
                let part = (value / range.start).ln() / (range.end / range.start).ln();
                limit.0 + (part * f64::from(limit.1 - limit.0)).round() as i32
            }
        }
    }

    fn key_points<Hint: KeyPointHint>(&self, hint: Hint) -> Vec<f64> {
        match self {
            Self::Linear(linear) => linear.key_points(hint),
            Self::Log(_) if hint.weight().allow_light_points() => Vec::new(),
            Self::Log(Range { start, end }) => {
                let powers = start.log2().ceil() as i32..=end.log2().floor() as i32;
                let every = (powers.clone().count() / 10 + 1) as i32;
                powers.filter(|power| power % every == 0).map(|power| 2_f64.powi(power)).collect()
            }
        }
    }

    fn range(&self) -> Range<f64> {
        match self {
            Self::Linear(linear) => linear.range(),
            Self::Log(range) => range.clone(),
        }
    }
}

/// Returns whether steps are numbers that grow by factors.
pub fn are_doubling(steps: &[String]) -> bool {
    let numbers: Vec<f64> = steps.iter().filter_map(|step| step.parse().ok()).collect();
    if numbers.len() < steps.len() || numbers.iter().any(|n| !n.is_finite()) {
        return false;
    }
    // Steps grow by factors if each is longer than the one before. The last one does not count: it may be cut off by a
    // bound.
    let sure = if numbers.len() > 3 { &numbers[..numbers.len() - 1] } else { &numbers[..] };
    let longer = sure.windows(3).all(|three| three[2] - three[1] > 1.2 * (three[1] - three[0]));
    sure.len() > 2 && longer && numbers[0] > 0.0 && numbers.is_sorted()
}

/// Returns the place of each step: by its logarithm where steps grow by factors, by its value where they are other numbers,
/// and at equal distances where one is no number.
pub fn places(steps: &[String]) -> Vec<f64> {
    let numbers: Vec<f64> = steps.iter().filter_map(|step| step.parse().ok()).collect();
    if numbers.len() < steps.len() || numbers.iter().any(|n| !n.is_finite()) {
        return (0..steps.len()).map(|step| step as f64).collect();
    }
    match are_doubling(steps) {
        true => numbers.iter().map(|n| n.log2()).collect(),
        false => numbers,
    }
}

#[cfg(test)]
mod tests {
    use plotters::coord::ranged1d::BoldPoints;

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

    #[test]
    fn names_that_would_overlap_are_left_out() {
        let steps = |names: &[&str]| {
            let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            let places = places(&names);
            names.into_iter().zip(places).collect::<Vec<_>>()
        };
        let named = |names: &[&str], width| Steps::new(&steps(names), width, 6).named;
        assert_eq!(named(&["10", "20", "30"], 300), [10.0, 20.0, 30.0]);
        // Three letters and a gap take 24 pixels: 99 and 100 are 3 apart, and 100 is the last.
        assert_eq!(named(&["0", "50", "99", "100"], 300), [0.0, 50.0, 100.0]);
        assert!(named(&[], 300).is_empty());
    }

    #[test]
    fn values_that_span_much_are_on_powers_of_two() {
        let points = |values: &[f64], log| {
            let heights = Heights::new(values.iter().copied(), log);
            (heights.is_log(), heights.key_points(BoldPoints(20)))
        };
        assert_eq!(points(&[0.6, 3.0, 55.0], true), (true, vec![1.0, 2.0, 4.0, 8.0, 16.0, 32.0]));
        assert!(!points(&[0.6, 3.0, 55.0], false).0);
        assert!(!points(&[0.0, 55.0], true).0 && !points(&[10.0, 55.0], true).0);
        let log = Heights::new([1.0, 64.0].into_iter(), true);
        assert!(log.map(&8.0, (0, 1000)).abs_diff(500) <= 1, "{}", log.map(&8.0, (0, 1000)));
    }
}
