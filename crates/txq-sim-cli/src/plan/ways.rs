//! The simulated ways, in order, and the advice which to take.

use std::cmp::Ordering;

use txq::Discipline;
use txq_cli_common::table::number;
use txq_sim::sweep::Line;

use crate::outcome::plain;

/// The margin that counts as enough: simulated throughput may deviate this far from the published one.
const ENOUGH: f64 = 0.25;

/// A way to reach a rate; it may miss the rate.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Way {
    pub(super) txqs: u32,
    pub(super) discipline: Discipline,
    /// `-` where there is one txq.
    pub(super) steering: String,
    pub(super) mpps: f64,
    /// `mpps` divided by the requested rate, less 1.
    pub(super) margin: f64,
    pub(super) cpu_ns: Option<f64>,
    pub(super) spinning: f64,
}

impl Way {
    /// Returns the way of a point; `None` if the point could not be run.
    pub(super) fn of(line: &Line, rate: f64) -> Option<Self> {
        let mpps = *line.figures.get("mpps")?;
        let text = |path: &str| line.at.get(path).map(plain);
        Some(Self {
            txqs: text("device.txqs")?.parse().ok()?,
            discipline: text("path.discipline")?.parse().ok()?,
            steering: text("steering").unwrap_or_else(|| "-".into()),
            mpps,
            margin: mpps / rate - 1.0,
            cpu_ns: line.figures.get("cpu_ns_per_packet").copied(),
            spinning: line.figures.get("spinning_percent").copied().unwrap_or_default(),
        })
    }

    pub(super) fn meets(&self) -> bool {
        self.margin >= 0.0
    }

    /// Orders ways: those that meet the rate first, by txqs and then by CPU time; then the rest, the fastest first.
    pub(super) fn by_cost(a: &Self, b: &Self) -> Ordering {
        let ns = |way: &Self| way.cpu_ns.unwrap_or(f64::MAX);
        let cost = |a: &Self, b: &Self| a.txqs.cmp(&b.txqs).then(ns(a).total_cmp(&ns(b)));
        match (a.meets(), b.meets()) {
            (true, true) => cost(a, b),
            (false, false) => b.mpps.total_cmp(&a.mpps).then(cost(a, b)),
            (true, false) => Ordering::Less,
            (false, true) => Ordering::Greater,
        }
    }

    fn told(&self) -> String {
        let txqs = if self.txqs == 1 { "1 txq".into() } else { format!("{} txqs", self.txqs) };
        let steering = match self.steering.as_str() {
            "near" => " and XPS that has neighbouring CPUs share one",
            "far" => " and XPS that gives CPU n txq n modulo txqs",
            "hash" => ", chosen by the flows' hash",
            _ => "",
        };
        format!("{txqs} with {}{steering}", self.discipline)
    }
}

/// Returns the advice, in a sentence. `most` is the rate that the senders' own work allows, if it takes any time.
pub(super) fn advice(ways: &[Way], rate: f64, most: Option<f64>) -> String {
    let percent = |way: &Way| format!("{:.0} %", way.margin.abs() * 100.0);
    let own = most.filter(|&most| most < rate).map_or(String::new(), |most| {
        format!(
            ": the senders' own work allows {} Mpps at most, whatever is between them and the wire",
            number(most)
        )
    });
    match ways.first() {
        Some(way) if !way.meets() => {
            let best = format!("{} Mpps, {} too few, by {}", number(way.mpps), percent(way), way.told());
            format!("Nothing reaches {} Mpps; the nearest is {best}{own}.", number(rate))
        }
        Some(way) => {
            let mut text =
                format!("Use {}: {} Mpps, {} to spare", way.told(), number(way.mpps), percent(way));
            let safe = ways.iter().find(|way| way.margin >= ENOUGH);
            match safe.filter(|safe| *safe != way) {
                Some(safe) => text += &format!("; {} has {}", safe.told(), percent(safe)),
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

    fn way(txqs: u32, discipline: Discipline, mpps: f64, cpu_ns: f64) -> Way {
        let steering = if txqs == 1 { "-" } else { "near" }.to_owned();
        Way {
            txqs,
            discipline,
            steering,
            mpps,
            margin: mpps / 20.0 - 1.0,
            cpu_ns: Some(cpu_ns),
            spinning: 0.0,
        }
    }

    #[test]
    fn the_cheapest_that_meets_it_is_first() {
        let mut ways = vec![
            way(8, Discipline::Llist, 30.0, 500.0),
            way(1, Discipline::Spinlock, 3.0, 5000.0),
            way(2, Discipline::Combine, 21.0, 700.0),
            way(2, Discipline::Llist, 22.0, 600.0),
            way(4, Discipline::Spinlock, 19.0, 900.0),
        ];
        ways.sort_by(Way::by_cost);
        let order: Vec<_> = ways.iter().map(|way| (way.txqs, way.discipline.name())).collect();
        assert_eq!(order, [(2, "llist"), (2, "combine"), (8, "llist"), (4, "spinlock"), (1, "spinlock")]);
        let text = advice(&ways, 20.0, None);
        assert_eq!(
            text,
            "Use 2 txqs with llist and XPS that has neighbouring CPUs share one: 22.0 Mpps, 10 % to spare; 8 txqs with llist \
             and XPS that has neighbouring CPUs share one has 50 %."
        );
    }

    #[test]
    fn nothing_reaches_what_the_senders_cannot() {
        let text = advice(&[way(1, Discipline::Combine, 10.0, 700.0)], 20.0, Some(16.0));
        assert_eq!(
            text,
            "Nothing reaches 20.0 Mpps; the nearest is 10.0 Mpps, 50 % too few, by 1 txq with combine: the senders' own work \
             allows 16.0 Mpps at most, whatever is between them and the wire."
        );
    }
}
