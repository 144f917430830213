//! The runs of a plan: a short one of every way, several seeds of the most promising ones, and those at the rate.

use std::collections::BTreeMap;
use std::time::Instant;

use crate::sim::compare::Figures;
use crate::sim::run::{Report, RunError, explain, measure};
use crate::sim::scenario::{Change, Scenario, Setup};
use toml::Value;
use txq_cli::common::stop::Signals;
use txq_cli::common::table::number;
use txq_cli::common::tell::Tell;

use super::ways::{Choice, ENOUGH_MARGIN, Way};
use crate::commands::explain::bottleneck;
use crate::commands::parallel::{parallel, progress};
use crate::commands::points::Point;

/// The screening's part of a run's time.
const SCREENING: f64 = 0.25;
/// The warm-up before a run, as a part of its time.
const WARM_UP_PART: f64 = 0.5;
/// The shortest warm-up, in milliseconds: the senders' starts are spread over half of it.
const SHORTEST_WARM_UP: f64 = 0.1;
/// A way whose screening shows less than this part of the rate is not run with more seeds.
const SCREENED_RATE: f64 = 0.85;
/// Ways that are run with more seeds at a time, and those of them that promise enough to spare.
const PROMISING: usize = 6;
const SAFE: usize = 2;
/// Ways that are run at the rate.
const AT_RATE: usize = 8;

/// Errors, each once, with the first way that has it.
type Errors = Vec<(Choice, String)>;

/// All that a plan found.
pub(super) struct Found {
    /// The ways, the best first.
    pub(super) ways: Vec<Way>,
    /// The errors of ways that cannot be run, each once, with the first such way.
    pub(super) errors: Errors,
    /// Number of runs that the time did not suffice for.
    pub(super) left_out: usize,
    /// Why the nearest way is no faster, if none reaches the rate.
    pub(super) cause: Option<String>,
    /// The best way's Mpps with other amounts of own work, if that was assumed: nanoseconds and Mpps.
    pub(super) by_private: Vec<(f64, f64)>,
}

/// The runs, and the time for them.
pub(super) struct Stages<'a> {
    pub(super) scenario: &'a Scenario,
    pub(super) qdisc: &'a str,
    /// The rate, in Mpps.
    pub(super) rate: f64,
    /// Virtual milliseconds of a run.
    pub(super) time: f64,
    pub(super) seeds: u64,
    pub(super) threads: usize,
    pub(super) until: Instant,
    pub(super) tell: Tell,
    pub(super) signals: Signals,
    pub(super) left_out: usize,
}

/// A run: the index of its way, and its setup.
type Job = (usize, Setup);

