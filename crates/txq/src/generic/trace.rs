//! Tracing: an event for each step of a packet, while a reader asks for it (the kernel's tracepoints `qdisc:*`, `net:*` and
//! `skb:kfree_skb`).
//!
//! A reader is a [`Trace`](crate::generic::netdev::Trace), which [`NetDev::trace`](crate::NetDev::trace) starts. Each trace has a ring
//! of its own. A thread in the data path writes the events that pass the trace's [`Filter`] to the ring, with the first
//! [`SNAPLEN`] bytes of the packet. If the ring is full the event is lost and counted: no thread in the data path waits for
//! a reader.
//!
//! While no trace runs, the data path pays nothing: the bit that says so is in the word of the rule in force, which each call
//! of xmit compares anyway (`datapath/selector.rs`). While one runs, packets take no short cut past the qdisc, so that each
//! has all its events.

mod event;
mod expr;
mod filter;
mod tap;

pub use event::{Event, EventKind, ParseEventError, SNAPLEN};
pub use expr::{Expr, ExprError};
pub use filter::Filter;
pub(crate) use tap::{At, Stored, Tap, Tracer};
