//! The part of the stock that is kept for senders with few buffers, so that one sender's backlog does not take the buffers of
//! another.
//!
//! Each sender of a device has a guarantee of [`PoolConfig::reserve`](super::PoolConfig::reserve) buffers. A sender that has
//! at least that many in use takes buffers from the stock only while the stock stays above its floor: the guarantees of all
//! senders, and of one more that may begin. Below the floor only senders with fewer in use take buffers. The others use those
//! that come home to them, as their packets leave.
//!
//! A sender takes up to a batch more than it needs, and so may each sender that reads the stock at the same time. The floor
//! has two batches for each sender. So the guarantee holds, whatever the others do, as long as all guarantees fit into half of
//! the pool; with more senders each gets less.
//!
//! The check is made only where a sender without buffers takes a batch from the stock. The way of a packet does not change.

use std::sync::atomic::Ordering::Relaxed;

use crossbeam_utils::CachePadded;

use crate::arch::{Arch, Atomic};

/// The part of the pool that all guarantees have together at most, and that one guarantee has: one in so many buffers.
const ALL: u32 = 2;
const EACH: u32 = 32;

/// The guarantees of a pool, and the count of its stock.
pub(super) struct Reserve<A: Arch> {
    /// Buffers guaranteed to each sender; 0 switches the reserve off. Never changes.
    each: u32,
    /// Senders with a guarantee. Incremented and decremented by them, read by a sender that takes from the stock. Relaxed: a
    /// stale number moves the floor for one call.
    senders: A::AtomicU32,
    /// Buffers in the stock, and those in circulation that have not begun; not counted if the reserve is off. A put adds before it pushes, a take subtracts after it has
    /// popped; so it is never below the number of buffers there. Relaxed: a number, which orders nothing.
    stocked: CachePadded<A::AtomicU64>,
}

impl<A: Arch> Reserve<A> {
    /// Returns the guarantees of a pool with `stocked` buffers in its stock.
    pub(super) fn new(each: u32, stocked: u32) -> Self {
        let stocked = CachePadded::new(A::AtomicU64::new(stocked.into()));
        Self { each, senders: A::AtomicU32::new(0), stocked }
    }

    /// Names its line ([`Arch::name`]).
    pub(super) fn name_lines(&self) {
        A::name(&self.stocked, "pool: the number of buffers in the stock");
    }

    /// Counts `n` buffers that the caller puts into the stock next.
    #[inline]
    pub(super) fn add(&self, n: u32) {
        if self.each > 0 {
            self.stocked.fetch_add(n.into(), Relaxed);
        }
    }

    /// Subtracts `n` buffers that the caller has taken from the stock, or has not put there.
    #[inline]
    pub(super) fn subtract(&self, n: u32) {
        if self.each > 0 {
            self.stocked.fetch_add(u64::from(n).wrapping_neg(), Relaxed);
        }
    }

    /// Gives a guarantee to one more sender.
    pub(super) fn join(&self) {
        self.senders.fetch_add(1, Relaxed);
    }

    /// Ends the guarantee of a sender.
    pub(super) fn leave(&self) {
        self.senders.fetch_add(u32::MAX, Relaxed);
    }

    /// Returns the buffers guaranteed to each sender of a pool of `size` buffers.
    pub(super) fn each(&self, size: u32) -> u32 {
        self.each.min(size / EACH)
    }

    /// Returns whether a sender with `held` buffers in use may take a batch of `bulk` buffers from the stock of a pool of
    /// `size` buffers.
    pub(super) fn allows(&self, held: i64, size: u32, bulk: usize) -> bool {
        let each = self.each(size);
        if held < i64::from(each) || each == 0 {
            return true;
        }
        let senders = u64::from(self.senders.load(Relaxed)) + 1;
        let floor = (senders * (u64::from(each) + 2 * bulk as u64)).min(u64::from(size / ALL));
        self.stocked.load(Relaxed) >= floor + bulk as u64
    }
}
