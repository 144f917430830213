//! The most expensive cache lines, by the data that lies on them.

use crate::sim::lines::LineUse;
use txq_cli::common::table::align;

use super::super::points::Point;
use super::budget::{Budget, percent, share};

/// Rows of the table, without the one of all others.
const ROWS: usize = 12;
/// Lines below this part of the cost of all lines have no row of their own.
const LITTLE_PART: f64 = 0.005;
/// A use of lines above this part of their total cost is mentioned.
const WORTH_PART: f64 = 0.3;

/// Returns the table.
pub(super) fn table(point: &Point<'_>, budget: &Budget) -> String {
    let lines = &point.report.lines;
    let cost = |line: &LineUse| line.time + line.waits;
    let (all, time) = (lines.iter().map(cost).sum(), lines.iter().map(|line| line.time).sum());
    let many = lines.iter().take(ROWS).take_while(|line| share(cost(line), all) >= LITTLE_PART).count();
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

/// Returns the name of a row.
pub(super) fn name(line: &LineUse) -> String {
    match &line.name {
        Some(name) => name.clone(),
        None => format!("(used in {})", line.phase.name()),
    }
}

/// Returns the name of a line for a sentence.
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

/// Returns the line with the largest share of time in transfer, if the share reaches `nearly`.
pub(super) fn saturated(lines: &[LineUse], nearly: f64) -> Option<(String, &LineUse)> {
    let busiest = lines.iter().max_by(|a, b| a.busiest.total_cmp(&b.busiest))?;
    let name = match (&busiest.name, busiest.lines) {
        (Some(name), 0 | 1) => format!("\"{name}\""),
        (Some(name), n) => format!("one of the {n} of \"{name}\""),
        (None, _) => format!("one without a name that is used in {}", busiest.phase.name()),
    };
    (busiest.busiest >= nearly).then_some((name, busiest))
}

/// Names the row with the most transfer time if its share is at least [`WORTH_PART`]: the end of a sentence.
pub(super) fn mostly(lines: &[LineUse]) -> String {
    let all = lines.iter().map(|line| line.time).sum();
    let most = lines.iter().max_by_key(|line| line.time).filter(|line| share(line.time, all) >= WORTH_PART);
    most.map_or_else(String::new, |line| {
        format!("; of what all lines take, {} is {}", percent(line.time, all), phrase(line))
    })
}

/// Names the row with the longest waits.
pub(super) fn waited(lines: &[LineUse]) -> Option<String> {
    let most = lines.iter().max_by_key(|line| line.waits).filter(|line| line.waits > 0)?;
    Some(phrase(most))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::ledger::Phase;

    fn line(name: Option<&str>, lines: u64, time: u64, waits: u64, busiest: f64) -> LineUse {
        let name = name.map(str::to_owned);
        LineUse { name, phase: Phase::Xmit, lines, accesses: 9, transfers: 3, time, waits, busiest }
    }

    #[test]
    fn a_line_that_never_rests_is_named() {
        let lines = [line(Some("llist head"), 30, 500, 0, 0.5), line(None, 7, 100, 0, 0.93)];
        assert!(saturated(&lines, 0.95).is_none());
        let told = |lines: &[LineUse]| saturated(lines, 0.9).map(|(name, line)| (name, line.busiest));
        assert_eq!(told(&lines), Some(("one without a name that is used in xmit".into(), 0.93)));
        let told = |n| told(&[line(Some("root lock"), n, 1, 1, 0.95)]).map(|(name, _)| name);
        assert_eq!(told(1).as_deref(), Some("\"root lock\""));
        assert_eq!(told(30).as_deref(), Some("one of the 30 of \"root lock\""));
    }

    #[test]
    fn what_takes_most_is_told_where_it_is_one_thing() {
        let lines = [line(Some("BQL"), 1, 400, 7, 0.1), line(None, 50, 600, 3, 0.1)];
        let most = "what has no name and is used in xmit, which is 50 lines";
        assert_eq!(mostly(&lines), format!("; of what all lines take, 60.0 % is {most}"));
        assert_eq!(waited(&lines).as_deref(), Some("\"BQL\", which is one line"));
        let many: Vec<_> = (0..5).map(|_| line(None, 1, 100, 0, 0.1)).collect();
        assert_eq!((mostly(&many).as_str(), waited(&many)), ("", None));
        assert_eq!((mostly(&[]).as_str(), waited(&[])), ("", None));
    }
}
