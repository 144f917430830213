//! Errors of predictions, as papers on architecture state them: mean and median of the absolute errors, and how many signs and
//! rankings are right.

use serde::Serialize;

use super::{MAX_DEVIATION, Row};

/// The kind of a figure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Packets, transactions or requests a second.
    Rate,
    /// A part of a CPU's time.
    Share,
    /// Number and time of waits for locks.
    Wait,
}

/// Figures that are rates.
const RATE_FIGURES: [&str; 4] = ["mpps", "mbps", "ktps", "kreq"];
/// Points whose published values are nearer to one another than this have no order: measurements repeat no better.
const TIE: f64 = 0.02;

impl Kind {
    /// All kinds, in the order in which they are printed.
    pub const ALL: [Self; 3] = [Self::Rate, Self::Share, Self::Wait];

    /// Returns the kind's name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Rate => "rates",
            Self::Share => "CPU shares",
            Self::Wait => "waits",
        }
    }

    /// Returns the kind of a figure that is no ratio; `None` for other figures.
    fn of(figure: &str) -> Option<Self> {
        match figure {
            _ if RATE_FIGURES.contains(&figure) => Some(Self::Rate),
            _ if figure.contains("_wait_") || figure.ends_with("_contended") => Some(Self::Wait),
            _ if figure.ends_with("_percent") => Some(Self::Share),
            _ => None,
        }
    }
}

/// The errors of predictions of one kind.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Errors {
    /// Number of predictions.
    pub predictions: usize,
    /// Mean of the absolute errors, as parts of the published values.
    pub mean: f64,
    /// Their median.
    pub median: f64,
    /// How many are at most a quarter.
    pub near: usize,
    /// How many simulated values are within a factor of two of the published ones.
    pub within_two: usize,
}

impl Errors {
    /// Returns the errors of deviations, simulated over published minus one; `None` without any.
    pub fn of(deviations: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut all: Vec<f64> = deviations.into_iter().collect();
        let within_two = all.iter().filter(|deviation| (0.5..=2.0).contains(&(**deviation + 1.0))).count();
        all.iter_mut().for_each(|deviation| *deviation = deviation.abs());
        all.sort_by(f64::total_cmp);
        let middle = all.len() / 2;
        let median = match all.len() {
            0 => return None,
            n if n % 2 == 1 => all[middle],
            _ => f64::midpoint(all[middle - 1], all[middle]),
        };
        Some(Self {
            predictions: all.len(),
            mean: all.iter().sum::<f64>() / all.len() as f64,
            median,
            near: all.iter().filter(|error| **error <= MAX_DEVIATION).count(),
            within_two,
        })
    }

    /// Returns the errors of the predictions of a kind among rows.
    pub fn among(rows: &[Row], kind: Kind) -> Option<Self> {
        let of = rows.iter().filter(|row| !row.fitted && Kind::of(&row.figure) == Some(kind));
        Self::of(of.filter_map(|row| row.deviation))
    }
}

/// Returns how many pairs of a scenario's points are in the published order by a rate, and how many there are; and the same of
/// the ratios, which are above one or below.
pub fn signs(rows: &[Row]) -> (usize, usize) {
    let (mut right, mut all) = (0, 0);
    let mut count = |published: f64, simulated: f64| {
        all += 1;
        right += usize::from((published > 0.0) == (simulated > 0.0));
    };
    let rates: Vec<_> = rows.iter().filter(|row| Kind::of(&row.figure) == Some(Kind::Rate)).collect();
    for (at, a) in rates.iter().enumerate() {
        let others = rates[at + 1..].iter().filter(|b| (&b.scenario, &b.figure) == (&a.scenario, &a.figure));
        for b in others {
            if let (Some(pa), Some(pb), Some(sa), Some(sb)) =
                (a.published, b.published, a.simulated, b.simulated)
                && (pa - pb).abs() > TIE * pa.max(pb)
            {
                count(pa - pb, sa - sb);
            }
        }
    }
    for row in rows {
        let Some(simulated) = row.simulated.filter(|_| is_ratio_of_rates(&row.figure)) else { continue };
        match (row.rule, row.published) {
            ("> 1", _) => count(1.0, simulated - 1.0),
            ("< 1", _) => count(-1.0, simulated - 1.0),
            (_, Some(published)) if (published - 1.0).abs() > TIE => count(published - 1.0, simulated - 1.0),
            _ => {}
        }
    }
    (right, all)
}

/// Returns whether a figure is a rate divided by another point's.
fn is_ratio_of_rates(figure: &str) -> bool {
    figure.split_once(" over ").is_some_and(|(figure, _)| RATE_FIGURES.contains(&figure))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::compare::{Figures, rows};
    use crate::sim::scenario::Scenario;

    #[test]
    fn errors_are_those_of_the_deviations() {
        let errors = Errors::of([0.1, -0.2, 1.5, -0.6]).unwrap();
        assert_eq!((errors.predictions, errors.near, errors.within_two), (4, 2, 2));
        assert!((errors.mean - 0.6).abs() < 1e-9 && (errors.median - 0.4).abs() < 1e-9, "{errors:?}");
        assert_eq!(Errors::of([0.5, -0.1, 0.0]).unwrap().median, 0.1);
        assert_eq!(Errors::of([]), None);
    }

    #[test]
    fn a_fitted_figure_is_no_prediction_and_yet_has_a_place_in_the_order() {
        let p0 = Scenario::open("p0-pinned").unwrap();
        let of = |before: f64, after: f64| {
            let figures = |mpps| Figures::from([("mpps".to_owned(), mpps)]);
            rows(&p0, &[("before".to_owned(), figures(before)), ("after".to_owned(), figures(after))].into())
        };
        let risen = of(41.0, 60.0);
        let rates = Errors::among(&risen, Kind::Rate).unwrap();
        assert_eq!((rates.predictions, rates.near), (1, 1));
        assert_eq!((signs(&risen), signs(&of(41.0, 40.0))), ((1, 1), (0, 1)));
    }

    #[test]
    fn each_figure_has_a_kind() {
        let kinds = ["mpps", "enqueue_wait_avg_us", "path_contended", "softirq_percent", "xmit_mode_ns"]
            .map(Kind::of);
        assert_eq!(kinds, [Some(Kind::Rate), Some(Kind::Wait), Some(Kind::Wait), Some(Kind::Share), None]);
    }
}
