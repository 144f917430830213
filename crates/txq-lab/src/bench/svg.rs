//! The results as curves: a panel for each table, Mpps over threads or batch sizes.

use std::path::Path;

use crate::plot::{At, Curve, Curves, Size, curves};
use anyhow::{anyhow, bail};
use txq_cli::common::out::File;

use super::case::{Key, Row, Sample, Table};
use super::report::{Line, distinct, grouped, lines, title};

/// The size of a panel, and the number of panels side by side.
const PANEL: Size = Size { width: 680, height: 360, names: 180 };
const COLUMNS: usize = 2;

/// The file of the curves, opened before the measurement begins.
pub(super) struct Drawing(File);

impl Drawing {
    /// Opens the file for the results of `keys`; an error if there would be no curve.
    pub(super) fn open<'a>(path: &Path, keys: impl Iterator<Item = &'a Key>) -> anyhow::Result<Self> {
        let empty: Vec<Row> = keys.filter_map(|key| Row::of(key.clone(), &[Sample::default()])).collect();
        if drawable(&empty).is_empty() {
            bail!("--svg draws curves over threads or batch sizes: measure more than one of either");
        }
        File::open(path).map(Self)
    }

    /// Draws all results.
    pub(super) fn draw(self, rows: &[Row]) -> anyhow::Result<()> {
        let panels: Vec<Curves> = drawable(rows).iter().map(|(table, rows)| panel(table, rows)).collect();
        let drawn = curves(&panels, PANEL, COLUMNS);
        self.0.replace(&drawn.map_err(|error| anyhow!("the curves cannot be drawn: {error}"))?)
    }
}

/// Returns the tables that make a curve.
fn drawable(rows: &[Row]) -> Vec<(Table, Vec<&Row>)> {
    let mut tables = grouped(rows);
    tables.retain(|(_, rows)| lines(rows).0.iter().any(|line| line.at.len() > 1));
    tables
}

/// Returns how often each point was measured, and the meaning of the whiskers.
fn repeats(rows: &[&Row]) -> String {
    match rows.iter().map(|row| row.repeats).max() {
        None | Some(0 | 1) => "one measurement of each point".into(),
        Some(n) => format!("medians of {n} measurements; whiskers from the least to the greatest"),
    }
}

/// Returns the panel of a table. Threads and batches double from step to step, so steps are at equal distances.
fn panel(table: &Table, rows: &[&Row]) -> Curves {
    let (lines, over_batches) = lines(rows);
    let steps = distinct(lines.iter().flat_map(|line| line.at.iter().map(|(x, _)| *x)));
    let curve = |line: Line<'_>| {
        let at = line.at.iter().map(|(x, row)| At {
            step: steps.iter().position(|step| step == x).unwrap_or(0),
            value: row.sample.mpps,
            spread: (row.repeats > 1).then_some(row.spread),
        });
        Curve { at: at.collect(), name: line.name }
    };
    let curves = lines.into_iter().map(curve).collect();
    Curves {
        title: title(table),
        note: repeats(rows),
        over: if over_batches { "packets handed in at a time" } else { "threads" }.to_owned(),
        figure: "throughput, Mpps".to_owned(),
        steps: steps.iter().enumerate().map(|(place, step)| (step.to_string(), place as f64)).collect(),
        curves,
        log: false,
    }
}
