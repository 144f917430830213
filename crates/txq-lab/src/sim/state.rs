//! The state of real qdiscs: the cache lines that their calls read and write, and the time of their own code.
//!
//! `qdiscs.toml` has it for each kind. `txq sim qdiscs` writes that file: it runs the qdiscs' code (`bench/state.rs`). A scenario
//! whose `lines` and `prices` say nothing of its qdisc gets it, unless the qdisc is a plain FIFO.

use std::sync::OnceLock;

use serde::{Deserialize, Serialize};

/// A value for each kind of call.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Each<T> {
    /// A packet is enqueued.
    pub enqueue: T,
    /// A packet is dequeued.
    pub dequeue: T,
    /// A packet is enqueued to a qdisc at its limit: a packet is dropped.
    pub drop: T,
}

impl<T> Each<T> {
    /// Returns the values of enqueue, dequeue and drop.
    pub fn of([enqueue, dequeue, drop]: [T; 3]) -> Self {
        Self { enqueue, dequeue, drop }
    }

    /// Returns the values in that order.
    pub fn all(&self) -> [&T; 3] {
        [&self.enqueue, &self.dequeue, &self.drop]
    }
}

/// The time of a qdisc's own code, in nanoseconds.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Times {
    /// Of a call, whatever the number of its packets.
    pub call: Each<f64>,
    /// Of each packet beside that; of each dropped packet beside its enqueue.
    pub packet: Each<f64>,
}

/// The state of a qdisc, or of a tree.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct State {
    /// Its name: the root's kind, and behind a hyphen its leaves' kind.
    pub name: String,
    /// The qdisc's own lines, in each of which most calls of a kind have a part. A letter for each line: `w` if a call writes it,
    /// `r` if a call only reads it, `.` if the call does not access it.
    pub fixed: Each<String>,
    /// The lines of a packet's flow, in the same letters.
    pub flow: Each<String>,
    /// How many further lines a packet's call accesses on average: of other flows, of tables.
    pub others: Each<f64>,
    /// How many of these the call before accessed, too, of whatever kind it was.
    pub again: Each<f64>,
    /// How many of these one of the [`RECENT_CALLS`] calls before that accessed.
    pub recent: Each<f64>,
    /// How many lines these are in all.
    pub among: u32,
    /// The lines of a packet's data that enqueue reads.
    pub data: u32,
    /// The time of its code.
    pub ns: Times,
}

/// The file of all states.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct States {
    /// CPU nanoseconds of a packet from one sender through a `pfifo` under `spinlock` and under `combine`, where the times were
    /// measured: their scale.
    pub path_ns: [f64; 2],
    /// The states.
    pub qdisc: Vec<State>,
}

/// How many calls before the last one are recent.
pub const RECENT_CALLS: usize = 15;

/// The plain FIFO that the other qdiscs are compared with.
pub const PLAIN: &str = "pfifo";

impl States {
    /// Returns the states of the file.
    pub fn known() -> &'static Self {
        static KNOWN: OnceLock<States> = OnceLock::new();
        KNOWN.get_or_init(|| toml::from_str(include_str!("../../qdiscs.toml")).expect("the file of states"))
    }

    /// Returns the state of a name.
    pub fn get(&self, name: &str) -> Option<&State> {
        self.qdisc.iter().find(|state| state.name == name)
    }
}
