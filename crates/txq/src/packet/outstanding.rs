//! How many packets of a flow are outstanding: handed in, and neither dropped nor completed (the kernel's
//! `sk_wmem_alloc`).
//!
//! A packet that is counted knows its flow's count and takes itself off it when it ends, wherever that is: there is one
//! place where packets end ([`Packet::retire`](super::Packet::retire)). So the count is exact under any qdisc, whatever
//! is dropped and in whatever order a device completes.
//!
//! The count keeps itself alive: the flow's handle is one, each packet is one, and whoever takes off the last frees
//! it. A flow may thus end while packets of it are on their way.
//!
//! Ordering: a packet's end releases what was done with it, the driver's call above all, and who reads the count
//! acquires that. A flow that is found to have nothing outstanding may therefore go another way, and no driver sees its
//! packets in another order. `txq-check` breaks both halves and sees two drivers race.

use std::ptr::{self, NonNull};
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};

use crate::arch::{Arch, Atomic};
use crate::packet::PacketList;
use crate::pool::slot::Body;

/// Packets outstanding, and one for the handle while there is one. On a line of its own: other CPUs end the packets.
#[repr(align(64))]
pub(crate) struct Count<A: Arch>(A::AtomicU64);

/// A flow's handle on its count.
pub(crate) struct Outstanding<A: Arch>(NonNull<Count<A>>);

// SAFETY: the count is an atomic, and the handle is one of those that keep it alive, on whatever thread.
unsafe impl<A: Arch> Send for Outstanding<A> {}
// SAFETY: as above.
unsafe impl<A: Arch> Sync for Outstanding<A> {}

impl<A: Arch> Outstanding<A> {
    pub(crate) fn new() -> Self {
        Self(NonNull::from(Box::leak(Box::new(Count(A::AtomicU64::new(1))))))
    }

    fn count(&self) -> &Count<A> {
        // SAFETY: this handle keeps it alive.
        unsafe { self.0.as_ref() }
    }

    /// Packets counted that have not ended.
    #[inline]
    pub(crate) fn get(&self) -> u64 {
        // Acquire: pairs with the release in `Count::less_one`.
        self.count().0.load(Acquire) - 1
    }

    /// Counts each packet of `batch` until it ends.
    pub(crate) fn add(&self, batch: &mut PacketList<A>) {
        // Relaxed: the packets that end are handed to whoever ends them, which orders this before.
        self.count().0.fetch_add(batch.len() as u64, Relaxed);
        let count = self.0.as_ptr().cast_const();
        batch.for_each_mut(|packet| {
            packet.body_mut(|body| {
                // A packet that another device has completed by sending it here.
                // SAFETY: it is on that flow's count, and from here on it is not.
                unsafe { ended(body) };
                body.flow = count;
                body.flags |= Body::<A>::COUNTED;
            });
        });
    }
}

impl<A: Arch> Drop for Outstanding<A> {
    fn drop(&mut self) {
        // SAFETY: the handle is one, once.
        unsafe { Count::less_one(self.0.as_ptr()) };
    }
}

impl<A: Arch> Count<A> {
    /// Takes one off.
    ///
    /// # Safety
    /// The caller is one of those counted, and is so no longer.
    unsafe fn less_one(count: *const Self) {
        // SAFETY: the caller keeps it alive until now. Release: what was done with the packet, to `Outstanding::get`.
        // Acquire: what everyone else did with the count comes before its end.
        let before = unsafe { &*count }.0.fetch_add(u64::MAX, AcqRel);
        if before == 1 {
            // SAFETY: it was leaked from a box of this type, and nobody is left who knows it.
            drop(unsafe { Box::from_raw(count.cast_mut()) });
        }
    }
}

/// Takes a packet that ends off the count of its flow, if it is on one.
///
/// # Safety
/// The packet is the caller's, who sees to it that this is done once.
#[inline]
pub(super) unsafe fn ended<A: Arch>(body: &Body<A>) {
    if body.flags & Body::<A>::COUNTED != 0 {
        debug_assert!(!ptr::eq(body.flow, ptr::null()));
        // SAFETY: the packet is one of those counted, and ends.
        unsafe { Count::less_one(body.flow) };
    }
}
