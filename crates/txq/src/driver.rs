//! Drivers: what stands between a txq and the wire, and how to write one.
//!
//! A device has some txqs. For each, [`Driver::open`] returns two halves, because two threads use them: [`Transmit`], the
//! one that holds the txq's tx lock, and [`Complete`], whoever reaps completions.
//!
//! ```
//! use std::io;
//! use txq::arch::Native;
//! use txq::driver::{DeviceInfo, Driver, DriverQueue, NoCompletions, Status, Transmit, TxCx};
//! use txq::packet::PacketList;
//!
//! /// Sends to nowhere, at once.
//! struct Sink;
//! struct SinkQueue;
//!
//! impl Driver for Sink {
//!     fn info(&self) -> DeviceInfo {
//!         DeviceInfo { name: "sink".into(), txqs: 4, mtu: 1500 }
//!     }
//!     fn open(&mut self, _txq: u16) -> io::Result<DriverQueue> {
//!         Ok(DriverQueue { tx: Box::new(SinkQueue), done: Box::new(NoCompletions), ring: None })
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
//! A packet in the batch ends in one of four ways:
//!
//! | the driver | what it means | the kernel's word |
//! |---|---|---|
//! | gives it to [`TxCx::sent`] | it is sent and its buffer free: the device copied it | `NETDEV_TX_OK`, consumed |
//! | keeps it | it is on the device's ring, and [`Complete::poll`] will return it | `NETDEV_TX_OK`, completed later |
//! | gives it to [`TxCx::drop`] | it cannot be sent | `NETDEV_TX_OK`, `tx_dropped` |
//! | leaves it in the batch | not now: it is requeued, in front of all others, and comes again | `NETDEV_TX_BUSY` |
//!
//! A driver that keeps packets says how many it can keep ([`DriverQueue::ring`]). The txq counts them and stops before
//! the ring overflows, so such a driver is never BUSY for lack of room, and the completion that makes room wakes the
//! txq. A driver whose device refuses for a reason that no completion ends (a socket's buffer is full, the link is
//! down) returns [`Status::Busy`] with a time after which to try again.
//!
//! A driver may be wrong, and nothing but its own packets suffers. The txq compares what a call hands back with what it was
//! given: packets that the driver adds are freed and part of no counter but
//! [`TxCounters::invented`](crate::TxCounters::invented). Each broken rule ([`DriverBug`](crate::netdev::DriverBug)) is
//! counted, and reported once for each txq ([`Builder::on_driver_bug`](crate::netdev::Builder::on_driver_bug)). A driver that
//! panics loses the packet in its hands ([`DropReason::NotSpecified`]).

use std::io;

use crate::arch::{Arch, Nanos, Native};
use crate::drop::DropReason;
use crate::packet::{Packet, PacketList};

/// What a device is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceInfo {
    /// Its name, as `tc` prints it.
    pub name: String,
    /// How many txqs it has at most.
    pub txqs: u16,
    /// The longest packet without its link-layer header, in bytes.
    pub mtu: u32,
}

/// A device.
pub trait Driver<A: Arch = Native>: Send {
    /// What it is.
    fn info(&self) -> DeviceInfo;
    /// How long before its departure time ([`Packet::departure`](crate::packet::Packet::departure)) the device takes a packet
    /// and keeps it, in nanoseconds; 0 for one that sends at once what it is given (`max_pacing_offload_horizon`). fq's
    /// `offload_horizon` makes use of it.
    fn pacing_horizon(&self) -> Nanos {
        0
    }
    /// Opens a txq, from 0 on, each once.
    fn open(&mut self, txq: u16) -> io::Result<DriverQueue<A>>;
}

/// An open txq of a device.
pub struct DriverQueue<A: Arch = Native> {
    /// The transmitting half.
    pub tx: Box<dyn Transmit<A>>,
    /// The completing half.
    pub done: Box<dyn Complete<A>>,
    /// How many packets the device keeps at a time, at least 1; `None` when it keeps none.
    pub ring: Option<u32>,
}

/// How a call of [`Transmit::start_xmit`] ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// The batch is empty.
    Ok,
    /// The batch is not empty: its packets stay with the caller (`NETDEV_TX_BUSY`).
    Busy {
        /// Nanoseconds after which to try again, 1 s at most; `None` when a completion will make room.
        retry: Option<Nanos>,
    },
}

