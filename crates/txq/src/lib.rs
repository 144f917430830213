//! Linux's multi-core transmit path in user space.

pub mod arch;
pub mod cpumask;
pub mod drop;
pub mod flow;
pub mod packet;
pub mod pool;
pub mod stats;
pub mod sync;
pub mod tc;
pub mod topology;
pub mod xps;
