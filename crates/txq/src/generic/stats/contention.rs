//! Waits between threads: which locks, from where, how long, and how often lock-free words were retried.

pub use txq_core::stats::contention::*;
