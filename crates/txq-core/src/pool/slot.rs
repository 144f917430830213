//! A buffer's descriptor: the kernel's `sk_buff`, reduced to the fields that user space needs.
//!
//! Descriptors lie in an array of their own, apart from the data, so that the region holds nothing but packets. A descriptor
//! has two cache lines. The transmit path touches the first one only. The second one holds fields in rare use; each is valid
//! only if a flag says so, and so an allocation does not write it.

use crate::arch::{Arch, CellApi, Nanos};
use crate::drop::DropReason;
use crate::flow::Link;
use crate::packet::outstanding::Count;
use crate::pool::check::Check;
use crate::pool::home::Home;
use crate::sync::llist::Linked;

/// The descriptor of one buffer.
#[repr(C, align(128))]
pub struct Slot<A: Arch> {
    /// The next packet of the [`PacketList`](crate::packet::PacketList) or of the free list that the buffer is on.
    pub(crate) next: A::Cell<*mut Slot<A>>,
    pub(crate) body: A::Cell<Body<A>>,
    /// While this buffer heads a list on an `LList`: the list pushed before.
    pub(crate) older: A::Cell<*mut Slot<A>>,
    /// While this buffer heads a list on an `LList`: the list's summary.
    pub(crate) chain: A::Cell<Chain<A>>,
    /// While this buffer heads a batch in the stock: index plus one of the batch below, 0 at the bottom. Written by the
    /// pushing thread before its push releases the batch. A pop of the depot may read it after another thread has popped the
    /// batch; then it is stale and the pop's exchange fails. Hence an atomic; all accesses are relaxed.
    ///
    /// While the buffer is a packet with [`Body::PKT_LEN`]: the packet's own length (`packet/pkt_len.rs`). Only the packet's owner reads and
    /// writes it then.
    pub(crate) below: A::AtomicU32,
    pub(crate) check: Check<A>,
}

/// One more field would cost every packet one more line; only the checks of debug builds are worth it.
#[cfg(all(not(debug_assertions), target_pointer_width = "64"))]
const _: () = assert!(size_of::<Slot<crate::arch::Native>>() == 128);

// SAFETY: only the holder of the one handle to a buffer (a `Packet`, a list, the pool) touches its cells; handles move
// between threads with release and acquire (`sync/llist.rs`, `pool/depot.rs`).
unsafe impl<A: Arch> Send for Slot<A> {}
// SAFETY: as above.
unsafe impl<A: Arch> Sync for Slot<A> {}

// SAFETY: only `LList` uses `older`.
unsafe impl<A: Arch> Linked<A> for Slot<A> {
    #[inline]
    fn link(&self) -> &A::Cell<*mut Self> {
        &self.older
    }
}

/// The fields of a packet. Offsets are from the start of the buffer; lengths in bytes.
///
/// The order matters: an allocation clears `tstamp` to `mark` in two stores, and a store is forwarded to a later load only
/// if it covers the whole load. With `priority` before `len` the two stores overlap within `stamp`, and reading `stamp`
/// costs as much as the rest of an allocation.
#[repr(C)]
pub(crate) struct Body<A: Arch> {
    pub(crate) data: *mut u8,
    /// The home of the sender that allocated the buffer; set by each allocation, meaningless before.
    pub(crate) home: *const Home<A>,
    /// Earliest departure time, 0 for now (`skb->tstamp`); above it the bits [`Body::PARTIAL`] and [`Body::PKT_LEN`].
    pub(crate) tstamp: Nanos,
    /// When the packet was handed in; 0 if its latency is not sampled.
    pub(crate) stamp: Nanos,
    pub(crate) hash: u32,
    pub(crate) mark: u32,
    pub(crate) len: u32,
    pub(crate) priority: u32,
    pub(crate) off: u16,
    /// The packet's txq, or its rx queue if [`Body::RX_QUEUE`] is set.
    pub(crate) txq: u16,
    pub(crate) gso_segs: u16,
    pub(crate) reason: DropReason,
    pub(crate) flags: u8,
    // Second cache line.
    /// Bytes of payload per segment; bytes in the buffer under [`Body::BEYOND`].
    pub(crate) gso_size: u16,
    pub(crate) network: u16,
    pub(crate) transport: u16,
    pub(crate) protocol: u16,
    pub(crate) cookie: u64,
    /// The count of its flow's outstanding packets.
    pub(crate) flow: *const Count<A>,
}

