//! The ways to send: what each was measured at, their order, and the advice which to take.

use std::cmp::Ordering;

use crate::sim::compare::Figures;
use crate::sim::scenario::Change;
use toml::Value;
use txq::Discipline;
use txq_cli::common::table::number;

use crate::commands::spread::Spread;

/// The margin that counts as enough: simulated throughput may deviate this far from the published one.
pub(super) const ENOUGH_MARGIN: f64 = 0.25;
/// The steering rules.
const STEERING: [&str; 3] = ["near", "far", "hash"];

/// How many txqs there are, and how senders reach one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Choice {
    pub(super) txqs: u16,
    pub(super) discipline: Discipline,
    /// `None` where there is one txq.
    pub(super) steering: Option<&'static str>,
}

impl Choice {
    /// Returns all choices with these numbers of txqs: all with one steering rule first.
    pub(super) fn all(txqs: &[u16]) -> Vec<Self> {
        let one = |steering: Option<&'static str>, txqs: u16| {
            Discipline::ALL.iter().map(move |&discipline| Self { txqs, discipline, steering })
        };
        let alone = txqs.iter().filter(|n| **n == 1).flat_map(|&n| one(None, n));
        let many = |rule| txqs.iter().filter(|n| **n > 1).flat_map(move |&n| one(Some(rule), n));
        alone.chain(STEERING.into_iter().flat_map(many)).collect()
    }

    /// Returns the fields of a scenario that make the choice.
    pub(super) fn changes(&self, qdisc: &str) -> Vec<Change> {
        let change = |path: &str, value: Value| Change { path: path.to_owned(), value };
        let text = |text: &str| Value::String(text.to_owned());
        let mut changes = vec![
            change("device.txqs", Value::Integer(self.txqs.into())),
            change("path.discipline", text(self.discipline.name())),
        ];
        match self.steering {
            Some(rule) => changes.push(change("steering", text(rule))),
            None => changes.push(change("path.qdisc", text(qdisc))),
        }
        changes
    }

    /// Returns the choice in words.
    pub(super) fn words(&self) -> String {
        let txqs = if self.txqs == 1 { "1 txq".into() } else { format!("{} txqs", self.txqs) };
        let steering = match self.steering {
            Some("near") => " and XPS that has neighbouring CPUs share one",
            Some("far") => " and XPS that gives CPU n txq n modulo txqs",
            Some(_) => ", chosen by the flows' hash",
            None => "",
        };
        format!("{txqs} with {}{steering}", self.discipline)
    }
}

/// A way to reach a rate, and its runs; it may miss the rate.
#[derive(Clone, Debug)]
pub(super) struct Way {
    pub(super) choice: Choice,
    /// The short run of every way, in which all send as fast as they can.
    pub(super) screened: Figures,
    /// Runs of some ways, one for each seed, in which all send as fast as they can.
    pub(super) runs: Vec<Figures>,
    /// Runs at the requested rate, one for each seed.
    pub(super) at_rate: Vec<Figures>,
}

impl Way {
    pub(super) fn new(choice: Choice, screened: Figures) -> Self {
        Self { choice, screened, runs: Vec::new(), at_rate: Vec::new() }
    }

    /// Returns whether the way was run for more than the screening.
    pub(super) fn is_measured(&self) -> bool {
        !self.runs.is_empty()
    }

    /// Returns the most that the way sends, in Mpps.
    pub(super) fn most(&self) -> Spread {
        let of = |runs: &[Figures]| Spread::figure(runs, "mpps");
        let none = Spread { low: 0.0, median: 0.0, high: 0.0 };
        of(&self.runs).or_else(|| of(std::slice::from_ref(&self.screened))).unwrap_or(none)
    }

    /// Returns what the least of the runs has to spare, as a part of `rate`.
    pub(super) fn margin(&self, rate: f64) -> f64 {
        self.most().low / rate - 1.0
    }

    /// Returns whether every seed reaches `rate`.
    pub(super) fn meets(&self, rate: f64) -> bool {
        self.is_measured() && self.margin(rate) >= 0.0
    }

    /// Returns a figure's median: as fast as the way can, or, if it was run so, at the requested rate.
    pub(super) fn figure(&self, name: &str) -> Option<f64> {
        let fast =
            if self.is_measured() { self.runs.as_slice() } else { std::slice::from_ref(&self.screened) };
        Spread::figure(fast, name).map(|spread| spread.median)
    }

    /// Returns the median of a figure at the requested rate.
    pub(super) fn at_rate(&self, name: &str) -> Option<f64> {
        Spread::figure(&self.at_rate, name).map(|spread| spread.median)
    }

    /// Orders ways: those that meet the rate first, by txqs and then by CPU time; then the rest, the fastest first.
    pub(super) fn by_cost(&self, other: &Self, rate: f64) -> Ordering {
        let ns = |way: &Self| {
            let name = "cpu_ns_per_packet";
            way.at_rate(name).or_else(|| way.figure(name)).unwrap_or(f64::MAX)
        };
        let cost = || self.choice.txqs.cmp(&other.choice.txqs).then(ns(self).total_cmp(&ns(other)));
        match (self.meets(rate), other.meets(rate)) {
            (true, true) => cost(),
            (false, false) => {
                let measured = other.is_measured().cmp(&self.is_measured());
                measured.then(other.most().median.total_cmp(&self.most().median)).then_with(cost)
            }
            (true, false) => Ordering::Less,
            (false, true) => Ordering::Greater,
        }
    }
}

