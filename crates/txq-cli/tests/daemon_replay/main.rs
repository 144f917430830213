//! The daemon's `[[replay]]`s: what they send, the file's keys, and reload.

#[path = "../socket/bench.rs"]
#[allow(dead_code, reason = "other tests use the rest")]
mod bench;
#[path = "../../../../tests/support/check.rs"]
mod check;
#[path = "../../../../tests/support/netns.rs"]
#[allow(dead_code, reason = "other tests use the rest")]
mod netns;
#[path = "../../../../tests/support/offload.rs"]
#[allow(dead_code, reason = "other tests use the rest")]
mod offload;
#[path = "../../../../tests/support/pcap.rs"]
mod pcap;
#[path = "../../../../tests/support/process.rs"]
#[allow(dead_code, reason = "other tests use the rest")]
mod process;
#[path = "../../../../tests/support/skip.rs"]
#[allow(dead_code, reason = "other tests use the rest")]
mod skip;
#[path = "../../../../tests/support/tempdir.rs"]
#[allow(dead_code, reason = "other tests use the rest")]
mod tempdir;

mod keys;
mod play;
mod reload;

/// Time between two frames of a capture, in microseconds.
pub(crate) const GAP: u32 = 100;