impl<A: Arch> Body<A> {
    /// The device computes the transport checksum (`CHECKSUM_PARTIAL`). In `tstamp`, whose times are centuries below it,
    /// because `flags` is full.
    pub(crate) const PARTIAL: Nanos = 1 << 63;
    /// `len` is the length that a size table gave the packet, and [`Slot::below`] holds the packet's own. In `tstamp`, as
    /// [`PARTIAL`](Body::PARTIAL) is. [`BEYOND`](Body::BEYOND) is set, too: the code that finds the packet's bytes tests that alone.
    pub(crate) const PKT_LEN: Nanos = 1 << 62;
    /// The times in `tstamp`.
    pub(crate) const TIMES: Nanos = Self::PKT_LEN - 1;
    /// `network`, `transport` and `protocol` are set.
    pub(crate) const DISSECTED: u8 = 1;
    /// `cookie` is set.
    pub(crate) const COOKIE: u8 = 2;
    /// `txq` is an rx queue.
    pub(crate) const RX_QUEUE: u8 = 4;
    /// `flow` is set.
    pub(crate) const COUNTED: u8 = 8;
    /// The packet begins with its IP header ([`Link::Ip`]).
    pub(crate) const IP: u8 = 16;
    /// The unit of the hop count in the upper three bits of `flags`: how often a driver has sent the packet on through
    /// another device, at most [`Packet::MAX_HOPS`](crate::packet::Packet::MAX_HOPS).
    pub(crate) const HOP: u8 = 32;
    /// The upper three bits of `flags` of a packet of which the buffer holds only the first `gso_size` bytes
    /// (`skb_headlen`). No driver gets such a packet, so it has no hop count.
    pub(crate) const BEYOND: u8 = 7 * Self::HOP;

    /// Returns the flag for packets of a link.
    #[inline]
    pub(crate) fn link_flag(link: Link) -> u8 {
        match link {
            Link::Ethernet => 0,
            Link::Ip => Self::IP,
        }
    }

    /// Returns whether the buffer holds another number of bytes than `len`.
    #[inline]
    pub(crate) fn is_beyond(&self) -> bool {
        self.flags & Self::BEYOND == Self::BEYOND
    }
}

/// The summary of a list of packets, in 28 bytes, so that a descriptor fits into its two lines. Packed for its size only: in
/// a [`Slot`] each field is aligned.
#[repr(C, packed(4))]
pub(crate) struct Chain<A: Arch> {
    pub(crate) tail: *mut Slot<A>,
    pub(crate) bytes: u64,
    /// Segments, shifted by [`Chain::MARKS`], so that no sum reaches the marks below.
    segs: u64,
    pub(crate) len: u32,
}

impl<A: Arch> Chain<A> {
    /// Number of mark bits in `segs`. A list has at most 2^32 - 1 packets of 65535 segments, which leaves 16 bits.
    const MARKS: u32 = 2;
    /// The latency of a packet of the list is sampled.
    const STAMPED: u64 = 1;
    /// All packets have the first one's home, and no flow counts them.
    const ONE_HOME: u64 = 2;

    #[inline]
    pub(crate) fn new(
        tail: *mut Slot<A>,
        bytes: u64,
        len: u32,
        segs: u64,
        stamped: bool,
        one_home: bool,
    ) -> Self {
        let marks = if stamped { Self::STAMPED } else { 0 } | if one_home { Self::ONE_HOME } else { 0 };
        Self { tail, bytes, segs: segs << Self::MARKS | marks, len }
    }

    #[inline]
    pub(crate) fn segs(&self) -> u64 {
        self.segs >> Self::MARKS
    }

    #[inline]
    pub(crate) fn stamped(&self) -> bool {
        self.segs & Self::STAMPED != 0
    }

    #[inline]
    pub(crate) fn one_home(&self) -> bool {
        self.segs & Self::ONE_HOME != 0
    }
}

impl<A: Arch> Slot<A> {
    pub(super) fn new(index: u32, data: *mut u8) -> Self {
        use crate::arch::Atomic;
        use std::ptr::null_mut;
        Self {
            next: A::Cell::new(null_mut()),
            body: A::Cell::new(Body {
                data,
                home: null_mut(),
                tstamp: 0,
                stamp: 0,
                hash: 0,
                mark: 0,
                priority: 0,
                len: 0,
                off: 0,
                txq: 0,
                gso_segs: 1,
                reason: DropReason::NotSpecified,
                flags: 0,
                gso_size: 0,
                network: 0,
                transport: 0,
                protocol: 0,
                cookie: 0,
                flow: std::ptr::null(),
            }),
            older: A::Cell::new(null_mut()),
            chain: A::Cell::new(Chain::new(null_mut(), 0, 0, 0, false, false)),
            below: A::AtomicU32::new(0),
            check: Check::new(index),
        }
    }
}
