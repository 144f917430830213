//! Linux's multi-core transmit path in user space.

pub mod arch;
pub mod cpumask;
mod ctx;
pub mod driver;
pub mod drop;
pub mod enqueue;
pub mod flow;
pub mod netdev;
pub mod packet;
pub mod pool;
pub mod qdisc;
mod run;
mod schedule;
mod sender;
pub mod stats;
mod steering;
pub mod sync;
pub mod tc;
pub mod topology;
mod txqueue;
mod worker;
pub mod xps;

pub use netdev::NetDev;
pub use sender::Sender;
pub use txqueue::TxCounters;
pub use worker::Worker;
