//! Drivers: the code between a txq and the wire, and how to write it.
//!
//! A device has one or more txqs. For each txq, [`Driver::open`] returns two halves: [`Transmit`] sends packets, and
//! [`Complete`] returns those that are done. Two threads may use the two halves at the same time, but only one thread at a
//! time uses each half.
//!
//! ```
//! use std::io;
//! use txq::driver::{DeviceInfo, Driver, DriverQueue, NoCompletions, Status, Transmit, TxCx};
//! use txq::packet::PacketList;
//!
//! /// Sends to nowhere, at once.
//! struct Sink;
//! struct SinkQueue;
//!
//! impl Driver for Sink {
//!     fn info(&self) -> DeviceInfo {
//!         DeviceInfo::new("sink").txqs(4)
//!     }
//!     fn open(&mut self, _txq: u16) -> io::Result<DriverQueue> {
//!         Ok(DriverQueue::new(SinkQueue, NoCompletions))
//!     }
//! }
//!
//! impl Transmit for SinkQueue {
//!     fn start_xmit(&mut self, batch: &mut PacketList, cx: &mut TxCx<'_>) -> Status {
//!         while let Some(packet) = batch.pop_front() {
//!             // packet.data() goes out here; a packet too long for the wire is dropped with its reason:
//!             if packet.len() > 1514 {
//!                 cx.drop(packet, txq::drop::DropReason::PktTooBig);
//!             } else {
//!                 cx.sent(packet);
//!             }
//!         }
//!         Status::Ok
//!     }
//! }
//! ```
//!
//! A packet in the batch ends in one of five ways:
//!
//! | the driver | what it means | the kernel's word |
//! |---|---|---|
//! | gives it to [`TxCx::sent`] | it is sent, and its buffer can be freed: the device has copied it | `NETDEV_TX_OK`, consumed |
//! | keeps it | it is on the device's ring; [`Complete::poll`] returns it later | `NETDEV_TX_OK`, completed later |
//! | gives it to [`TxCx::hand_on`] | it is sent, and the driver sends it through another device | `dev_queue_xmit` of the lower device |
//! | gives it to [`TxCx::drop`] | it cannot be sent | `NETDEV_TX_OK`, `tx_dropped` |
//! | leaves it in the batch | the device cannot take it now: it is requeued in front of all others, and offered again | `NETDEV_TX_BUSY` |
//!
//! A driver that keeps packets says how many it can keep ([`DriverQueue::ring`]). The txq counts them and stops before the
//! ring overflows, so such a driver is never BUSY for lack of room. The completion that makes room wakes the txq. A device
//! may also refuse for a reason that no completion ends: a socket's buffer is full, or the link is down. Its driver returns
//! [`Status::Busy`] with the time to wait before the next try.
//!
//! A device that reads frames where they lie gets their offsets in the pool's memory
//! ([`Pool::take_offset`](crate::pool::Pool::take_offset), [`Pool::packet_at`](crate::pool::Pool::packet_at)). Either that memory is registered with the device
//! ([`Pool::region`](crate::pool::Pool::region)), or the pool uses the device's memory ([`Pool::on`](crate::pool::Pool::on)).
//! `examples/lent_memory.rs` is such a driver. It takes all frames back before it ends.
//!
//! # A driver that wraps another
//!
//! A driver that watches another one, or refuses and delays packets in front of it, replaces its transmitting half by
//! [`DriverQueue::map_transmit`]. A driver that changes packets, such as a tunnel, sends the result through a device of its own
//! and leaves the original in the batch until then. So a packet that waits is offered again as it was:
//!
//! ```
//! # use std::io;
//! # use txq::driver::{DeviceInfo, Driver, DriverQueue, NoCompletions, Status, Transmit, TxCx};
//! # use txq::packet::PacketList;
//! # use std::time::Duration;
//! # use txq::{NetDev, Sender};
//! # struct Wire;
//! # impl Driver for Wire {
//! #     fn info(&self) -> DeviceInfo { DeviceInfo::new("wire") }
//! #     fn open(&mut self, _: u16) -> io::Result<DriverQueue> { Ok(DriverQueue::new(Wire, NoCompletions)) }
//! # }
//! # impl Transmit for Wire {
//! #     fn start_xmit(&mut self, batch: &mut PacketList, cx: &mut TxCx<'_>) -> Status { cx.sent_all(batch); Status::Ok }
//! # }
//! # struct Tunnel(Option<Sender>);
//! # impl Driver for Tunnel {
//! #     fn info(&self) -> DeviceInfo { DeviceInfo::new("tunnel") }
//! #     fn open(&mut self, _: u16) -> io::Result<DriverQueue> {
//! #         Ok(DriverQueue::new(TunnelQueue { wire: self.0.take().expect("one txq") }, NoCompletions))
//! #     }
//! # }
//! /// Adds 16 bytes to each packet, and sends it through a second device.
//! struct TunnelQueue {
//!     wire: Sender,
//! }
//!
//! impl Transmit for TunnelQueue {
//!     fn start_xmit(&mut self, batch: &mut PacketList, cx: &mut TxCx<'_>) -> Status {
//!         while let Some(plain) = batch.front() {
//!             let Ok(mut sealed) = self.wire.alloc(plain.len() + 16) else {
//!                 return Status::Busy { retry: Some(Duration::from_millis(1)) };
//!             };
//!             // An AEAD encrypts from one buffer into the other, without a further copy.
//!             sealed.data_mut()[..plain.len()].copy_from_slice(plain.data());
//!             let _verdict = self.wire.xmit(sealed);
//!             cx.sent(batch.pop_front().expect("the packet at the front"));
//!         }
//!         Status::Ok
//!     }
//! }
//! # let wire = NetDev::builder(Wire).start()?;
//! # let dev = NetDev::builder(Tunnel(Some(wire.sender("tunnel")))).start()?;
//! # let mut sender = dev.sender("main");
//! # let packet = sender.packet(&[0; 100])?;
//! # let _ = sender.xmit(packet);
//! # assert!(dev.drain(std::time::Duration::from_secs(10)) && wire.drain(std::time::Duration::from_secs(10)));
//! # assert_eq!((dev.audit()?.bytes_sent, wire.audit()?.bytes_sent), (100, 116));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # A driver that hands packets on
//!
//! A driver that needs no second buffer, such as a VPN that encrypts in place, hands the packet itself on to a second device
//! ([`TxCx::hand_on`]). The first device counts the packet as sent and as handed on, the second one as accepted. So the sums of each
//! device hold. The buffer goes home when the second device has sent it, whatever pool the buffer is of. A packet that was
//! changed cannot be offered again, so the driver checks for room before:
//!
//! ```
//! # use std::io;
//! # use txq::driver::{DeviceInfo, Driver, DriverQueue, NoCompletions, Status, Transmit, TxCx};
//! # use txq::packet::PacketList;
//! # use txq::pool::PoolConfig;
//! # use std::time::Duration;
//! # use txq::{Instant, NetDev, Room, Sender};
//! # struct Wire;
//! # impl Driver for Wire {
//! #     fn info(&self) -> DeviceInfo { DeviceInfo::new("wire") }
//! #     fn open(&mut self, _: u16) -> io::Result<DriverQueue> { Ok(DriverQueue::new(Wire, NoCompletions)) }
//! # }
//! # impl Transmit for Wire {
//! #     fn start_xmit(&mut self, batch: &mut PacketList, cx: &mut TxCx<'_>) -> Status { cx.sent_all(batch); Status::Ok }
//! # }
//! # struct Tunnel(Option<Sender>);
//! # impl Driver for Tunnel {
//! #     fn info(&self) -> DeviceInfo { DeviceInfo::new("tunnel") }
//! #     fn open(&mut self, _: u16) -> io::Result<DriverQueue> {
//! #         Ok(DriverQueue::new(TunnelQueue { wire: self.0.take().expect("one txq") }, NoCompletions))
//! #     }
//! # }
//! # fn encrypt_in_place(_: &mut [u8]) -> [u8; 16] { [0; 16] }
//! struct TunnelQueue {
//!     wire: Sender,
//! }
//!
//! impl Transmit for TunnelQueue {
//!     fn start_xmit(&mut self, batch: &mut PacketList, cx: &mut TxCx<'_>) -> Status {
//!         while let Some(packet) = batch.pop_front() {
//!             if self.wire.wait_room(Some(Instant::ZERO)) == Room::Full {
//!                 batch.push_front(packet);
//!                 return Status::Busy { retry: Some(Duration::from_millis(1)) };
//!             }
//!             let mut packet = cx.hand_on(packet);
//!             let tag = encrypt_in_place(packet.data_mut());
//!             // The pool keeps room behind each packet.
//!             if let Some(end) = packet.put(tag.len()) {
//!                 end.copy_from_slice(&tag);
//!             }
//!             let _verdict = self.wire.xmit(packet);
//!         }
//!         Status::Ok
//!     }
//! }
//! # let wire = NetDev::builder(Wire).start()?;
//! let pool = PoolConfig { tailroom: 16, ..PoolConfig::default() };
//! let dev = NetDev::builder(Tunnel(Some(wire.sender("tunnel")))).pool_config(pool).start()?;
//! # let mut sender = dev.sender("main");
//! # let packet = sender.packet(&[0; 100])?;
//! # let _ = sender.xmit(packet);
//! # assert!(dev.drain(std::time::Duration::from_secs(10)) && wire.drain(std::time::Duration::from_secs(10)));
//! # assert_eq!((dev.audit()?.bytes_sent, dev.audit()?.handed_on, wire.audit()?.bytes_sent), (100, 1, 116));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Shut the first device down, then the second one, and drop both afterwards. A pool that ends before its packets keeps its memory.
//! A second device that sends from memory it knows, as AF_XDP does, shares its pool with the first one
//! ([`Builder::pool`](crate::netdev::Builder::pool)). Only `start_xmit` hands packets on: those that a driver keeps are completed.
//!
//! # A driver that breaks a rule
//!
//! A faulty driver harms only its own packets. The txq compares the packets that a call leaves behind with those that it was
//! given. Packets that the driver adds are freed and counted only as [`TxCounters::invented`](crate::TxCounters::invented).
//! Each broken rule ([`DriverBug`](crate::generic::netdev::DriverBug)) is counted, and reported once for each txq
//! ([`Builder::on_driver_bug`](crate::generic::netdev::Builder::on_driver_bug)). A driver that panics loses the packet that it was
//! handling ([`DropReason::NotSpecified`]).

