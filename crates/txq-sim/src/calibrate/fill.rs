//! Builds a whole machine from the measurements. Numbers that could not be measured come from another machine, with a note.

use std::collections::BTreeMap;

use super::host::{Class, Host};
use super::sample::{Samples, Summary};
use super::{CalibrateError, Calibrated};
use crate::machine::{Access, Line, Machine, Os, Topology};

/// The longest hold that is plausible, in nanoseconds: beyond it, the CPU was preempted.
const LONGEST_HOLD: f64 = 100.0;
/// Linux' minimum base slice in nanoseconds, and the number of CPUs beyond which it stays the same.
const SLICE: (f64, u32) = (750_000.0, 8);

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
    let access = Access {
        hit,
        rmw,
        same_core,
        same_complex,
        same_die,
        same_socket,
        other_socket,
        memory,
        other_memory: other_memory.max(memory),
    };

    // Threads of a core share their cache, so a line does not stay with one of them.
    let hold = match samples.get("stay").filter(|_| host.nearest().is_some()) {
        Some(stay) => {
            let hold = (stay.median * rmw).clamp(rmw, LONGEST_HOLD);
            let note = format!(
                "measured: rmw x {:.1} additions before a line goes to another CPU that wants it, too; from rmw to \
                 {LONGEST_HOLD} is believed",
                stay.median
            );
            (hold, note)
        }
        None => (other.line.hold, format!("not measured; that of {}", fill.0)),
    };
    let hold = filling.set("line.hold", hold);
    let read_gap = filling.or_filled("line.read_gap", other.line.read_gap);
    filling.notes.insert("line.stores", format!("not measured; that of {}", fill.0));
    let line = Line { hold, read_gap, stores: other.line.stores };

    let doublings = topology.cpus().clamp(1, SLICE.1).ilog2();
    let slice = SLICE.0 * f64::from(1 + doublings);
    let note = format!("not measured; Linux' base slice, 0.75 ms x (1 + {doublings})");
    let os = Os {
        clock: filling.measured("os.clock")?,
        switch: filling.measured("os.switch")?,
        wake: filling.or_filled("os.wake", other.os.wake),
        wakeup: filling.or_filled("os.wakeup", other.os.wakeup),
        slice: filling.set("os.slice", (slice, note)),
        spin: filling.measured("os.spin")?,
    };
    let machine = Machine { name: plain(&name), topology, access, line, os };
    machine.check("of this machine")?;
    Ok(Calibrated { machine, notes: filling.notes })
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
                let ratio = other[index] / other[near];
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
