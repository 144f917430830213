//! Points of scenarios, run side by side on the host's CPUs. A point is one thread's; they have nothing in common.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::Instant;

use anyhow::{anyhow, bail};
use txq_sim::compare::{self, Row};
use txq_sim::run::{self, Report};
use txq_sim::scenario::{Change, Rule, Scenario, Setup};

use super::args::RunsArgs;
use crate::bench::{Tell, number};

/// A point that is to be run.
pub(super) struct Job<'a> {
    pub(super) scenario: &'a Scenario,
    pub(super) point: String,
    pub(super) setup: Setup,
}

impl<'a> Job<'a> {
    /// A point, with `changes` made to it.
    pub(super) fn new(scenario: &'a Scenario, point: &str, changes: &[Change]) -> anyhow::Result<Self> {
        let setup = scenario.setup(point, changes)?;
        Ok(Self { scenario, point: point.to_owned(), setup })
    }

    /// The points of a scenario that are asked for, or all of them.
    pub(super) fn all(
        scenario: &'a Scenario,
        asked: &[String],
        changes: &[Change],
    ) -> anyhow::Result<Vec<Self>> {
        let known = scenario.points();
        if let Some(none) = asked.iter().find(|point| !known.contains(&point.as_str())) {
            bail!("--point {none}: {} has no such point: use {}", scenario.name, known.join(" or "));
        }
        let wanted = known.into_iter().filter(|point| asked.is_empty() || asked.iter().any(|a| a == point));
        wanted.map(|point| Self::new(scenario, point, changes)).collect()
    }
}

/// A point that was run.
pub(super) struct Point<'a> {
    pub(super) scenario: &'a Scenario,
    pub(super) name: String,
    pub(super) setup: Setup,
    pub(super) report: Report,
}

impl Point<'_> {
    /// A figure, if it was measured.
    pub(super) fn figure(&self, name: &str) -> Option<f64> {
        self.report.figures.get(name).copied()
    }

    /// The hash, as it is printed.
    pub(super) fn hash(&self) -> String {
        format!("{:016x}", self.report.hash)
    }
}

/// Runs all jobs; the points come in the same order.
pub(super) fn run<'a>(jobs: Vec<Job<'a>>, args: &RunsArgs) -> anyhow::Result<Vec<Point<'a>>> {
    let threads = args.threads.map_or_else(cpus, |threads| threads.size()).min(jobs.len().max(1));
    let mut tell = Tell::new(args.quiet, 0);
    tell.say(&format!("{} points, {threads} at a time", jobs.len()));
    let mut reports: Vec<Option<Report>> = jobs.iter().map(|_| None).collect();
    let mut failed = Ok(());
    let next = AtomicUsize::new(0);
    let (send, receive) = mpsc::channel();
    std::thread::scope(|scope| {
        for _ in 0..threads {
            let (send, next, jobs) = (send.clone(), &next, &jobs);
            scope.spawn(move || {
                while let Some((at, job)) = index(next).and_then(|at| jobs.get(at).map(|job| (at, job))) {
                    let began = Instant::now();
                    let report = run::run(&job.setup);
                    if send.send((at, report, began.elapsed())).is_err() {
                        return;
                    }
                }
            });
        }
        drop(send);
        for (done, (at, report, took)) in receive.into_iter().enumerate() {
            let job = &jobs[at];
            match report {
                Ok(report) => {
                    let mpps = report.figures.get("mpps").copied().unwrap_or_default();
                    let (done, all, took) = (done + 1, jobs.len(), took.as_secs_f64());
                    let (scenario, point) = (&job.scenario.name, &job.point);
                    tell.say(&format!(
                        "{done}/{all} {scenario} {point}: {} Mpps, in {took:.1} s",
                        number(mpps)
                    ));
                    reports[at] = Some(report);
                }
                Err(error) => {
                    // Nobody begins another point.
                    next.store(jobs.len(), Ordering::Relaxed);
                    failed = Err(anyhow!("{} \"{}\": {error}", job.scenario.name, job.point));
                }
            }
        }
    });
    tell.end();
    failed?;
    let points = jobs.into_iter().zip(reports).filter_map(|(job, report)| {
        let Job { scenario, point: name, setup } = job;
        report.map(|report| Point { scenario, name, setup, report })
    });
    Ok(points.collect())
}

fn index(next: &AtomicUsize) -> Option<usize> {
    next.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |at| at.checked_add(1)).ok()
}

fn cpus() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

/// What was published of the points of a scenario that were run, beside what was simulated. What needs another point that was not
/// run is left out.
pub(super) fn rows(scenario: &Scenario, points: &[Point<'_>]) -> Vec<Row> {
    let own = || points.iter().filter(|point| point.scenario.name == scenario.name);
    let figures = own().map(|point| (point.name.clone(), point.report.figures.clone())).collect();
    let was_run = |name: &str| own().any(|point| point.name == name);
    let rows = compare::rows(scenario, &figures).into_iter().zip(&scenario.published);
    let comparable = rows.filter(|(_, p)| {
        let first = scenario.published.iter().find(|q| q.figure == p.figure && q.over == p.over);
        let base = p.rule != Rule::Direction || first.is_none_or(|first| was_run(&first.variant));
        was_run(&p.variant) && p.over.as_deref().is_none_or(was_run) && base
    });
    comparable.map(|(row, _)| row).collect()
}
