//! The end of a packet, which grows into the free bytes behind it: for the tag of an AEAD, a checksum, padding.
//!
//! The descriptor does not say where its buffer ends. The pool does, and the packet's home leads to it: only a packet that grows reads
//! those lines.

use crate::arch::Arch;
use crate::packet::Packet;

impl<A: Arch> Packet<A> {
    /// Returns the number of free bytes behind the packet (`skb_tailroom`): those of the room that it does not fill, the pool's
    /// [`tailroom`](crate::pool::PoolConfig::tailroom), and those that the buffer has beyond both. 0 for a packet of which the
    /// buffer holds only the first bytes.
    pub fn tailroom(&self) -> usize {
        if self.is_beyond() {
            return 0;
        }
        // SAFETY: the home of a packet lives as long as the packet's pool.
        let (space, off) = self.body(|b| (unsafe { (*b.home).space() }, usize::from(b.off)));
        space.saturating_sub(off + self.held())
    }

    /// Grows the packet at the end by `n` bytes (`skb_put`). Returns them for the caller to write, or `None` if the
    /// [`tailroom`](Packet::tailroom) is smaller. They are the bytes that the buffer held before. As each write to the packet,
    /// it clears the flow hash and the protocol offsets.
    pub fn put(&mut self, n: usize) -> Option<&mut [u8]> {
        self.restore_len();
        let free = self.tailroom();
        if n > free {
            return None;
        }
        let before = self.held();
        // Within the buffer, and a buffer is shorter than 2 MiB: `room` is at most 1 MiB.
        self.body_mut(|b| b.len += n as u32);
        Some(&mut self.data_mut()[before..])
    }
}

#[cfg(test)]
mod tests;
