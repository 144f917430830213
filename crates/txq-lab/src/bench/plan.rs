//! The configurations that a run measures: the suites, with the command line's options and defaults.

use std::str::FromStr;

use txq::Discipline;

use super::aqm::AQM;
use super::case::{Case, Key};
use super::lab::Lab;
use super::overload::{self, Load};
use super::rig::{Queue, Rig};
use super::work::Work;
use super::{bql, crowd, isolation, path, peers, pool, qdisc, rate, shaper, timing, xps};
use crate::bench::args::BenchArgs;

/// A suite.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Suite {
    Crowd,
    Pool,
    Xps,
    Work,
    Path,
    Overload,
    Qdisc,
    Timing,
    Bql,
    Isolation,
    Rate,
    Peers,
}

/// The qdiscs that only the laboratory has.
pub(super) const OWN: [&str; 3] = [crowd::SLOW, AQM, shaper::SHAPER];
/// The default suites.
pub(super) const DEFAULT_SUITES: [Suite; 5] =
    [Suite::Crowd, Suite::Pool, Suite::Xps, Suite::Work, Suite::Path];
const NAMES: [(&str, Suite); 13] = [
    ("crowd", Suite::Crowd),
    ("pool", Suite::Pool),
    ("xps", Suite::Xps),
    ("work", Suite::Work),
    ("shaper", Suite::Work),
    ("path", Suite::Path),
    ("overload", Suite::Overload),
    ("qdisc", Suite::Qdisc),
    ("timing", Suite::Timing),
    ("bql", Suite::Bql),
    ("isolation", Suite::Isolation),
    ("rate", Suite::Rate),
    ("peers", Suite::Peers),
];

impl FromStr for Suite {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some((_, suite)) = NAMES.iter().find(|(name, _)| *name == text) {
            return Ok(*suite);
        }
        let (like, _) = NAMES
            .iter()
            .map(|(name, _)| (name, strsim::jaro_winkler(text, name)))
            .max_by(|a, b| a.1.total_cmp(&b.1))
            .filter(|(_, score)| *score > 0.75)
            .unwrap_or((&"", 0.0));
        let hint = if like.is_empty() { String::new() } else { format!("did you mean \"{like}\"? ") };
        Err(format!(
            "there is no such suite: {hint}use crowd, pool, xps, work, path, overload, qdisc, timing, bql, isolation, rate or peers"
        ))
    }
}

/// The command line's options, and the defaults of each suite.
pub(super) struct Plan<'a> {
    pub(super) args: &'a BenchArgs,
    pub(super) lab: &'a Lab,
}

impl<'a> Plan<'a> {
    /// Returns the suites, each once, in the order of the command line.
    pub(super) fn suites(&self) -> Vec<Suite> {
        let mut suites: Vec<Suite> = Vec::new();
        let asked = if self.args.suites.is_empty() { &DEFAULT_SUITES[..] } else { &self.args.suites };
        for suite in asked {
            if !suites.contains(suite) {
                suites.push(*suite);
            }
        }
        suites
    }

    /// Returns all configurations.
    pub(super) fn cases(&self) -> anyhow::Result<Vec<Case>> {
        let mut cases = Vec::new();
        for suite in self.suites() {
            cases.extend(match suite {
                Suite::Crowd => crowd::cases(self),
                Suite::Pool => pool::cases(self),
                Suite::Xps => xps::cases(self)?,
                Suite::Work => shaper::cases(self),
                Suite::Path => path::cases(self),
                Suite::Overload => overload::cases(self)?,
                Suite::Qdisc => qdisc::cases(self),
                Suite::Timing => timing::cases(self),
                Suite::Bql => bql::cases(self),
                Suite::Isolation => isolation::cases(self),
                Suite::Rate => rate::cases(self)?,
                Suite::Peers => peers::cases(self)?,
            });
        }
        Ok(cases)
    }

    pub(super) fn threads(&self, default: &[u64]) -> Vec<u64> {
        or(&self.args.threads, |n| n.get(), default)
    }

    pub(super) fn batches(&self, default: &[u64]) -> Vec<u64> {
        or(&self.args.batch, |n| n.get(), default)
    }

    /// Returns the named disciplines, or all.
    pub(super) fn disciplines(&self) -> Vec<Discipline> {
        or(&self.args.discipline, |&discipline| discipline, Discipline::ALL)
    }

    /// Returns the named disciplines, or the default one.
    pub(super) fn discipline(&self) -> Vec<Discipline> {
        or(&self.args.discipline, |&discipline| discipline, &[Discipline::default()])
    }

    /// Returns the named qdiscs, or `default`.
    pub(super) fn qdiscs(&self, default: &[&str]) -> Vec<String> {
        or(&self.args.qdisc, String::clone, &default.iter().map(|&q| q.to_owned()).collect::<Vec<_>>())
    }

    pub(super) fn flows(&self, default: &[u64]) -> Vec<u64> {
        or(&self.args.flows, |n| n.get(), default)
    }

    pub(super) fn loads(&self, default: &[Load]) -> Vec<Load> {
        or(&self.args.load, |load| *load, default)
    }

    /// Returns the queue of a name: one of the laboratory's own, or else tc's text.
    pub(super) fn queue(&self, qdisc: &str) -> Queue {
        match qdisc {
            crowd::SLOW => crowd::slow(self),
            AQM => Queue::Aqm(self.work()),
            shaper::SHAPER => shaper::shaper(self),
            text => Queue::text(text),
        }
    }

    /// Returns the work of `--work-ns`.
    pub(super) fn work(&self) -> Work {
        self.lab.calibration.work(self.args.work_ns.get())
    }
}

/// Returns the given values, or `default` without any.
pub(super) fn or<T, U: Clone>(given: &[T], get: impl Fn(&T) -> U, default: &[U]) -> Vec<U> {
    if given.is_empty() { default.to_vec() } else { given.iter().map(get).collect() }
}

/// Returns a configuration that a rig measures.
pub(super) fn case(key: Key, rig: Rig) -> Case {
    let key =
        Key { discipline: Some(rig.discipline), threads: rig.threads as u64, batch: rig.batch as u64, ..key };
    Case { key, run: Box::new(move |lab, time| rig.measure(lab, time)) }
}
