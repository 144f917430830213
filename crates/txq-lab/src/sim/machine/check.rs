//! Bounds on a machine's numbers.
//!
//! The bounds are far beyond every real machine. They ensure that virtual time advances and does not overflow, whatever a
//! file says, and that swapped lines and forgotten units are found before anyone believes a simulation.

use std::ops::RangeInclusive;

use super::{Machine, MachineError};

/// The most CPUs of a machine.
pub const MAX_CPUS: u32 = 4096;

/// The most lines that a core can wait for while it continues.
const MAX_FLIGHT: u32 = 256;
/// The least time of an operation that a program can repeat: a picosecond, so that time advances.
const SHORTEST_OPERATION: f64 = 0.001;
/// The clocks of a core, in GHz.
const CLOCK_GHZ: RangeInclusive<f64> = 0.1..=10.0;
/// The longest access: 0.1 ms.
const ACCESS: f64 = 1e5;
/// The longest operation of the operating system: 10 s.
const OS: f64 = 1e10;
/// The shortest time slice: 1 us.
const SHORTEST_SLICE: f64 = 1e3;

impl Machine {
    /// Checks that the machine can be simulated; `file` is its name in errors.
    ///
    /// # Errors
    /// When a number is out of its bounds, or farther memory is faster than nearer memory.
    pub fn check(&self, file: &str) -> Result<(), MachineError> {
        let wrong = |field, value, remedy: String| {
            Err(MachineError::Field { file: file.to_owned(), field, value, remedy })
        };
        let t = &self.topology;
        for (field, count) in [
            ("topology.sockets", t.sockets),
            ("topology.dies", t.dies),
            ("topology.complexes", t.complexes),
            ("topology.cores", t.cores),
            ("topology.threads", t.threads),
        ] {
            if !(1..=MAX_CPUS).contains(&count) {
                return wrong(field, count.into(), format!("use a whole number from 1 to {MAX_CPUS}"));
            }
        }
        if t.cpus() > MAX_CPUS {
            let remedy = format!(
                "with {} sockets x {} dies x {} complexes x {} cores x {} threads there are more than {MAX_CPUS} CPUs; use fewer",
                t.sockets, t.dies, t.complexes, t.cores, t.threads
            );
            return wrong("topology.sockets", t.sockets.into(), remedy);
        }
        for (field, count) in [
            ("line.stores", self.line.stores),
            ("line.loads", self.line.loads),
            ("line.ahead", self.line.ahead),
        ] {
            if count > MAX_FLIGHT {
                return wrong(field, count.into(), format!("use a whole number from 0 to {MAX_FLIGHT}"));
            }
        }
        let (l, c) = (&self.line, &self.core);
        for (field, value, low, high) in [
            ("line.snoop", l.snoop, 0.0, 1.0),
            ("line.hold", l.hold, 0.0, 1.0),
            ("line.crowd", l.crowd, 0.0, 1.0),
            ("core.shared", c.shared, 1.0, 4.0),
        ] {
            if !(low..=high).contains(&value) {
                return wrong(field, value, format!("use {low} to {high}"));
            }
        }
        for &clock in &c.turbo {
            if !CLOCK_GHZ.contains(&clock) {
                return wrong(
                    "core.turbo",
                    clock,
                    format!("use {} to {} GHz", CLOCK_GHZ.start(), CLOCK_GHZ.end()),
                );
            }
        }
        for (field, value, low, high) in self.times() {
            // A NaN is in no range.
            if !(low..=high).contains(&value) {
                return wrong(field, value, format!("use {low} to {high} ns"));
            }
        }
        let a = &self.access;
        for (near, least, far, value) in [
            ("access.hit_gap", a.hit_gap, "access.hit", a.hit),
            ("access.hit", a.hit, "access.rmw", a.rmw),
            ("access.hit", a.hit, "access.same_core", a.same_core),
            ("access.same_core", a.same_core, "access.same_complex", a.same_complex),
            ("access.same_complex", a.same_complex, "access.same_die", a.same_die),
            ("access.same_die", a.same_die, "access.same_socket", a.same_socket),
            ("access.same_socket", a.same_socket, "access.other_socket", a.other_socket),
            ("access.hit", a.hit, "access.memory", a.memory),
            ("access.memory", a.memory, "access.other_memory", a.other_memory),
        ] {
            if value < least {
                return wrong(far, value, format!("use at least {least} ns, which is {near}"));
            }
        }
        Ok(())
    }

    /// Returns every time with its name and bounds, in nanoseconds.
    fn times(&self) -> [(&'static str, f64, f64, f64); 20] {
        let (a, l, c, o) = (&self.access, &self.line, &self.core, &self.os);
        [
            ("access.hit", a.hit, SHORTEST_OPERATION, ACCESS),
            ("access.hit_gap", a.hit_gap, 0.0, ACCESS),
            ("access.rmw", a.rmw, SHORTEST_OPERATION, ACCESS),
            ("access.same_core", a.same_core, SHORTEST_OPERATION, ACCESS),
            ("access.same_complex", a.same_complex, SHORTEST_OPERATION, ACCESS),
            ("access.same_die", a.same_die, SHORTEST_OPERATION, ACCESS),
            ("access.same_socket", a.same_socket, SHORTEST_OPERATION, ACCESS),
            ("access.other_socket", a.other_socket, SHORTEST_OPERATION, ACCESS),
            ("access.memory", a.memory, SHORTEST_OPERATION, ACCESS),
            ("access.other_memory", a.other_memory, SHORTEST_OPERATION, ACCESS),
            ("line.read_gap", l.read_gap, 0.0, ACCESS),
            ("core.pause", c.pause, 0.0, ACCESS),
            ("core.window", c.window, 0.0, ACCESS),
            ("os.clock", o.clock, SHORTEST_OPERATION, OS),
            ("os.switch", o.switch, 0.0, OS),
            ("os.interrupt", o.interrupt, 0.0, OS),
            ("os.wake", o.wake, 0.0, OS),
            ("os.wakeup", o.wakeup, 0.0, OS),
            ("os.slice", o.slice, SHORTEST_SLICE, OS),
            ("os.spin", o.spin, 0.0, OS),
        ]
    }
}
