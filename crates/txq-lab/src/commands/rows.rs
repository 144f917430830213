//! The table of published and simulated figures.

use crate::sim::compare::Row;
use crate::sim::compare::errors::{Errors, Kind, signs};
use txq_cli::common::table::{align, number};

/// Returns a line for each figure, and one that counts those that hold. `scenarios` adds a column with the scenario.
pub(super) fn table(rows: &[Row], scenarios: bool) -> String {
    let mut heads: Vec<String> = ["variant", "figure", "published", "simulated", "deviation", "rule", "", ""]
        .map(str::to_owned)
        .to_vec();
    if scenarios {
        heads.insert(0, "scenario".into());
    }
    let cells = rows.iter().map(|row| {
        let or_dash = |value: Option<f64>| value.map_or_else(|| "-".into(), number);
        let deviation = row.deviation.map_or_else(|| "-".into(), deviation);
        let mut cells = vec![
            row.variant.clone(),
            row.figure.clone(),
            published(row),
            or_dash(row.simulated),
            deviation,
            row.rule.to_owned(),
            if row.holds { "holds" } else { "MISS" }.to_owned(),
            if row.fitted { "fitted" } else { "" }.to_owned(),
        ];
        if scenarios {
            cells.insert(0, row.scenario.clone());
        }
        cells
    });
    let mut text = String::new();
    align(&mut text, heads, cells.collect());
    text.push('\n');
    text += &count(rows);
    text.push('\n');
    if scenarios {
        text += &errors(rows);
    }
    text
}

/// Returns the errors of the predictions by kind, and how many signs and rankings are right.
fn errors(rows: &[Row]) -> String {
    let mut text = String::from("\n");
    let heads = ["", "predictions", "mean error", "median", "within 25 %", "within a factor of two"];
    let cells = Kind::ALL.into_iter().filter_map(|kind| {
        let errors = Errors::among(rows, kind)?;
        Some(line(kind.name(), &errors))
    });
    align(&mut text, heads.map(str::to_owned).to_vec(), cells.collect());
    let (right, all) = signs(rows);
    if all > 0 {
        let part = right as f64 / all as f64 * 100.0;
        text += &format!("\nsigns and rankings: {right} of {all} are as published ({part:.0} %)\n");
    }
    text
}

/// Returns a row of the table of errors.
pub(super) fn line(name: &str, errors: &Errors) -> Vec<String> {
    let Errors { predictions, mean, median, near, within_two } = errors;
    vec![
        name.to_owned(),
        predictions.to_string(),
        format!("{:.0} %", mean * 100.0),
        format!("{:.0} %", median * 100.0),
        near.to_string(),
        within_two.to_string(),
    ]
}

/// Returns the published value, or both ends of a range.
fn published(row: &Row) -> String {
    match (row.published, row.published_to) {
        (None, _) => "-".into(),
        (Some(value), None) => number(value),
        (Some(from), Some(to)) => format!("{}..{}", number(from), number(to)),
    }
}

/// Returns a deviation in percent, or as a factor if it is large.
fn deviation(part: f64) -> String {
    if part < 4.0 { format!("{:+.1} %", part * 100.0) } else { format!("x {}", number(part + 1.0)) }
}

/// Returns a sentence with the number of predictions that hold.
fn count(rows: &[Row]) -> String {
    let (fitted, predicted): (Vec<_>, Vec<_>) = rows.iter().partition(|row| row.fitted);
    let hold = predicted.iter().filter(|row| row.holds).count();
    let near = predicted.iter().filter(|row| row.is_near()).count();
    let fitted = match fitted.len() {
        0 => String::new(),
        n => format!("; {n} more fitted"),
    };
    format!("{hold} of {} predicted figures hold, {near} within 25 %{fitted}", predicted.len())
}
