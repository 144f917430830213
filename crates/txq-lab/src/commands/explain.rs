//! `txq sim explain`: where the time of a packet goes, and the bottleneck.

mod bottleneck;
mod budget;
mod lines;

use std::fmt::Write;

use crate::sim::Picos;
use crate::sim::ledger::{Ledger, Phase};
use crate::sim::scenario::Scenario;
use serde_json::{Value, json};
use txq_cli::common::out;
use txq_cli::common::table::{align, number};

use super::args::ExplainArgs;
use super::points::{self, Job, Point};
use super::run;
use budget::Budget;

/// Rows with less of a packet's time than this are not shown, in nanoseconds.
const LITTLE_NS: f64 = 0.05;
/// A comparison does not show values below this part of the larger total.
const DIFFERENCE: f64 = 0.005;
/// The name of the time that senders and softirqs spend in no phase.
const AWAY: &str = "asleep, or without a CPU";

/// Runs the points and reports where their time went.
pub(crate) fn explain(args: &ExplainArgs) -> anyhow::Result<()> {
    let scenario = Scenario::open(&args.what.scenario)?;
    let jobs = Job::all(&scenario, &args.points, &args.what.set)?;
    let points = points::run(jobs, &args.what.host, crate::sim::run::explain)?;
    let text = match args.json {
        true => points.iter().map(|point| line(point).to_string() + "\n").collect(),
        false => text(&scenario, &points, args),
    };
    out::write(&text)
}

/// Returns the bottleneck of a point that was run by [`crate::sim::run::explain`], in a sentence.
pub(super) fn bottleneck(point: &Point<'_>) -> String {
    bottleneck::sentence(point, &Budget::of(point))
}

fn text(scenario: &Scenario, points: &[Point<'_>], args: &ExplainArgs) -> String {
    let mut text = run::head(scenario, points, &args.what.set);
    for point in points {
        let budget = Budget::of(point);
        let (mpps, hash) = (number(budget.mpps), point.hash());
        let _ = writeln!(text, "\n{}: {mpps} Mpps, hash {hash}; nanoseconds a packet\n", point.name);
        text += &table(point, &budget);
        text += "\ncache lines; accesses, transfers and nanoseconds are a packet's\n\n";
        text += &lines::table(point, &budget);
        let _ = writeln!(text, "\n{}", bottleneck::sentence(point, &budget));
    }
    if let [first, second] = points {
        text += &difference(first, second);
    }
    text
}

/// Returns the senders, softirqs and interrupts: name, time by phase, all of their time, and the name of the rest.
fn sides<'p>(point: &'p Point<'_>, budget: &Budget) -> [(&'static str, &'p Ledger, Picos, &'static str); 3] {
    let report = &point.report;
    [
        ("senders", &report.senders, budget.senders_whole, AWAY),
        ("softirqs", &report.softirqs, budget.softirqs_whole, AWAY),
        ("interrupts", &report.interrupts, budget.interrupts_whole, "idle"),
    ]
}

/// Returns a table of the phases of the senders, of the softirqs that run queues for them, and of the interrupts.
fn table(point: &Point<'_>, budget: &Budget) -> String {
    let mut rows = Vec::new();
    for (who, ledger, whole, rest) in sides(point, budget) {
        rows.push(budget.row(who, &ledger.total(), whole));
        for phase in Phase::ALL {
            let spent = ledger.of(phase);
            if budget.each(spent.total()).is_some_and(|ns| ns >= LITTLE_NS) {
                rows.push(budget.row(&format!("  {}", name(who, phase)), spent, whole));
            }
        }
        let left = whole.saturating_sub(ledger.total().total());
        let mut row = vec![format!("  {rest}"), String::new(), String::new(), String::new()];
        row.extend([budget.time(left), budget::percent(left, whole)]);
        rows.push(row);
    }
    let used = point.report.used;
    let all = used.busy + used.spinning + used.idle;
    let mut text = String::new();
    align(&mut text, ["", "work", "lines", "waits", "all", "share"].map(str::to_owned).to_vec(), rows);
    let [busy, spinning, idle] = [used.busy, used.spinning, used.idle].map(|t| budget::percent(t, all));
    let _ = writeln!(text, "\nCPUs: {busy} at work, {spinning} spinning, {idle} idle");
    text
}

