//! The results of all cases, as a table.

use std::fmt;

use super::Queue;
use super::bench::Bench;

/// How a requirement binds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Level {
    /// The RFC says MUST.
    Must,
    /// The RFC says SHOULD.
    Should,
    /// The RFC's text or pseudocode specifies the algorithm, without one of these words.
    Text,
    /// An example in the RFC does so; another algorithm need not.
    Example,
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Must => "MUST",
            Self::Should => "SHOULD",
            Self::Text => "text",
            Self::Example => "example",
        })
    }
}

/// The result of a case.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Outcome {
    /// The case's name, unique in its report.
    pub name: &'static str,
    /// The RFC and its section.
    pub section: &'static str,
    /// How the requirement binds.
    pub level: Level,
    /// The requirement.
    pub requirement: &'static str,
    /// The values that decide.
    pub measured: String,
    /// Whether the queue meets the requirement.
    pub passed: bool,
}

/// The results of the cases of an RFC. Prints as a table.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Report {
    /// The RFC and the parameters.
    pub title: String,
    /// A result for each case.
    pub outcomes: Vec<Outcome>,
}

impl Report {
    /// Returns whether all cases passed.
    pub fn passed(&self) -> bool {
        self.failed().next().is_none()
    }

    /// Returns the cases that failed.
    pub fn failed(&self) -> impl Iterator<Item = &Outcome> {
        self.outcomes.iter().filter(|outcome| !outcome.passed)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = self.outcomes.len();
        writeln!(f, "{}: {} of {all} cases passed", self.title, all - self.failed().count())?;
        let width = |column: fn(&Outcome) -> &str| {
            self.outcomes.iter().map(|outcome| column(outcome).len()).max().unwrap_or(0)
        };
        let name = width(|outcome| outcome.name);
        let section = width(|outcome| outcome.section);
        let requirement = width(|outcome| outcome.requirement);
        for outcome in &self.outcomes {
            writeln!(
                f,
                "{}  {:name$}  {:section$}  {:7}  {:requirement$}  {}",
                if outcome.passed { "pass" } else { "FAIL" },
                outcome.name,
                outcome.section,
                outcome.level,
                outcome.requirement,
                outcome.measured,
            )?;
        }
        Ok(())
    }
}

/// A case: its name, its section, its level and its requirement.
pub(super) type Case = (&'static str, &'static str, Level, &'static str);

/// Runs cases, each with a new queue.
pub(super) struct Runner<B> {
    build: B,
    outcomes: Vec<Outcome>,
    /// The first packet that a queue has returned wrongly.
    violation: Option<String>,
}

impl<Q: Queue, B: FnMut() -> Q> Runner<B> {
    pub(super) fn new(build: B) -> Self {
        Self { build, outcomes: Vec::new(), violation: None }
    }

    /// Calls `run` with a new queue, for the values that decide.
    pub(super) fn run<R>(&mut self, run: impl FnOnce(&mut Bench<Q>) -> R) -> R {
        let mut bench = Bench::new((self.build)());
        let result = run(&mut bench);
        self.violation = self.violation.take().or(bench.violation);
        result
    }

    /// Adds a result.
    pub(super) fn add(&mut self, case: Case, passed: bool, measured: String) {
        let (name, section, level, requirement) = case;
        self.outcomes.push(Outcome { name, section, level, requirement, measured, passed });
    }

    /// Runs a case. `run` returns whether it passed, and the values that decide.
    pub(super) fn case(&mut self, case: Case, run: impl FnOnce(&mut Bench<Q>) -> (bool, String)) {
        let (passed, measured) = self.run(run);
        self.add(case, passed, measured);
    }

    /// Returns the report, with a last case for packets that were returned wrongly.
    pub(super) fn finish(mut self, title: String) -> Report {
        let case = (
            "packets",
            "RFC 3168, 5",
            Level::Must,
            "a packet leaves once, in its flow's order, unchanged but for CE in place of ECT",
        );
        let passed = self.violation.is_none();
        let measured = self.violation.take().unwrap_or_else(|| "all packets did".to_owned());
        self.add(case, passed, measured);
        Report { title, outcomes: self.outcomes }
    }
}
