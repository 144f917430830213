//! Drivers as the data path calls them. [`crate::driver`] documents how to write one.

use std::fmt;
use std::io;
use std::time::Duration;

use txq_core::arch::{Arch, Nanos, Native};
pub use txq_core::clock::Clock;
use txq_core::drop::DropReason;
use txq_core::flow::Link;
use txq_core::packet::{Packet, PacketList};

/// Properties of a device.
///
/// ```
/// use txq::driver::{DeviceInfo, Link};
///
/// let tunnel = DeviceInfo::new("tun0").txqs(4).mtu(1420).link(Link::Ip);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeviceInfo {
    /// Its name, as `tc` prints it.
    pub name: String,
    /// The maximum number of txqs.
    pub txqs: u16,
    /// The longest packet, in bytes, without its link-layer header.
    pub mtu: u32,
    /// What its packets begin with.
    pub link: Link,
    /// Whether its driver takes packets with segments ([`Packet::gso`]) and cuts them, or has the hardware cut them. Senders
    /// cut them for any other device; a packet that they cannot cut, or for whose segments there are no buffers, arrives whole.
    pub gso: bool,
    /// Whether its driver takes packets without their TCP or UDP checksum ([`Packet::is_checksum_partial`]) and computes it, or
    /// has the hardware compute it. For any other device [`Sender::fill_checksum`](crate::Sender::fill_checksum) computes it.
    pub checksum: bool,
    /// Whether a flow must always use the same txq, because its peer sees which txq sent a packet: for example by the source port,
    /// if each txq is a socket. The hash of the flow then chooses the txq, unless the program sets a map from CPUs to txqs
    /// ([`Builder::xps`](crate::generic::netdev::Builder::xps)).
    pub by_flow: bool,
}

impl DeviceInfo {
    /// Returns the properties of an Ethernet device with one txq, packets of 1500 bytes, no segmentation and no checksums.
    pub fn new(name: impl Into<String>) -> Self {
        let (link, gso, checksum, by_flow) = (Link::Ethernet, false, false, false);
        Self { name: name.into(), txqs: 1, mtu: 1500, link, gso, checksum, by_flow }
    }

    /// Sets the maximum number of txqs.
    pub fn txqs(self, txqs: u16) -> Self {
        Self { txqs, ..self }
    }

    /// Sets the longest packet, in bytes, without its link-layer header.
    pub fn mtu(self, mtu: u32) -> Self {
        Self { mtu, ..self }
    }

    /// Sets what the device's packets begin with. [`Sender::alloc`](crate::Sender::alloc) then returns packets of this link.
    pub fn link(self, link: Link) -> Self {
        Self { link, ..self }
    }

    /// Sets whether the driver takes packets with segments.
    pub fn gso(self, gso: bool) -> Self {
        Self { gso, ..self }
    }

    /// Sets whether the driver takes packets without their checksum.
    pub fn checksum(self, checksum: bool) -> Self {
        Self { checksum, ..self }
    }

    /// Sets whether a flow must always use the same txq.
    pub fn by_flow(self, by_flow: bool) -> Self {
        Self { by_flow, ..self }
    }
}

/// A device's driver: describes the device and opens its txqs.
pub trait Driver<A: Arch = Native>: Send {
    /// Returns the device's properties.
    fn info(&self) -> DeviceInfo;
    /// Returns how long before its departure time ([`Packet::departure`](txq_core::packet::Packet::departure)) the device
    /// accepts a packet and keeps it; [`Duration::ZERO`] for a device that sends each packet at once
    /// (`max_pacing_offload_horizon`). fq's `offload_horizon` uses it.
    fn pacing_horizon(&self) -> Duration {
        Duration::ZERO
    }
    /// Opens a txq. Called once for each txq, in order from 0.
    fn open(&mut self, txq: u16) -> io::Result<DriverQueue<A>>;
}

impl<A: Arch, D: Driver<A> + ?Sized> Driver<A> for Box<D> {
    fn info(&self) -> DeviceInfo {
        (**self).info()
    }

    fn pacing_horizon(&self) -> Duration {
        (**self).pacing_horizon()
    }

    fn open(&mut self, txq: u16) -> io::Result<DriverQueue<A>> {
        (**self).open(txq)
    }
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

impl<A: Arch> fmt::Debug for DriverQueue<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DriverQueue").field("ring", &self.ring).finish_non_exhaustive()
    }
}

/// How a call of [`Transmit::start_xmit`] ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// The batch is empty.
    Ok,
    /// The batch is not empty: its packets stay with the caller (`NETDEV_TX_BUSY`).
    Busy {
        /// The time after which to try again, 1 s at most; `None` when a completion will make room.
        retry: Option<Duration>,
    },
}

