//! The daemon's `[[socket]]`s: clients in Rust, C and Go before a real interface, the file's keys, reload, and clients that are killed.

#[path = "../../../../tests/support/netns.rs"]
#[allow(dead_code, reason = "other tests use the rest")]
mod netns;
#[path = "../../../../tests/support/offload.rs"]
#[allow(dead_code, reason = "other tests use the rest")]
mod offload;
#[path = "../../../../tests/support/process.rs"]
#[allow(dead_code, reason = "other tests use the rest")]
mod process;
#[path = "../../../../tests/support/receiver.rs"]
#[allow(dead_code, reason = "other tests use the rest")]
mod receiver;
#[path = "../../../../tests/support/skip.rs"]
#[allow(dead_code, reason = "other tests use the rest")]
mod skip;
#[path = "../../../../tests/support/socket_frame.rs"]
mod socket_frame;
#[path = "../../../../tests/support/tempdir.rs"]
#[allow(dead_code, reason = "other tests use the rest")]
mod tempdir;

mod bench;
mod check;
mod clients;
mod reload;
mod words;
