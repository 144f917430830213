//! A packet: a move-only handle to one buffer, and lists of them.
//!
//! A [`Packet`] owns its buffer; dropping it returns the buffer to its home. There is no second handle, hence no reference
//! count, and no double free or use after free compiles.

use std::fmt;
use std::mem;
use std::ptr::{self, NonNull};
use std::slice;

use crate::arch::{Arch, CellApi, CpuId, Nanos, Native};
use crate::drop::DropReason;
use crate::flow::{Dissected, Link};
use crate::pool::slot::{Body, Slot};

mod list;
#[doc(hidden)]
pub mod outstanding;
mod pkt_len;
mod queue;
mod tail;
mod times;
pub use list::PacketList;
#[doc(hidden)]
pub use queue::PacketQueue;

/// One packet.
#[repr(transparent)]
pub struct Packet<A: Arch = Native> {
    slot: NonNull<Slot<A>>,
}

// SAFETY: a packet is the only handle to its buffer.
unsafe impl<A: Arch> Send for Packet<A> {}
// SAFETY: `&Packet` only reads.
unsafe impl<A: Arch> Sync for Packet<A> {}

impl<A: Arch> Packet<A> {
    /// # Safety
    /// The caller owns the buffer and makes only one packet of it.
    #[inline]
    pub(crate) unsafe fn from_slot(slot: NonNull<Slot<A>>) -> Self {
        Self { slot }
    }

    /// Gives up the handle without freeing the buffer; returns the descriptor.
    #[inline]
    pub(crate) fn into_slot(self) -> NonNull<Slot<A>> {
        mem::ManuallyDrop::new(self).slot
    }

    /// Ends the packet and takes it off its flow's count. Returns the descriptor of the free buffer, which the caller must
    /// return to its home.
    #[inline]
    pub(crate) fn retire(self) -> NonNull<Slot<A>> {
        let slot = self.into_slot();
        // SAFETY: the packet owned the buffer.
        let s = unsafe { slot.as_ref() };
        // SAFETY: as above; the flow's count lives until its last packet has ended.
        s.body.with(|b| unsafe { outstanding::ended(&*b) });
        #[cfg(debug_assertions)]
        // SAFETY: as above.
        s.check.back(s.body.with(|b| unsafe { (*b).home }));
        let _ = s;
        slot
    }

    /// Returns the address of the descriptor, which differs from that of every other packet.
    #[doc(hidden)]
    #[inline]
    pub fn address(&self) -> *const () {
        self.slot.as_ptr().cast_const().cast()
    }

    #[inline]
    fn slot(&self) -> &Slot<A> {
        // SAFETY: descriptors live as long as any packet of their pool.
        unsafe { self.slot.as_ref() }
    }

    /// Calls `f` with the packet's fields.
    #[inline]
    pub(crate) fn body<R>(&self, f: impl FnOnce(&Body<A>) -> R) -> R {
        // SAFETY: the one handle to the buffer is borrowed for reading.
        self.slot().body.with(|b| f(unsafe { &*b }))
    }

    /// Calls `f` with the packet's fields, for writing.
    #[inline]
    pub(crate) fn body_mut<R>(&mut self, f: impl FnOnce(&mut Body<A>) -> R) -> R {
        // SAFETY: the one handle to the buffer is borrowed for writing.
        self.slot().body.with_mut(|b| f(unsafe { &mut *b }))
    }

    /// Returns how many bytes of the packet the buffer holds.
    #[inline]
    fn held(&self) -> usize {
        match self.body(|b| (b.is_beyond(), b.len)) {
            (false, len) => len as usize,
            (true, _) => self.held_beyond(),
        }
    }

    /// Returns the packet's bytes, from its link-layer header on; from its IP header on if its [`link`](Packet::link) has
    /// none.
    #[inline]
    pub fn data(&self) -> &[u8] {
        let held = self.held();
        // SAFETY: every method that changes `off`, `len`, `gso_size` or the own length keeps `off + held` within the buffer
        // (`Home::space`), and a buffer's bytes are always initialised.
        self.body(|b| unsafe { slice::from_raw_parts(b.data.add(b.off.into()), held) })
    }

    /// Returns the packet's bytes for writing. Clears the flow hash and the protocol offsets, because they may no longer
    /// hold.
    #[inline]
    pub fn data_mut(&mut self) -> &mut [u8] {
        let held = self.held();
        self.body_mut(|b| {
            b.hash = 0;
            b.flags &= !Body::<A>::DISSECTED;
            // SAFETY: as in `data`.
            unsafe { slice::from_raw_parts_mut(b.data.add(b.off.into()), held) }
        })
    }