/// Returns a phase's name. An interrupt's or softirq's private work is its own, not a sender's; a softirq's way to a queue
/// is not xmit.
fn name(who: &str, phase: Phase) -> &'static str {
    match (who, phase) {
        ("softirqs", Phase::Xmit) => "to the queue",
        ("softirqs" | "interrupts", Phase::Private) => "its own",
        _ => phase.name(),
    }
}

/// Compares the times of two points by phase.
fn difference(first: &Point<'_>, second: &Point<'_>) -> String {
    let budgets = [first, second].map(Budget::of);
    let mut rows = Vec::new();
    let mut most: Option<(f64, String)> = None;
    let both = [sides(first, &budgets[0]), sides(second, &budgets[1])];
    let all = |at: usize| budgets[at].each(both[at].iter().map(|side| side.1.total().total()).sum());
    let least_told = all(0).into_iter().chain(all(1)).fold(0.0, f64::max) * DIFFERENCE;
    for ((who, ledger, ..), (_, other, ..)) in both[0].iter().zip(&both[1]) {
        for phase in Phase::ALL {
            let spent = [ledger, other].map(|ledger| *ledger.of(phase));
            let parts = [
                ("work", spent.map(|s| s.work)),
                ("lines", spent.map(|s| s.lines)),
                ("waits", spent.map(|s| s.waits)),
            ];
            for (part, [a, b]) in parts {
                let Some((a, b)) = budgets[0].each(a).zip(budgets[1].each(b)) else { continue };
                if a.max(b) < least_told {
                    continue;
                }
                let what = format!("{who}: {}, {part}", name(who, phase));
                rows.push(vec![what.clone(), tenth(a), tenth(b), format!("{:+.1}", b - a)]);
                if most.as_ref().is_none_or(|(least, _)| b - a < *least) {
                    most = Some((b - a, what));
                }
            }
        }
    }
    let heads = vec![String::new(), first.name.clone(), second.name.clone(), "difference".into()];
    let mut text = String::new();
    if !rows.is_empty() {
        text.push_str("\nboth, in nanoseconds a packet\n\n");
        align(&mut text, heads, rows);
    }
    let [a, b] = budgets.map(|budget| budget.mpps);
    let _ = write!(text, "\n\"{}\" sends {} Mpps, \"{}\" {}", second.name, number(b), first.name, number(a));
    if a > 0.0 {
        let _ = write!(text, " ({:+.0} %)", 100.0 * (b / a - 1.0));
    }
    if let Some((least, what)) = most.filter(|(least, _)| *least < 0.0) {
        let _ = write!(text, "; it saves most at {what}: {} ns a packet", tenth(-least));
    }
    text + ".\n"
}

fn tenth(value: f64) -> String {
    format!("{value:.1}")
}

/// Returns a point as one JSON object.
fn line(point: &Point<'_>) -> Value {
    let budget = Budget::of(point);
    let report = &point.report;
    let left = budget.senders_whole.saturating_sub(report.senders.total().total());
    json!({
        "scenario": point.scenario.name,
        "point": point.name,
        "hash": point.hash(),
        "mpps": budget.mpps,
        "packets": budget.packets,
        "senders_ps": run::ledger(&report.senders),
        "senders_away_ps": left,
        "softirqs_ps": run::ledger(&report.softirqs),
        "interrupts_ps": run::ledger(&report.interrupts),
        "lines": report.lines,
        "cpus_ps": { "busy": report.used.busy, "spinning": report.used.spinning, "idle": report.used.idle },
        "bottleneck": bottleneck::sentence(point, &budget),
    })
}