use std::fmt;
use std::io;
use std::time::Duration;

use txq_core::arch::Native;
use txq_core::clock as core;
use txq_core::drop::DropReason;

use crate::Instant;
use crate::generic::driver as generic;
use crate::packet::{Packet, PacketList};

mod adapter;

pub(crate) use adapter::Concrete;

pub use crate::generic::driver::{DeviceInfo, HandedOn, Status};
pub use txq_core::flow::Link;

/// A device's driver: describes the device and opens its txqs.
pub trait Driver: Send {
    /// Returns the device's properties.
    fn info(&self) -> DeviceInfo;
    /// Returns how long before its departure time ([`Packet::departure`]) the device accepts a packet and keeps it;
    /// [`Duration::ZERO`] for a device that sends each packet at once (`max_pacing_offload_horizon`). fq's `offload_horizon`
    /// uses it.
    fn pacing_horizon(&self) -> Duration {
        Duration::ZERO
    }
    /// Opens a txq. Called once for each txq, in order from 0.
    fn open(&mut self, txq: u16) -> io::Result<DriverQueue>;
}

impl<D: Driver + ?Sized> Driver for Box<D> {
    fn info(&self) -> DeviceInfo {
        (**self).info()
    }

    fn pacing_horizon(&self) -> Duration {
        (**self).pacing_horizon()
    }

