//! A sweep: a point of a scenario, with some of its fields set to several values each.
//!
//! Each combination is a point with a number, the same on every machine, so several machines can share a sweep: shard `I` of
//! `N` runs the points whose number is `I` modulo `N`, and [`merge`] joins the parts. Points are independent, and run in
//! parallel on the host's CPUs. If a point cannot be run, for example because its qdisc does not exist, its line holds the
//! error instead of figures, and the other points still run.

use std::str::FromStr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use toml::Value;

use crate::sim::compare::Figures;
use crate::sim::scenario::{Change, Scenario, ScenarioError, Setup, value_of};

mod line;
mod merge;

pub use line::{Fields, Line};
pub use merge::{MergeError, merge};

/// Maximum number of points of a sweep: more is a mistake, or a job for several sweeps.
pub const MAX_POINTS: usize = 100_000;

/// A field and its values, in order.
#[derive(Debug, Clone, PartialEq)]
pub struct Axis {
    /// The field's TOML path.
    pub path: String,
    /// Its values.
    pub values: Vec<Value>,
}

impl FromStr for Axis {
    type Err = String;

    /// Parses `PATH=A,B,C`, where each value may be `FROM..TO*FACTOR` or `FROM..TO+STEP`, both ends included.
    fn from_str(text: &str) -> Result<Self, String> {
        let (path, list) =
            text.split_once('=').filter(|(path, list)| !path.is_empty() && !list.is_empty()).ok_or_else(
                || format!("\"{text}\" is not PATH=VALUE,VALUE..: as workload.senders=1,2,4 or =1..480*2"),
            )?;
        let mut values = Vec::new();
        for part in list.split(',') {
            match part.split_once("..") {
                Some((from, rest)) => range(part, from, rest, &mut values)?,
                None => values.push(value_of(part.trim())),
            }
        }
        Ok(Self { path: path.trim().to_owned(), values })
    }
}

/// Appends the numbers of a range.
fn range(text: &str, from: &str, rest: &str, to: &mut Vec<Value>) -> Result<(), String> {
    let wrong = || format!("\"{text}\" is not a range: write 1..480*2 or 10..50+10");
    let at = rest.find(['*', '+']).ok_or_else(wrong)?;
    let number = |text: &str| text.trim().parse::<f64>().ok().filter(|n| n.is_finite()).ok_or_else(wrong);
    let (first, last, step) = (number(from)?, number(&rest[..at])?, number(&rest[at + 1..])?);
    let grows = if rest[at..].starts_with('*') { step > 1.0 && first > 0.0 } else { step > 0.0 };
    if !grows || last < first {
        return Err(format!("\"{text}\" does not get from {first} to {last}: write 1..480*2 or 10..50+10"));
    }
    let whole = [from, &rest[..at], &rest[at + 1..]].iter().all(|text| text.trim().parse::<i64>().is_ok());
    let next = |n: f64| if rest[at..].starts_with('*') { n * step } else { n + step };
    let mut push = |n: f64| to.push(if whole { Value::Integer(n as i64) } else { Value::Float(n) });
    let mut n = first;
    for _ in 0..MAX_POINTS {
        if n >= last {
            break;
        }
        push(n);
        n = next(n);
    }
    push(last);
    Ok(())
}

/// A sweep.
#[derive(Debug, Clone)]
pub struct Sweep<'a> {
    scenario: &'a Scenario,
    point: String,
    base: Vec<Change>,
    axes: Vec<Axis>,
}

impl<'a> Sweep<'a> {
    /// Creates a sweep over `axes`, the last of which changes fastest, from a variant with the changes of `base`.
    ///
    /// # Errors
    /// When there are too many points, or one is invalid.
    pub fn new(
        scenario: &'a Scenario,
        point: &str,
        base: Vec<Change>,
        axes: Vec<Axis>,
    ) -> Result<Self, ScenarioError> {
        let sweep = Self { scenario, point: point.to_owned(), base, axes };
        let wrong = |why: String| ScenarioError::Wrong { file: scenario.name.clone(), why };
        if !scenario.points().contains(&point) {
            let known = scenario.points().join(", ");
            return Err(wrong(format!("there is no variant \"{point}\": use one of {known}")));
        }
        let twice = |(n, axis): (usize, &Axis)| sweep.axes[..n].iter().any(|other| other.path == axis.path);
        if let Some((_, axis)) = sweep.axes.iter().enumerate().find(|axis| twice(*axis)) {
            return Err(wrong(format!("{} is varied twice: give it all its values at once", axis.path)));
        }
        let size = sweep.axes.iter().try_fold(1_usize, |n, axis| n.checked_mul(axis.values.len()));
        if size.is_none_or(|n| n > MAX_POINTS) {
            return Err(wrong(format!("a sweep of more than {MAX_POINTS} points: use fewer values")));
        }
        for index in 0..sweep.len() {
            sweep.setup(index)?;
        }
        Ok(sweep)
    }

    /// Returns the number of points.
    pub fn len(&self) -> usize {
        self.axes.iter().map(|axis| axis.values.len()).product()
    }

    /// Returns whether there are no points.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the values of a point.
    pub fn changes(&self, index: usize) -> Vec<Change> {
        let mut rest = index;
        let mut changes: Vec<Change> = Vec::new();
        for axis in self.axes.iter().rev() {
            let value = axis.values[rest % axis.values.len()].clone();
            changes.push(Change { path: axis.path.clone(), value });
            rest /= axis.values.len();
        }
        changes.reverse();
        changes
    }

    /// Returns the setup of a point.
    pub fn setup(&self, index: usize) -> Result<Setup, ScenarioError> {
        let mut changes = self.base.clone();
        changes.append(&mut self.changes(index));
        self.scenario.setup(&self.point, &changes)
    }

    /// Returns the numbers of the points of shard `shard` (from 0) of `shards`.
    pub fn shard(&self, shard: usize, shards: usize) -> Vec<usize> {
        (shard..self.len()).step_by(shards.max(1)).collect()
    }

    /// Runs shard `shard` (from 0) of `shards` on `threads` threads of the host. Calls `done` with each line when it is
    /// complete, in any order; when it returns false, no other point is started.
    pub fn run(
        &self,
        (shard, shards): (usize, usize),
        threads: usize,
        run: impl Fn(&Setup) -> Result<Figures, String> + Sync,
        done: impl FnMut(Line) -> bool + Send,
    ) {
        let own = self.shard(shard, shards);
        let (next, done) = (AtomicUsize::new(0), Mutex::new(done));
        let fields = |changes: Vec<Change>| Fields(changes.into_iter().map(|c| (c.path, c.value)).collect());
        let work = || {
            while let Some(&index) = own.get(next.fetch_add(1, Ordering::Relaxed)) {
                let setup = self.setup(index).map_err(|error| error.to_string());
                let (figures, error) = match setup.and_then(|setup| run(&setup)) {
                    Ok(figures) => (figures, None),
                    Err(error) => (Figures::new(), Some(error)),
                };
                let (scenario, variant) = (self.scenario.name.clone(), self.point.clone());
                let (set, at) = (fields(self.base.clone()), fields(self.changes(index)));
                let line = Line { scenario, variant, of: self.len(), index, set, at, figures, error };
                if !(done.lock().unwrap_or_else(PoisonError::into_inner))(line) {
                    next.store(own.len(), Ordering::Relaxed);
                }
            }
        };
        std::thread::scope(|scope| {
            for _ in 0..threads.clamp(1, own.len().max(1)) {
                scope.spawn(work);
            }
        });
    }
}

#[cfg(test)]
mod tests;
