//! A lease: which of many threads uses a resource next, and for how long the others leave it alone. It is advice and
//! excludes no thread; the resource has its own protocol (`enqueue/lease.rs`).
//!
//! A lease has an end, so that no thread has to return it: the first thread that finds it over takes it. Holder and end are
//! in one word. So of all threads that find a lease over one takes it, and none takes a lease that was ended or granted
//! meanwhile.

use std::sync::atomic::Ordering::Relaxed;

use crate::arch::{Arch, Atomic, Nanos};

/// The bits of the holder's tag.
const HOLDER: u64 = 0xffff;
/// Low bits of the time that the word does not keep.
const UNIT: u32 = 10;

/// The word of a lease as it was at some moment; 0 if there is no lease.
///
/// | bits | |
/// |---|---|
/// | 63..16 | the end of the lease, in units of 1024 ns |
/// | 15..0 | the holder's tag, never 0 |
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Held(u64);

impl Held {
    #[inline]
    fn new(holder: u16, end: Nanos) -> Self {
        Self(end >> UNIT << 16 | u64::from(holder))
    }

    /// Whether there is no lease.
    #[inline]
    pub fn is_none(self) -> bool {
        self.0 == 0
    }

    /// Whether another thread than `holder` has the lease, or had it last.
    #[inline]
    pub fn is_anothers(self, holder: u16) -> bool {
        self.0 != 0 && self.0 & HOLDER != u64::from(holder)
    }

    /// Returns the end of the lease, up to 1023 ns early.
    pub fn end(self) -> Nanos {
        self.0 >> 16 << UNIT
    }
}

/// The lease of a resource.
pub struct Lease<A: Arch> {
    /// A [`Held`]. Written by threads that take the lease ([`take`](Lease::take)) and by the resource's owner, which grants
    /// and ends it; read by all. Relaxed: the word publishes no other memory.
    word: A::AtomicU64,
}

impl<A: Arch> Lease<A> {
    /// Creates a word without a lease.
    pub fn new() -> Self {
        Self { word: A::AtomicU64::new(0) }
    }

    /// Returns the word.
    #[inline]
    pub fn held(&self) -> Held {
        Held(self.word.load(Relaxed))
    }

    /// Grants the lease to `holder` until `end`, whichever thread has it.
    pub fn grant(&self, holder: u16, end: Nanos) {
        self.word.store(Held::new(holder, end).0, Relaxed);
    }

    /// Ends the lease. There is none until the next grant: a thread that took it just now loses it, too.
    pub fn end(&self) {
        // An exchange rather than a store for loom's sake, which orders two exchanges of a word but not a store and an
        // exchange. This is rare enough for its cost.
        self.word.swap(0, Relaxed);
    }

    /// Gives the lease to `holder` until `end` if the word is still `was`; returns whether it did.
    pub fn take(&self, was: Held, holder: u16, end: Nanos) -> bool {
        let new = Held::new(holder, end);
        self.word.compare_exchange(was.0, new.0, Relaxed, Relaxed).is_ok()
    }
}

impl<A: Arch> Default for Lease<A> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arch::Native;

    #[test]
    fn the_end_and_the_holder_are_kept() {
        let lease = Lease::<Native>::new();
        assert!(lease.held().is_none() && !lease.held().is_anothers(7));
        let end = 5_000_000_000_000_000;
        lease.grant(7, end);
        let held = lease.held();
        assert!(held.is_anothers(8) && !held.is_anothers(7) && !held.is_none());
        assert!((end - 1023..=end).contains(&held.end()), "{}", held.end());
        lease.end();
        assert!(lease.held().is_none());
    }

    #[test]
    fn a_lease_that_changed_is_not_taken() {
        let lease = Lease::<Native>::new();
        lease.grant(7, 1 << 20);
        let was = lease.held();
        assert!(lease.take(was, 8, 1 << 21) && !lease.take(was, 9, 1 << 21));
        assert!(!lease.held().is_anothers(8));
        let was = lease.held();
        lease.end();
        assert!(!lease.take(was, 9, 1 << 22) && lease.held().is_none());
    }
}
