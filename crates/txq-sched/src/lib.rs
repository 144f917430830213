//! Linux's queueing disciplines, filters and tc's language, without threads, sockets or devices.
//!
//! [`Scheduler`] is a tree of qdiscs for a program with its own event loop and its own buffers: configured in tc's words,
//! with tc's errors and counters. [`qdisc`] has a page for each kind. The crate `txq` runs the same qdiscs for many threads
//! and devices.
//!
//! Without the default feature `json`, [`tc`] writes text alone, and the crate needs no serde_json.

#![cfg_attr(
    not(feature = "json"),
    allow(dead_code, unused_imports, unused_variables, reason = "what JSON alone shows")
)]

pub mod filter;
#[doc(hidden)]
pub mod generic;
#[doc(hidden)]
pub mod json;
pub mod packet;
pub mod qdisc;
pub mod scheduler;
pub mod tc;
mod time;

pub use scheduler::{Departed, Dropped, Item, Next, Scheduler};
pub use time::Instant;
pub use txq_core::arch::CpuId;
pub use txq_core::drop::{self, DropCounts, DropReason};

pub mod stats {
    //! Counters, and histograms of times.

    pub use txq_core::stats::QdiscStats;
    pub use txq_core::stats::latency::Latency;
}
