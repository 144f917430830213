//! Linux's multi-core transmit path in user space.

pub mod arch;
pub mod drop;
pub mod packet;
pub mod pool;
pub mod stats;
pub mod sync;
