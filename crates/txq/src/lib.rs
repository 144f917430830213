//! Linux's multi-core transmit path in user space.

pub mod cpumask;
pub mod stats;
