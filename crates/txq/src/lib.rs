//! Linux's multi-core transmit path in user space.

pub mod stats;
pub mod tc;
