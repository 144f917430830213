//! Linux's queueing disciplines, filters and tc's language, without threads, sockets or devices.

pub mod filter;
pub mod qdisc;
pub mod tc;
