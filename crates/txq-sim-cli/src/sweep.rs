//! `txq sim sweep`: runs a scenario at many points.

use std::thread;
use std::time::{Duration, Instant};

use txq_cli_common::span::Human;
use txq_cli_common::stop::Signals;
use txq_cli_common::tell::Tell;
use txq_sim::compare::Figures;
use txq_sim::run;
use txq_sim::scenario::{Scenario, Setup};
use txq_sim::sweep::{Line, Sweep};

use super::args::SweepArgs;
use super::outcome::Outcome;

/// Runs the points, and prints the results.
pub(crate) fn sweep(args: &SweepArgs) -> anyhow::Result<()> {
    let scenario = Scenario::open(&args.scenario)?;
    let first = scenario.points()[0].to_owned();
    let point = args.point.as_deref().unwrap_or(&first);
    let sweep = Sweep::new(&scenario, point, args.set.clone(), args.vary.clone())?;
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
    let threads = threads.unwrap_or_else(|| thread::available_parallelism().map_or(1, |n| n.get()));
    let mut tell = Tell::new(quiet);
    tell.say(&progress(0, of, Duration::ZERO));
    let (start, mut ready, mut failed) = (Instant::now(), 0, None);
    sweep.run(part, threads, run, |line| {
        ready += 1;
        tell.say(&progress(ready, of, start.elapsed()));
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

/// Returns the progress: finished points, and an estimate of the remaining time.
fn progress(done: usize, all: usize, took: Duration) -> String {
    let line = format!("{done}/{all} points");
    if done == 0 || done == all {
        return line;
    }
    let left = took.as_nanos() * (all - done) as u128 / done as u128;
    format!("{line}, about {} left", Human(u64::try_from(left).unwrap_or(u64::MAX)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_left_is_that_of_the_points_left() {
        assert_eq!(progress(0, 5, Duration::ZERO), "0/5 points");
        assert_eq!(progress(2, 5, Duration::from_secs(4)), "2/5 points, about 6.00 s left");
        assert_eq!(progress(5, 5, Duration::from_secs(4)), "5/5 points");
    }
}
