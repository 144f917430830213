//! Packets that a device names by an offset into the pool's region, as AF_XDP does.

use std::ptr::{self, NonNull};

use crate::arch::Arch;
use crate::packet::Packet;
use crate::pool::Pool;

impl<A: Arch> Packet<A> {
    /// Gives up the packet for a device that reports completions by address; returns the offset of its first byte in the
    /// pool's region. [`Pool::packet_at`] takes it back; until then nothing frees the buffer.
    ///
    /// The offset is always within the packet's own buffer. An empty packet at the buffer's end, where the next buffer
    /// begins, has the offset of the buffer's last byte.
    ///
    /// # Panics
    /// The packet is not of this pool ([`Pool::owns`]).
    pub fn into_offset(self, pool: &Pool<A>) -> usize {
        let name = &pool.0.name;
        assert!(
            pool.owns(&self),
            "foreign packet: it is not of pool \"{name}\": copy it to a packet of that pool"
        );
        let (base, stride) = pool.region();
        let at = self.body(|b| b.data.addr() + usize::from(b.off).min(stride - 1));
        let _ = self.into_slot();
        at - base.addr().get()
    }
}

impl<A: Arch> Pool<A> {
    /// Returns whether the packet's buffer is one of this pool's.
    pub fn owns(&self, packet: &Packet<A>) -> bool {
        // SAFETY: the home of a packet lives as long as the packet's pool.
        packet.body(|b| ptr::eq(unsafe { &*(*b.home).store }, &*self.0.memory.store))
    }

    /// Returns the packet whose buffer holds `offset` of the region, for devices that report completions by address.
    ///
    /// # Safety
    /// [`Packet::into_offset`] with this pool gave the packet to the device, and the device returns it for the first time.
    ///
    /// # Panics
    /// When `offset` is outside of the region; in debug builds also when that buffer is not in use.
    pub unsafe fn packet_at(&self, offset: usize) -> Packet<A> {
        let index = offset / self.0.stride;
        let memory = &self.0.memory;
        #[cfg(debug_assertions)]
        let begun = index < memory.store.size.begun() as usize || index >= memory.slots.len();
        #[cfg(debug_assertions)]
        assert!(begun, "double completion: buffer {index} of pool \"{}\" is not in use", self.0.name);
        // SAFETY: the caller's promise: the buffer was a packet's, so its descriptor was written.
        let Some(slot) = (unsafe { memory.slots.get(index) }) else {
            panic!("foreign buffer: offset {offset} is not in pool \"{}\"", self.0.name);
        };
        #[cfg(debug_assertions)]
        assert!(
            slot.check.holder().is_some(),
            "double completion: buffer {index} of pool \"{}\" is not in use",
            self.0.name
        );
        // SAFETY: the caller's promise.
        unsafe { Packet::from_slot(NonNull::from(slot)) }
    }
}
