//! The machine that is simulated: where its CPUs are, and what an access from one to another's cache line costs.
//!
//! A machine is a TOML file; each number in it says in a comment where it is from. Times in files are nanoseconds, with
//! a fraction where it matters; inside they are [`Picos`], so that sums are exact and the same on every machine.

use serde::Deserialize;

/// Picoseconds of virtual time.
pub type Picos = u64;

/// A machine.
#[derive(Debug, Clone, PartialEq, Deserialize)]
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

/// Where the CPUs are. CPUs are numbered as Linux numbers them on such a machine: first one thread of every core, socket by
/// socket, then the cores' second threads in the same order.
#[derive(Debug, Clone, PartialEq, Deserialize)]
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
#[derive(Debug, Clone, PartialEq, Deserialize)]
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

/// What a line does between accesses, in nanoseconds.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Line {
    /// Before a line that has come may go on to the next CPU: what its new owner can do with it at least.
    pub hold: f64,
    /// Between two CPUs that read the same line.
    pub read_gap: f64,
}

/// What the operating system's work costs, in nanoseconds.
#[derive(Debug, Clone, PartialEq, Deserialize)]
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

/// `ns` nanoseconds, to the nearest picosecond. Less than nothing is nothing.
pub fn picos(ns: f64) -> Picos {
    (ns * 1000.0).round().max(0.0) as Picos
}
