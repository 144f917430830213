//! Compares published with simulated figures.

pub mod errors;

use std::collections::BTreeMap;

use serde::Serialize;

use crate::sim::scenario::{Published, Rule, Scenario, middle};

/// The figures of one point, by their names.
pub type Figures = BTreeMap<String, f64>;

/// Maximum relative deviation of a simulated throughput from the published one.
const MAX_DEVIATION: f64 = 0.25;

/// A published figure and the simulated one.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Row {
    /// The scenario's name.
    pub scenario: String,
    /// The variant's name.
    pub variant: String,
    /// The figure's name; for a ratio, with the variant that it is divided by.
    pub figure: String,
    /// The published value, the lower end of a published range; `None` where only its direction was published.
    pub published: Option<f64>,
    /// The upper end of a published range.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub published_to: Option<f64>,
    /// The simulated value; `None` if the simulation has no such figure.
    pub simulated: Option<f64>,
    /// `simulated / published - 1`, from the nearest end of a range, 0 within it.
    pub deviation: Option<f64>,
    /// The rule's name.
    pub rule: &'static str,
    /// Whether a field was fitted to this figure, which then is no prediction.
    pub fitted: bool,
    /// Whether the rule holds.
    pub holds: bool,
}

impl Row {
    /// Returns whether the simulated figure is within 25 % of the published one, or holds where none was published but its
    /// direction.
    pub fn is_near(&self) -> bool {
        match self.published {
            None => self.holds,
            Some(0.0) => self.simulated == Some(0.0),
            Some(_) => self.deviation.is_some_and(|deviation| deviation.abs() <= MAX_DEVIATION),
        }
    }

    /// Returns the middle of the published range.
    pub fn published_middle(&self) -> Option<f64> {
        middle(self.published, self.published_to)
    }
}

/// Returns one row for each published figure of a scenario, given the figures of each of its variants.
pub fn rows(scenario: &Scenario, points: &BTreeMap<String, Figures>) -> Vec<Row> {
    let fitted = |p: &Published| {
        let to = |fit: &crate::sim::scenario::Fit| {
            fit.variant == p.variant && fit.figure == p.figure && p.over.is_none()
        };
        scenario.fit.as_ref().is_some_and(to)
    };
    let value = |variant: &str, figure: &str| points.get(variant).and_then(|f| f.get(figure)).copied();
    let simulated = |p: &Published| {
        let own = value(&p.variant, &p.figure)?;
        match &p.over {
            None => Some(own),
            Some(other) => value(other, &p.figure).filter(|&other| other > 0.0).map(|other| own / other),
        }
    };
    let row = |p: &Published| {
        let simulated = simulated(p);
        let published = simulated.and_then(|simulated| p.nearest(simulated));
        let first = scenario.published.iter().find(|q| q.figure == p.figure && q.over == p.over);
        let base = first.and_then(|q| Some((q.middle()?, value(&q.variant, &q.figure)?)));
        let figure = match &p.over {
            None => p.figure.clone(),
            Some(other) => format!("{} over \"{other}\"", p.figure),
        };
        Row {
            scenario: scenario.name.clone(),
            variant: p.variant.clone(),
            figure,
            published: p.value,
            published_to: p.to,
            simulated,
            deviation: published.zip(simulated).filter(|(p, _)| *p != 0.0).map(|(p, s)| s / p - 1.0),
            rule: text(p.rule),
            fitted: fitted(p),
            holds: simulated.is_some_and(|s| holds(p.rule, published.unwrap_or(1.0), s, base)),
        }
    };
    scenario.published.iter().map(row).collect()
}

/// Returns a rule's name in tables.
fn text(rule: Rule) -> &'static str {
    match rule {
        Rule::Within25 => "25 %",
        Rule::Order => "order",
        Rule::Direction => "direction",
        Rule::Rises => "> 1",
        Rule::Falls => "< 1",
        Rule::AtLeast => "at least",
        Rule::Bucket => "bucket",
    }
}

