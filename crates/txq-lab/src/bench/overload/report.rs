//! The suite's tables: goodput by load, and how far the goodput of each discipline falls below its peak at worst.

use std::fmt::Write as _;

use txq::Discipline;
use txq_cli::common::table::{align, number};

use super::{Load, OVERLOAD};
use crate::bench::case::{Key, Row};

/// Shares of the peak below this one are reported as a cliff.
const CLIFF: f64 = 0.5;
/// Below this share of the requested load a cell shows the load that was really offered.
const SHORT: f64 = 0.95;

/// The results of one discipline.
struct Sweep<'a> {
    peak: &'a Row,
    cells: Vec<&'a Row>,
}

impl<'a> Sweep<'a> {
    /// Returns all sweeps with a peak, in the order of measurement.
    fn all(rows: &'a [Row]) -> Vec<Self> {
        let ours = |row: &&Row| row.key.suite == OVERLOAD && row.key.target.is_none();
        let of = |key: &Key| (key.qdisc.clone(), key.discipline, key.batch);
        let peaks = rows.iter().filter(ours).filter(|row| row.key.load.is_none());
        let sweep = |peak: &'a Row| {
            let cells = rows.iter().filter(ours).filter(|row| row.key.load.is_some());
            Sweep { peak, cells: cells.filter(|row| of(&row.key) == of(&peak.key)).collect() }
        };
        peaks.map(sweep).collect()
    }

    /// Returns a cell's goodput as a share of the possible goodput: the peak, or the offered load if that is less.
    fn share(&self, row: &Row) -> f64 {
        let could = self.peak.sample.mpps * row.key.load.map_or(1.0, |load| load.0.min(1.0));
        if could > 0.0 { row.sample.mpps / could } else { 0.0 }
    }

    fn worst(&self) -> Option<(&'a Row, f64)> {
        let shares = self.cells.iter().map(|row| (*row, self.share(row)));
        shares.min_by(|a, b| a.1.total_cmp(&b.1))
    }

    /// Returns the goodput, and in brackets the offered load where it is less than requested.
    fn cell(&self, row: &Row, load: Load) -> String {
        let offered = row.sample.offered_mpps.unwrap_or_default();
        let short = offered < SHORT * load.0 * self.peak.sample.mpps;
        let brackets = if short { format!(" ({})", number(offered)) } else { String::new() };
        number(row.sample.mpps) + &brackets
    }

    /// Returns the name that tells this sweep from the others.
    fn name(&self, batches: bool) -> String {
        let discipline = self.peak.key.discipline.map_or("", Discipline::name);
        if batches { format!("{discipline}, batch {}", self.peak.key.batch) } else { discipline.to_owned() }
    }
}

/// Returns goodput by load for each discipline, and all their worst cells.
pub(crate) fn tables(rows: &[Row]) -> String {
    let mut text = String::new();
    let sweeps = Sweep::all(rows);
    let mut qdiscs: Vec<&Option<String>> = sweeps.iter().map(|sweep| &sweep.peak.key.qdisc).collect();
    qdiscs.dedup();
    for qdisc in qdiscs {
        let sweeps: Vec<&Sweep<'_>> = sweeps.iter().filter(|sweep| sweep.peak.key.qdisc == *qdisc).collect();
        let about = "packets sent while more are offered than can be";
        let _ = writeln!(text, "\n{OVERLOAD}, {}: {about}", qdisc.as_deref().unwrap_or_default());
        let batches = sweeps.iter().any(|sweep| sweep.peak.key.batch != sweeps[0].peak.key.batch);
        for sweep in &sweeps {
            let peak = number(sweep.peak.sample.mpps);
            let _ = writeln!(text, "\n{}: peak {peak} Mpps\n", sweep.name(batches));
            goodput(&mut text, sweep);
        }
        text.push_str("\nIn brackets what was offered, where the CPUs could not offer so much.\n\n");
        worst(&mut text, &sweeps, batches);
    }
    text + &super::link::tables(rows)
}