/// The transmitting half of a txq (`ndo_start_xmit`). One thread at a time calls it: the holder of the tx lock, or the owner
/// of the only queue that feeds the txq.
pub trait Transmit<A: Arch = Native>: Send {
    /// Sends `batch`, beginning at the front. The batch holds at most as many packets as the device has room for.
    fn start_xmit(&mut self, batch: &mut PacketList<A>, cx: &mut TxCx<'_, A>) -> Status;

    /// Ends the transmission: writes out buffered packets. Returns the first error that no packet's drop reason has
    /// reported.
    fn finish(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The completing half of a txq (`napi_poll` of its interrupt). One thread at a time calls it.
pub trait Complete<A: Arch = Native>: Send {
    /// Appends up to `budget` completed packets to `done`. Returns the time of the next poll, if packets remain that
    /// complete at a known time.
    fn poll(&mut self, budget: usize, done: &mut PacketList<A>, clock: &mut Clock<A>) -> Option<Nanos>;

    /// Returns whether a sender may reap completions after it has sent. If not, completions wait for the worker, as they
    /// wait for the interrupt's CPU in the kernel.
    fn inline(&self) -> bool {
        true
    }

    /// Returns whether the bytes that the device keeps are worth limiting ([`crate::generic::bql`]); a driver of the kernel says so
    /// by calling `netdev_tx_sent_queue`. They are if packets wait in the device for a wire. If a packet completes as soon
    /// as it is handed over, nothing ever waits, and the limit would settle at a single packet.
    ///
    /// The device returns each packet with the length that it was handed over with: the limit counts completed bytes by that
    /// length.
    fn bql(&self) -> bool {
        true
    }
}

/// The completing half of a driver that keeps no packets.
#[derive(Debug)]
pub struct NoCompletions;

impl<A: Arch> Complete<A> for NoCompletions {
    fn poll(&mut self, _: usize, _: &mut PacketList<A>, _: &mut Clock<A>) -> Option<Nanos> {
        None
    }
}

/// The context of a call of [`Transmit::start_xmit`]: the time, and the lists that take sent and dropped packets.
pub struct TxCx<'a, A: Arch = Native> {
    /// The time.
    pub clock: &'a mut Clock<A>,
    pub(crate) done: &'a mut PacketList<A>,
    pub(crate) dropped: &'a mut PacketList<A>,
    pub(crate) handed_on: HandedOn,
}

/// Packets that a call of a driver has handed on to another device ([`TxCx::hand_on`]).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct HandedOn {
    pub(crate) packets: usize,
    pub(crate) bytes: u64,
}

impl HandedOn {
    /// Returns the number of packets.
    pub fn packets(self) -> usize {
        self.packets
    }
}

impl<A: Arch> fmt::Debug for TxCx<'_, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TxCx").field("clock", &self.clock).finish_non_exhaustive()
    }
}

impl<'a, A: Arch> TxCx<'a, A> {
    /// Creates a context that collects sent packets in `done` and dropped packets in `dropped`. Only a driver that wraps
    /// another driver, and tests, need it.
    pub fn new(clock: &'a mut Clock<A>, done: &'a mut PacketList<A>, dropped: &'a mut PacketList<A>) -> Self {
        Self { clock, done, dropped, handed_on: HandedOn::default() }
    }

    /// Counts a packet as sent by this device and returns it, for another device to send.
    #[inline]
    pub fn hand_on(&mut self, mut packet: Packet<A>) -> Packet<A> {
        self.add_handed_on(HandedOn { packets: 1, bytes: packet.len() as u64 });
        // The other device measures its own part of the way.
        packet.set_stamp(0);
        packet
    }

    /// As [`hand_on`](TxCx::hand_on), for all packets of a list, which keeps them.
    pub fn hand_on_all(&mut self, packets: &mut PacketList<A>) {
        self.add_handed_on(HandedOn { packets: packets.len(), bytes: packets.bytes() });
        if packets.stamped() {
            packets.for_each_mut(|packet| packet.set_stamp(0));
        }
    }

    /// Returns the packets handed on so far.
    pub fn handed_on(&self) -> HandedOn {
        self.handed_on
    }

    /// Adds the packets that a driver below this one has handed on.
    pub fn add_handed_on(&mut self, more: HandedOn) {
        self.handed_on.packets += more.packets;
        self.handed_on.bytes += more.bytes;
    }

    /// Takes a packet that is sent; its buffer is free.
    #[inline]
    pub fn sent(&mut self, packet: Packet<A>) {
        self.done.push_back(packet);
    }

    /// Takes packets that are sent; their buffers are free. Leaves `packets` empty.
    #[inline]
    pub fn sent_all(&mut self, packets: &mut PacketList<A>) {
        self.done.append(packets);
    }

    /// Takes a packet that cannot be sent, for `reason`.
    pub fn drop(&mut self, mut packet: Packet<A>, reason: DropReason) {
        packet.set_drop_reason(reason);
        self.dropped.push_back(packet);
    }
}
