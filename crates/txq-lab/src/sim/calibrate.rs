//! Measures the machine that it runs on and writes the machine's file.
//!
//! Every number is measured in several rounds, and each round measures all of them, so that a disturbance affects all
//! numbers alike. The median counts; the comment beside it gives the spread of the rounds. If the machine has one socket or
//! one CPU, some numbers cannot be measured: they are filled in from a named file, as the ratio there times the numbers
//! measured here. A line's transfer time between two CPUs is half a round trip of compare-and-exchange, as in the tables
//! behind the built-in machines.
//!
//! One thing differs from such tables: the time of a class is the median over a few pairs of CPUs, not over all.
//!
//! Three benchmarks show what the simulation makes of such numbers: an owner of a line that another CPU visits, a crowd that
//! adds to one number, and loads of 64 lines that depend on each other or overlap. The same code measures each, and simulates
//! it on the machine made of the measurements; both times end the file.

mod access;
mod error;
mod fill;
mod host;
mod os;
mod overlap;
mod pairs;
mod pin;
mod sample;
mod simulated;
mod visits;
mod write;

use std::path::PathBuf;
use std::time::Duration;

use crate::sim::machine::Machine;

pub use error::CalibrateError;
pub use write::{Calibrated, Check};

use host::{Class, Host};
use sample::Samples;

/// Settings of a measurement.
#[derive(Debug, Clone)]
pub struct Settings {
    /// About how long all measurements take together.
    pub time: Duration,
    /// Number of rounds.
    pub rounds: u32,
    /// The machine's name; by default its CPU's name.
    pub name: Option<String>,
    /// The machine that fills in numbers that cannot be measured, and its name in errors and comments; by default chosen by
    /// the maker of this machine's CPUs.
    pub fill: Option<(String, Machine)>,
    /// Bytes of memory to walk through; by default four times the last-level cache.
    pub memory: Option<usize>,
    /// The folder that contains sysfs and procfs.
    pub root: PathBuf,
}

impl Default for Settings {
    fn default() -> Self {
        let time = Duration::from_secs(4);
        Self { time, rounds: 7, name: None, fill: None, memory: None, root: "/".into() }
    }
}

/// Measures for a duration, and adds its samples.
type Run<'a> = Box<dyn FnMut(Duration, &mut Samples) -> Result<(), CalibrateError> + 'a>;

/// One repeated measurement.
struct Probe<'a> {
    /// Its description, for progress messages.
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

/// Measures this machine; returns the machine and its notes. Calls `tell` with progress messages.
///
/// # Errors
/// When this machine's description cannot be read, no CPU is allowed, a thread does not start or memory is refused.
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
    let all: Vec<u32> = host.places.iter().map(|place| place.cpu).collect();
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
        probes.push(Probe::new(format!("CPU {b}'s visits to a line of CPU {a}"), move |time, samples| {
            visits::visits(a, b, time, samples)
        }));
        probes.push(Probe::new(format!("CPU {a}'s loads of lines of CPU {b}"), move |time, samples| {
            overlap::loads(a, b, time, samples)
        }));
        probes.push(Probe::new(format!("waking CPU {b} from CPU {a}"), move |time, samples| {
            os::wake(a, b, time, samples)
        }));
    }

    for (threads, name) in visits::CROWD_NAMES {
        if let Some(cpus) = all.get(..threads as usize) {
            probes.push(Probe::new(format!("{threads} CPUs at one number"), move |time, samples| {
                visits::crowd(cpus, name, time, samples)
            }));
        }
    }

    let samples = measure(settings, &mut probes, tell)?;
    let name = settings.name.clone().unwrap_or_else(|| host.name());
    fill::machine(name, host.topology(), &host, &samples, &fill)
}

/// Measures a line's transfer time between two CPUs for a duration; returns nanoseconds, or `None` if the CPUs were too
/// busy. A hypervisor that moves virtual CPUs changes it within seconds, so measure it together with whatever depends on it.
///
/// # Errors
/// When a CPU cannot be used or a thread does not start.
pub fn line_way(a: u32, b: u32, time: Duration) -> Result<Option<f64>, CalibrateError> {
    pairs::way(a, b, time)
}

/// Runs all probes in turn, for each round.
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