    fn open(&mut self, txq: u16) -> io::Result<DriverQueue> {
        (**self).open(txq)
    }
}

/// An open txq of a device: its two halves, and how many packets the device keeps.
pub struct DriverQueue(#[doc(hidden)] pub generic::DriverQueue<Native>);

impl DriverQueue {
    /// Returns a txq with these halves. The device keeps no packets, unless [`ring`](DriverQueue::ring) says how many.
    pub fn new(tx: impl Transmit + 'static, done: impl Complete + 'static) -> Self {
        let (tx, done) = (Box::new(Concrete(tx)), Box::new(Concrete(done)));
        Self(generic::DriverQueue { tx, done, ring: None })
    }

    /// Says how many packets the device keeps at a time, at least 1; `None` when it keeps none.
    #[must_use]
    pub fn ring(mut self, packets: impl Into<Option<u32>>) -> Self {
        self.0.ring = packets.into();
        self
    }

    /// Replaces the transmitting half by one that `wrap` makes of it, for a driver that wraps another.
    #[must_use]
    pub fn map_transmit<T: Transmit + 'static>(self, wrap: impl FnOnce(Box<dyn Transmit>) -> T) -> Self {
        let generic::DriverQueue { tx, done, ring } = self.0;
        let tx = Box::new(Concrete(wrap(Box::new(adapter::Generic(tx)))));
        Self(generic::DriverQueue { tx, done, ring })
    }

    /// Returns both halves and how many packets the device keeps, for a driver that wraps another.
    pub fn into_parts(self) -> (Box<dyn Transmit>, Box<dyn Complete>, Option<u32>) {
        let generic::DriverQueue { tx, done, ring } = self.0;
        (Box::new(adapter::Generic(tx)), Box::new(adapter::Generic(done)), ring)
    }
}

