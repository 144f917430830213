//! Linux's multi-core transmit path in user space, for programs that send without the kernel.
//!
//! A program that sends through AF_XDP, AF_PACKET, TUN/TAP, a UDP socket or DPDK loses what Linux's transmit path gave it:
//! queueing disciplines, a transmit queue per CPU, the hand-over from many senders to one queue, buffers that return to the
//! CPU that allocated them, and counters that explain every drop. This crate is that path. Any number of ordinary threads
//! send packets, Linux's qdiscs schedule them with tc's own syntax and counters, and a [driver] transmits them.
//!
//! [`NetDev`] is the device. Each thread sends through its own [`Sender`]:
//!
//! ```
//! use txq::NetDev;
//! # use txq::driver::{DeviceInfo, Driver, DriverQueue, NoCompletions, Status, Transmit, TxCx};
//! # use txq::packet::PacketList;
//! # struct Sink;
//! # impl Driver for Sink {
//! #     fn info(&self) -> DeviceInfo { DeviceInfo::new("sink").txqs(2) }
//! #     fn open(&mut self, _: u16) -> std::io::Result<DriverQueue> {
//! #         Ok(DriverQueue::new(Sink, NoCompletions))
//! #     }
//! # }
//! # impl Transmit for Sink {
//! #     fn start_xmit(&mut self, batch: &mut PacketList, cx: &mut TxCx<'_>) -> Status {
//! #         cx.sent_all(batch);
//! #         Status::Ok
//! #     }
//! # }
//! # let driver = Sink;
//! let dev = NetDev::builder(driver).qdisc("mq").default_qdisc("pfifo limit 100").start()?;
//! std::thread::scope(|threads| {
//!     for _ in 0..4 {
//!         let mut sender = dev.sender("worker");
//!         threads.spawn(move || {
//!             let packet = sender.packet(b"a frame, from its Ethernet header on").expect("a free buffer");
//!             let _verdict = sender.xmit(packet);
//!         });
//!     }
//! });
//! assert_eq!(dev.audit()?.accepted, 4);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # A packet's path
//!
//! | stop | what happens | where |
//! |---|---|---|
//! | allocate | from the sender's own stock, without an atomic operation | [`pool`], [`packet`] |
//! | steer | the map chooses txqs by CPU or rx queue, the flow hash one of several; a [`Flow`] keeps its txq | [`xps`], [`flow`], [`topology`] |
//! | enqueue | the discipline hands the packets to the qdisc, or queues them for the current owner | [`enqueue`] |
//! | qdisc | filters choose a class; the qdisc queues the packet, or drops it with a reason | [`filter`], [`qdisc`], [`drop`](mod@drop) |
//! | run | one owner dequeues in bulk, under a quota; after a sender's quota the [`Worker`] continues | [`Worker`] |
//! | txq | stops when the ring is full or too many bytes are in flight | [`bql`] |
//! | driver | the driver sends, keeps, drops or refuses the packet | [`driver`] |
//! | complete | a sender or a worker reaps; the buffer returns to the sender that allocated it | [`netdev::Completions`], [`pool`] |
//!
//! [`worker`] says how a program with epoll, mio or an async executor drives the device from its own loop.
//!
//! Counters are exact: every accepted packet is sent, dropped with a reason, or queued ([`NetDev::audit`]). Their text and
//! JSON forms are tc's ([`tc`]).
//!
//! Model checkers and a simulator explore the same code that sends packets: it is generic over the machine, one layer below
//! the types of this crate.

#[cfg(not(target_os = "linux"))]
compile_error!("txq needs Linux; txq-sched does not");

pub mod driver;
#[doc(hidden)]
pub mod generic;
pub mod netdev;
mod os;
pub mod packet;
pub mod pool;
pub mod receive;
mod sender;
pub mod topology;
pub mod trace;
pub mod worker;
mod workers;
pub mod xps;

pub use crate::generic::{TxCounters, bql};
pub use enqueue::Discipline;
pub use netdev::NetDev;
pub use sender::{Flow, Ingress, Room, SendError, Sender, WaitError};
pub use txq_core::{cpumask, drop, flow};
pub use txq_sched::{CpuId, Instant, Next, Scheduler, filter, qdisc, scheduler, tc};
pub use worker::Worker;
pub use workers::WorkerPool;

pub mod enqueue {
    //! Enqueue disciplines: how concurrent senders reach one qdisc.

    pub use crate::generic::enqueue::{Discipline, ParseDisciplineError, QDISC_MAX_BURST};
}

pub mod stats {
    //! Counters of devices and senders, histograms of times, and records of waits.

    pub use crate::generic::stats::device;
    pub use txq_core::stats::{QdiscStats, contention, latency, log2};
}