impl Stages<'_> {
    /// Runs all stages. `own` are the nanoseconds of a sender's own work on a packet, if they were assumed.
    pub(super) fn run(mut self, choices: &[Choice], own: Option<f64>) -> anyhow::Result<Found> {
        let (mut ways, errors) = self.screen(choices)?;
        let rate = self.rate;
        loop {
            let promising = promising(&ways, rate);
            if promising.is_empty() {
                break;
            }
            self.measure(&mut ways, &promising)?;
            if self.is_over() || ways.iter().any(|way| way.meets(rate)) {
                break;
            }
        }
        self.at_rate(&mut ways)?;
        ways.sort_by(|a, b| a.by_cost(b, rate));
        let (mut cause, mut by_private) = (None, Vec::new());
        if let Some(best) = ways.first() {
            if !best.meets(rate) {
                cause = Some(self.cause(best.choice)?);
            }
            if let Some(own) = own {
                by_private = self.by_private(best.choice, own)?;
            }
        }
        self.tell.end();
        Ok(Found { ways, errors, left_out: self.left_out, cause, by_private })
    }

    fn is_over(&self) -> bool {
        Instant::now() >= self.until || self.signals.seen().is_some()
    }

    /// Returns the setup of a choice with a seed, for a part of a run's time.
    fn setup(&self, choice: Choice, seed: u64, part: f64, more: Vec<Change>) -> anyhow::Result<Setup> {
        let change = |path: &str, value: Value| Change { path: path.to_owned(), value };
        let mut changes = choice.changes(self.qdisc);
        changes.push(change("seed", Value::Integer(seed as i64)));
        changes.push(change("milliseconds", Value::Float(self.time * part)));
        changes.push(change("warmup", Value::Float((self.time * part * WARM_UP_PART).max(SHORTEST_WARM_UP))));
        changes.extend(more);
        Ok(self.scenario.setup("plan", &changes)?)
    }

    /// Runs jobs until the time is over; calls `done` with each result.
    fn jobs(
        &mut self,
        name: &str,
        jobs: &[Job],
        how: fn(&Setup) -> Result<Report, RunError>,
        mut done: impl FnMut(usize, Result<Report, RunError>),
    ) {
        let (start, mut ready) = (Instant::now(), 0);
        if self.is_over() {
            self.left_out += jobs.len();
            return;
        }
        let (until, signals, tell) = (self.until, &self.signals, &mut self.tell);
        tell.say(name);
        parallel(
            jobs,
            self.threads,
            |(_, setup)| how(setup),
            |at, report| {
                ready += 1;
                tell.say(&format!("{name}: {}", progress(ready, jobs.len(), "runs", start.elapsed())));
                done(jobs[at].0, report);
                Instant::now() < until && signals.seen().is_none()
            },
        );
        self.left_out += jobs.len() - ready;
    }

    fn screen(&mut self, choices: &[Choice]) -> anyhow::Result<(Vec<Way>, Errors)> {
        let setup = |(at, choice): (usize, &Choice)| Ok((at, self.setup(*choice, 1, SCREENING, Vec::new())?));
        let jobs = choices.iter().enumerate().map(setup).collect::<anyhow::Result<Vec<Job>>>()?;
        let mut results: BTreeMap<usize, Result<Figures, String>> = BTreeMap::new();
        self.jobs(&format!("screening {} ways", jobs.len()), &jobs, measure, |at, report| {
            results.insert(at, report.map(|report| report.figures).map_err(|error| error.to_string()));
        });
        let (mut ways, mut errors) = (Vec::new(), Errors::new());
        for (at, result) in results {
            match result {
                Ok(figures) => ways.push(Way::new(choices[at], figures)),
                Err(error) if errors.iter().any(|(_, known)| *known == error) => {}
                Err(error) => errors.push((choices[at], error)),
            }
        }
        Ok((ways, errors))
    }

    /// Runs some ways with every seed, as fast as the senders can.
    fn measure(&mut self, ways: &mut [Way], which: &[usize]) -> anyhow::Result<()> {
        let name = format!("{} ways with {} seeds", which.len(), self.seeds);
        let jobs = self.seeded(ways, which, &[])?;
        self.jobs(&name, &jobs, measure, |at, report| ways[at].runs.extend(report.map(|r| r.figures)));
        Ok(())
    }

    /// Runs the best of the ways that meet the rate with every seed at that rate.
    fn at_rate(&mut self, ways: &mut [Way]) -> anyhow::Result<()> {
        let mut which: Vec<usize> = (0..ways.len()).filter(|&at| ways[at].meets(self.rate)).collect();
        which.sort_by(|&a, &b| ways[a].by_cost(&ways[b], self.rate));
        which.truncate(AT_RATE);
        if which.is_empty() {
            return Ok(());
        }
        let offered = Change { path: "workload.offered_mpps".into(), value: Value::Float(self.rate) };
        let name = format!("{} ways at {} Mpps", which.len(), number(self.rate));
        let jobs = self.seeded(ways, &which, &[offered])?;
        self.jobs(&name, &jobs, measure, |at, report| ways[at].at_rate.extend(report.map(|r| r.figures)));
        Ok(())
    }

    /// Returns a job for each way and seed, all ways with one seed first: when the time is over, they have equally many.
    fn seeded(&self, ways: &[Way], which: &[usize], more: &[Change]) -> anyhow::Result<Vec<Job>> {
        let of = |seed| which.iter().map(move |&at| (at, seed));
        let all = (1..=self.seeds).flat_map(of);
        all.map(|(at, seed)| Ok((at, self.setup(ways[at].choice, seed, 1.0, more.to_vec())?))).collect()
    }

    /// Returns why a way is no faster.
    fn cause(&mut self, choice: Choice) -> anyhow::Result<String> {
        let setup = self.setup(choice, 1, 1.0, Vec::new())?;
        self.tell.say("why no way reaches the rate");
        let report = explain(&setup)?;
        let point = Point { scenario: self.scenario, name: "plan".into(), setup, report };
        Ok(bottleneck(&point))
    }

    /// Runs a way with half and twice the own work.
    fn by_private(&mut self, choice: Choice, own: f64) -> anyhow::Result<Vec<(f64, f64)>> {
        let mut found = Vec::new();
        let works = [own / 2.0, own * 2.0];
        let jobs = works.iter().enumerate().map(|(at, &work)| {
            let private = Change { path: "workload.private".into(), value: Value::Float(work) };
            Ok((at, self.setup(choice, 1, 1.0, vec![private])?))
        });
        let jobs = jobs.collect::<anyhow::Result<Vec<Job>>>()?;
        self.jobs("the best way with less and more own work", &jobs, measure, |at, report| {
            let mpps = report.ok().and_then(|report| report.figures.get("mpps").copied());
            found.extend(mpps.map(|mpps| (works[at], mpps)));
        });
        found.sort_by(|a, b| a.0.total_cmp(&b.0));
        Ok(found)
    }
}

