//! `txq sim run`: runs a scenario's points and reports as its results were published.

mod pacing;
mod tables;

use std::fmt::Write;

use crate::sim::ledger::{Ledger, Phase};
use crate::sim::scenario::{Change, Scenario};
use serde_json::{Map, Value, json};
use txq_cli::common::contention::{self, lock_stat, perf};
use txq_cli::common::{bars, out};

use super::args::RunArgs;
use super::points::{self, Job, Point};
use super::rows;

/// Runs the points and prints their reports.
pub(crate) fn run(args: &RunArgs) -> anyhow::Result<()> {
    let scenario = Scenario::open(&args.what.scenario)?;
    let jobs = Job::all(&scenario, &args.points, &args.what.set)?;
    let points = points::run(jobs, &args.what.host, crate::sim::run::run)?;
    let text = if args.json {
        points.iter().map(|point| line(point).to_string() + "\n").collect()
    } else {
        text(&scenario, &points, args)
    };
    out::write(&text)
}

/// Describes the simulation in a few lines.
pub(super) fn head(scenario: &Scenario, points: &[Point<'_>], changes: &[Change]) -> String {
    let mut text = format!("{}: {}\n", scenario.name, scenario.title);
    if !scenario.source.is_empty() {
        let _ = writeln!(text, "published in {}", scenario.source);
    }
    if let Some(point) = points.first() {
        let (machine, cpus) = (&point.report.machine, point.report.cpus);
        let (time, warmup) = (point.setup.milliseconds, point.setup.warmup);
        let _ = writeln!(text, "{machine}, {cpus} CPUs; {time} ms after {warmup} ms of warm-up");
    }
    if !changes.is_empty() {
        let changes: Vec<_> = changes.iter().map(ToString::to_string).collect();
        let _ = writeln!(text, "changed: {}", changes.join(", "));
    }
    text
}

fn text(scenario: &Scenario, points: &[Point<'_>], args: &RunArgs) -> String {
    let mut text = head(scenario, points, &args.what.set)
        + "\n"
        + &tables::sums(points)
        + &tables::shares(points)
        + &pacing::warnings(points);
    for point in points {
        let (ms, cpus) = (point.report.seconds * 1e3, point.report.cpus);
        let _ = writeln!(text, "\n{}: locks that were waited for in {ms} ms, on {cpus} CPUs\n", point.name);
        let table = if args.lock_stat { lock_stat::table } else { perf::table };
        text += &table(&point.contention());
    }
    text = text + "\n" + &tables::xmit_times(scenario, points) + "\n" + &tables::interrupts(points);
    let rows = points::rows(scenario, points);
    if !rows.is_empty() {
        text = text + "\n" + &rows::table(&rows, false);
    }
    text
}

/// Returns a point as one JSON object.
fn line(point: &Point<'_>) -> Value {
    let report = &point.report;
    let mut object = Map::new();
    object.insert("scenario".into(), json!(point.scenario.name));
    object.insert("point".into(), json!(point.name));
    object.insert("machine".into(), json!(report.machine));
    object.insert("cpus".into(), json!(report.cpus));
    object.insert("seconds".into(), json!(report.seconds));
    object.insert("hash".into(), json!(point.hash()));
    object.insert("accesses".into(), json!(report.accesses));
    object.insert("figures".into(), json!(report.figures));
    contention::recorded(&mut object, &report.contention);
    object.insert("xmit_ns".into(), bars::json(&report.xmit));
    object.insert("senders_ps".into(), ledger(&report.senders));
    object.insert("softirqs_ps".into(), ledger(&report.softirqs));
    object.insert("interrupts_ps".into(), ledger(&report.interrupts));
    object.insert("published".into(), json!(points::rows(point.scenario, std::slice::from_ref(point))));
    Value::Object(object)
}

/// Returns the picoseconds by phase.
pub(super) fn ledger(ledger: &Ledger) -> Value {
    Phase::ALL.iter().map(|&phase| (phase.name().replace(' ', "_"), json!(ledger.of(phase)))).collect()
}