    /// Returns the length in bytes; in a qdisc with a size table (`stab`), the length that the table gives.
    #[inline]
    #[expect(clippy::len_without_is_empty, reason = "an empty packet is as good as any")]
    pub fn len(&self) -> usize {
        self.body(|b| b.len as usize)
    }

    /// Returns the number of free bytes in front of the packet.
    pub fn headroom(&self) -> usize {
        self.body(|b| b.off.into())
    }

    /// Grows the packet at the front by `n` bytes (`skb_push`). Returns them for the caller to write, or `None` if the
    /// headroom is smaller.
    pub fn push(&mut self, n: usize) -> Option<&mut [u8]> {
        self.restore_len();
        self.body_mut(|b| {
            let off = usize::from(b.off).checked_sub(n)?;
            if b.is_beyond() {
                b.gso_size = u16::try_from(usize::from(b.gso_size) + n).ok()?;
            }
            b.off = off as u16;
            b.len += n as u32;
            Some(())
        })?;
        Some(&mut self.data_mut()[..n])
    }

    /// Shrinks the packet at the front by `n` bytes (`skb_pull`). Returns `None` and changes nothing if the packet is
    /// shorter.
    pub fn pull(&mut self, n: usize) -> Option<()> {
        self.restore_len();
        let held = self.held();
        self.body_mut(|b| {
            let off = u16::try_from(usize::from(b.off) + n).ok()?;
            let held = held.checked_sub(n)?;
            if b.is_beyond() {
                b.gso_size = held as u16;
            }
            b.len -= n as u32;
            b.off = off;
            b.hash = 0;
            b.flags &= !Body::<A>::DISSECTED;
            Some(())
        })
    }

    /// Shortens the packet to `len` bytes (`skb_trim`). A longer `len` changes nothing.
    pub fn truncate(&mut self, len: usize) {
        self.restore_len();
        let held = self.held().min(len);
        self.body_mut(|b| {
            b.len = b.len.min(u32::try_from(len).unwrap_or(u32::MAX));
            if b.is_beyond() {
                b.gso_size = held as u16;
            }
        });
    }

    /// Makes the packet `len` bytes long, of which the buffer holds only those of now (`skb->data_len`), for a program that
    /// keeps the data itself. [`data`](Packet::data) returns the bytes in the buffer. No driver may get the packet.
    ///
    /// # Panics
    /// The buffer holds more than 65,535 bytes of the packet, or more than `len`.
    #[doc(hidden)]
    #[inline]
    pub fn set_len_beyond(&mut self, len: u32) {
        self.restore_len();
        let held = u16::try_from(self.held()).expect("a header has at most 65,535 bytes");
        self.body_mut(|b| {
            assert!(u32::from(held) <= len, "the buffer holds more than {len} bytes");
            (b.len, b.gso_size) = (len, held);
            b.flags |= Body::<A>::BEYOND;
        });
    }

    /// Returns what the packet begins with.
    #[inline]
    pub fn link(&self) -> Link {
        self.body(|b| if b.flags & Body::<A>::IP != 0 { Link::Ip } else { Link::Ethernet })
    }

    /// Sets what the packet begins with, for a program that takes a header off or puts one in front. An allocation sets the
    /// link of the device that it is for.
    pub fn set_link(&mut self, link: Link) {
        self.body_mut(|b| {
            b.flags = b.flags & !(Body::<A>::IP | Body::<A>::DISSECTED) | Body::<A>::link_flag(link);
        });
    }

    /// Finds the packet's headers and its flow.
    #[inline]
    pub fn dissect(&self) -> Dissected {
        self.link().dissect(self.data())
    }

    /// Returns the scheduling priority, which `SO_PRIORITY` sets in the kernel (`skb->priority`).
    #[inline]
    pub fn priority(&self) -> u32 {
        self.body(|b| b.priority)
    }

    /// Sets the priority: a band, or a class of the qdisc, which `Handle::priority` of `tc` writes as a priority.
    #[inline]
    pub fn set_priority(&mut self, priority: u32) {
        self.body_mut(|b| b.priority = priority);
    }

    /// Returns the mark that filters match, which `SO_MARK` sets in the kernel (`skb->mark`).
    pub fn mark(&self) -> u32 {
        self.body(|b| b.mark)
    }

