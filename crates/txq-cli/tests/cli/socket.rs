//! The daemon's `[[socket]]`s: clients in Rust, C and Go before a real interface, the file's keys, reload, and clients that are killed.

pub(crate) mod bench;
mod check;
mod clients;
mod reload;
mod soak;
mod words;