/// Returns whether `simulated` is as near to `published` as `rule` requires. `base` is the published and the simulated value
/// from which [`Rule::Direction`] measures.
fn holds(rule: Rule, published: f64, simulated: f64, base: Option<(f64, f64)>) -> bool {
    match rule {
        Rule::Within25 => (simulated / published - 1.0).abs() <= MAX_DEVIATION,
        Rule::Order => simulated > 0.0 && (simulated / published).log10().abs() <= 0.5,
        Rule::Direction => base.is_some_and(|(p, s)| (published - p) * (simulated - s) > 0.0),
        Rule::Rises => simulated > 1.0,
        Rule::Falls => simulated < 1.0,
        Rule::AtLeast => simulated >= published,
        Rule::Bucket => {
            let bucket = |value: f64| value.max(1.0).log2().floor();
            (bucket(simulated) - bucket(published)).abs() <= 1.0
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_rule_lets_pass_what_it_says_and_no_more() {
        let cases = [
            (Rule::Within25, 100.0, [75.0, 125.0], [74.9, 125.1]),
            (Rule::Order, 100.0, [32.0, 316.0], [31.0, 317.0]),
            (Rule::AtLeast, 3.0, [3.0, 9.0], [2.9, 0.0]),
            (Rule::Rises, 1.0, [1.01, 2.0], [1.0, 0.5]),
            (Rule::Falls, 1.0, [0.99, 0.1], [1.0, 2.0]),
            (Rule::Bucket, 256.0, [128.0, 1023.0], [127.0, 1024.0]),
        ];
        for (rule, published, right, wrong) in cases {
            right.iter().for_each(|&s| assert!(holds(rule, published, s, None), "{rule:?} {s}"));
            wrong.iter().for_each(|&s| assert!(!holds(rule, published, s, None), "{rule:?} {s}"));
        }
    }

    #[test]
    fn a_direction_is_told_from_the_variant_before() {
        let (up, down) = (Some((16.0, 20.0)), Some((52.0, 70.0)));
        assert!(holds(Rule::Direction, 29.0, 21.0, up) && !holds(Rule::Direction, 29.0, 19.0, up));
        assert!(holds(Rule::Direction, 23.0, 60.0, down) && !holds(Rule::Direction, 23.0, 71.0, down));
        assert!(!holds(Rule::Direction, 23.0, 60.0, None));
    }

    #[test]
    fn a_row_tells_what_was_fitted_and_what_is_missing() {
        let p0 = Scenario::open("p0-pinned").unwrap();
        let figures = |mpps: f64| Figures::from([("mpps".to_owned(), mpps)]);
        let points = [("before".to_owned(), figures(41.0)), ("after".to_owned(), figures(60.0))].into();
        let rows = rows(&p0, &points);
        let find = |variant: &str, figure: &str| {
            rows.iter().find(|r| r.variant == variant && r.figure == figure).unwrap()
        };
        assert!(find("before", "mpps").fitted && find("before", "mpps").holds);
        let after = find("after", "mpps");
        assert!(!after.fitted && after.holds && (after.deviation.unwrap() - 0.0526).abs() < 1e-3);
        let missing = find("after", "retake_contended");
        assert!(missing.simulated.is_none() && !missing.holds && !missing.is_near());
    }

    #[test]
    fn a_range_counts_from_its_nearest_end() {
        let p0 = Scenario::open("p0-unpinned").unwrap();
        let near = |switches: f64| {
            let figures = Figures::from([("switches_per_s".to_owned(), switches)]);
            let rows = rows(&p0, &[("before".to_owned(), figures)].into());
            let row = rows.iter().find(|row| row.figure == "switches_per_s").unwrap();
            assert_eq!((row.published, row.published_to), (Some(10e3), Some(60e3)));
            (row.is_near(), row.holds, (row.deviation.unwrap() * 1e3).round())
        };
        assert_eq!(near(7.4e3), (false, true, -260.0));
        assert_eq!(near(7.6e3), (true, true, -240.0));
        assert_eq!([10e3, 16.8e3, 60e3].map(near), [(true, true, 0.0); 3]);
        assert_eq!(near(75e3), (true, true, 250.0));
        assert_eq!(near(76e3), (false, true, 267.0));
        assert!(!near(3.1e3).1);
        assert!(!near(190e3).1);
    }

    #[test]
    fn near_is_within_a_quarter_whatever_the_rule() {
        let p0 = Scenario::open("p0-pinned").unwrap();
        let row = |published: Option<f64>, simulated: f64, rule: Rule| Row {
            published_to: None,
            simulated: Some(simulated),
            published,
            deviation: published.map(|published| simulated / published - 1.0),
            holds: holds(rule, published.unwrap_or(1.0), simulated, None),
            ..rows(&p0, &BTreeMap::new()).swap_remove(0)
        };
        assert!(
            row(Some(100.0), 125.0, Rule::Order).is_near() && !row(Some(100.0), 126.0, Rule::Order).is_near()
        );
        assert!(
            row(Some(0.0), 0.0, Rule::Direction).is_near() && !row(Some(0.0), 1.0, Rule::Order).is_near()
        );
        assert!(row(None, 1.1, Rule::Rises).is_near() && !row(None, 0.9, Rule::Rises).is_near());
        assert!(!row(Some(256.0), 512.0, Rule::Bucket).is_near());
    }
}
