//! Which cache lines cost the most, by what lies on them.

use txq_sim::lines::LineUse;
use txq_sim::run::Report;

use super::super::points::Point;
use super::budget::{Budget, percent, share};
use crate::bench::align;

/// Rows of the table, without the one of all others.
const ROWS: usize = 12;
/// What takes less than this part of all that lines cost is not told on its own.
const LITTLE: f64 = 0.005;
/// The part of what all lines cost from which something is worth a word.
const WORTH: f64 = 0.3;

/// The table.
pub(super) fn table(point: &Point<'_>, budget: &Budget) -> String {
    let lines = &point.report.lines;
    let cost = |line: &LineUse| line.time + line.waits;
    let (all, time) = (lines.iter().map(cost).sum(), lines.iter().map(|line| line.time).sum());
    let many = lines.iter().take(ROWS).take_while(|line| share(cost(line), all) >= LITTLE).count();
    let (told, others) = lines.split_at(many);
    let a_packet = |n: u64| match budget.packets > 0.0 {
        true => format!("{:.2}", n as f64 / budget.packets),
        false => "-".into(),
    };
    let row = |name: String, line: &LineUse| {
        vec![
            name,
            line.lines.to_string(),
            a_packet(line.accesses),
            a_packet(line.transfers),
            budget.time(line.time),
            percent(line.time, time),
            budget.time(line.waits),
            format!("{:.1} %", 100.0 * line.busiest),
        ]
    };
    let mut rows: Vec<_> = told.iter().map(|line| row(name(line), line)).collect();
    if let Some((first, rest)) = others.split_first() {
        let rest = rest.iter().fold(first.clone(), |mut sum, line| {
            sum.lines += line.lines;
            sum.accesses += line.accesses;
            sum.transfers += line.transfers;
            sum.time += line.time;
            sum.waits += line.waits;
            sum.busiest = sum.busiest.max(line.busiest);
            sum
        });
        rows.push(row("all others".into(), &rest));
    }
    let heads = ["what lies there", "lines", "accesses", "transfers", "ns", "share", "waited", "busiest"];
    let mut text = String::new();
    align(&mut text, heads.map(str::to_owned).to_vec(), rows);
    text
}

/// What a row is called.
pub(super) fn name(line: &LineUse) -> String {
    match &line.name {
        Some(name) => name.clone(),
        None => format!("(used in {})", line.phase.name()),
    }
}

/// The same in a sentence.
fn phrase(line: &LineUse) -> String {
    let what = match &line.name {
        Some(name) => format!("\"{name}\""),
        None => format!("what has no name and is used in {}", line.phase.name()),
    };
    match line.lines {
        0 | 1 => format!("{what}, which is one line"),
        n => format!("{what}, which is {n} lines"),
    }
}

/// The line that is on its way for most of the time, if that is nearly all of it.
pub(super) fn saturated(report: &Report, nearly: f64) -> Option<(String, &LineUse)> {
    let busiest = report.lines.iter().max_by(|a, b| a.busiest.total_cmp(&b.busiest))?;
    let name = match (&busiest.name, busiest.lines) {
        (Some(name), 0 | 1) => format!("\"{name}\""),
        (Some(name), n) => format!("one of {n} with \"{name}\""),
        (None, _) => format!("one without a name that is used in {}", busiest.phase.name()),
    };
    (busiest.busiest >= nearly).then_some((name, busiest))
}

/// What most of the time that lines take is for, where that is one thing: the end of a sentence.
pub(super) fn mostly(report: &Report) -> String {
    let all = report.lines.iter().map(|line| line.time).sum();
    let most = report.lines.iter().max_by_key(|line| line.time).filter(|line| share(line.time, all) >= WORTH);
    most.map_or_else(String::new, |line| {
        format!("; of what all lines take, {} is {}", percent(line.time, all), phrase(line))
    })
}

/// What most of the waits are for.
pub(super) fn waited(report: &Report) -> Option<String> {
    let most = report.lines.iter().max_by_key(|line| line.waits).filter(|line| line.waits > 0)?;
    Some(phrase(most))
}
