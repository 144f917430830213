//! Internal to txq, and published only because Cargo wants it.
//!
//! Programs depend on `txq`, the data plane, or on `txq-sched`, the qdiscs without threads or devices; both re-export what their
//! users need. This crate has the base of both: packets and their buffers, hand-over between threads, flow hashes and counters.
//! Items hidden from the documentation may change in any release.
//!
//! All code that another CPU can observe is generic over an [`Arch`](arch::Arch), so model checkers and the simulator run
//! the code that sends packets. The module `os` holds all that needs Linux, with a fallback by std for other systems.

pub mod arch;
pub mod clock;
pub mod cpumask;
pub mod drop;
pub mod flow;
mod os;
pub mod packet;
pub mod pool;
pub mod stats;
pub mod sync;
mod transparent;
