//! The tree of qdiscs over any [`Arch`](txq_core::arch::Arch), as model checkers and the simulator use it.
//!
//! Programs use the concrete types one layer above: [`Scheduler`](crate::Scheduler), [`qdisc`](crate::qdisc),
//! [`filter`](crate::filter), [`packet`](crate::packet). They wrap the types of this module for the native machine, which
//! this crate compiles once. A function that a crate above calls is never inlined, so that crate links to this instance.

mod action;
pub mod filter;
pub mod qdisc;
mod rate;
mod scheduler;
pub mod tree;

pub use filter::Filters;
pub use scheduler::PacketScheduler;
pub(crate) use scheduler::Top;