impl fmt::Debug for DriverQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The transmitting half of a txq (`ndo_start_xmit`). One thread at a time calls it: the holder of the tx lock, or the owner
/// of the only queue that feeds the txq.
pub trait Transmit: Send {
    /// Sends `batch`, beginning at the front. The batch holds at most as many packets as the device has room for.
    fn start_xmit(&mut self, batch: &mut PacketList, cx: &mut TxCx<'_>) -> Status;

    /// Ends the transmission: writes out buffered packets. Returns the first error that no packet's drop reason has
    /// reported.
    fn finish(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<T: Transmit + ?Sized> Transmit for Box<T> {
    fn start_xmit(&mut self, batch: &mut PacketList, cx: &mut TxCx<'_>) -> Status {
        (**self).start_xmit(batch, cx)
    }

    fn finish(&mut self) -> io::Result<()> {
        (**self).finish()
    }
}

/// The completing half of a txq (`napi_poll` of its interrupt). One thread at a time calls it.
pub trait Complete: Send {
    /// Appends up to `budget` completed packets to `done`. Returns the time of the next poll, if packets remain that
    /// complete at a known time.
    fn poll(&mut self, budget: usize, done: &mut PacketList, clock: &mut Clock) -> Option<Instant>;

    /// Returns whether a sender may reap completions after it has sent. If not, completions wait for the worker, as they
    /// wait for the interrupt's CPU in the kernel.
    fn inline(&self) -> bool {
        true
    }

    /// Returns whether the bytes that the device keeps are worth limiting ([`crate::bql`]); a driver of the kernel says so
    /// by calling `netdev_tx_sent_queue`. They are if packets wait in the device for a wire. If a packet completes as soon
    /// as it is handed over, nothing ever waits, and the limit would settle at a single packet.
    ///
    /// The device returns each packet with the length that it was handed over with: the limit counts completed bytes by that
    /// length.
    fn bql(&self) -> bool {
        true
    }
}

impl<C: Complete + ?Sized> Complete for Box<C> {
    fn poll(&mut self, budget: usize, done: &mut PacketList, clock: &mut Clock) -> Option<Instant> {
        (**self).poll(budget, done, clock)
    }

    fn inline(&self) -> bool {
        (**self).inline()
    }

    fn bql(&self) -> bool {
        (**self).bql()
    }
}

/// The completing half of a driver that keeps no packets.
#[derive(Debug)]
pub struct NoCompletions;

impl Complete for NoCompletions {
    fn poll(&mut self, _: usize, _: &mut PacketList, _: &mut Clock) -> Option<Instant> {
        None
    }
}

/// The time of a batch: read on first use, and at most once per batch.
#[derive(Clone, Debug, Default)]
#[repr(transparent)]
pub struct Clock(#[doc(hidden)] pub core::Clock);

txq_core::transparent!(pub(crate) Clock, core::Clock);

impl Clock {
    /// Creates a clock that has not been read.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the time of this batch; reads it on the first call.
    #[inline]
    pub fn now(&mut self) -> Instant {
        Instant::from_nanos(self.0.now())
    }

    /// Makes the next call of [`now`](Self::now) read the time again.
    #[inline]
    pub fn advance(&mut self) {
        self.0.advance();
    }
}

/// The context of a call of [`Transmit::start_xmit`]: the time, and the lists that take sent and dropped packets.
#[repr(transparent)]
pub struct TxCx<'a>(#[doc(hidden)] pub generic::TxCx<'a, Native>);

txq_core::transparent!(pub(crate) TxCx<'a>, generic::TxCx<'a, Native>, 'a);

impl<'a> TxCx<'a> {
    /// Creates a context that collects sent packets in `done` and dropped packets in `dropped`. Only a driver that wraps
    /// another driver, and tests, need it.
    pub fn new(clock: &'a mut Clock, done: &'a mut PacketList, dropped: &'a mut PacketList) -> Self {
        Self(generic::TxCx::new(&mut clock.0, &mut done.0, &mut dropped.0))
    }

    /// Returns the time of the batch.
    #[inline]
    pub fn now(&mut self) -> Instant {
        Instant::from_nanos(self.0.clock.now())
    }

    /// Returns the clock of the batch, for a driver that wraps another.
    pub fn clock(&mut self) -> &mut Clock {
        Clock::from_mut(self.0.clock)
    }

    /// Takes a packet that is sent; its buffer is free.
    #[inline]
    pub fn sent(&mut self, packet: Packet) {
        self.0.sent(packet.0);
    }

    /// Takes packets that are sent; their buffers are free. Leaves `packets` empty.
    #[inline]
    pub fn sent_all(&mut self, packets: &mut PacketList) {
        self.0.sent_all(&mut packets.0);
    }

    /// Hands a packet on: counts it as sent by this device, and returns it for the driver to send through another device, without
    /// a copy. [`TxCounters::handed_on`](crate::TxCounters::handed_on) counts these packets.
    ///
    /// Call it before the packet is changed: the packet counts with its length at this call. From then on it is the other
    /// device's, whose counters say what becomes of it. Its buffer returns to the sender that allocated it, and that sender's
    /// credit and flow, when the other device has sent or dropped it. A drop there is one more drop of that sender
    /// ([`Sender::dropped`](crate::Sender::dropped)).
    #[inline]
    pub fn hand_on(&mut self, packet: Packet) -> Packet {
        Packet(self.0.hand_on(packet.0))
    }

    /// As [`hand_on`](TxCx::hand_on), for all packets of a list, which stay on it.
    pub fn hand_on_all(&mut self, packets: &mut PacketList) {
        self.0.hand_on_all(&mut packets.0);
    }

    /// Returns what was handed on so far, for a driver that wraps another with a context of its own
    /// ([`add_handed_on`](TxCx::add_handed_on)).
    pub fn handed_on(&self) -> HandedOn {
        self.0.handed_on()
    }

    /// Adds what a wrapped driver has handed on in a context of its own.
    pub fn add_handed_on(&mut self, more: HandedOn) {
        self.0.add_handed_on(more);
    }

    /// Takes a packet that cannot be sent, for `reason`.
    pub fn drop(&mut self, packet: Packet, reason: DropReason) {
        self.0.drop(packet.0, reason);
    }
}

impl fmt::Debug for TxCx<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