    /// Sets the mark.
    pub fn set_mark(&mut self, mark: u32) {
        self.body_mut(|b| b.mark = mark);
    }

    /// Returns the earliest departure time on the clock of the `Arch`; 0 means as soon as possible (`skb->tstamp`,
    /// `SCM_TXTIME`).
    pub fn departure(&self) -> Nanos {
        self.body(|b| b.tstamp & Body::<A>::TIMES)
    }

    /// Sets the earliest departure time, at most 2^62 - 1 ns.
    pub fn set_departure(&mut self, at: Nanos) {
        let times = Body::<A>::TIMES;
        self.body_mut(|b| b.tstamp = at.min(times) | b.tstamp & !times);
    }

    /// Returns whether the device computes the TCP or UDP checksum, whose field holds the sum of the pseudo header until then
    /// (`CHECKSUM_PARTIAL`). `Sender::fill_checksum` decides it.
    #[inline]
    pub fn is_checksum_partial(&self) -> bool {
        self.body(|b| b.tstamp & Body::<A>::PARTIAL != 0)
    }

    /// Sets whether the device computes the checksum.
    #[doc(hidden)]
    pub fn set_checksum_partial(&mut self, partial: bool) {
        let bit = Body::<A>::PARTIAL;
        self.body_mut(|b| b.tstamp = b.tstamp & !bit | if partial { bit } else { 0 });
    }

    /// Returns the flow's hash; 0 while unknown (`skb->hash`).
    #[inline]
    pub fn hash(&self) -> u32 {
        self.body(|b| b.hash)
    }

    /// Sets the flow's hash, for programs that know their flows. A write to the packet clears the hash.
    #[inline]
    pub fn set_hash(&mut self, hash: u32) {
        self.body_mut(|b| b.hash = hash);
    }

    /// Returns the bytes of payload per segment and the number of segments that the device cuts the packet into (`gso_size`,
    /// `gso_segs`); (0, 1) for a packet that is not cut.
    pub fn gso(&self) -> (u16, u16) {
        match self.body(|b| (b.gso_segs, b.is_beyond())) {
            (0 | 1, _) => (0, 1),
            (segs, true) if self.has_no_gso_size() => (0, segs),
            (segs, _) => (self.body(|b| b.gso_size), segs),
        }
    }

    /// Asks the device to cut the packet into `segs` segments of `size` bytes of payload. Counters count the segments. The
    /// cut writes the lengths and checksums of the headers. In IPv4 a UDP checksum of 0, which means that there is none, stays 0
    /// where txq cuts; the kernel computes one where it cuts.
    pub fn set_gso(&mut self, size: u16, segs: u16) {
        let keeps = self.body(Body::is_beyond) && self.has_no_gso_size();
        self.body_mut(|b| {
            b.gso_segs = segs.max(1);
            if !keeps {
                b.gso_size = size;
            }
        });
    }

    /// Returns the number of segments, as which counters count the packet (`qdisc_pkt_segs`).
    #[inline]
    pub fn segs(&self) -> u32 {
        self.body(|b| b.gso_segs.into())
    }

    /// Returns the offsets of the network and the transport header from the start of the packet, and the ethertype, if they
    /// are known (`skb->network_header`, `transport_header`, `protocol`).
    pub fn protocol_offsets(&self) -> Option<(u16, u16, u16)> {
        self.body(|b| (b.flags & Body::<A>::DISSECTED != 0).then_some((b.network, b.transport, b.protocol)))
    }

    /// Sets the offsets of the network and transport header and the ethertype.
    pub fn set_protocol_offsets(&mut self, network: u16, transport: u16, ethertype: u16) {
        self.body_mut(|b| {
            (b.network, b.transport, b.protocol) = (network, transport, ethertype);
            b.flags |= Body::<A>::DISSECTED;
        });
    }

    /// Returns the program's own number; 0 unless set.
    pub fn cookie(&self) -> u64 {
        self.body(|b| if b.flags & Body::<A>::COOKIE != 0 { b.cookie } else { 0 })
    }

    /// Sets the program's own number.
    pub fn set_cookie(&mut self, cookie: u64) {
        self.body_mut(|b| {
            b.cookie = cookie;
            b.flags |= Body::<A>::COOKIE;
        });
    }

