//! A figure over several seeds.

use crate::sim::compare::Figures;

/// The median of a figure, and its least and greatest value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Spread {
    pub(super) low: f64,
    pub(super) median: f64,
    pub(super) high: f64,
}

impl Spread {
    /// Returns the spread of values; `None` without any.
    pub(super) fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        let middle = values.len() / 2;
        let median = match values.len() % 2 {
            1 => values[middle],
            _ => f64::midpoint(*values.get(middle.wrapping_sub(1))?, values[middle]),
        };
        Some(Self { low: values[0], median, high: *values.last()? })
    }

    /// Returns the spread of a figure over runs that have it.
    pub(super) fn figure<'f>(runs: impl IntoIterator<Item = &'f Figures>, name: &str) -> Option<Self> {
        Self::of(runs.into_iter().filter_map(|figures| figures.get(name).copied()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_between_the_least_and_the_greatest() {
        let of = |values: &[f64]| Spread::of(values.iter().copied());
        assert_eq!(of(&[]), None);
        assert_eq!(of(&[3.0]), Some(Spread { low: 3.0, median: 3.0, high: 3.0 }));
        assert_eq!(of(&[9.0, 1.0]), Some(Spread { low: 1.0, median: 5.0, high: 9.0 }));
        assert_eq!(of(&[9.0, 1.0, 2.0]), Some(Spread { low: 1.0, median: 2.0, high: 9.0 }));
    }
}
