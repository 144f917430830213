//! The way of a packet through a device: senders, buffers, txqs, completions, and how they end. One program, because each
//! program would be compiled and linked with the whole library.

#[path = "../device/mod.rs"]
mod device;

mod bql;
mod completions;
mod copies;
mod deaths;
mod deferred;
mod disciplines;
mod fairness;
mod flows;
mod grown;
mod gso;
mod handed_on;
mod homes;
mod lateness;
mod lifecycle;
mod link;
mod loops;
mod lossless;
mod many;
mod missed_wake;
mod moderation;
mod permit;
mod pool_modes;
mod portions;
mod reclaim;
mod room;
mod senders;
mod stab;
mod steering;
mod traces;
mod waiting;
mod whole;
