//! The number of a flow's outstanding packets: handed in, and neither dropped nor completed (the kernel's `sk_wmem_alloc`).
//!
//! A counted packet points to its flow's count and decrements it when it ends. Packets end in one place only
//! (`Packet::retire`), so the count is exact under any qdisc, any drops and any order of
//! completions.
//!
//! The count is also a reference count of itself: the flow's handle is one, each packet is one, and the decrement to 0 frees
//! it. So a flow may end before its packets.
//!
//! Ordering: the decrement of a packet that ends releases all accesses to the packet, above all the driver's call; the read
//! of the count acquires them. So a flow with nothing outstanding may move to another txq, and no driver sees its packets in
//! another order. `txq-check` breaks both halves and sees two drivers race.

use std::ptr::{self, NonNull};
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};

use crate::arch::{Arch, Atomic};
use crate::packet::PacketList;
use crate::pool::slot::Body;

/// Packets outstanding, plus one while the flow's handle exists. The flow's holder adds (relaxed) and reads (acquire); any
/// thread that ends a packet decrements (AcqRel). On a line of its own, because other CPUs end the packets.
#[repr(align(64))]
pub(crate) struct Count<A: Arch>(A::AtomicU64);

/// A flow's handle on its count.
pub struct Outstanding<A: Arch>(NonNull<Count<A>>);

// SAFETY: the count is an atomic, and the handle keeps it alive on any thread.
unsafe impl<A: Arch> Send for Outstanding<A> {}
// SAFETY: as above.
unsafe impl<A: Arch> Sync for Outstanding<A> {}

impl<A: Arch> Default for Outstanding<A> {
    fn default() -> Self {
        Self::new()
    }
}

impl<A: Arch> Outstanding<A> {
    /// Returns the handle of a count without packets.
    pub fn new() -> Self {
        Self(NonNull::from(Box::leak(Box::new(Count(A::AtomicU64::new(1))))))
    }

    fn count(&self) -> &Count<A> {
        // SAFETY: this handle keeps it alive.
        unsafe { self.0.as_ref() }
    }

    /// Returns the number of counted packets that have not ended.
    #[inline]
    pub fn get(&self) -> u64 {
        // Acquire: pairs with the release in `Count::less_one`.
        self.count().0.load(Acquire) - 1
    }

    /// Counts each packet of `batch` until it ends.
    pub fn add(&self, batch: &mut PacketList<A>) {
        // Relaxed: handing a packet to the thread that ends it orders this addition before the decrement.
        self.count().0.fetch_add(batch.len() as u64, Relaxed);
        let count = self.0.as_ptr().cast_const();
        batch.for_each_mut(|packet| {
            packet.body_mut(|body| {
                // A packet may come from another device's driver, counted for a flow of that device: it ends there.
                // SAFETY: the packet is on that flow's count, and from here on it is not.
                unsafe { ended(body) };
                body.flow = count;
                body.flags |= Body::<A>::COUNTED;
            });
        });
    }
}

impl<A: Arch> Drop for Outstanding<A> {
    fn drop(&mut self) {
        // SAFETY: the handle counts as one, and is dropped once.
        unsafe { Count::less_one(self.0.as_ptr()) };
    }
}

impl<A: Arch> Count<A> {
    /// Decrements the count, and frees it at 0.
    ///
    /// # Safety
    /// The caller is one of those counted, and no longer counts after this.
    unsafe fn less_one(count: *const Self) {
        // SAFETY: the caller keeps the count alive until now. Release: accesses to the packet; pairs with the acquire in
        // `Outstanding::get`. Acquire: all other threads' uses of the count, before it is freed.
        let before = unsafe { &*count }.0.fetch_add(u64::MAX, AcqRel);
        if before == 1 {
            // SAFETY: it was leaked from a box of this type, and no handle and no packet points to it any more.
            drop(unsafe { Box::from_raw(count.cast_mut()) });
        }
    }
}

/// Decrements the count of the packet's flow, if a flow counts the packet.
///
/// # Safety
/// The caller owns the packet, and calls this once for each time that the packet was counted.
#[inline]
pub(super) unsafe fn ended<A: Arch>(body: &Body<A>) {
    if body.flags & Body::<A>::COUNTED != 0 {
        debug_assert!(!ptr::eq(body.flow, ptr::null()));
        // SAFETY: the packet is one of those counted, and ends.
        unsafe { Count::less_one(body.flow) };
    }
}
