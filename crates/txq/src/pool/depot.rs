//! The buffers that nobody's cache holds, in batches: a Treiber stack with a tag against ABA.
//!
//! A pop must read which batch lies below the top before it swings the top there. Between the two another thread may
//! pop that batch, use its buffers, and push it again over another one; the top looks the same and what lies below has
//! changed. The head is therefore an index and a tag that every push and pop advances: the exchange fails unless nothing at
//! all has happened, but for 2^32 operations within one pop. Neither side waits for the other at any point.
//!
//! A bit of the same word closes the depot while the pool shrinks: what was pushed before is there for whoever closed it,
//! and nothing is pushed after. So no buffer slips by, and nobody needs another look than that at the head.

use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crossbeam_utils::CachePadded;

use crate::arch::{Arch, Atomic};
use crate::pool::slot::Slot;
use crate::sync::contention::{Retries, Retry};

/// A stack of batches of free buffers.
pub(super) struct Depot<A: Arch> {
    /// Index plus one of the first buffer of the top batch (0 when empty), [`CLOSED`], and a 32-bit tag.
    head: CachePadded<A::AtomicU64>,
    retries: Arc<Retries<A>>,
}

/// Nothing may be pushed.
const CLOSED: u64 = 1 << 31;
/// A pool has fewer buffers than this.
const INDEX: u64 = CLOSED - 1;

fn advance(head: u64, top: u32) -> u64 {
    ((head >> 32).wrapping_add(1) << 32) | (head & CLOSED) | u64::from(top)
}

impl<A: Arch> Depot<A> {
    pub(super) fn new(retries: Arc<Retries<A>>) -> Self {
        Self { head: CachePadded::new(A::AtomicU64::new(0)), retries }
    }

    /// Closes or opens the depot. Relaxed: an exchange sees the last value, and hides no push from who pops.
    pub(super) fn close(&self, closed: bool) {
        match closed {
            true => self.head.fetch_or(CLOSED, Relaxed),
            false => self.head.fetch_and(!CLOSED, Relaxed),
        };
    }

    /// Pushes a batch by its first buffer, whose index is `index`; the rest hangs on that buffer's `next`. False if the
    /// depot is closed: then nothing has happened.
    #[inline]
    pub(super) fn push(&self, first: &Slot<A>, index: u32) -> bool {
        let mut head = self.head.load(Relaxed);
        loop {
            if head & CLOSED != 0 {
                return false;
            }
            first.below.store((head & INDEX) as u32, Relaxed);
            // Release: the batch's links and buffers; pairs with the acquire in `pop`.
            match self.head.compare_exchange_weak(head, advance(head, index + 1), Release, Relaxed) {
                Ok(_) => return true,
                Err(now) => head = self.failed(now, Retry::DepotPush),
            }
        }
    }

    /// Pops a batch: its first buffer.
    #[inline]
    pub(super) fn pop<'s>(&self, slots: &'s [Slot<A>]) -> Option<&'s Slot<A>> {
        let mut head = self.head.load(Acquire);
        loop {
            let first = slots.get(((head & INDEX) as usize).checked_sub(1)?)?;
            // May be stale when the batch is no longer on top; then the exchange fails.
            let below = first.below.load(Relaxed);
            match self.head.compare_exchange_weak(head, advance(head, below), Acquire, Acquire) {
                Ok(_) => return Some(first),
                Err(now) => head = self.failed(now, Retry::DepotPop),
            }
        }
    }

    /// Notes that an exchange failed because the head was `now`.
    fn failed(&self, now: u64, what: Retry) -> u64 {
        self.retries.note(what);
        now
    }
}
