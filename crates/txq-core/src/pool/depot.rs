//! Free buffers in no cache, in batches: a Treiber stack with a tag against ABA.
//!
//! A pop reads the index of the batch below the top before it moves the top there. Between the two, another thread may pop
//! the top batch, use its buffers, and push it again over another batch: the top is the same, but the batch below has
//! changed. The head therefore holds a tag beside the index, which every push and pop increments. The exchange fails if any
//! push or pop came between, except after a multiple of 2^32 of them. No thread ever waits for another.
//!
//! A bit of the same word closes the depot while the pool shrinks. The thread that closed it finds every batch pushed
//! before, and no push succeeds after. So no buffer is missed, and a push reads no word but the head.

use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crossbeam_utils::CachePadded;

use crate::arch::{Arch, Atomic};
use crate::pool::slot::Slot;
use crate::pool::slots::Slots;
use crate::stats::contention::Retry;
use crate::sync::contention::Retries;

/// A stack of batches of free buffers.
pub(super) struct Depot<A: Arch> {
    /// From the lowest bit: 31 bits, index plus one of the first buffer of the top batch (0 when empty); [`CLOSED`]; a
    /// 32-bit tag.
    ///
    /// Every thread of the pool pushes and pops by compare-exchange. A push releases its batch, and the pop that takes it
    /// acquires it. `CLOSED` changes under the parking lock only (`Size`): a resize sets or clears it, and parking the last
    /// surplus buffer clears it.
    head: CachePadded<A::AtomicU64>,
    retries: Arc<Retries<A>>,
}

/// While this bit is set, no batch may be pushed.
const CLOSED: u64 = 1 << 31;
/// The bits of the index plus one. A pool has fewer buffers than this value.
const INDEX_MASK: u64 = CLOSED - 1;

/// Returns `head` with the tag incremented and the index plus one replaced by `top`.
fn advance(head: u64, top: u32) -> u64 {
    ((head >> 32).wrapping_add(1) << 32) | (head & CLOSED) | u64::from(top)
}

impl<A: Arch> Depot<A> {
    pub(super) fn new(retries: Arc<Retries<A>>) -> Self {
        Self { head: CachePadded::new(A::AtomicU64::new(0)), retries }
    }

    /// Closes or opens the depot. Relaxed: a read-modify-write reads the last value, and continues the release sequence of
    /// the pushes before it.
    pub(super) fn close(&self, closed: bool) {
        match closed {
            true => self.head.fetch_or(CLOSED, Relaxed),
            false => self.head.fetch_and(!CLOSED, Relaxed),
        };
    }

    /// Pushes a batch, given by its first buffer, whose index is `index`; the others are linked by `next`. Returns false and
    /// changes nothing if the depot is closed.
    #[inline]
    pub(super) fn push(&self, first: &Slot<A>, index: u32) -> bool {
        let mut head = self.head.load(Relaxed);
        loop {
            if head & CLOSED != 0 {
                return false;
            }
            first.below.store((head & INDEX_MASK) as u32, Relaxed);
            // Release: the batch's links and buffers; pairs with the acquire in `pop`.
            match self.head.compare_exchange_weak(head, advance(head, index + 1), Release, Relaxed) {
                Ok(_) => return true,
                Err(now) => head = self.failed(now, Retry::DepotPush),
            }
        }
    }

    /// Pops a batch; returns its first buffer, or `None` if the depot is empty.
    #[inline]
    pub(super) fn pop<'s>(&self, slots: &'s Slots<A>) -> Option<&'s Slot<A>> {
        let mut head = self.head.load(Acquire);
        loop {
            // SAFETY: a push has put the index there, of a descriptor that it had. The head was loaded by an acquire, so the
            // descriptor was written before.
            let first = unsafe { slots.get(((head & INDEX_MASK) as usize).checked_sub(1)?) }?;
            // Stale if the batch is no longer on top; then the exchange fails.
            let below = first.below.load(Relaxed);
            match self.head.compare_exchange_weak(head, advance(head, below), Acquire, Acquire) {
                Ok(_) => return Some(first),
                Err(now) => head = self.failed(now, Retry::DepotPop),
            }
        }
    }

    /// Counts a failed exchange; returns `now`, the head that it read.
    fn failed(&self, now: u64, what: Retry) -> u64 {
        self.retries.note(what);
        now
    }
}
