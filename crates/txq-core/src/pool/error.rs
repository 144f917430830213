//! Why there is no pool, and why there is no buffer.

use std::io;

use thiserror::Error;

/// Why a pool cannot be created or resized.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum PoolError {
    /// A size out of range.
    #[error("pool \"{name}\": {what} {value} is out of range: use {range}")]
    Size {
        /// The pool's name.
        name: String,
        /// The name of the size.
        what: &'static str,
        /// The value requested.
        value: usize,
        /// The values allowed.
        range: String,
    },
    /// The system has no memory for the pool.
    #[error("pool \"{name}\": no memory for {bytes} bytes of {what} ({source}): {remedy}")]
    Memory {
        /// The pool's name.
        name: String,
        /// The part that needs the memory: `buffers` or `descriptors`.
        what: &'static str,
        /// The value requested.
        bytes: usize,
        /// How to need less.
        remedy: String,
        /// The system's error.
        source: io::Error,
    },
}

/// Why an allocation failed. An allocation never waits for a buffer: the caller decides what to do with its packet.
#[derive(Debug, Error, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum AllocError {
    /// Every buffer of the pool is in use or in other senders' caches.
    #[error(
        "pool \"{pool}\" has no free buffer of its {buffers}: send less at a time, or give the pool more buffers"
    )]
    Exhausted {
        /// The pool's name.
        pool: String,
        /// How many buffers it has ([`Pool::buffers`](super::Pool::buffers)).
        buffers: u32,
    },
    /// The sender has as many packets in use as its limit allows (`SO_SNDBUF`).
    #[error("sender \"{sender}\" has all of its {limit} packets on their way: try again when some are sent")]
    Limit {
        /// The sender's name.
        sender: String,
        /// The sender's limit, in packets.
        limit: u64,
    },
    /// The sender has at least as many buffers in use as each sender is guaranteed, and those that are free are kept for other
    /// senders ([`PoolConfig::reserve`](super::PoolConfig::reserve)).
    #[error(
        "sender \"{sender}\" has {held} of the {buffers} buffers of pool \"{pool}\" in use, and the free ones are kept for \
         other senders: try again when some are sent, or give the pool more buffers"
    )]
    Reserved {
        /// The pool's name.
        pool: String,
        /// The sender's name.
        sender: String,
        /// Packets of the sender that are in use.
        held: u64,
        /// How many buffers the pool has.
        buffers: u32,
    },
    /// The packet is longer than a buffer.
    #[error("a packet of {len} bytes is longer than the {room} that a buffer of pool \"{pool}\" holds")]
    TooLong {
        /// The pool's name.
        pool: String,
        /// Length requested, in bytes.
        len: usize,
        /// Longest packet that fits, in bytes.
        room: usize,
    },
}