/// Returns the ways to run with more seeds next: those near the rate or above it with the fewest txqs, and some with enough
/// to spare. If no way is near, the fastest ones, unless they have been run.
fn promising(ways: &[Way], rate: f64) -> Vec<usize> {
    let first = !ways.iter().any(Way::is_measured);
    let mut left: Vec<usize> = (0..ways.len()).filter(|&at| !ways[at].is_measured()).collect();
    left.sort_by(|&a, &b| {
        let ns = |at: usize| ways[at].figure("cpu_ns_per_packet").unwrap_or(f64::MAX);
        ways[a].choice.txqs.cmp(&ways[b].choice.txqs).then(ns(a).total_cmp(&ns(b)))
    });
    let above = |part: f64, n: usize| {
        left.iter().copied().filter(move |&at| ways[at].most().median >= part * rate).take(n)
    };
    let mut found: Vec<usize> = above(SCREENED_RATE, PROMISING).collect();
    // The screening and the seeds differ, so those with enough to spare get a little more than that.
    let safe: Vec<usize> = above(1.1 * (1.0 + ENOUGH_MARGIN), PROMISING + SAFE)
        .filter(|at| !found.contains(at))
        .take(SAFE)
        .collect();
    found.extend(safe);
    if found.is_empty() && first {
        left.sort_by(|&a, &b| ways[b].most().median.total_cmp(&ways[a].most().median));
        found = left.into_iter().take(PROMISING).collect();
    }
    found
}

#[cfg(test)]
mod tests {
    use txq::Discipline;

    use super::*;

    fn way(txqs: u16, mpps: f64) -> Way {
        let choice = Choice { txqs, discipline: Discipline::Combine, steering: None };
        Way::new(choice, [("mpps".to_owned(), mpps)].into())
    }

    #[test]
    fn the_fewest_txqs_near_the_rate_and_some_with_enough_are_promising() {
        let mut ways: Vec<Way> = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024]
            .into_iter()
            .zip([5.0, 8.4, 8.6, 9.0, 12.0, 9.9, 10.5, 12.0, 13.0, 20.0, 21.0])
            .map(|(txqs, mpps)| way(txqs, mpps))
            .collect();
        assert_eq!(promising(&ways, 10.0), [2, 3, 4, 5, 6, 7, 9, 10]);
        // None is near: the fastest, once.
        assert_eq!(promising(&ways, 100.0), [10, 9, 8, 4, 7, 6]);
        ways[10].runs.push(Figures::new());
        assert!(promising(&ways, 100.0).is_empty());
    }
}
