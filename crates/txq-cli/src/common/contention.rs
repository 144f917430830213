//! Recorded waits between threads, in the layouts of `perf lock contention` and `/proc/lock_stat`, and as JSON.

mod json;
pub mod lock_stat;
pub mod perf;

pub use json::recorded;

#[cfg(test)]
mod tests;
