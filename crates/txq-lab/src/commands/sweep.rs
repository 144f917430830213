//! `txq sim sweep`: runs a scenario at many points.

use std::time::{Duration, Instant};

use crate::sim::compare::Figures;
use crate::sim::run;
use crate::sim::scenario::{Scenario, Setup};
use crate::sim::sweep::{Axis, Line, Sweep};
use toml::Value;
use txq_cli::common::stop::Signals;
use txq_cli::common::tell::Tell;

use super::args::SweepArgs;
use super::outcome::Outcome;
use super::parallel::{cpus, progress};

/// Runs the points, and prints the results.
pub(crate) fn sweep(args: &SweepArgs) -> anyhow::Result<()> {
    let scenario = Scenario::open(&args.scenario)?;
    let first = scenario.points()[0].to_owned();
    let point = args.point.as_deref().unwrap_or(&first);
    let mut axes = args.vary.clone();
    if args.seeds.get() > 1 {
        let values = (1..=args.seeds.get()).map(|seed| Value::Integer(seed as i64)).collect();
        axes.push(Axis { path: "seed".into(), values });
    }
    let sweep = Sweep::new(&scenario, point, args.set.clone(), axes)?;
    args.results.check(&args.vary)?;
    let outcome = Outcome::open(&args.results)?;
    let threads = args.threads.map(|threads| threads.size());
    outcome.take(|outcome| {
        points(&sweep, all, (args.shard.0, args.shard.1), threads, args.quiet, |line| outcome.line(line))
    })
}

/// A function that runs a point and returns its figures.
pub(super) type Run = fn(&Setup) -> Result<Figures, String>;

/// Runs a point with a record of the waits between threads; returns all figures.
fn all(setup: &Setup) -> Result<Figures, String> {
    run::run(setup).map(|report| report.figures).map_err(|error| error.to_string())
}

/// Runs a point without a record of the waits between threads; returns its figures.
pub(super) fn plain(setup: &Setup) -> Result<Figures, String> {
    run::measure(setup).map(|report| report.figures).map_err(|error| error.to_string())
}

/// Runs a part of a sweep, each point by `run`, with progress on stderr, until a signal comes or `done` fails.
pub(super) fn points(
    sweep: &Sweep<'_>,
    run: Run,
    part: (usize, usize),
    threads: Option<usize>,
    quiet: bool,
    mut done: impl FnMut(Line) -> anyhow::Result<()> + Send,
) -> anyhow::Result<()> {
    let signals = Signals::catch()?;
    let of = sweep.shard(part.0, part.1).len();
    let threads = threads.unwrap_or_else(cpus);
    let mut tell = Tell::new(quiet);
    tell.say(&progress(0, of, "points", Duration::ZERO));
    let (start, mut ready, mut failed) = (Instant::now(), 0, None);
    sweep.run(part, threads, run, |line| {
        ready += 1;
        tell.say(&progress(ready, of, "points", start.elapsed()));
        match done(line) {
            Ok(()) => signals.seen().is_none(),
            Err(error) => {
                failed = Some(error);
                false
            }
        }
    });
    tell.end();
    failed.map_or(Ok(()), Err)
}
