//! The simulated machine: where its CPUs are, and what an access from one CPU to another's cache line costs.
//!
//! A machine is a TOML file; each number in it has a comment with its source. Times in files are nanoseconds, with a
//! fraction where needed. In memory they are [`Picos`], so that sums are exact and the same on every machine. Some machines
//! are built in ([`Machine::names`]); `txq sim calibrate` writes such a file for the machine it runs on.

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

/// Converts nanoseconds to picoseconds, rounded; NaN and negative numbers give 0.
pub fn picos(nanos: f64) -> Picos {
    (nanos * 1e3).round() as Picos
}

/// A machine.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Machine {
    /// Its name in reports.
    pub name: String,
    /// Number and grouping of its CPUs.
    pub topology: Topology,
    /// Cost of accesses.
    pub access: Access,
    /// Behaviour of a line between accesses.
    pub line: Line,
    /// How a core waits, and what its threads share.
    pub core: Core,
    /// Cost of the operating system's work.
    pub os: Os,
}

/// Factors on numbers of the machine's file.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Scale {
    /// Factor on each transfer time of a line: from all other caches and from memory.
    pub lines: f64,
    /// Factor on the time that a core keeps a line which another core has requested: on `line.snoop` and `line.hold`.
    pub hold: f64,
}

impl Default for Scale {
    fn default() -> Self {
        Self { lines: 1.0, hold: 1.0 }
    }
}

impl Machine {
    /// Returns the names of the built-in machines.
    pub fn names() -> impl Iterator<Item = &'static str> {
        builtin::ALL.iter().map(|(name, _)| *name)
    }

    /// Returns the file of a built-in machine.
    pub fn text(name: &str) -> Option<&'static str> {
        builtin::ALL.iter().find(|(known, _)| *known == name).map(|(_, text)| *text)
    }

    /// Returns a built-in machine.
    ///
    /// # Errors
    /// When no built-in machine has that name.
    pub fn named(name: &str) -> Result<Self, MachineError> {
        match Self::text(name) {
            Some(text) => Self::parse(text, &format!("{name}.toml")),
            None => Err(MachineError::unknown(name)),
        }
    }

    /// Finds a machine by the name of a built-in one or by the path of a file. A path contains a `/` or ends in `.toml`.
    ///
    /// # Errors
    /// As [`named`](Self::named) and [`read`](Self::read).
    pub fn find(name_or_path: &str) -> Result<Self, MachineError> {
        let path = name_or_path.contains('/') || name_or_path.ends_with(".toml");
        if path { Self::read(name_or_path) } else { Self::named(name_or_path) }
    }

    /// Reads the machine in a file.
    ///
    /// # Errors
    /// When the file cannot be read or does not describe a machine.
    pub fn read(path: impl AsRef<Path>) -> Result<Self, MachineError> {
        let path = path.as_ref();
        let text = fs::read_to_string(path)
            .map_err(|source| MachineError::Io { file: path.display().to_string(), source })?;
        Self::parse(&text, &path.display().to_string())
    }

    /// Finds a machine as [`find`](Self::find) does, and replaces the fields that `tune` names.
    ///
    /// # Errors
    /// As [`find`](Self::find), for the file and for the tuned machine.
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

    /// Multiplies the machine's line times by `by`.
    #[must_use]
    pub fn scaled(mut self, by: Scale) -> Self {
        let a = &mut self.access;
        let caches =
            [&mut a.same_core, &mut a.same_complex, &mut a.same_die, &mut a.same_socket, &mut a.other_socket];
        caches.into_iter().chain([&mut a.memory, &mut a.other_memory]).for_each(|way| *way *= by.lines);
        for part in [&mut self.line.snoop, &mut self.line.hold] {
            *part = (*part * by.hold).min(1.0);
        }
        self
    }

    /// Returns the machine with cores that wait for each line that they load and fetch none ahead, hits that take their latency,
    /// and crowds that slow no transfer.
    #[must_use]
    pub fn without_overlap(mut self) -> Self {
        (self.line.loads, self.line.ahead, self.line.crowd, self.access.hit_gap) = (0, 0, 0.0, 0.0);
        self
    }

    /// Parses a machine's text; `file` is its name in errors.
    ///
    /// # Errors
    /// When the text is not TOML, a field is missing, unknown or of the wrong type, or a number is out of its bounds.
    pub fn parse(text: &str, file: &str) -> Result<Self, MachineError> {
        let machine: Self = toml::from_str(text).map_err(|error| MachineError::syntax(file, text, &error))?;
        machine.check(file)?;
        Ok(machine)
    }
}

