//! Counters: those that `tc -s` prints, and those of devices, locks and times.

pub mod device;

pub use txq_core::stats::{QdiscStats, latency, log2};
