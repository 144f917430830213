//! The table of `perf lock contention`: the call sites that waited, the longest total wait first.

use std::cmp::Reverse;
use std::fmt::Write;

use txq::stats::contention::ContentionReport;

/// The header, with perf's widths.
const PERF_HEADER: &str = " contended   total wait     max wait     avg wait         type   caller";

/// Returns the table.
pub fn table(report: &ContentionReport) -> String {
    let mut rows: Vec<_> = report.sites.iter().filter(|row| row.stats.contended > 0).collect();
    rows.sort_by_key(|row| Reverse(row.stats.wait.total));
    let mut text = format!("{PERF_HEADER}\n\n");
    for row in rows {
        let wait = row.stats.wait;
        let [total, max, avg] = [wait.total, wait.max, wait.mean()].map(time);
        let (contended, caller) = (row.stats.contended, row.site.caller());
        let _ =
            writeln!(text, "{contended:>10} {total:>12} {max:>12} {avg:>12} {:>12}   {caller}", "spinlock");
    }
    text
}

/// Returns a time in the largest unit in which it is at least 1, as perf prints it.
fn time(nanos: u64) -> String {
    let value = nanos as f64;
    match nanos {
        0..1_000 => format!("{nanos} ns"),
        1_000..1_000_000 => format!("{:.2} us", value / 1e3),
        1_000_000..1_000_000_000 => format!("{:.2} ms", value / 1e6),
        _ => format!("{:.2} s ", value / 1e9),
    }
}
