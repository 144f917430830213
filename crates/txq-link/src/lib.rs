//! Links for tests: delay, loss, rate, reordering, ECN and all of tc's queues, without root, namespaces or a kernel module.
//!
//! A [`Link`] is what tc's words say it is, in both directions. It has no threads, sockets or clock: a test sends packets at times
//! that it names, and polls for those that arrive. The same text, seed, packets and times give the same arrivals on every
//! system.
//!
//! ```
//! use std::time::Duration;
//! use txq_link::{Direction, Instant, Link, Packet};
//!
//! let mut link = Link::new("netem delay 20ms rate 10mbit", 1)?;
//! for number in 0..3 {
//!     link.send(0, Direction::Up, Packet::new(vec![number; 1250]));
//! }
//! // 1250 bytes take a millisecond at 10 Mbit/s.
//! let mut arrivals = Vec::new();
//! while let Some(time) = link.next() {
//!     arrivals.extend(link.poll(time).map(|packet| (packet.at, packet.data[0])));
//! }
//! let at = |ms| Instant::ZERO + Duration::from_millis(ms);
//! assert_eq!(arrivals, [(at(21), 0), (at(22), 1), (at(23), 2)]);
//! # Ok::<(), txq_link::LinkError>(())
//! ```
//!
//! Features have sockets on links: `tokio`, whose time may be paused, and `quinn`; `turmoil` has links between its hosts. [`threads`] has sockets
//! in real time. [`conformance`] checks AQMs, those of other programs too, against their RFCs.

#![forbid(unsafe_code)]

mod chain;
pub mod conformance;
mod error;
mod link;
mod packet;
mod preset;
#[cfg(feature = "quinn")]
pub mod quinn;
mod record;
mod seed;
mod text;
pub mod threads;
#[cfg(feature = "tokio")]
pub mod tokio;
#[cfg(feature = "turmoil")]
pub mod turmoil;
mod wire;

pub use error::LinkError;
pub use link::Link;
pub use packet::{Arrival, Counts, Direction, Lost, Packet, Payload};
pub use preset::{Preset, presets};
pub use record::{Event, Recording, What};
pub use seed::seed;
pub use txq_sched::scheduler::SchedulerError;
pub use txq_sched::{DropReason, Instant, tc};
pub use wire::Datagram;
