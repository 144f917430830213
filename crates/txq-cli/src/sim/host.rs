//! `txq sim host`: what a simulation of this machine is compared with.

use std::fmt::Write as _;

use serde_json::json;

use super::args::HostArgs;
use crate::bench::{Native, align, native, number};
use crate::report;
use crate::span::Human;

/// Measures this machine's own times and prints them.
pub(crate) fn host(args: &HostArgs) -> anyhow::Result<()> {
    let rows = native(args.duration.0, args.repeat.size(), args.quiet)?;
    let text = match args.json {
        true => rows.iter().map(line).collect(),
        false => table(&rows, args),
    };
    report::write(&text)
}

fn line(row: &Native) -> String {
    let points = row.points.iter().map(|point| {
        json!({
            "ns_per_packet": point.ns_per_packet,
            "cpu_ns_per_packet": point.cpu_ns_per_packet,
            "line_ns": point.line_ns,
        })
    });
    let points: Vec<_> = points.collect();
    let median = row.median();
    let line = json!({
        "discipline": row.discipline,
        "threads": row.threads,
        "ns_per_packet": median.ns_per_packet,
        "cpu_ns_per_packet": median.cpu_ns_per_packet,
        "line_ns": median.line_ns,
        "points": points,
    });
    format!("{line}\n")
}

fn table(rows: &[Native], args: &HostArgs) -> String {
    let each = Human(args.duration.0.as_nanos() as u64);
    let mut text = String::new();
    let _ = writeln!(
        text,
        "{each} for each measurement, {} of each; single packets through a pfifo\n",
        args.repeat
    );
    let heads = ["discipline", "threads", "ns", "from .. to", "CPU ns", "a line's way"].map(str::to_owned);
    let cells = rows.iter().map(|row| {
        let median = row.median();
        let ends = row.points.first().zip(row.points.last());
        let ends = ends.map(|(a, b)| format!("{} .. {}", number(a.ns_per_packet), number(b.ns_per_packet)));
        vec![
            row.discipline.clone(),
            row.threads.to_string(),
            number(median.ns_per_packet),
            ends.unwrap_or_default(),
            number(median.cpu_ns_per_packet),
            median.line_ns.map_or_else(|| "-".into(), number),
        ]
    });
    align(&mut text, heads.to_vec(), cells.collect());
    text
}
