//! Builds a whole machine from the measurements. Numbers that could not be measured come from another machine, with a note.

use std::collections::BTreeMap;

use super::host::{Class, Host};
use super::sample::{Samples, Summary};
use super::write::Check;
use super::{CalibrateError, Calibrated, overlap, simulated, visits};
use crate::sim::machine::{Access, Core, Line, Machine, Os, Topology};
use crate::sim::topology::{Distance, Topology as Places};

/// PAUSE instructions of a spin ([`Arch::AtomicU32`](txq_core::arch::Arch) natively).
const PAUSES: f64 = 64.0;
/// Linux' minimum base slice in nanoseconds, and the number of CPUs beyond which it stays the same.
const BASE_SLICE: (f64, u32) = (750_000.0, 8);

/// A field's value, and its source.
type Value = (f64, String);

/// The file's values so far.
struct Filling<'a> {
    samples: &'a Samples,
    fill: &'a (String, Machine),
    notes: BTreeMap<&'static str, String>,
}

impl Filling<'_> {
    /// Returns the measured value of a field that every machine can measure.
    fn measured(&mut self, field: &'static str) -> Result<f64, CalibrateError> {
        match self.samples.get(field) {
            Some(summary) => Ok(self.set(field, of(summary))),
            None => Err(CalibrateError::Nothing { what: field }),
        }
    }

    /// Returns the measured value, or else the other machine's.
    fn or_filled(&mut self, field: &'static str, other: f64) -> f64 {
        let value = match self.samples.get(field) {
            Some(summary) => of(summary),
            None => (other, format!("not measured; that of {}", self.fill.0)),
        };
        self.set(field, value)
    }

    fn set(&mut self, field: &'static str, (value, note): Value) -> f64 {
        self.notes.insert(field, note);
        rounded(value)
    }
}

/// Builds a machine from the measurements.
pub(super) fn machine(
    name: String,
    topology: Topology,
    host: &Host,
    samples: &Samples,
    fill: &(String, Machine),
) -> Result<Calibrated, CalibrateError> {
    let mut filling = Filling { samples, fill, notes: BTreeMap::new() };
    let other = &fill.1;
    let hit = filling.measured("access.hit")?;
    let rmw = filling.measured("access.rmw")?.max(hit);
    let [same_core, same_complex, same_die, same_socket, other_socket] = ways(&mut filling, hit, rmw);
    let memory = filling.measured("access.memory")?.max(hit);
    let ratio = other.access.other_memory / other.access.memory;
    let other_memory = match samples.get("access.other_memory") {
        Some(summary) => filling.set("access.other_memory", of(summary)),
        None => {
            let note = format!("not measured; memory x {ratio:.2}, the ratio in {}", fill.0);
            filling.set("access.other_memory", (memory * ratio, note))
        }
    };
    let hit_gap = filling.or_filled("access.hit_gap", other.access.hit_gap).min(hit);
    let access = Access {
        hit,
        hit_gap,
        rmw,
        same_core,
        same_complex,
        same_die,
        same_socket,
        other_socket,
        memory,
        other_memory: other_memory.max(memory),
    };

    let (snoop, hold) = keeps(&mut filling, host, rmw);
    let read_gap = filling.or_filled("line.read_gap", other.line.read_gap);
    let not = format!("not measured; that of {}", fill.0);
    filling.notes.insert("line.stores", not.clone());
    let way = host.nearest().and_then(|class| samples.get(class.field()));
    let (loads, note) = match way.zip(samples.get("loads.independent")) {
        Some((way, each)) => {
            let overlap = way.median / each.median;
            let note =
                format!("measured: in the time of one way {overlap:.1} lines of known addresses arrive");
            (overlap.round().clamp(1.0, 256.0) as u32, note)
        }
        None => (other.line.loads, not.clone()),
    };
    filling.notes.insert("line.loads", note);
    let (ahead, note) = match way.zip(samples.get("loads.in_order")) {
        Some((way, each)) => {
            let ahead = way.median / each.median;
            (
                ahead.round().clamp(1.0, 256.0) as u32,
                format!("measured: in the time of one way {ahead:.1} lines in order arrive"),
            )
        }
        None => (other.line.ahead, not.clone()),
    };
    filling.notes.insert("line.ahead", note);
    filling.notes.insert("line.crowd", not.clone());
    let line =
        Line { snoop, hold, read_gap, stores: other.line.stores, loads, crowd: other.line.crowd, ahead };

    let spin = filling.measured("os.spin")?;
    let pause =
        filling.set("core.pause", (spin / PAUSES, format!("os.spin / {PAUSES}, its number of PAUSEs")));
    let core = Core {
        pause,
        shared: filling.or_filled("core.shared", if topology.threads > 1 { other.core.shared } else { 1.0 }),
        window: filling.or_filled("core.window", other.core.window),
        // Only two CPUs were busy: how the clock falls with more is not known.
        turbo: Vec::new(),
    };

    let doublings = topology.cpus().clamp(1, BASE_SLICE.1).ilog2();
    let slice = BASE_SLICE.0 * f64::from(1 + doublings);
    let note = format!("not measured; Linux' base slice, 0.75 ms x (1 + {doublings})");
    let os = Os {
        clock: filling.measured("os.clock")?,
        switch: filling.measured("os.switch")?,
        interrupt: filling.or_filled("os.interrupt", other.os.interrupt),
        wake: filling.or_filled("os.wake", other.os.wake),
        wakeup: filling.or_filled("os.wakeup", other.os.wakeup),
        slice: filling.set("os.slice", (slice, note)),
        spin,
    };
    let machine = Machine { name: plain(&name), topology, access, line, core, os };
    machine.check("of this machine")?;
    let checks = checks(&machine, host, samples);
    Ok(Calibrated { machine, notes: filling.notes, checks })
}

