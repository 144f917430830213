//! The results as tables for people, or as JSON lines.

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::time::Duration;

use anyhow::Context;
use txq_cli::common::span::Human;
use txq_cli::common::table::{align, number};

use super::case::{Row, Table};
use super::conditions::Conditions;
use super::crowd::CROWD;
use super::lab::Lab;
use crate::bench::args::BenchArgs;

/// Prints all results to stdout.
pub(super) fn print(
    rows: &[Row],
    args: &BenchArgs,
    lab: &Lab,
    time: Duration,
    conditions: &Conditions,
) -> anyhow::Result<()> {
    let text = if args.json {
        let lines = rows.iter().map(Row::json);
        std::iter::once(conditions.json()).chain(lines).map(|line| line.to_string() + "\n").collect()
    } else {
        let head = format!(
            "{} CPUs, {} for each measurement, {} each; senders {}\n",
            lab.cpus.len(),
            Human(time.as_nanos() as u64),
            times(args.repeat.get()),
            if args.pin { "pinned" } else { "where the scheduler puts them" }
        );
        head + &conditions.to_string() + &tables(rows)
    };
    io::stdout().write_all(text.as_bytes()).context("the results cannot be written to stdout")
}

fn times(n: u64) -> String {
    if n == 1 { "once".into() } else { format!("{n} times") }
}

/// Groups rows by table; the tables are in the order of their first rows.
pub(super) fn grouped(rows: &[Row]) -> Vec<(Table, Vec<&Row>)> {
    let mut groups: Vec<(Table, Vec<&Row>)> = Vec::new();
    for row in rows {
        let table = row.key.table();
        match groups.iter_mut().find(|(known, _)| *known == table) {
            Some((_, rows)) => rows.push(row),
            None => groups.push((table, vec![row])),
        }
    }
    groups
}

/// Returns a table's title, in a line.
pub(super) fn title(table: &Table) -> String {
    let what = match (table.suite, table.shape) {
        (CROWD, _) => "threads through one queue",
        ("pool", _) => "senders on all CPUs but the last, completions on the last",
        ("xps", _) => "a txq for each CPU, by CPU or by flow, against one txq",
        ("work", _) => "threads that work outside the queue, too",
        (super::rate::RATE, _) => "threads with a txq each, below one rate that is never reached",
        ("path", _) => "one thread, from allocation to free",
        (super::isolation::ISOLATION, _) => "a probe beside flooding senders",
        (super::overload::OVERLOAD, _) => "goodput while so much is offered",
        (_, Some(shape)) => super::peers::about(shape),
        _ => "",
    };
    let qdisc = table.qdisc.as_ref().map(|qdisc| format!(", {qdisc}")).unwrap_or_default();
    let shape = table.shape.map(|shape| format!(" {shape}")).unwrap_or_default();
    format!("{}{shape}{qdisc}{}: {what}", table.suite, table.demand())
}

/// Returns whether the rows of a table differ in their batches rather than in their threads.
fn by_batch(rows: &[&Row]) -> bool {
    let threads = distinct(rows.iter().map(|row| row.key.threads));
    threads.len() == 1 && distinct(rows.iter().map(|row| row.key.batch)).len() > 1
}

/// Returns the distinct numbers, sorted.
pub(super) fn distinct(numbers: impl Iterator<Item = u64>) -> Vec<u64> {
    let mut numbers: Vec<u64> = numbers.collect();
    numbers.sort_unstable();
    numbers.dedup();
    numbers
}

/// Rows of one subject, by threads or batches.
pub(super) struct Line<'a> {
    pub(super) name: String,
    pub(super) at: Vec<(u64, &'a Row)>,
}

/// Returns the lines of a table, and whether they are over batches.
pub(super) fn lines<'a>(rows: &[&'a Row]) -> (Vec<Line<'a>>, bool) {
    let over_batches = by_batch(rows);
    let batches = distinct(rows.iter().map(|row| row.key.batch)).len();
    let mut lines: Vec<Line<'a>> = Vec::new();
    for row in rows {
        let mut name = row.key.subject();
        if !over_batches && batches > 1 {
            let _ = write!(name, ", batch {}", row.key.batch);
        }
        let x = if over_batches { row.key.batch } else { row.key.threads };
        match lines.iter_mut().find(|line| line.name == name) {
            Some(line) => line.at.push((x, row)),
            None => lines.push(Line { name, at: vec![(x, row)] }),
        }
    }
    (lines, over_batches)
}

