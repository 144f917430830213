//! Errors of clients, and the reasons of a server.

use std::io;
use std::path::PathBuf;

/// Why a server refuses a client, or ends its connection. The numbers are the protocol's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[repr(u8)]
pub enum Reason {
    /// The socket does not serve this user.
    Denied = 1,
    /// The socket has as many clients as it serves.
    Full = 2,
    /// The server has no memory or no descriptor for another client.
    NoResources = 3,
    /// The server ends, or no longer serves the socket or its device.
    Ended = 4,
    /// The client's cursor is one that it cannot have.
    BadCursor = 5,
    /// The client has handed in nothing and has not rung for longer than the socket allows. It may connect again.
    Idle = 6,
    /// The device's pool has no buffers for another client's credit.
    NoBuffers = 7,
    /// The user connects more often than the server welcomes. It may connect again later.
    TooOften = 8,
}

impl Reason {
    pub(crate) const ALL: [Self; 8] = [
        Self::Denied,
        Self::Full,
        Self::NoResources,
        Self::Ended,
        Self::BadCursor,
        Self::Idle,
        Self::NoBuffers,
        Self::TooOften,
    ];

    /// Returns the reason of a number.
    pub(crate) fn of(number: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|&reason| reason as u32 == number)
    }

    /// Returns the reason in a word, as counters name it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Denied => "denied",
            Self::Full => "full",
            Self::NoResources => "no_resources",
            Self::Ended => "ended",
            Self::BadCursor => "bad_cursor",
            Self::Idle => "idle",
            Self::NoBuffers => "no_buffers",
            Self::TooOften => "too_often",
        }
    }
}

impl std::fmt::Display for Reason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Denied => "it does not serve this user",
            Self::Full => "it has as many clients as its file allows",
            Self::NoResources => "it has no memory or descriptor for another client",
            Self::Ended => "it has ended, or its file no longer has the socket",
            Self::BadCursor => "the ring's cursor was wrong",
            Self::Idle => "the client was idle for the socket's idle_timeout: connect again",
            Self::NoBuffers => {
                "its device has no buffers for another client: raise the device's pool.buffers, or lower the socket's credit"
            }
            Self::TooOften => "the user connects too often: connect again later, and keep the connection",
        })
    }
}

/// Why a client cannot send.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The socket cannot be reached.
    #[error("{path}: {source}: is `txq daemon` running, and does its file have this [[socket]]?")]
    Connect {
        /// The socket.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The server has refused the client, or ended the connection, and says why.
    #[error("the server ended the connection: {0}")]
    Refused(Reason),
    /// The server is gone, and did not say why.
    #[error("the server is gone: connect again")]
    Gone,
    /// The server does not keep to the protocol, or has another version of it.
    #[error("the server does not speak this protocol: {0}")]
    Protocol(String),
    /// The ring is full: [`Client::wait`](crate::socket::Client::wait) waits.
    #[error("the ring is full: wait until the server has taken frames")]
    Full,
    /// The frame is too short or too long.
    #[error("a frame of {len} bytes: use {min} to {max}")]
    Length {
        /// The frame's length.
        len: usize,
        /// The shortest one.
        min: u32,
        /// The longest one.
        max: u32,
    },
    /// The priority is higher than the socket allows.
    #[error("priority {priority} is above {max}, the highest that the socket allows")]
    Priority {
        /// The priority.
        priority: u32,
        /// The highest one.
        max: u32,
    },
    /// A call of the system failed.
    #[error("the connection failed: {0}")]
    Io(#[from] io::Error),
}