/// Returns `line.snoop` and `line.hold`, as parts of the transfer time between the nearest cores. Threads of a core share
/// their cache, so a line does not stay with one of them.
fn keeps(filling: &mut Filling<'_>, host: &Host, rmw: f64) -> (f64, f64) {
    let other = &filling.fill.1.line;
    let (other_snoop, other_hold) = (other.snoop, other.hold);
    let not = format!("not measured; that of {}", filling.fill.0);
    let way = host.nearest().and_then(|class| filling.samples.get(class.field())).map(|way| way.median);
    let hold = match way.zip(filling.samples.get("stay")) {
        Some((way, stay)) => {
            let note = format!(
                "measured: {:.1} additions before the line goes to another CPU that adds, too",
                stay.median
            );
            (stay.median * rmw / way, note)
        }
        None => (other_hold, not.clone()),
    };
    let hold = filling.set("line.hold", (hold.0.clamp(0.0, 1.0), hold.1));
    // A visit costs the owner (1 - snoop) ways until the visitor has the line, the hold there, and (1 - snoop) ways back.
    let snoop = match way.zip(filling.samples.get("visit.1000")) {
        Some((way, visit)) => {
            let loss = visit.median / way;
            let note =
                format!("measured: a visit costs the owner {loss:.2} ways, which are 2 - 2 snoop + hold");
            ((2.0 + hold - loss) / 2.0, note)
        }
        None => (other_snoop, not),
    };
    (filling.set("line.snoop", (snoop.0.clamp(0.0, 1.0), snoop.1)), hold)
}

/// Returns the benchmarks of line transfers, measured and simulated on the machine made of the measurements.
fn checks(machine: &Machine, host: &Host, samples: &Samples) -> Vec<Check> {
    let mut checks = Vec::new();
    let mut add = |what: String, name: &str, simulate: &dyn Fn() -> Option<f64>| {
        if let Some((native, simulated)) =
            samples.get(name).and_then(|native| Some((native.median, simulate()?)))
        {
            checks.push(Check { what, native, simulated });
        }
    };
    let pair = host.nearest().and_then(|class| distance(class, machine));
    if let Some(pair) = pair {
        for (period, name) in visits::PERIODS {
            let what = format!("an owner's loss for each visit, one in {} us", period as f64 / 1e3);
            add(what, name, &|| simulated::visits(machine, pair, period));
        }
    }
    for (loads, remote, near) in overlap::WAYS {
        let which = match loads {
            overlap::Loads::Dependent => "that depend on each other",
            overlap::Loads::InOrder => "in order, that depend on each other",
            overlap::Loads::Independent => "of known addresses",
        };
        let count = loads.count();
        let simulate = |hit: usize| simulated::loads(machine, pair?, loads)[hit];
        add(format!("a line of another CPU, one of {count} {which}"), remote, &|| simulate(0));
        add(format!("a line in the cache, one of {count} {which}"), near, &|| simulate(1));
    }
    for (threads, name) in visits::CROWD_NAMES {
        let cpus: Vec<u32> = (0..threads.min(machine.topology.cpus())).collect();
        add(format!("an addition of {threads} CPUs to one number"), name, &|| {
            Some(simulated::adds(machine, &cpus))
        });
    }
    checks
}

