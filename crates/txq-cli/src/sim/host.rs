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
    let line = json!({
        "discipline": row.discipline,
        "threads": row.threads,
        "ns_per_packet": row.ns_per_packet,
        "ns_min": row.spread.0,
        "ns_max": row.spread.1,
        "cpu_ns_per_packet": row.cpu_ns_per_packet,
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
    let heads = ["discipline", "threads", "ns", "from .. to", "CPU ns"].map(str::to_owned).to_vec();
    let cells = rows.iter().map(|row| {
        let spread = format!("{} .. {}", number(row.spread.0), number(row.spread.1));
        let ns = number(row.ns_per_packet);
        vec![row.discipline.clone(), row.threads.to_string(), ns, spread, number(row.cpu_ns_per_packet)]
    });
    align(&mut text, heads, cells.collect());
    text
}
