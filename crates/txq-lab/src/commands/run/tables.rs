//! The tables of a run, variants side by side.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use crate::sim::ledger::Phase;
use crate::sim::report::xmit_times;
use crate::sim::scenario::Scenario;
use txq::stats::log2::Log2;
use txq_cli::common::bars;
use txq_cli::common::table::{align, number};

use super::super::points::Point;

/// Smaller shares of the interrupts' time are not shown, in percent.
const LITTLE_PERCENT: f64 = 0.05;

/// Returns a line for each point: the throughput, and the CPU time as vmstat would show it. All simulated work was done in
/// the kernel on the measured machine, so there is no user time.
pub(super) fn sums(points: &[Point<'_>]) -> String {
    let transactions = points.iter().any(|point| point.figure("ktps").is_some_and(|k| k > 0.0));
    let mut heads = vec!["", "Mpps", "Mbit/s"];
    if transactions {
        heads.push("k/s done");
    }
    heads.extend(["dropped", "CPU ns a packet", "r", "cs", "us", "sy", "id", "hash"]);
    let cells = points.iter().map(|point| {
        let figure = |name: &str| point.figure(name).map_or_else(|| "-".into(), number);
        let mut cells = vec![point.name.clone(), figure("mpps"), figure("mbps")];
        if transactions {
            cells.push(figure("ktps"));
        }
        let dropped = point.figure("drops_percent").map_or_else(|| "-".into(), |d| format!("{d:.1} %"));
        let busy = point.figure("system_cpu_percent").unwrap_or_default();
        let whole = |value: Option<f64>| value.map_or_else(|| "-".into(), |v| format!("{v:.0}"));
        cells.extend([dropped, figure("cpu_ns_per_packet")]);
        cells.extend([whole(point.figure("runnable")), whole(point.figure("switches_per_s"))]);
        cells.extend([
            "0".into(),
            whole(Some(busy.round())),
            whole(Some(100.0 - busy.round())),
            point.hash(),
        ]);
        cells
    });
    let mut text = String::new();
    align(&mut text, heads.into_iter().map(str::to_owned).collect(), cells.collect());
    text
}

/// Returns what each class of the senders has of the bytes sent, in percent; nothing if no sender has a class.
pub(super) fn shares(points: &[Point<'_>]) -> String {
    let class = |name: &str| Some(name.strip_prefix("share_")?.strip_suffix("_percent")?.to_owned());
    let figures = || points.iter().flat_map(|point| point.report.figures.keys());
    let classes: BTreeSet<String> = figures().filter_map(|name| class(name)).collect();
    if classes.is_empty() {
        return String::new();
    }
    let cells = points.iter().map(|point| {
        let share = |class| point.figure(&format!("share_{class}_percent"));
        let cell = |class| share(class).map_or_else(|| "-".into(), |percent| format!("{percent:.2} %"));
        std::iter::once(point.name.clone()).chain(classes.iter().map(cell)).collect()
    });
    let mut text = "\nshares of the senders' classes in the bytes sent\n\n".to_owned();
    align(
        &mut text,
        std::iter::once(String::new()).chain(classes.iter().cloned()).collect(),
        cells.collect(),
    );
    text
}

/// Returns the distribution of the times of xmit, beside the published one.
pub(super) fn xmit_times(scenario: &Scenario, points: &[Point<'_>]) -> String {
    let mut columns: Vec<(String, Log2)> =
        points.iter().map(|point| (point.name.clone(), point.report.xmit)).collect();
    for point in points {
        if let Some(times) = xmit_times::published(&scenario.name, &point.name) {
            columns.push((format!("published: {}", point.name), times));
        }
    }
    let mut buckets: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
    for (at, (_, times)) in columns.iter().enumerate() {
        for bucket in times.buckets() {
            buckets.entry(bucket.min).or_insert_with(|| vec![0; columns.len()])[at] = bucket.count;
        }
    }
    let mut text = "calls of xmit by the time they took: from so many ns to twice as many\n\n".to_owned();
    let heads = std::iter::once("from".to_owned()).chain(columns.into_iter().map(|(name, _)| name));
    let cells = buckets.into_iter().map(|(min, counts)| {
        let from = if min == 0 { "0".into() } else { bars::bound(min.into()) };
        std::iter::once(from).chain(counts.iter().map(u64::to_string)).collect()
    });
    align(&mut text, heads.collect(), cells.collect());
    text
}

/// Returns the time of the CPUs that take interrupts, by phase, in percent: all of a phase, and its line transfers and
/// waits.
pub(super) fn interrupts(points: &[Point<'_>]) -> String {
    let percent = |point: &Point<'_>, time: u64| {
        let whole = point.report.seconds * 1e12 * f64::from(point.report.interrupted);
        100.0 * time as f64 / whole
    };
    let mut rows: Vec<Vec<String>> = Vec::new();
    let mut row = |name: String, always: bool, time: &dyn Fn(&Point<'_>) -> u64| {
        let shares: Vec<f64> = points.iter().map(|point| percent(point, time(point))).collect();
        if always || shares.iter().any(|share| *share >= LITTLE_PERCENT) {
            let cells = shares.iter().map(|share| format!("{share:.1} %"));
            rows.push(std::iter::once(name).chain(cells).collect());
        }
    };
    row("in interrupts".into(), true, &|point| point.report.interrupts.total().total());
    for phase in Phase::ALL {
        let of = |point: &Point<'_>| *point.report.interrupts.of(phase);
        // An interrupt's work before its first task: waking up and checking for work.
        let name = if phase == Phase::Private { "its own" } else { phase.name() };
        row(format!("  {name}"), false, &|point| of(point).total());
        row("    lines that come".into(), false, &|point| of(point).lines);
        row("    waits".into(), false, &|point| of(point).waits);
    }
    let mut text = String::new();
    let many = points.iter().map(|point| point.report.interrupted).max().unwrap_or_default();
    let _ = writeln!(text, "where the time of a completion CPU goes, of {many}\n");
    let heads = std::iter::once(String::new()).chain(points.iter().map(|point| point.name.clone()));
    align(&mut text, heads.collect(), rows);
    text
}
