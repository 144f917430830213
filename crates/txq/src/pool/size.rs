//! How many of a pool's buffers are in circulation, and where the others are meanwhile.
//!
//! All buffers that a pool may ever have are made with it, so that its region is one and stays where it is (a UMEM is
//! registered once). Those beyond its size are parked. A pool that shall shrink closes its stock: what would go there is
//! parked instead, until enough is. Closing is a bit that a put reads anyway (`pool/depot.rs`), so a pool that does not
//! shrink pays nothing; and only while it shrinks does a put wait for a lock.

use std::ptr::{self, NonNull};
use std::sync::atomic::Ordering::Relaxed;

use crossbeam_utils::CachePadded;

use crate::arch::{Arch, Atomic, CellApi};
use crate::pool::cache::CACHE_SIZE;
use crate::pool::retired::Run;
use crate::pool::slot::Slot;
use crate::sync::spinlock::SpinLock;

/// Buffers that are unparked in one turn of the lock.
const TURN: u32 = 256;

pub(super) struct Size<A: Arch> {
    /// What a pool of this size can have at most.
    max: u32,
    /// Read by senders now and then, written by whoever resizes.
    told: CachePadded<Told<A>>,
    parking: CachePadded<SpinLock<A, Parking<A>>>,
}

/// What `Parking` says, for those who need not know it to the buffer.
struct Told<A: Arch> {
    size: A::AtomicU32,
    parked: A::AtomicU32,
    surplus: A::AtomicU32,
}

struct Parking<A: Arch> {
    /// What the pool shall have.
    size: u32,
    /// Linked by `next` up to a null.
    list: *mut Slot<A>,
    parked: u32,
    /// How many more have to be parked. The stock is closed while there are any.
    surplus: u32,
}

// SAFETY: the list owns its buffers.
unsafe impl<A: Arch> Send for Parking<A> {}

impl<A: Arch> Size<A> {
    /// Of a pool that has all of its `max` buffers.
    pub(super) fn new(max: u32) -> Self {
        let told = Told {
            size: A::AtomicU32::new(max),
            parked: A::AtomicU32::new(0),
            surplus: A::AtomicU32::new(0),
        };
        let parking = Parking { size: max, list: ptr::null_mut(), parked: 0, surplus: 0 };
        Self { max, told: CachePadded::new(told), parking: CachePadded::new(SpinLock::new(parking)) }
    }

    /// Names its lines ([`Arch::name`]).
    pub(super) fn name_lines(&self) {
        A::name(&self.told, "pool: its size");
        self.parking.name_lines("pool: parking lock", "pool: what is parked");
    }

    /// What the pool shall have.
    #[inline]
    pub(super) fn get(&self) -> u32 {
        self.told.size.load(Relaxed)
    }

    /// Buffers out of circulation.
    pub(super) fn parked(&self) -> u32 {
        self.told.parked.load(Relaxed)
    }

    /// Whether more buffers have to be parked.
    #[inline]
    pub(super) fn is_shrinking(&self) -> bool {
        self.told.surplus.load(Relaxed) > 0
    }

    /// Buffers that a cache may hold: a 32nd of the pool, so that the caches of a few senders cannot hold all of it.
    pub(super) fn cache(&self) -> usize {
        Self::cache_of(self.get())
    }

    /// The most that it may ever hold.
    pub(super) fn cache_max(&self) -> usize {
        Self::cache_of(self.max)
    }

    fn cache_of(size: u32) -> usize {
        (size as usize / 32).clamp(1, CACHE_SIZE)
    }

    /// Buffers that move between a cache and the stock at a time (`NAPI_SKB_CACHE_BULK`).
    #[inline]
    pub(super) fn bulk(&self) -> usize {
        (self.cache() / 4).max(1)
    }

    /// A sender that begins: what happens to the size from now on, it is told of. Returns what a cache may hold, and
    /// whether more buffers have to be parked.
    pub(super) fn join(&self) -> (usize, bool) {
        // The lock: who resizes looks for homes after it had it, and finds that of whoever had it before.
        self.parking.with(|held| (Self::cache_of(held.data().size), held.data().surplus > 0))
    }

    /// Changes the size, and has the stock closed if there are buffers to park. Returns whether there are.
    pub(super) fn set(&self, size: u32, close: impl FnOnce(bool)) -> bool {
        self.parking.with(|held| {
            let parking = held.data();
            parking.size = size;
            parking.surplus = (self.max - size).saturating_sub(parking.parked);
            self.told.size.store(size, Relaxed);
            self.told.surplus.store(parking.surplus, Relaxed);
            close(parking.surplus > 0);
            parking.surplus > 0
        })
    }

    /// Some of the buffers that are parked and need not be.
    pub(super) fn unpark(&self) -> Run<A> {
        let mut run = Run::new();
        self.parking.with(|held| {
            let parking = held.data();
            while run.len() < TURN && parking.parked > self.max - parking.size {
                let Some(slot) = NonNull::new(parking.list) else { break };
                // SAFETY: what is parked is ours, and linked up to a null.
                parking.list = unsafe { slot.as_ref().next.with(|n| *n) };
                parking.parked -= 1;
                run.push(slot);
            }
            self.told.parked.store(parking.parked, Relaxed);
        });
        run
    }

    /// Parks as many as have to be of the buffers that hang on `first`, up to a null, and returns the rest. Opens the
    /// stock when there are enough.
    ///
    /// # Safety
    /// The buffers are the caller's, and linked up to a null.
    #[cold]
    pub(super) unsafe fn park(&self, mut first: *mut Slot<A>, open: impl FnOnce()) -> *mut Slot<A> {
        self.parking.with(|held| {
            let parking = held.data();
            while parking.surplus > 0 && !first.is_null() {
                // SAFETY: the caller's promise.
                let slot = unsafe { &*first };
                let next = slot.next.with_mut(|n| {
                    // SAFETY: as above.
                    unsafe { ptr::replace(n, parking.list) }
                });
                parking.list = first;
                parking.parked += 1;
                parking.surplus -= 1;
                first = next;
                if parking.surplus == 0 {
                    open();
                    break;
                }
            }
            self.told.parked.store(parking.parked, Relaxed);
            self.told.surplus.store(parking.surplus, Relaxed);
        });
        first
    }
}