    /// Returns the txq that the packet was steered to (`skb->queue_mapping`); 0 before, and where each txq has its own
    /// qdisc.
    #[inline]
    pub fn txq(&self) -> u16 {
        self.body(|b| if b.flags & Body::<A>::RX_QUEUE == 0 { b.txq } else { 0 })
    }

    /// Sets the txq.
    #[doc(hidden)]
    #[inline]
    pub fn set_txq(&mut self, txq: u16) {
        self.body_mut(|b| {
            b.txq = txq;
            b.flags &= !Body::<A>::RX_QUEUE;
        });
    }

    /// Returns the rx queue that the packet came in on, if [`set_rx_queue`](Packet::set_rx_queue) recorded it and the packet
    /// has not been sent since (`skb_get_rx_queue`).
    #[inline]
    pub fn rx_queue(&self) -> Option<u16> {
        self.body(|b| (b.flags & Body::<A>::RX_QUEUE != 0).then_some(b.txq))
    }

    /// Records the rx queue that the packet came in on, or the rx queue of the connection that it answers; steering may use
    /// it (`skb_record_rx_queue`). As in the kernel, rx queue and txq share a field: steering the packet to a txq overwrites
    /// the rx queue.
    #[inline]
    pub fn set_rx_queue(&mut self, rx_queue: u16) {
        self.body_mut(|b| {
            b.txq = rx_queue;
            b.flags |= Body::<A>::RX_QUEUE;
        });
    }

    /// Returns when the packet was handed in, if its latency is sampled; else 0.
    #[doc(hidden)]
    #[inline]
    pub fn stamp(&self) -> Nanos {
        self.body(|b| b.stamp)
    }

    /// Sets when the packet was handed in.
    #[doc(hidden)]
    #[inline]
    pub fn set_stamp(&mut self, at: Nanos) {
        self.body_mut(|b| b.stamp = at);
    }

    /// Records that a qdisc queued the packet at `at`, for a qdisc that measures how long its packets wait. The qdisc must
    /// call [`take_queued`](Packet::take_queued) before it gives the packet away. The time is stored in `stamp`, rounded
    /// down to an even number of nanoseconds. A packet whose latency is sampled keeps its stamp, made odd, and counts as
    /// queued at that time.
    #[doc(hidden)]
    #[inline]
    pub fn set_queued(&mut self, at: Nanos) {
        self.body_mut(|b| b.stamp = if b.stamp == 0 { at & !1 } else { b.stamp | 1 });
    }

    /// Returns when the packet was queued, and sets the stamp of a packet that is not sampled back to 0.
    #[doc(hidden)]
    #[inline]
    pub fn take_queued(&mut self) -> Nanos {
        self.body_mut(|b| {
            let at = b.stamp & !1;
            if b.stamp & 1 == 0 {
                b.stamp = 0;
            }
            at
        })
    }

    /// Counts that a driver sends the packet on through another device. Returns whether it may: it has not happened
    /// [`MAX_HOPS`](Packet::MAX_HOPS) times before.
    #[doc(hidden)]
    pub fn hop(&mut self) -> bool {
        self.body_mut(|b| {
            let may = u32::from(b.flags / Body::<A>::HOP) < Self::MAX_HOPS;
            if may {
                b.flags += Body::<A>::HOP;
            }
            may
        })
    }

    /// How often drivers may send a packet on through further devices.
    #[doc(hidden)]
    pub const MAX_HOPS: u32 = 6;

    /// Returns why the packet was dropped; `NotSpecified` if it was not.
    pub fn drop_reason(&self) -> DropReason {
        self.body(|b| b.reason)
    }

    /// Sets why the packet was dropped.
    #[doc(hidden)]
    pub fn set_drop_reason(&mut self, reason: DropReason) {
        self.body_mut(|b| b.reason = reason);
    }

    /// Returns the CPU of the sender that allocated the packet (`skb->alloc_cpu`).
    pub fn alloc_cpu(&self) -> CpuId {
        // SAFETY: the home of a packet lives as long as the packet's pool.
        self.body(|b| unsafe { (*b.home).cpu() })
    }
}

impl<A: Arch> Drop for Packet<A> {
    fn drop(&mut self) {
        // A list of one packet: dropping the list sends it home.
        let mut list = PacketList::new();
        // SAFETY: this handle is not used again.
        list.push_back(unsafe { ptr::read(self) });
    }
}

impl<A: Arch> fmt::Debug for Packet<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Packet").field("len", &self.len()).field("txq", &self.txq()).finish_non_exhaustive()
    }
}
