//! Points of scenarios, run side by side on the host's CPUs. Each point runs on one thread; points share nothing.

use std::time::Instant;

use crate::sim::compare::{self, Row};
use crate::sim::run::{Report, RunError, is_recorded};
use crate::sim::scenario::{Change, Rule, Scenario, Setup};
use anyhow::{anyhow, bail};
use txq::stats::contention::ContentionReport;
use txq::stats::contention::Site;
use txq_cli::common::table::number;
use txq_cli::common::tell::Tell;

use super::args::RunsArgs;
use super::parallel::{cpus, parallel};

/// A point to run.
pub(super) struct Job<'a> {
    pub(super) scenario: &'a Scenario,
    pub(super) point: String,
    pub(super) setup: Setup,
}

impl<'a> Job<'a> {
    /// Returns the job of a point with `changes` applied.
    pub(super) fn new(scenario: &'a Scenario, point: &str, changes: &[Change]) -> anyhow::Result<Self> {
        let setup = scenario.setup(point, changes)?;
        Ok(Self { scenario, point: point.to_owned(), setup })
    }

    /// Returns whether a figure was published of the point that only a run with recording has.
    pub(super) fn is_recorded(&self) -> bool {
        self.scenario.published.iter().any(|p| {
            let is_of = p.variant == self.point || p.over.as_ref() == Some(&self.point);
            is_of && is_recorded(&p.figure)
        })
    }

    /// Returns the point's name in messages.
    fn name(&self) -> String {
        format!("{} \"{}\"", self.scenario.name, self.point)
    }

    /// Returns the jobs of the requested points of a scenario, or of all.
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
    /// Returns a figure, if it was measured.
    pub(super) fn figure(&self, name: &str) -> Option<f64> {
        self.report.figures.get(name).copied()
    }

    /// Returns the waits between threads, without the thread that read the counters.
    pub(super) fn contention(&self) -> ContentionReport {
        let mut report = self.report.contention.clone();
        report.sites.retain(|row| row.site != Site::Control);
        report
    }

    /// Returns the hash as text.
    pub(super) fn hash(&self) -> String {
        format!("{:016x}", self.report.hash)
    }
}

/// The function that runs a point.
type How = fn(&Setup) -> Result<Report, RunError>;

/// Runs all jobs; returns the points in the jobs' order. The first failure stops the run.
pub(super) fn run<'a>(jobs: Vec<Job<'a>>, args: &RunsArgs, how: How) -> anyhow::Result<Vec<Point<'a>>> {
    each(jobs, args, true, |job| how(&job.setup)).into_iter().collect()
}

/// Runs all jobs. After a failure it goes on with the others, unless `ends` is set.
pub(super) fn each<'a>(
    jobs: Vec<Job<'a>>,
    args: &RunsArgs,
    ends: bool,
    how: impl Fn(&Job<'a>) -> Result<Report, RunError> + Sync,
) -> Vec<anyhow::Result<Point<'a>>> {
    let threads = args.threads.map_or_else(cpus, |threads| threads.size()).min(jobs.len().max(1));
    let mut tell = Tell::new(args.quiet);
    if jobs.len() > 1 {
        tell.say(&format!("{} points, {threads} at a time", jobs.len()));
    }
    let mut reports: Vec<Option<Result<Report, RunError>>> = jobs.iter().map(|_| None).collect();
    let mut ready = 0;
    let timed = |job: &Job<'a>| {
        let began = Instant::now();
        (how(job), began.elapsed())
    };
    parallel(&jobs, threads, timed, |at, (report, took)| {
        ready += 1;
        let what = match &report {
            Ok(report) => format!("{} Mpps", number(report.figures.get("mpps").copied().unwrap_or(0.0))),
            Err(error) => error.to_string(),
        };
        let (name, of, took) = (jobs[at].name(), jobs.len(), took.as_secs_f64());
        tell.say(&format!("{ready}/{of} {name}: {what}, in {took:.1} s"));
        let failed = report.is_err();
        reports[at] = Some(report);
        !(ends && failed)
    });
    tell.end();
    let points = jobs.into_iter().zip(reports).filter_map(|(job, report)| {
        let failed = |error| anyhow!("{}: {error}", job.name());
        let report = report?.map_err(failed);
        Some(report.map(|report| Point { scenario: job.scenario, name: job.point, setup: job.setup, report }))
    });
    points.collect()
}

/// Returns the published figures of a scenario beside the simulated ones. Figures of points that were not run are empty.
pub(super) fn all_rows(scenario: &Scenario, points: &[Point<'_>]) -> Vec<Row> {
    let own = points.iter().filter(|point| std::ptr::eq(point.scenario, scenario));
    let figures = own.map(|point| (point.name.clone(), point.report.figures.clone())).collect();
    compare::rows(scenario, &figures)
}

/// Returns the same rows, without those that need a point that was not run.
pub(super) fn rows(scenario: &Scenario, points: &[Point<'_>]) -> Vec<Row> {
    let was_run = |name: &str| points.iter().any(|point| point.name == name);
    let rows = all_rows(scenario, points).into_iter().zip(&scenario.published);
    let comparable = rows.filter(|(_, p)| {
        let first = scenario.published.iter().find(|q| q.figure == p.figure && q.over == p.over);
        let base = p.rule != Rule::Direction || first.is_none_or(|first| was_run(&first.variant));
        was_run(&p.variant) && p.over.as_deref().is_none_or(was_run) && base
    });
    comparable.map(|(row, _)| row).collect()
}
