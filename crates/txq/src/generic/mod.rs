//! The data path over any [`Arch`](txq_core::arch::Arch), as model checkers and the simulator use it.
//!
//! Programs use the concrete types one layer above: [`NetDev`](crate::NetDev), [`Sender`](crate::Sender),
//! [`driver`](crate::driver) and their neighbours. They wrap the types of this module for the native machine, which this
//! crate compiles once. A function that they call is never inlined, so crates above link to this instance.

pub mod bql;
mod datapath;
pub mod driver;
pub mod enqueue;
pub mod netdev;
mod panics;
mod registry;
mod run;
mod schedule;
mod sender;
mod shared;
pub mod stats;
mod steering;
pub mod trace;
mod transfer;
mod tuning;
mod txqset;
mod txqueue;
pub mod worker;

pub use enqueue::Discipline;
pub use netdev::NetDev;
pub use sender::{Flow, Ingress, Room, SendError, Sender, WaitError};
/// The qdiscs over any machine, for crates that depend on this one alone.
pub use txq_sched::generic::{PacketScheduler, filter, qdisc};
pub use txqueue::TxCounters;
pub use worker::Worker;
