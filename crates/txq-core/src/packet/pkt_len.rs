//! The length that a qdisc with a size table counts for a packet (`qdisc_skb_cb.pkt_len`).
//!
//! Every sum of a [`PacketList`](crate::packet::PacketList) and every counter of a qdisc reads a packet's `len`. So the table's
//! length is stored there while the packet is in the qdisc, and the packet's own is stored in a word of the descriptor that only free
//! buffers use. [`Packet::data`] returns the same bytes as before.

use std::sync::atomic::Ordering::Relaxed;

use crate::arch::{Arch, Atomic};
use crate::packet::Packet;
use crate::pool::slot::Body;

/// The own length of a packet under [`Body::PKT_LEN`], and the upper three bits of its `flags`, in 32 bits.
///
/// A packet whose bytes are all in its buffer has its hop count in bits 28 to 30 and its length below: a buffer has fewer than
/// 2^28 bytes. A packet under [`Body::BEYOND`] has bit 31, and its length below.
#[derive(Clone, Copy)]
pub(crate) struct OwnLen(u32);

const BEYOND: u32 = 1 << 31;
const HOPS_SHIFT: u32 = 28;

impl OwnLen {
    /// Returns `None` if the packet is too long.
    fn new(len: u32, flags: u8) -> Option<Self> {
        match flags / Body::<crate::arch::Native>::HOP {
            7 => (len < BEYOND).then_some(Self(len | BEYOND)),
            hops => (len >> HOPS_SHIFT == 0).then_some(Self(len | (u32::from(hops) << HOPS_SHIFT))),
        }
    }

    /// Returns whether the buffer holds only the packet's first bytes.
    pub(crate) fn is_beyond(self) -> bool {
        self.0 & BEYOND != 0
    }

    pub(crate) fn len(self) -> u32 {
        if self.is_beyond() { self.0 & !BEYOND } else { self.0 & ((1 << HOPS_SHIFT) - 1) }
    }

    /// Returns the packet's flags if they are `flags` now.
    pub(crate) fn flags<A: Arch>(self, flags: u8) -> u8 {
        let hops = if self.is_beyond() { 7 } else { (self.0 >> HOPS_SHIFT) as u8 };
        flags & !Body::<A>::BEYOND | (hops * Body::<A>::HOP)
    }
}

impl<A: Arch> Packet<A> {
    /// Makes [`len`](Packet::len) return `len` from now on, until [`restore_len`](Packet::restore_len) or a method that
    /// changes the packet's length. A packet of 2^31 bytes or more keeps its length.
    #[doc(hidden)]
    pub fn set_pkt_len(&mut self, len: u32) {
        if self.own().is_none() {
            let Some(own) = self.body(|b| OwnLen::new(b.len, b.flags)) else { return };
            // Relaxed: the packet's owner alone reads the word.
            self.slot().below.store(own.0, Relaxed);
        }
        self.body_mut(|b| {
            b.len = len;
            b.flags |= Body::<A>::BEYOND;
            b.tstamp |= Body::<A>::PKT_LEN;
        });
    }

    /// Makes [`len`](Packet::len) return the packet's own length again.
    #[doc(hidden)]
    #[inline]
    pub fn restore_len(&mut self) {
        if self.body(Body::is_beyond) {
            self.restore();
        }
    }

    #[cold]
    fn restore(&mut self) {
        if let Some(own) = self.own() {
            self.body_mut(|b| {
                (b.len, b.flags) = (own.len(), own.flags::<A>(b.flags));
                b.tstamp &= !Body::<A>::PKT_LEN;
            });
        }
    }

    /// Returns the packet's own length, whatever [`len`](Packet::len) returns.
    #[doc(hidden)]
    pub fn own_len(&self) -> usize {
        self.own().map_or(self.len(), |own| own.len() as usize)
    }

    /// Returns whether the program keeps the packet's data itself
    /// ([`set_len_beyond`](Packet::set_len_beyond)).
    #[doc(hidden)]
    pub fn is_beyond(&self) -> bool {
        self.own().map_or(self.body(Body::is_beyond), OwnLen::is_beyond)
    }

    /// Returns the own length of a packet under [`Body::PKT_LEN`].
    pub(crate) fn own(&self) -> Option<OwnLen> {
        self.body(|b| b.tstamp & Body::<A>::PKT_LEN != 0).then(|| OwnLen(self.slot().below.load(Relaxed)))
    }

    /// Returns how many bytes of a packet whose flags are [`Body::BEYOND`] the buffer holds.
    #[cold]
    pub(super) fn held_beyond(&self) -> usize {
        match self.own() {
            Some(own) if !own.is_beyond() => own.len() as usize,
            _ => self.body(|b| b.gso_size.into()),
        }
    }

    /// Returns whether `gso_size` of a packet whose flags are [`Body::BEYOND`] is the number of bytes in its buffer.
    #[cold]
    pub(super) fn has_no_gso_size(&self) -> bool {
        self.own().is_none_or(OwnLen::is_beyond)
    }
}

#[cfg(test)]
mod tests;