/// Returns two simulated CPUs that are as far apart as a class says.
fn distance(class: Class, machine: &Machine) -> Option<(u32, u32)> {
    let topology = Places::new(&machine.topology);
    let wanted = match class {
        Class::SameCore => Distance::Core,
        Class::SameComplex => Distance::Complex,
        Class::SameDie => Distance::Die,
        Class::SameSocket => Distance::Socket,
        Class::OtherSocket => Distance::Far,
    };
    (1..topology.cpus()).find(|&cpu| topology.distance(0, cpu) == wanted).map(|cpu| (0, cpu))
}

/// Returns the transfer time of a line in each class, from near to far, none shorter than a nearer one.
fn ways(filling: &mut Filling<'_>, hit: f64, rmw: f64) -> [f64; 5] {
    let a = &filling.fill.1.access;
    let other = [a.same_core, a.same_complex, a.same_die, a.same_socket, a.other_socket];
    let other_rmw = a.rmw;
    let found = Class::ALL.map(|class| filling.samples.get(class.field()));
    let mut nearest = hit;
    let mut ways = [0.0; 5];
    for (index, class) in Class::ALL.into_iter().enumerate() {
        let base = (0..index).rev().chain(index + 1..5).find_map(|near| Some((near, found[near]?)));
        let (mut value, mut note) = match (found[index], base) {
            (Some(summary), _) => of(summary),
            (None, Some((near, summary))) => {
                let ratio = match index > near {
                    true => (other[index] / other[alike(&other[near..], summary.median) + near]).max(1.0),
                    false => other[index] / other[near],
                };
                // At most the time of a farther class that was measured.
                let beyond = found[index + 1..].iter().flatten().map(|summary| summary.median);
                let value = beyond.fold(summary.median * ratio, f64::min);
                let name = Class::ALL[near].field().trim_start_matches("access.");
                (value, format!("not measured; {name} x {ratio:.2}, the ratio in {}", filling.fill.0))
            }
            (None, None) => {
                let ratio = other[index] / other_rmw;
                (rmw * ratio, format!("not measured; rmw x {ratio:.2}, the ratio in {}", filling.fill.0))
            }
        };
        if index == 1 && found[1].is_some() && value > 2.0 * other[1] {
            note = format!("{note}; far above that of {}: do they share a cache?", filling.fill.0);
        }
        if rounded(value) < nearest {
            note = format!("{note}; {value:.1} raised to what is nearer");
            value = nearest;
        }
        ways[index] = filling.set(class.field(), (value, note));
        nearest = ways[index];
    }
    ways
}

/// Returns which of the times is nearest to a measured one. A hypervisor may call CPUs neighbours that are in different
/// complexes: then the next class is not as many times farther as if they were neighbours.
fn alike(ways: &[f64], measured: f64) -> usize {
    let apart = |way: f64| (way / measured).ln().abs();
    let nearest = ways.iter().enumerate().min_by(|(_, a), (_, b)| apart(**a).total_cmp(&apart(**b)));
    nearest.map_or(0, |(index, _)| index)
}

/// Returns the median of the rounds, and a note on their spread.
fn of(summary: Summary) -> Value {
    let Summary { median, low, high, count } = summary;
    let mut note = format!("measured: median of {count}, half of them {} to {}", rounded(low), rounded(high));
    if high > 2.0 * low {
        note += "; these differ: does a hypervisor move its CPUs?";
    }
    (median, note)
}

/// Rounds to a measurement's precision: hundredths below 100, whole numbers above.
fn rounded(value: f64) -> f64 {
    let scale = if value < 100.0 { 100.0 } else { 1.0 };
    (value * scale).round() / scale
}

/// Returns the name on one line.
fn plain(name: &str) -> String {
    name.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}
