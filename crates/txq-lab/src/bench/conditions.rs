//! The conditions of a run: how far apart the CPUs are before it and after it, and how much CPU time others took from it.
//!
//! On a virtual machine both change within minutes: the hypervisor moves the CPUs, and other guests use them. So numbers compare
//! only with numbers of the same conditions.

use std::fmt;
use std::time::Duration;

use serde_json::{Value, json};
use txq_cli::common::failure::refused;
use txq_cli::common::table::number;

use super::case::Sample;
use super::cpu::{Taken, Taking};
use super::lab::Lab;
use crate::sim::calibrate::line_way;

/// How long the transfer time of a line between two CPUs is measured.
const LINE_TIME: Duration = Duration::from_millis(5);
/// The number of CPUs that the first one is measured with, at most.
const PARTNERS: usize = 7;

/// The shortest and the longest transfer time of a line between the first CPU and others, in nanoseconds; `None` with one CPU, or
/// if the CPUs were too busy.
type Ways = Option<(f64, f64)>;

fn ways(cpus: &[u32]) -> anyhow::Result<Ways> {
    let others = cpus.get(1..).unwrap_or_default();
    // From the last one backwards, so that the farthest is among them.
    let partners = others.iter().rev().step_by(others.len().div_ceil(PARTNERS).max(1));
    let mut ways: Ways = None;
    for &cpu in partners {
        let way = line_way(cpus[0], cpu, LINE_TIME).map_err(refused("a cache line cannot be watched"))?;
        let both = |way: f64| ways.map_or((way, way), |(least, most)| (least.min(way), most.max(way)));
        ways = way.map(both).or(ways);
    }
    Ok(ways)
}

/// The start of a run.
pub(super) struct Begin<'a> {
    cpus: &'a [u32],
    before: Ways,
    taking: Taking<'a>,
}

impl<'a> Begin<'a> {
    pub(super) fn of(lab: &'a Lab) -> anyhow::Result<Self> {
        let before = ways(&lab.cpus)?;
        Ok(Self { cpus: &lab.cpus, before, taking: Taking::begin(&lab.cpus) })
    }

    /// Returns the conditions of the run until now. `samples` are those of measurements with no more threads than CPUs: with
    /// more, threads wait for each other.
    pub(super) fn end<'s>(&self, samples: impl Iterator<Item = &'s Sample>) -> anyhow::Result<Conditions> {
        let taken = self.taking.end();
        let waits: Vec<f64> = samples.filter_map(|sample| sample.waited).collect();
        let waited = (!waits.is_empty()).then(|| waits.iter().sum::<f64>() / waits.len() as f64);
        Ok(Conditions { cpus: self.cpus.len(), before: self.before, after: ways(self.cpus)?, taken, waited })
    }
}

/// The conditions of a run.
pub(super) struct Conditions {
    cpus: usize,
    before: Ways,
    after: Ways,
    taken: Taken,
    /// As [`Sample::waited`], on average.
    waited: Option<f64>,
}

impl Conditions {
    /// Returns the conditions as one JSON object.
    pub(super) fn json(&self) -> Value {
        let pair = |ways: Ways| ways.map(|(least, most)| [least, most]);
        json!({ "run": {
            "cpus": self.cpus,
            "line_ns_before": pair(self.before),
            "line_ns_after": pair(self.after),
            "stolen": self.taken.stolen,
            "others": self.taken.others,
            "waited": self.waited,
        }})
    }
}

impl fmt::Display for Conditions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let way = |ways: Ways| match ways {
            None => "unknown".to_owned(),
            Some((least, most)) if least == most => format!("{} ns", number(least)),
            Some((least, most)) => format!("{} to {} ns", number(least), number(most)),
        };
        if self.cpus > 1 {
            let (before, after) = (way(self.before), way(self.after));
            writeln!(f, "a cache line from CPU to CPU: {before} before the run, {after} after it")?;
        }
        let percent = |share: f64| format!("{:.1} %", share * 100.0);
        let (stolen, others) = (percent(self.taken.stolen), percent(self.taken.others));
        write!(f, "CPU time taken from it: {stolen} by the hypervisor, {others} by other programs")?;
        match self.waited {
            Some(waited) => writeln!(f, "; its threads waited for a CPU {} of the time", percent(waited)),
            None => writeln!(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_header_has_both_distances_and_what_was_taken() {
        let taken = Taken { stolen: 0.0125, others: 0.4 };
        let conditions = Conditions {
            cpus: 8,
            before: Some((46.0, 130.0)),
            after: Some((52.0, 52.0)),
            taken,
            waited: Some(0.2),
        };
        assert_eq!(
            conditions.to_string(),
            "a cache line from CPU to CPU: 46.0 to 130 ns before the run, 52.0 ns after it\n\
             CPU time taken from it: 1.2 % by the hypervisor, 40.0 % by other programs; its threads waited for a CPU 20.0 % of the time\n"
        );
        let line = conditions.json();
        assert_eq!(
            (&line["run"]["line_ns_before"], &line["run"]["others"]),
            (&json!([46.0, 130.0]), &0.4.into())
        );
        let alone = Conditions { cpus: 1, before: None, after: None, waited: None, ..conditions };
        assert!(!alone.to_string().contains("cache line") && alone.to_string().ends_with("programs\n"));
        assert_eq!(alone.json()["run"]["waited"], Value::Null);
    }

    #[test]
    fn the_first_cpu_meets_itself_never() {
        assert_eq!(ways(&[3]).expect("no measurement"), None);
        assert_eq!(ways(&[]).expect("no measurement"), None);
    }
}
