//! Drivers for [`txq`]: one file per device, one trait ([`txq::driver::Driver`], whose documentation is the tutorial).
//!
//! | module | a packet goes to |
//! |---|---|
//! | [`af_packet`] | a network interface, with any driver |
//! | [`af_xdp`] | a network interface, from the pool's own buffers |
//! | [`udp`] | a UDP socket |
//! | [`tun`] | the kernel, which receives it on a TUN or TAP interface |
//! | [`pcap`] | a capture file |
//! | [`null`] | nowhere, at a rate and after a delay |
//! | [`tracer`], [`faults`] | another driver, which is traced, or made to fail |
//!
//! [`port`] opens a device that sends and receives by its name, [`forward`] sends through one device what another receives,
//! [`watch`] sees an interface go and come back, [`capture`] reads captures, [`eventfd`] wakes an event loop, and [`realtime`]
//! threads are on time beside busy programs.

pub mod af_packet;
pub mod af_xdp;
mod backoff;
pub mod capture;
pub mod eventfd;
pub mod faults;
pub mod forward;
pub mod null;
pub mod pcap;
pub mod port;
pub mod realtime;
mod sys;
#[cfg(test)]
mod testing;
pub mod tracer;
pub mod tun;
pub mod udp;
mod vnet;
pub mod watch;

pub use af_packet::AfPacket;
pub use af_xdp::{AfXdp, AfXdpConfig};
pub use capture::Capture;
pub use eventfd::EventFd;
pub use faults::Faults;
pub use forward::Forwarder;
pub use null::Null;
pub use pcap::Pcap;
pub use realtime::set_realtime;
pub use tracer::Tracer;
pub use tun::Tun;
pub use udp::Udp;
pub use watch::Watch;

/// The examples of the README compile and run.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;

/// The example of docs/programs.md compiles and runs.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/programs.md")]
struct Programs;
