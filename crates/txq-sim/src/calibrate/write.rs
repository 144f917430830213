//! Writes a measured machine as a file, with the source of each number.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::machine::Machine;

/// A measured machine.
#[derive(Debug, Clone, PartialEq)]
pub struct Calibrated {
    /// The machine.
    pub machine: Machine,
    /// The source of each number, by its name prefixed with its table's.
    pub notes: BTreeMap<&'static str, String>,
}

impl Calibrated {
    /// Returns its file's text. [`Machine::parse`] reads the same machine from it.
    pub fn to_toml(&self) -> String {
        let m = &self.machine;
        let (t, a, l, o) = (&m.topology, &m.access, &m.line, &m.os);
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
        self.table(&mut text, &[("line.hold", l.hold), ("line.read_gap", l.read_gap)]);
        let _ = writeln!(text, "stores = {} # {}", l.stores, self.note("line.stores"));
        let os = [
            ("os.clock", o.clock),
            ("os.switch", o.switch),
            ("os.wake", o.wake),
            ("os.wakeup", o.wakeup),
            ("os.slice", o.slice),
            ("os.spin", o.spin),
        ];
        self.table(&mut text, &os);
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
