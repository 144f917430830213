//! Local programs send through a running txq: a ring in shared memory, its client and its server.
//!
//! A program that has a device serves it at a Unix socket. Each client gets a ring of its own in shared memory, puts frames into it,
//! and the server sends them through the device: with its qdiscs, its counters, and the client's share of its buffers.
//!
//! ```no_run
//! use txq_socket::Client;
//!
//! let mut client = Client::connect("/run/txq/lan.sock")?;
//! let frame = [0; 60];
//! client.send(&frame, 0)?; // waits while the ring is full
//! # Ok::<(), txq_socket::Error>(())
//! ```
//!
//! A client in any other language needs only `docs/socket.md` of the repository, which describes the handshake and the memory; there
//! are such clients in C and in Go.
//!
//! The feature `server`, on by default, has the [`Server`]. Clients need it not.

#[cfg(not(target_os = "linux"))]
compile_error!("txq needs Linux; txq-sched does not");

#[cfg(target_os = "linux")]
mod client;
mod error;
#[cfg(target_os = "linux")]
mod host;
mod layout;
#[cfg(target_os = "linux")]
mod memory;
#[doc(hidden)]
pub mod ring;
#[cfg(all(feature = "server", target_os = "linux"))]
mod server;
#[cfg(target_os = "linux")]
mod wire;

#[cfg(target_os = "linux")]
pub use client::Client;
pub use error::{Error, Reason};
#[cfg(target_os = "linux")]
pub use host::Rejection;
#[cfg(target_os = "linux")]
#[doc(hidden)]
pub use host::{Frame, Host};
pub use layout::Layout;
#[cfg(all(feature = "server", target_os = "linux"))]
pub use server::{ClientStats, OpenError, Server, ServerConfig, SocketStats};
