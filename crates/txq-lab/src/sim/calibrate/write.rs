//! Writes a measured machine as a file, with the source of each number.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::sim::machine::Machine;

/// A measured machine.
#[derive(Debug, Clone, PartialEq)]
pub struct Calibrated {
    /// The machine.
    pub machine: Machine,
    /// The source of each number, by its name prefixed with its table's.
    pub notes: BTreeMap<&'static str, String>,
    /// Benchmarks of line transfers, on the machine and on its simulation.
    pub checks: Vec<Check>,
}

/// A benchmark, measured on the machine and simulated on the machine made of the measurements, in nanoseconds.
#[derive(Debug, Clone, PartialEq)]
pub struct Check {
    /// What takes so long.
    pub what: String,
    /// The measured time.
    pub native: f64,
    /// The simulated time.
    pub simulated: f64,
}

impl Calibrated {
    /// Returns its file's text. [`Machine::parse`] reads the same machine from it.
    pub fn to_toml(&self) -> String {
        let m = &self.machine;
        let (t, a, l, c, o) = (&m.topology, &m.access, &m.line, &m.core, &m.os);
        let mut text = String::from(
            "# Measured by `txq sim calibrate`. Times are nanoseconds; a line's way between two CPUs is half a round trip of\n\
             # compare-and-exchange. CPUs are those that the process might use.\n",
        );
        let _ = writeln!(text, "name = {}", toml::Value::String(m.name.clone()));
        text.push_str("\n[topology]\n");
        for (name, count) in [
            ("sockets", t.sockets),
            ("dies", t.dies),
            ("complexes", t.complexes),
            ("cores", t.cores),
            ("threads", t.threads),
        ] {
            let _ = writeln!(text, "{name} = {count}");
        }
        let access = [
            ("access.hit", a.hit),
            ("access.hit_gap", a.hit_gap),
            ("access.rmw", a.rmw),
            ("access.same_core", a.same_core),
            ("access.same_complex", a.same_complex),
            ("access.same_die", a.same_die),
            ("access.same_socket", a.same_socket),
            ("access.other_socket", a.other_socket),
            ("access.memory", a.memory),
            ("access.other_memory", a.other_memory),
        ];
        self.table(&mut text, &access);
        let line = [("line.snoop", l.snoop), ("line.hold", l.hold), ("line.read_gap", l.read_gap)];
        self.table(&mut text, &line);
        let _ = writeln!(text, "stores = {} # {}", l.stores, self.note("line.stores"));
        let _ = writeln!(text, "loads = {} # {}", l.loads, self.note("line.loads"));
        let _ = writeln!(text, "crowd = {:?} # {}", l.crowd, self.note("line.crowd"));
        let _ = writeln!(text, "ahead = {:?} # {}", l.ahead, self.note("line.ahead"));
        let core = [("core.pause", c.pause), ("core.shared", c.shared), ("core.window", c.window)];
        self.table(&mut text, &core);
        if !c.turbo.is_empty() {
            let _ = writeln!(text, "turbo = {:?} # {}", c.turbo, self.note("core.turbo"));
        }
        let os = [
            ("os.clock", o.clock),
            ("os.switch", o.switch),
            ("os.interrupt", o.interrupt),
            ("os.wake", o.wake),
            ("os.wakeup", o.wakeup),
            ("os.slice", o.slice),
            ("os.spin", o.spin),
        ];
        self.table(&mut text, &os);
        if !self.checks.is_empty() {
            text.push_str("\n# Benchmarks of lines, in nanoseconds:\n#   native  simulated\n");
        }
        for Check { what, native, simulated } in &self.checks {
            let _ = writeln!(text, "# {native:8.2} {simulated:10.2}  {what}");
        }
        text
    }

    /// Writes a table of times whose names share the first part.
    fn table(&self, text: &mut String, fields: &[(&'static str, f64)]) {
        for (index, (field, value)) in fields.iter().enumerate() {
            let (table, name) = field.split_once('.').unwrap_or(("", field));
            if index == 0 {
                let _ = writeln!(text, "\n[{table}]");
            }
            let _ = writeln!(text, "{name} = {value:?} # {}", self.note(field));
        }
    }

    /// Returns the comment of a field. It is one line, even if a file name in it contains control characters.
    fn note(&self, field: &str) -> String {
        let note = self.notes.get(field).map(String::as_str).unwrap_or("not said");
        note.replace(char::is_control, "?")
    }
}