fn tables(rows: &[Row]) -> String {
    let mut text = super::shares::table(rows);
    let crowds = grouped(rows).iter().filter(|(table, _)| table.suite == CROWD).count();
    // Overload, single qdiscs, timing, bql, isolation and the exactness of rates have tables of their own.
    for (table, rows) in grouped(rows).into_iter().filter(|(table, _)| {
        ![
            super::overload::OVERLOAD,
            super::QDISC,
            super::timing::TIMING,
            super::bql::BQL,
            super::isolation::ISOLATION,
            super::exact::EXACT,
        ]
        .contains(&table.suite)
            // All figures of many qdiscs would hide the shares.
            && (table.suite != CROWD || crowds == 1)
    }) {
        let _ = writeln!(text, "\n{}\n", title(&table));
        if rows.len() > 1 {
            overview(&mut text, &rows);
            text.push('\n');
        }
        details(&mut text, &rows);
        if table.suite == super::PEERS {
            text.push_str(&super::peers::ratios(&rows));
        }
    }
    text + &super::overload::tables(rows)
        + &super::qdisc::table(rows)
        + &super::timing::table(rows)
        + &super::bql::table(rows)
        + &super::isolation::table(rows)
        + &super::exact::table(rows)
}

/// Writes Mpps by threads or batches; with 1 and 2 threads also the gain by the second one.
fn overview(text: &mut String, rows: &[&Row]) {
    let (lines, over_batches) = lines(rows);
    let columns = distinct(lines.iter().flat_map(|line| line.at.iter().map(|(x, _)| *x)));
    let second = columns.starts_with(&[1, 2]) && !over_batches;
    let mut heads = vec![format!("Mpps by {}", if over_batches { "batch" } else { "threads" })];
    heads.extend(columns.iter().map(u64::to_string));
    if second {
        heads.push("2 : 1".into());
    }
    let cells = lines.iter().map(|line| {
        let at = |x: u64| line.at.iter().find(|(at, _)| *at == x).map(|(_, row)| row.sample.mpps);
        let mut cells = vec![line.name.clone()];
        cells.extend(columns.iter().map(|&x| at(x).map_or(String::new(), number)));
        if second {
            let ratio = at(2).zip(at(1)).filter(|(_, one)| *one > 0.0).map(|(two, one)| two / one);
            cells.push(ratio.map_or(String::new(), number));
        }
        cells
    });
    align(text, heads, cells.collect());
}

/// Writes all figures of each row.
fn details(text: &mut String, rows: &[&Row]) {
    let repeated = rows.iter().any(|row| row.repeats > 1);
    let mut heads: Vec<String> = ["", "threads", "batch", "Mpps"].map(str::to_owned).to_vec();
    if repeated {
        heads.push("from .. to".into());
    }
    heads.extend(
        ["ns", "CPU ns", "p99", "worst xmit", "worst stall", "dropped", "most : least"].map(str::to_owned),
    );
    let cells = rows.iter().map(|row| {
        let s = &row.sample;
        let mut cells =
            vec![row.key.subject(), row.key.threads.to_string(), row.key.batch.to_string(), number(s.mpps)];
        if repeated {
            cells.push(format!("{} .. {}", number(row.spread.0), number(row.spread.1)));
        }
        let or_dash = |value: Option<String>| value.unwrap_or_else(|| "-".into());
        cells.push(or_dash(s.ns_per_packet.map(number)));
        cells.push(or_dash(s.cpu_ns_per_packet.map(number)));
        let nanos = |ns: f64| Human(ns as u64).to_string();
        cells.push(or_dash(s.p99_ns.map(nanos)));
        cells.push(or_dash(s.worst_xmit_us.map(|us| nanos(us * 1e3))));
        let stall = |us: f64| if us > 0.0 { nanos(us * 1e3) } else { "< 1 ms".into() };
        cells.push(or_dash(s.worst_stall_us.map(stall)));
        cells.push(or_dash(s.dropped.map(|share| format!("{:.1} %", share * 100.0))));
        cells.push(or_dash(s.unequal.map(number)));
        cells
    });
    align(text, heads, cells.collect());
}