impl Topology {
    /// Returns the number of CPUs.
    pub fn cpus(&self) -> u32 {
        let all = [self.dies, self.complexes, self.cores, self.threads];
        all.iter().fold(self.sockets, |cpus, &count| cpus.saturating_mul(count))
    }
}

/// Number and grouping of the CPUs. CPUs are numbered as Linux numbers them on such a machine: first one thread of every
/// core, socket by socket, then the cores' second threads in the same order.
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

/// Cost of accesses, in nanoseconds.
///
/// The times of a line that another core has are half the round trip of two cores that compare and exchange a value in turn,
/// as in the published tables of core-to-core latency. They include the atomic operation itself.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Access {
    /// A load or store of a line in this core's cache.
    pub hit: f64,
    /// The time between two such loads or stores that do not wait for each other's values; without it, that of `hit`.
    #[serde(default)]
    pub hit_gap: f64,
    /// An atomic read-modify-write of a line in this core's cache.
    pub rmw: f64,
    /// A line that the core's other thread wrote.
    pub same_core: f64,
    /// A line in the cache of another core of this complex.
    pub same_complex: f64,
    /// A line in another complex of this die.
    pub same_die: f64,
    /// A line in another die of this socket.
    pub same_socket: f64,
    /// A line in another socket.
    pub other_socket: f64,
    /// A line in no cache, from this socket's memory.
    pub memory: f64,
    /// A line in no cache, from another socket's memory.
    pub other_memory: f64,
}

/// Behaviour of a line between accesses, and how many lines a core can request at a time.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Line {
    /// The part of a transfer's time that passes until the request reaches the line's owner, which uses the line until then.
    pub snoop: f64,
    /// The part of a transfer's time for which a new owner uses the line although another CPU has requested it before.
    pub hold: f64,
    /// Time between the transfers of a line to two CPUs that read it, in nanoseconds.
    pub read_gap: f64,
    /// Lines that a core can wait for while it continues, because it only writes to them: its line fill buffers.
    pub stores: u32,
    /// Lines that a core can wait for while it continues behind loads; without it a core waits for each line that it loads.
    #[serde(default)]
    pub loads: u32,
    /// The part of a transfer's time by which each request that waits makes the transfer longer, up to four of them.
    #[serde(default)]
    pub crowd: f64,
    /// Lines that a core's prefetcher requests ahead of a thread that accesses an array in order.
    #[serde(default)]
    pub ahead: u32,
}

/// How a core waits, and what its threads share.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Core {
    /// A PAUSE instruction, in nanoseconds. A waiter loads the value again after each.
    pub pause: f64,
    /// Factor on the time of a thread's work while the core's other thread works, too.
    pub shared: f64,
    /// The clock of a core in GHz, by the number of cores of its socket that are not idle: with one, with two, and so on; the
    /// last one holds for more. The times of this file are those of the last one. Without it the clock never changes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub turbo: Vec<f64>,
    /// The work that a core can do ahead of a load whose line has not arrived: the length of its reorder buffer, in
    /// nanoseconds.
    #[serde(default)]
    pub window: f64,
}

/// Cost of the operating system's work, in nanoseconds.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Os {
    /// A reading of the clock.
    pub clock: f64,
    /// A switch from one thread to another on a CPU.
    pub switch: f64,
    /// Entry and exit of an interrupt, which takes the CPU from its thread.
    pub interrupt: f64,
    /// Cost of a wakeup to the waker.
    pub wake: f64,
    /// Time from the wakeup until the woken thread runs on an idle CPU.
    pub wakeup: f64,
    /// Time that a thread runs while others wait for its CPU.
    pub slice: f64,
    /// Time that a waiting thread spins before it yields its CPU.
    pub spin: f64,
}

#[cfg(test)]
mod tests;