/// The transmitting half of a txq (`ndo_start_xmit`). One thread at a time calls it, under the tx lock.
pub trait Transmit<A: Arch = Native>: Send {
    /// Sends `batch`, from the front on. The batch is as many packets as the device has room for, at most.
    fn start_xmit(&mut self, batch: &mut PacketList<A>, cx: &mut TxCx<'_, A>) -> Status;

    /// Ends the transmission: writes out what is buffered, and tells the first error that was met on the way and that
    /// no packet's drop reason tells.
    fn finish(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The completing half of a txq (`napi_poll` of its interrupt). One thread at a time calls it.
pub trait Complete<A: Arch = Native>: Send {
    /// Appends up to `budget` packets that the device is done with to `done`. Returns when to look again, if packets
    /// remain that will be done at a known time.
    fn poll(&mut self, budget: usize, done: &mut PacketList<A>, clock: &mut Clock<A>) -> Option<Nanos>;

    /// Whether a sender may reap completions while it is at the queue anyway. If not, they wait for the worker, as they
    /// wait for the interrupt's CPU in the kernel.
    fn inline(&self) -> bool {
        true
    }

    /// Whether the bytes that the device keeps are worth limiting ([`crate::bql`]), which a driver of the kernel says by
    /// calling `netdev_tx_sent_queue`: they are where packets wait for a wire. Where a packet is done as soon as it is handed
    /// over, nothing ever waits, and a limit would settle at a single packet.
    ///
    /// The device gives each packet back as long as it was when it was handed over: the limit counts by that.
    fn bql(&self) -> bool {
        true
    }
}

/// The completing half of a driver that keeps no packets.
pub struct NoCompletions;

impl<A: Arch> Complete<A> for NoCompletions {
    fn poll(&mut self, _: usize, _: &mut PacketList<A>, _: &mut Clock<A>) -> Option<Nanos> {
        None
    }
}

/// The time, read at most once per batch and only when somebody asks.
#[derive(Debug, Clone)]
pub struct Clock<A: Arch = Native> {
    now: Option<Nanos>,
    arch: std::marker::PhantomData<A>,
}

impl<A: Arch> Clock<A> {
    /// A clock that has not been read yet.
    pub fn new() -> Self {
        Self { now: None, arch: std::marker::PhantomData }
    }

    /// A clock that stands.
    #[cfg(test)]
    pub(crate) fn at(now: Nanos) -> Self {
        Self { now: Some(now), arch: std::marker::PhantomData }
    }

    /// The time at which this batch is being handled.
    #[inline]
    pub fn now(&mut self) -> Nanos {
        *self.now.get_or_insert_with(A::now)
    }

    /// Reads the time anew when it is asked for next.
    #[inline]
    pub fn advance(&mut self) {
        self.now = None;
    }
}

impl<A: Arch> Default for Clock<A> {
    fn default() -> Self {
        Self::new()
    }
}

/// What a driver needs for a batch, and where its packets go.
pub struct TxCx<'a, A: Arch = Native> {
    /// The time.
    pub clock: &'a mut Clock<A>,
    pub(crate) done: &'a mut PacketList<A>,
    pub(crate) dropped: &'a mut PacketList<A>,
}

impl<'a, A: Arch> TxCx<'a, A> {
    /// A context that collects in `done` what is sent at once and in `dropped` what is not sent. Programs do not need
    /// it, except for a driver that wraps another, and tests.
    pub fn new(clock: &'a mut Clock<A>, done: &'a mut PacketList<A>, dropped: &'a mut PacketList<A>) -> Self {
        Self { clock, done, dropped }
    }

    /// The packet is sent, and its buffer is free.
    #[inline]
    pub fn sent(&mut self, packet: Packet<A>) {
        self.done.push_back(packet);
    }

    /// All of the packets are sent, and their buffers are free.
    #[inline]
    pub fn sent_all(&mut self, packets: &mut PacketList<A>) {
        self.done.append(packets);
    }

    /// The packet cannot be sent, and `reason` says why.
    pub fn drop(&mut self, mut packet: Packet<A>, reason: DropReason) {
        packet.set_drop_reason(reason);
        self.dropped.push_back(packet);
    }
}
