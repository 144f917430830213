//! Linux's queueing disciplines, filters and tc's language, without threads, sockets or devices.
//!
//! [`Scheduler`] is a tree of qdiscs for a program with its own event loop and its own buffers: configured in tc's words,
//! with tc's errors and counters. [`qdisc`] has a page for each kind. The crate `txq` runs the same qdiscs for many threads
//! and devices.

mod action;
pub mod filter;
pub mod qdisc;
mod rate;
pub mod scheduler;
pub mod tc;
#[doc(hidden)]
pub mod tree;

pub use scheduler::{Departed, Dropped, Item, PacketScheduler, Scheduler};
pub use txq_core::arch::Nanos;
pub use txq_core::drop::{self, DropCounts, DropReason};

pub mod packet {
    //! A packet as qdiscs see it, and lists of packets.

    pub use txq_core::packet::{Packet, PacketList};
}

pub mod stats {
    //! Counters, and histograms of times.

    pub use txq_core::stats::QdiscStats;
    pub use txq_core::stats::latency::Latency;
}