/// Writes goodput in Mpps: a line for each number of flows and threads.
fn goodput(text: &mut String, sweep: &Sweep<'_>) {
    let mut loads: Vec<Load> = Vec::new();
    let mut lines: Vec<(Option<u64>, u64)> = Vec::new();
    for key in sweep.cells.iter().map(|row| &row.key) {
        loads.extend(key.load.filter(|load| !loads.contains(load)));
        if !lines.contains(&(key.flows, key.threads)) {
            lines.push((key.flows, key.threads));
        }
    }
    let mut heads = vec!["flows".to_owned(), "threads".to_owned()];
    heads.extend(loads.iter().map(Load::to_string));
    let cells = lines.into_iter().map(|(flows, threads)| {
        let at = |load: &Load| {
            let mut rows = sweep.cells.iter().map(|row| (row, &row.key));
            rows.find(|(_, key)| (key.flows, key.threads, key.load) == (flows, threads, Some(*load)))
        };
        let mut cells = vec![flows.unwrap_or_default().to_string(), threads.to_string()];
        let cell = |load: &Load| at(load).map_or(String::new(), |(row, _)| sweep.cell(row, *load));
        cells.extend(loads.iter().map(cell));
        cells
    });
    align(text, heads, cells.collect());
}

/// Writes each discipline's worst cell, and the disciplines with a cliff.
fn worst(text: &mut String, sweeps: &[&Sweep<'_>], batches: bool) {
    let heads = ["worst cell", "peak", "Mpps", "share", "threads", "flows", "load"].map(str::to_owned);
    let worst = sweeps.iter().filter_map(|sweep| Some((sweep, sweep.worst()?)));
    let mut fallen = Vec::new();
    let cells = worst.map(|(sweep, (row, share))| {
        let name = sweep.name(batches);
        if share < CLIFF {
            fallen.push(name.clone());
        }
        vec![
            name,
            number(sweep.peak.sample.mpps),
            number(row.sample.mpps),
            format!("{:.0} %", share * 100.0),
            row.key.threads.to_string(),
            row.key.flows.unwrap_or_default().to_string(),
            row.key.load.map_or(String::new(), |load| load.to_string()),
        ]
    });
    let cells: Vec<_> = cells.collect();
    align(text, heads.to_vec(), cells);
    let fallen = if fallen.is_empty() { "none".into() } else { fallen.join(", ") };
    let _ =
        writeln!(text, "\nBelow half of the peak, or of what was to be offered if that is less: {fallen}.");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::case::Sample;

    fn row(load: Option<f64>, mpps: f64, offered: f64) -> Row {
        let key = Key { suite: OVERLOAD, discipline: Some(Discipline::Llist), threads: 2, ..Key::default() };
        let key = Key { load: load.map(Load), flows: Some(32), ..key };
        let sample = Sample { mpps, offered_mpps: Some(offered), ..Sample::default() };
        Row::of(key, &[sample]).expect("one sample")
    }

    #[test]
    fn the_worst_is_the_least_of_what_could_have_been_sent() {
        let rows = [row(None, 2.0, 2.0), row(Some(0.5), 0.9, 1.0), row(Some(40.0), 1.2, 30.0)];
        let text = tables(&rows);
        for part in ["llist: peak 2.00 Mpps", "1.20 (30.0)", "60 %", "40x", "is less: none."] {
            assert!(text.contains(part), "no {part:?} in {text}");
        }
        assert!(!text.contains("0.90 ("), "{text}");
    }

    #[test]
    fn a_cliff_is_told() {
        let text = tables(&[row(None, 2.0, 2.0), row(Some(1.0), 0.9, 2.0), row(Some(5.0), 1.9, 10.0)]);
        assert!(text.contains("45 %") && text.contains("is less: llist."), "{text}");
        // A run that a signal cut short has no peak, or no cells.
        assert_eq!(tables(&[row(Some(1.0), 1.0, 1.0)]), "");
        assert!(tables(&[row(None, 1.0, 1.0)]).contains("none."));
    }
}