/// Returns a spread as text: the median alone if it is of one run.
pub(super) fn told(spread: Spread, runs: usize) -> String {
    match runs {
        0 | 1 => format!("{} Mpps", number(spread.median)),
        _ => {
            let [low, median, high] = [spread.low, spread.median, spread.high].map(number);
            format!("{median} Mpps ({low} to {high})")
        }
    }
}

/// Returns the advice, in a sentence. `cause` says why nothing reaches the rate.
pub(super) fn advice(ways: &[Way], rate: f64, cause: Option<&str>) -> String {
    let percent = |way: &Way| format!("{:.0} %", way.margin(rate).abs() * 100.0);
    let spread = |way: &Way| told(way.most(), way.runs.len());
    match ways.first() {
        Some(way) if !way.is_measured() && way.margin(rate) >= 0.0 => format!(
            "No way was run with its seeds within the time. In its short run {} sends {}, {} to spare. Allow more time with --within.",
            way.choice.words(),
            spread(way),
            percent(way)
        ),
        Some(way) if !way.meets(rate) => {
            let best = format!("{}, {} too few, by {}", spread(way), percent(way), way.choice.words());
            let cause = cause.map_or(String::new(), |cause| format!(" {cause}"));
            format!("Nothing reaches {} Mpps; the nearest is {best}.{cause}", number(rate))
        }
        Some(way) => {
            let mut text = format!("Use {}: {}, {} to spare", way.choice.words(), spread(way), percent(way));
            let safe = ways.iter().find(|way| way.meets(rate) && way.margin(rate) >= ENOUGH_MARGIN);
            match safe.filter(|safe| safe.choice != way.choice) {
                Some(safe) => text += &format!("; {} has {}", safe.choice.words(), percent(safe)),
                None if safe.is_none() => text += ", less than a simulation may be wrong by",
                None => {}
            }
            text + "."
        }
        None => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(mpps: f64, cpu_ns: f64) -> Figures {
        [("mpps".to_owned(), mpps), ("cpu_ns_per_packet".to_owned(), cpu_ns)].into()
    }

    fn way(txqs: u16, discipline: Discipline, mpps: &[f64], cpu_ns: f64) -> Way {
        let steering = (txqs > 1).then_some("near");
        let mut way = Way::new(Choice { txqs, discipline, steering }, figures(mpps[0], cpu_ns));
        way.runs = mpps.iter().map(|mpps| figures(*mpps, cpu_ns)).collect();
        way
    }

    #[test]
    fn the_cheapest_that_meets_it_with_every_seed_is_first() {
        let mut screened = way(1, Discipline::Combine, &[25.0], 100.0);
        screened.runs.clear();
        let mut ways = vec![
            screened,
            way(8, Discipline::Llist, &[30.0, 31.0, 29.0], 500.0),
            way(1, Discipline::Spinlock, &[3.0], 5000.0),
            way(2, Discipline::Combine, &[21.0, 24.0], 700.0),
            way(2, Discipline::Llist, &[22.0, 22.4], 600.0),
            way(4, Discipline::Spinlock, &[19.0, 27.0, 26.0], 900.0),
        ];
        ways.sort_by(|a, b| a.by_cost(b, 20.0));
        let order: Vec<_> = ways.iter().map(|way| (way.choice.txqs, way.choice.discipline.name())).collect();
        // The median of the last but two is beyond the rate, but one seed is not; the last was only screened.
        let expected =
            [(2, "llist"), (2, "combine"), (8, "llist"), (4, "spinlock"), (1, "spinlock"), (1, "combine")];
        assert_eq!(order, expected);
        assert_eq!(
            advice(&ways, 20.0, None),
            "Use 2 txqs with llist and XPS that has neighbouring CPUs share one: 22.2 Mpps (22.0 to 22.4), 10 % to spare; 8 \
             txqs with llist and XPS that has neighbouring CPUs share one has 45 %."
        );
    }

    #[test]
    fn the_cause_stands_behind_the_nearest() {
        let text = advice(&[way(1, Discipline::Combine, &[10.0], 700.0)], 20.0, Some("The link is full."));
        assert_eq!(
            text,
            "Nothing reaches 20.0 Mpps; the nearest is 10.0 Mpps, 50 % too few, by 1 txq with combine. The link is full."
        );
    }

    #[test]
    fn a_way_that_was_only_screened_is_no_miss() {
        let mut screened = way(1, Discipline::Combine, &[25.0], 100.0);
        screened.runs.clear();
        assert_eq!(
            advice(&[screened], 20.0, None),
            "No way was run with its seeds within the time. In its short run 1 txq with combine sends 25.0 Mpps, 25 % to spare. \
             Allow more time with --within."
        );
    }

    #[test]
    fn one_txq_needs_no_steering() {
        let all = Choice::all(&[1, 2, 4]);
        assert_eq!(all.len(), Discipline::ALL.len() * (1 + 2 * STEERING.len()));
        assert!(all.iter().all(|choice| choice.steering.is_none() == (choice.txqs == 1)));
        let paths = |choice: &Choice| choice.changes("fq").into_iter().map(|c| c.path).collect::<Vec<_>>();
        assert_eq!(paths(&all[0]), ["device.txqs", "path.discipline", "path.qdisc"]);
        assert_eq!(paths(&all[9]), ["device.txqs", "path.discipline", "steering"]);
    }
}
