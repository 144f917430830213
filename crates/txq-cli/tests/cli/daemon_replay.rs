//! The daemon's `[[replay]]`s: what they send, the file's keys, and reload.

mod keys;
mod play;
mod reload;

/// Time between two frames of a capture, in microseconds.
pub(crate) const GAP: u32 = 100;
