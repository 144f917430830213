//! Linux's multi-core transmit path in user space.

pub mod cpumask;
pub mod flow;
pub mod stats;
pub mod topology;
pub mod xps;
