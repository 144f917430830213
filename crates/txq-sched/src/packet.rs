//! A packet as qdiscs, drivers and programs see it, and lists of packets.
//!
//! A [`Packet`] owns its buffer; dropping it returns the buffer to its home. There is no second handle, so no double free or
//! use after free compiles.

use std::fmt;

use txq_core::drop::DropReason;
use txq_core::packet as generic;

use crate::tc::Handle;
use crate::{CpuId, Instant};

pub use txq_core::flow::{Dissected, Link};

/// One packet.
#[repr(transparent)]
pub struct Packet(#[doc(hidden)] pub generic::Packet);

/// A first-in first-out list, linked through the packets, with its sums of packets, bytes and segments. Appending a list to
/// a list takes constant time. Dropping a list returns every buffer to its home.
#[derive(Default)]
#[repr(transparent)]
pub struct PacketList(#[doc(hidden)] pub generic::PacketList);

txq_core::transparent!(pub Packet, generic::Packet);
txq_core::transparent!(pub PacketList, generic::PacketList);

impl Packet {
    /// Returns the packet's bytes, from its link-layer header on; from its IP header on if its [`link`](Packet::link) has
    /// none.
    #[inline]
    pub fn data(&self) -> &[u8] {
        self.0.data()
    }

    /// Returns the packet's bytes for writing. Clears the flow hash and the protocol offsets, because they may no longer
    /// hold.
    #[inline]
    pub fn data_mut(&mut self) -> &mut [u8] {
        self.0.data_mut()
    }

    /// Returns the length in bytes; in a qdisc with a size table (`stab`), the length that the table gives.
    #[inline]
    #[expect(clippy::len_without_is_empty, reason = "an empty packet is as good as any")]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns the number of free bytes in front of the packet.
    pub fn headroom(&self) -> usize {
        self.0.headroom()
    }

    /// Grows the packet at the front by `n` bytes (`skb_push`). Returns them for the caller to write, or `None` if the
    /// headroom is smaller.
    pub fn push(&mut self, n: usize) -> Option<&mut [u8]> {
        self.0.push(n)
    }

    /// Shrinks the packet at the front by `n` bytes (`skb_pull`). Returns `None` and changes nothing if the packet is
    /// shorter.
    pub fn pull(&mut self, n: usize) -> Option<()> {
        self.0.pull(n)
    }

    /// Returns the number of free bytes behind the packet (`skb_tailroom`): those of the room that it does not fill, the pool's
    /// `tailroom`, and those that the buffer has beyond both. 0 for a packet of which the buffer holds only the first bytes.
    pub fn tailroom(&self) -> usize {
        self.0.tailroom()
    }

    /// Grows the packet at the end by `n` bytes (`skb_put`). Returns them for the caller to write, or `None` if the
    /// [`tailroom`](Packet::tailroom) is smaller. They are the bytes that the buffer held before. As each write to the packet,
    /// it clears the flow hash and the protocol offsets.
    pub fn put(&mut self, n: usize) -> Option<&mut [u8]> {
        self.0.put(n)
    }

    /// Shortens the packet to `len` bytes (`skb_trim`). A longer `len` changes nothing.
    pub fn truncate(&mut self, len: usize) {
        self.0.truncate(len);
    }

    /// Returns what the packet begins with.
    #[inline]
    pub fn link(&self) -> Link {
        self.0.link()
    }

    /// Sets what the packet begins with, for a program that takes a header off or puts one in front. An allocation sets the
    /// link of the device that it is for.
    pub fn set_link(&mut self, link: Link) {
        self.0.set_link(link);
    }

    /// Finds the packet's headers and its flow.
    #[inline]
    pub fn dissect(&self) -> Dissected {
        self.0.dissect()
    }

    /// Returns the scheduling priority, which `SO_PRIORITY` sets in the kernel (`skb->priority`).
    #[inline]
    pub fn priority(&self) -> u32 {
        self.0.priority()
    }

    /// Sets the priority.
    #[inline]
    pub fn set_priority(&mut self, priority: u32) {
        self.0.set_priority(priority);
    }

    /// Sets the priority that names a class: `"1:10".parse()?`, or `Handle::new(1, 0x10)`. [`Handle`] says what becomes of a
    /// packet whose class does not exist.
    pub fn set_class(&mut self, class: Handle) {
        self.set_priority(class.priority());
    }

    /// Returns the mark that filters match, which `SO_MARK` sets in the kernel (`skb->mark`).
    pub fn mark(&self) -> u32 {
        self.0.mark()
    }

    /// Sets the mark.
    pub fn set_mark(&mut self, mark: u32) {
        self.0.set_mark(mark);
    }

    /// Returns the earliest departure time; [`Instant::ZERO`] means as soon as possible (`skb->tstamp`, `SCM_TXTIME`). It is on
    /// the clock of [`Instant::now`], and below a [`Scheduler`](crate::Scheduler) on that of its calls.
    #[inline]
    pub fn departure(&self) -> Instant {
        Instant::from_nanos(self.0.departure())
    }

    /// Sets the earliest departure time, at most 2^62 - 1 ns: an [`Instant`], or a [`std::time::Instant`].
    #[inline]
    pub fn set_departure(&mut self, at: impl Into<Instant>) {
        self.set_departure_at(at.into());
    }

    fn set_departure_at(&mut self, at: Instant) {
        self.0.set_departure(at.as_nanos());
    }

    /// Returns whether the device computes the TCP or UDP checksum, whose field holds the sum of the pseudo header until then
    /// (`CHECKSUM_PARTIAL`). `Sender::fill_checksum` decides it.
    #[inline]
    pub fn is_checksum_partial(&self) -> bool {
        self.0.is_checksum_partial()
    }

    /// Returns the flow's hash; 0 while unknown (`skb->hash`).
    #[inline]
    pub fn hash(&self) -> u32 {
        self.0.hash()
    }

    /// Sets the flow's hash, for programs that know their flows. A write to the packet clears the hash.
    #[inline]
    pub fn set_hash(&mut self, hash: u32) {
        self.0.set_hash(hash);
    }

    /// Returns the bytes of payload per segment and the number of segments that the device cuts the packet into (`gso_size`,
    /// `gso_segs`); (0, 1) for a packet that is not cut.
    pub fn gso(&self) -> (u16, u16) {
        self.0.gso()
    }

    /// Asks the device to cut the packet into `segs` segments of `size` bytes of payload. Counters count the segments. The
    /// cut writes the lengths and checksums of the headers. In IPv4 a UDP checksum of 0, which means that there is none, stays 0
    /// where txq cuts; the kernel computes one where it cuts.
    pub fn set_gso(&mut self, size: u16, segs: u16) {
        self.0.set_gso(size, segs);
    }

    /// Returns the number of segments, as which counters count the packet (`qdisc_pkt_segs`).
    #[inline]
    pub fn segs(&self) -> u32 {
        self.0.segs()
    }

    /// Returns the offsets of the network and the transport header from the start of the packet, and the ethertype, if they
    /// are known (`skb->network_header`, `transport_header`, `protocol`).
    pub fn protocol_offsets(&self) -> Option<(u16, u16, u16)> {
        self.0.protocol_offsets()
    }

    /// Sets the offsets of the network and transport header and the ethertype.
    pub fn set_protocol_offsets(&mut self, network: u16, transport: u16, ethertype: u16) {
        self.0.set_protocol_offsets(network, transport, ethertype);
    }

    /// Returns the program's own number; 0 unless set.
    pub fn cookie(&self) -> u64 {
        self.0.cookie()
    }

    /// Sets the program's own number.
    pub fn set_cookie(&mut self, cookie: u64) {
        self.0.set_cookie(cookie);
    }

    /// Returns the txq that the packet was steered to (`skb->queue_mapping`); 0 before, and where each txq has its own
    /// qdisc.
    #[inline]
    pub fn txq(&self) -> u16 {
        self.0.txq()
    }

    /// Returns the rx queue that the packet came in on, if [`set_rx_queue`](Packet::set_rx_queue) recorded it and the packet
    /// has not been sent since (`skb_get_rx_queue`).
    #[inline]
    pub fn rx_queue(&self) -> Option<u16> {
        self.0.rx_queue()
    }

    /// Records the rx queue that the packet came in on, or the rx queue of the connection that it answers; steering may use
    /// it (`skb_record_rx_queue`). As in the kernel, rx queue and txq share a field: steering the packet to a txq overwrites
    /// the rx queue.
    #[inline]
    pub fn set_rx_queue(&mut self, rx_queue: u16) {
        self.0.set_rx_queue(rx_queue);
    }

    /// Returns why the packet was dropped; `NotSpecified` if it was not.
    pub fn drop_reason(&self) -> DropReason {
        self.0.drop_reason()
    }

    /// Returns the CPU of the sender that allocated the packet (`skb->alloc_cpu`).
    pub fn alloc_cpu(&self) -> CpuId {
        self.0.alloc_cpu()
    }
}

impl fmt::Debug for Packet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl PacketList {
    /// Returns an empty list.
    #[inline]
    pub const fn new() -> Self {
        Self(generic::PacketList::new())
    }

    /// Returns the number of packets; a GSO packet counts as one.
    #[inline]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether the list has no packets.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the bytes of all packets.
    #[inline]
    pub fn bytes(&self) -> u64 {
        self.0.bytes()
    }

    /// Returns the number of packets, each GSO packet counted as its segments.
    #[inline]
    pub fn segs(&self) -> u64 {
        self.0.segs()
    }

    /// Appends a packet.
    #[inline]
    pub fn push_back(&mut self, packet: Packet) {
        self.0.push_back(packet.0);
    }

    /// Puts a packet in front, as a driver does with a packet that it took and cannot send yet.
    pub fn push_front(&mut self, packet: Packet) {
        self.0.push_front(packet.0);
    }

    /// Takes the first packet, or returns `None` if the list is empty.
    #[inline]
    pub fn pop_front(&mut self) -> Option<Packet> {
        self.0.pop_front().map(Packet)
    }

    /// Returns the first packet.
    #[inline]
    pub fn front(&self) -> Option<&Packet> {
        self.0.front().map(Packet::from_ref)
    }

    /// Returns the last packet.
    #[inline]
    pub fn back(&self) -> Option<&Packet> {
        self.0.back().map(Packet::from_ref)
    }

    /// Moves all packets of `other` to the end.
    #[inline]
    pub fn append(&mut self, other: &mut PacketList) {
        self.0.append(&mut other.0);
    }

    /// Moves the first `n` packets to the end of `to`, in constant time if these are all.
    #[inline]
    pub fn move_front(&mut self, n: usize, to: &mut PacketList) {
        self.0.move_front(n, &mut to.0);
    }

    /// Calls `f` with each packet, in order; `f` may change it. The sums stay right.
    pub fn for_each_mut(&mut self, mut f: impl FnMut(&mut Packet)) {
        self.0.for_each_mut(|packet| f(Packet::from_mut(packet)));
    }

    /// Iterates over the packets, in order.
    pub fn iter(&self) -> impl Iterator<Item = &Packet> {
        self.0.iter().map(Packet::from_ref)
    }
}

impl Extend<Packet> for PacketList {
    fn extend<I: IntoIterator<Item = Packet>>(&mut self, packets: I) {
        packets.into_iter().for_each(|packet| self.push_back(packet));
    }
}

impl FromIterator<Packet> for PacketList {
    fn from_iter<I: IntoIterator<Item = Packet>>(packets: I) -> Self {
        let mut list = Self::new();
        list.extend(packets);
        list
    }
}

impl fmt::Debug for PacketList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
