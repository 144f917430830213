//! What goes into a link, and what comes out of it.

use std::net::SocketAddr;

use txq_sched::{DropReason, Instant};

/// A direction of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// From the left end to the right one: from a client to a server.
    Up,
    /// From the right end to the left one.
    Down,
}

impl Direction {
    /// Both directions.
    pub const BOTH: [Self; 2] = [Self::Up, Self::Down];

    /// Returns the word for it in a link's text.
    pub fn name(self) -> &'static str {
        match self {
            Self::Up => "up",
            Self::Down => "down",
        }
    }

    /// Returns the other direction.
    pub fn opposite(self) -> Self {
        match self {
            Self::Up => Self::Down,
            Self::Down => Self::Up,
        }
    }

    pub(crate) fn index(self) -> usize {
        self as usize
    }
}

/// The bytes of a packet. A qdisc that duplicates packets clones them, and one that damages a packet flips one of their bits.
pub trait Payload: Clone {
    /// Returns the bytes.
    fn bytes(&self) -> &[u8];

    /// Returns the bytes for writing.
    fn bytes_mut(&mut self) -> &mut [u8];

    /// Returns the addresses from which and to which the packet goes, for recordings.
    fn addresses(&self) -> Option<(SocketAddr, SocketAddr)> {
        None
    }
}

impl Payload for Vec<u8> {
    fn bytes(&self) -> &[u8] {
        self
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        self
    }
}

impl Payload for Box<[u8]> {
    fn bytes(&self) -> &[u8] {
        self
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        self
    }
}

/// A packet to send: its bytes, and what qdiscs and filters need to know of it.
///
/// ```
/// use txq_link::Packet;
///
/// let packet = Packet::new(vec![0; 1200]).tos(0x02).flow(7).header(28);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Packet<T = Vec<u8>> {
    pub(crate) data: T,
    pub(crate) tos: u8,
    pub(crate) flow: u64,
    pub(crate) header: u32,
    pub(crate) priority: u32,
    pub(crate) mark: u32,
}

impl<T> Packet<T> {
    /// Returns a packet of these bytes, without ECN and of flow 0.
    pub fn new(data: T) -> Self {
        Self { data, tos: 0, flow: 0, header: 0, priority: 0, mark: 0 }
    }

    /// Sets the byte of the IPv4 header's TOS or the IPv6 header's traffic class: DSCP and ECN. 2 is ECT(0), 1 is ECT(1). A packet
    /// with a TOS counts as 20 bytes at least, because it has an IP header.
    pub fn tos(self, tos: u8) -> Self {
        Self { tos, ..self }
    }

    /// Sets the number of the packet's flow, for qdiscs with a queue for each flow.
    pub fn flow(self, flow: u64) -> Self {
        Self { flow, ..self }
    }

    /// Sets the number of bytes that the link carries besides those of the packet, and that rates count: 28 for the headers of
    /// IPv4 and UDP.
    pub fn header(self, bytes: u32) -> Self {
        Self { header: bytes, ..self }
    }

    /// Sets the priority (`skb->priority`).
    pub fn priority(self, priority: u32) -> Self {
        Self { priority, ..self }
    }

    /// Sets the mark that `fw` filters match (`skb->mark`).
    pub fn mark(self, mark: u32) -> Self {
        Self { mark, ..self }
    }
}

/// A packet that arrives.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Arrival<T = Vec<u8>> {
    /// Its bytes, with the bit flipped that a qdisc has damaged.
    pub data: T,
    /// The direction in which it went.
    pub direction: Direction,
    /// When it was sent.
    pub sent: Instant,
    /// When it arrives: at or before the time of the poll.
    pub at: Instant,
    /// Its TOS now: a qdisc may have marked it as CE (RFC 3168).
    pub tos: u8,
    /// Whether a bit is flipped.
    pub damaged: bool,
}

/// A packet that the link has lost.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Lost<T = Vec<u8>> {
    /// Its bytes.
    pub data: T,
    /// The direction in which it went.
    pub direction: Direction,
    /// The qdisc that dropped it, from 1 in the order of the link's text.
    pub stage: usize,
    /// When it was sent.
    pub sent: Instant,
    /// When it was dropped.
    pub at: Instant,
    /// Why it was dropped.
    pub reason: DropReason,
}

/// How many packets of a direction met which fate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counts {
    /// Packets sent.
    pub sent: u64,
    /// Copies that qdiscs made.
    pub copies: u64,
    /// Packets and copies that have arrived.
    pub arrived: u64,
    /// Arrived packets whose TOS a qdisc changed.
    pub marked: u64,
    /// Arrived packets with a flipped bit.
    pub damaged: u64,
    /// Packets that were dropped.
    pub lost: u64,
    /// Packets that are under way.
    pub queued: u64,
}
