//! Local programs send through a running txq: a ring in shared memory, its client and its server.
//!
//! A program that has a device serves it at a Unix socket. Each client gets a ring of its own in shared memory, puts frames into it,
//! and the [`Server`] sends them through the device: with its qdiscs, its counters, and the client's share of its buffers.
//!
//! ```no_run
//! use txq_control::socket::Client;
//!
//! let mut client = Client::connect("/run/txq/lan.sock")?;
//! let frame = [0; 60];
//! client.send(&frame, 0)?; // waits while the ring is full
//! # Ok::<(), txq_control::socket::Error>(())
//! ```
//!
//! A client in any other language needs only `docs/socket.md` of the repository, which describes the handshake and the memory; there
//! are such clients in C and in Go.

mod client;
mod error;
mod host;
mod layout;
mod memory;
#[doc(hidden)]
pub mod ring;
mod server;
mod wire;

pub use client::Client;
pub use error::{Error, Reason};
pub use host::Rejection;
#[doc(hidden)]
pub use host::{Frame, Host};
pub use layout::Layout;
pub use server::{ClientStats, OpenError, Server, ServerConfig, SocketStats};
