//! quinn over txq: the packets of QUIC connections go through qdiscs in this process.
//!
//! A [`Socket`] is a [`quinn::AsyncUdpSocket`] that sends through a device on [`txq_device::Udp`], and receives through
//! quinn's own socket:
//!
//! ```
//! use std::net::UdpSocket;
//! use std::sync::Arc;
//!
//! use quinn::congestion::CubicConfig;
//! use quinn::{Endpoint, EndpointConfig, TokioRuntime, TransportConfig};
//! use txq::NetDev;
//! use txq_device::Udp;
//! use txq_quinn::{Paced, Socket};
//!
//! # fn server_config() -> Option<quinn::ServerConfig> { None }
//! # tokio::runtime::Runtime::new()?.block_on(async {
//! let socket = UdpSocket::bind("127.0.0.1:0")?;
//! let dev = NetDev::builder(Udp::from_socket(socket.try_clone()?)?).qdisc("fq").start()?;
//!
//! let runtime = Arc::new(TokioRuntime);
//! let socket = Socket::builder(&dev).wrap(socket, runtime.clone())?;
//! // Each connection's packets depart one by one, at the rate of its congestion controller.
//! let mut transport = TransportConfig::default();
//! transport.congestion_controller_factory(Arc::new(Paced::new(CubicConfig::default())));
//! // .. `transport_config(Arc::new(transport))` of the server's configuration ..
//! let endpoint =
//!     Endpoint::new_with_abstract_socket(EndpointConfig::default(), server_config(), socket.clone(), runtime)?;
//! # drop((endpoint, transport));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Choose a qdisc
//!
//! | to | take |
//! |---|---|
//! | send each connection's packets one by one, at its own rate | `fq`, and [`Paced`] controllers |
//! | limit each connection | `fq maxrate 20mbit quantum 1514 initial_quantum 1514` |
//! | limit each tenant | `htb`, a class for each tenant, `fq` below it, and [`Builder::classify`] |
//! | share a rate fairly, with short queues | `cake bandwidth 500mbit`, or `fq_codel` below a class |
//!
//! To fq, a remote address is a flow. A filter (`flower`, `u32`) may choose classes, too: packets have IP and UDP headers. With
//! `txq_control::serve(&dev, ..)`, `txq tc` shows and changes all of it while the endpoint runs.
//!
//! fq's `maxrate` above `low_rate_threshold` sends a quantum at once, two packets by default, and `initial_quantum`, ten packets,
//! to a new flow. A path that takes few packets at once needs smaller quanta, as in the table.
//!
//! # Pacing
//!
//! quinn's pacer limits how much a connection sends. It grants bursts of ten packets or 2 ms of the rate, because timers of async
//! runtimes count milliseconds. [`Paced`] gives the packets of a burst departure times, and fq keeps them: its worker has a thread of
//! its own, with finer timers. fq without [`Paced`] or `maxrate` sends each burst at once.
//!
//! # Bundles
//!
//! quinn hands over up to ten datagrams at a time (GSO). A [`Socket`] makes a packet of each, so that qdiscs see, space, drop and
//! mark single datagrams. The device joins those that a qdisc releases together to one message again, which the kernel or the
//! card cuts. So a bundle stays a bundle where no gap is due, and several bundles become one: the qdisc decides, not an option.
//! `Udp::counters` shows how many were joined.
//!
//! # Backpressure
//!
//! A transmit blocks, and its connection's task waits, in three cases. [`Socket::counts`] counts them:
//!
//! | case | the task is woken |
//! |---|---|
//! | its remote has its [share](Builder::share) of packets in the device | when half of the share has left, by a timer |
//! | the qdisc is full by its limit in packets | when half of the limit is free |
//! | the pool has no buffer | when there is one |
//!
//! So one slow connection does not fill a qdisc that others use. What a qdisc drops is lost, as in a network: the device counts
//! it, and QUIC repairs it.
//!
//! # Threads
//!
//! quinn calls `try_send` on one socket from the tasks of all connections, on any thread. A [`txq::Sender`] is used by one thread
//! at a time. A [`Socket`] therefore has lanes: each is a sender, the state of its remotes, and one mutex around both. A
//! remote always has the same lane, by a keyed hash. There are twice as many lanes as CPUs, so threads seldom meet in one. A
//! sender for each thread would need no mutex. But a connection's task moves between threads, and its packets would overtake
//! each other on their way to the qdisc. Also, its pace and its share would need a lock of their own.
//!
//! A server with several endpoints, such as one for each CPU on one port (`SO_REUSEPORT`), passes one device to the
//! [`Socket::builder`] of each: the limits of the device's qdiscs then hold for all of them together. They all send through the
//! device's socket, and receive from their own.
//!
//! # Errors, and the end
//!
//! As with quinn's own socket, no error of the kernel ends a connection: a datagram that is longer than the path's MTU, or has no
//! route, is dropped, and [`Udp::counters`](txq_device::Udp::counters) counts it by cause. While the device is down
//! ([`NetDev::deactivate`](txq::NetDev::deactivate)), packets are lost. A device that is shut down or dropped ends its endpoints
//! at their next transmit: `accept` returns `None`, and connections end with an error. Keep the device as long as the endpoint.
//! Packets of an endpoint that is gone still leave; [`NetDev::drain`](txq::NetDev::drain) waits for them.
//!
//! # Cost
//!
//! `cargo run --release -p txq-quinn --example burst` measures goodput, loss and CPU time beside quinn's own socket. The crate's
//! `README.md` has its tables.

#![forbid(unsafe_code)]

mod builder;
mod class;
mod counts;
mod lane;
mod later;
mod pace;
mod paced;
mod poller;
mod socket;
mod turn;
mod wakers;

pub use builder::Builder;
pub use class::Class;
pub use counts::Counts;
pub use paced::Paced;
pub use socket::Socket;
