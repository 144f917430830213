//! The machine that is simulated: where its CPUs are, and what an access from one to another's cache line costs.
//!
//! A machine is a TOML file; each number in it says in a comment where it is from. Times in files are nanoseconds, with
//! a fraction where it matters; inside they are [`Picos`], so that sums are exact and the same on every machine. Some
//! machines are built in ([`Machine::names`]); `txq sim calibrate` writes such a file for the one it runs on.

mod builtin;
mod check;
mod error;

use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};

pub use check::MAX_CPUS;
pub use error::MachineError;

/// Picoseconds of virtual time.
pub type Picos = u64;

/// The picoseconds of so many nanoseconds; no number and what is below zero are 0.
pub fn picos(nanos: f64) -> Picos {
    (nanos * 1e3).round() as Picos
}

/// A machine.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Machine {
    /// What it is called in reports.
    pub name: String,
    /// Where its CPUs are.
    pub topology: Topology,
    /// What an access costs.
    pub access: Access,
    /// What a line does between accesses.
    pub line: Line,
    /// What the operating system's work costs.
    pub os: Os,
}

/// How many times as much as the machine's file says.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Scale {
    /// Each way of a line: from all other caches and from memory.
    pub lines: f64,
    /// The time that a core keeps a contended line.
    pub hold: f64,
}

impl Default for Scale {
    fn default() -> Self {
        Self { lines: 1.0, hold: 1.0 }
    }
}

impl Machine {
    /// The names of the machines that are built in.
    pub fn names() -> impl Iterator<Item = &'static str> {
        builtin::ALL.iter().map(|(name, _)| *name)
    }

    /// The file of a machine that is built in.
    pub fn text(name: &str) -> Option<&'static str> {
        builtin::ALL.iter().find(|(known, _)| *known == name).map(|(_, text)| *text)
    }

    /// A machine that is built in.
    ///
    /// # Errors
    /// When there is none of that name.
    pub fn named(name: &str) -> Result<Self, MachineError> {
        match Self::text(name) {
            Some(text) => Self::parse(text, &format!("{name}.toml")),
            None => Err(MachineError::unknown(name)),
        }
    }

    /// The machine that somebody means: the name of one that is built in, or the path of a file. A path has a `/` in it
    /// or ends in `.toml`.
    ///
    /// # Errors
    /// As [`named`](Self::named) and [`read`](Self::read).
    pub fn find(name_or_path: &str) -> Result<Self, MachineError> {
        let path = name_or_path.contains('/') || name_or_path.ends_with(".toml");
        if path { Self::read(name_or_path) } else { Self::named(name_or_path) }
    }

    /// The machine in a file.
    ///
    /// # Errors
    /// When the file cannot be read or does not hold a machine.
    pub fn read(path: impl AsRef<Path>) -> Result<Self, MachineError> {
        let path = path.as_ref();
        let text = fs::read_to_string(path)
            .map_err(|source| MachineError::Io { file: path.display().to_string(), source })?;
        Self::parse(&text, &path.display().to_string())
    }

    /// As [`find`](Self::find), with the fields of `tune` in place of the file's.
    ///
    /// # Errors
    /// As there, for the file and for what it is with those fields.
    pub fn tuned(name_or_path: &str, tune: &toml::Table) -> Result<Self, MachineError> {
        fn merge(into: &mut toml::Table, from: &toml::Table) {
            for (key, value) in from {
                match (into.get_mut(key), value) {
                    (Some(toml::Value::Table(mine)), toml::Value::Table(theirs)) => merge(mine, theirs),
                    _ => drop(into.insert(key.clone(), value.clone())),
                }
            }
        }
        let machine = Self::find(name_or_path)?;
        if tune.is_empty() {
            return Ok(machine);
        }
        let mut table = toml::Table::try_from(&machine).expect("a machine was a table");
        merge(&mut table, tune);
        Self::parse(&table.to_string(), &format!("{name_or_path}, tuned"))
    }

    /// The machine with other ways of lines.
    #[must_use]
    pub fn scaled(mut self, by: Scale) -> Self {
        let a = &mut self.access;
        let caches =
            [&mut a.same_core, &mut a.same_complex, &mut a.same_die, &mut a.same_socket, &mut a.other_socket];
        caches.into_iter().chain([&mut a.memory, &mut a.other_memory]).for_each(|way| *way *= by.lines);
        self.line.hold *= by.hold;
        self
    }

    /// The machine that a text describes; `file` is what errors call it.
    ///
    /// # Errors
    /// When it is not TOML, a field is missing, unknown or of the wrong type, or a number is out of its bounds.
    pub fn parse(text: &str, file: &str) -> Result<Self, MachineError> {
        let machine: Self = toml::from_str(text).map_err(|error| MachineError::syntax(file, text, &error))?;
        machine.check(file)?;
        Ok(machine)
    }
}

impl Topology {
    /// How many CPUs there are.
    pub fn cpus(&self) -> u32 {
        let all = [self.dies, self.complexes, self.cores, self.threads];
        all.iter().fold(self.sockets, |cpus, &count| cpus.saturating_mul(count))
    }
}

/// Where the CPUs are. CPUs are numbered as Linux numbers them on such a machine: first one thread of every core, socket by
/// socket, then the cores' second threads in the same order.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Topology {
    /// Sockets; each is a NUMA node.
    pub sockets: u32,
    /// Dies in a socket.
    pub dies: u32,
    /// Core complexes, which share a last-level cache, in a die.
    pub complexes: u32,
    /// Cores in a complex.
    pub cores: u32,
    /// Hardware threads of a core.
    pub threads: u32,
}

/// What an access costs, in nanoseconds.
///
/// The times of a line that another core has are half a round trip of two cores that compare and exchange a value in turn,
/// which is what the published tables of core-to-core latency say. They include the atomic operation itself.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Access {
    /// A load or store of a line that this core has.
    pub hit: f64,
    /// An atomic read-modify-write of a line that this core has.
    pub rmw: f64,
    /// A line that the other thread of this core wrote.
    pub same_core: f64,
    /// A line in the cache of another core of this complex.
    pub same_complex: f64,
    /// A line in another complex of this die.
    pub same_die: f64,
    /// A line in another die of this socket.
    pub same_socket: f64,
    /// A line in another socket.
    pub other_socket: f64,
    /// A line that no cache has, from this socket's memory.
    pub memory: f64,
    /// A line that no cache has, from another socket's memory.
    pub other_memory: f64,
}

/// What a line does between accesses, in nanoseconds, and how many a core can ask for.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Line {
    /// Before a line that has come may go on to the next CPU: what its new owner can do with it at least.
    pub hold: f64,
    /// Between two CPUs that read the same line.
    pub read_gap: f64,
    /// Lines that a core can wait for while it goes on, because it only writes to them: its line fill buffers.
    pub stores: u32,
}

/// What the operating system's work costs, in nanoseconds.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Os {
    /// A reading of the clock.
    pub clock: f64,
    /// From one thread to another on a CPU.
    pub switch: f64,
    /// What who wakes a sleeping thread pays for it.
    pub wake: f64,
    /// From then until the woken thread runs on an idle CPU.
    pub wakeup: f64,
    /// How long a thread runs while others wait for its CPU.
    pub slice: f64,
    /// How long a waiting thread spins before it gives its CPU away.
    pub spin: f64,
}

#[cfg(test)]
mod tests;
