//! Measures the machine that it runs on and writes its file.
//!
//! Every number is measured in several rounds, one after the other in each of them, so that whatever else the machine does
//! hits all alike; the median counts, and the comment beside it tells how far the rounds spread. What this machine cannot
//! show, for it has one socket or one CPU only, is filled in from a file that is named: the ratio there, times what was
//! measured here. A line's way between two CPUs is half a round trip of compare-and-exchange, as in the tables that the
//! machines that are built in are from.
//!
//! It differs from such tables in what it takes for a class's time: the median over a few pairs of CPUs, not over all.
//! `line.hold` is how long a CPU adds to a number that another wants, too. A real CPU does so while the other's request is on
//! its way, so that the hold is a part of the way here: where a simulation adds the two, it takes a line that is fought for to
//! move more slowly than it does.

mod access;
mod error;
mod fill;
mod host;
mod os;
mod pairs;
mod pin;
mod sample;
mod write;

use std::path::PathBuf;
use std::time::Duration;

use crate::machine::Machine;

pub use error::CalibrateError;
pub use write::Calibrated;

use host::{Class, Host};
use sample::Samples;

/// How to measure.
#[derive(Debug, Clone)]
pub struct Settings {
    /// How long all measurements take together, about.
    pub time: Duration,
    /// How often everything is measured.
    pub rounds: u32,
    /// What the machine is called; by its CPU's name without it.
    pub name: Option<String>,
    /// The machine that fills in what cannot be measured, and what errors and comments call it; by the maker of this
    /// machine's CPUs without it.
    pub fill: Option<(String, Machine)>,
    /// Memory to wander about in; four times the last cache without it.
    pub memory: Option<usize>,
    /// Where sysfs and procfs are.
    pub root: PathBuf,
}

impl Default for Settings {
    fn default() -> Self {
        let time = Duration::from_secs(4);
        Self { time, rounds: 7, name: None, fill: None, memory: None, root: "/".into() }
    }
}

/// Measures for so long.
type Run<'a> = Box<dyn FnMut(Duration, &mut Samples) -> Result<(), CalibrateError> + 'a>;

/// One thing that is measured again and again.
struct Probe<'a> {
    /// What it is, for who waits.
    what: String,
    run: Run<'a>,
}

impl<'a> Probe<'a> {
    fn new(
        what: impl Into<String>,
        run: impl FnMut(Duration, &mut Samples) -> Result<(), CalibrateError> + 'a,
    ) -> Self {
        Self { what: what.into(), run: Box::new(run) }
    }
}

/// Measures this machine. `tell` hears what is measured, now and then.
///
/// # Errors
/// When this machine's description cannot be read, no CPU may be used, a thread does not start or memory is refused.
pub fn calibrate(settings: &Settings, tell: &mut dyn FnMut(&str)) -> Result<Calibrated, CalibrateError> {
    let host = Host::read(&settings.root)?;
    let fill = match &settings.fill {
        Some(fill) => fill.clone(),
        None => (host.alike().to_owned(), Machine::named(host.alike())?),
    };
    tell("making room to wander about in");
    let home = &host.places[0];
    let bytes = settings.memory.unwrap_or_else(|| host.memory_to_walk());
    let mut near = access::Walk::new(bytes, home.cpu)?;
    let mut far = match host.elsewhere() {
        Some(place) => Some(access::Walk::new(bytes, place.cpu)?),
        None => None,
    };

    let cpu = home.cpu;
    let mut probes = vec![
        Probe::new("accesses of one CPU", |time, samples| access::own(cpu, time, samples)),
        Probe::new("memory", |time, samples| near.measure(cpu, "access.memory", time, samples)),
        Probe::new("switching threads", |time, samples| os::switch(cpu, time, samples)),
    ];
    if let Some(far) = &mut far {
        let field = "access.other_memory";
        let run = move |time, samples: &mut Samples| far.measure(cpu, field, time, samples);
        probes.push(Probe::new("another socket's memory", run));
    }
    for class in Class::ALL {
        probes.extend(host.pairs(class).into_iter().map(|(a, b)| {
            let run = move |time, samples: &mut Samples| pairs::ping_pong(class, a, b, time, samples);
            Probe::new(format!("a line between CPUs {a} and {b}"), run)
        }));
    }
    if let Some((a, b)) = host.neighbours() {
        probes.push(Probe::new(format!("a line that CPUs {a} and {b} fight for"), move |time, samples| {
            pairs::contended(a, b, time, samples)
        }));
        probes.push(Probe::new(format!("waking CPU {b} from CPU {a}"), move |time, samples| {
            os::wake(a, b, time, samples)
        }));
    }

    let samples = measure(settings, &mut probes, tell)?;
    let name = settings.name.clone().unwrap_or_else(|| host.name());
    fill::machine(name, host.topology(), &host, &samples, &fill)
}

/// A line's way between two CPUs, in nanoseconds, measured for so long. A hypervisor that moves virtual CPUs changes it within
/// seconds, so that what depends on it is measured together with it.
///
/// # Errors
/// When a CPU cannot be used or a thread does not start.
pub fn line_way(a: u32, b: u32, time: Duration) -> Result<Option<f64>, CalibrateError> {
    pairs::way(a, b, time)
}

/// All in turn, again and again.
fn measure(
    settings: &Settings,
    probes: &mut [Probe<'_>],
    tell: &mut dyn FnMut(&str),
) -> Result<Samples, CalibrateError> {
    let rounds = settings.rounds.max(1);
    let time = settings.time / rounds / probes.len().max(1) as u32;
    let mut samples = Samples::default();
    for round in 1..=rounds {
        for probe in &mut *probes {
            tell(&format!("round {round} of {rounds}: {}", probe.what));
            (probe.run)(time, &mut samples)?;
        }
    }
    Ok(samples)
}

#[cfg(test)]
mod tests;
