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

/// Returns a tag for the thread that `id` names, never 0: an address of its own, for example. Two threads have the same tag
/// once in 65,535 pairs; then one of them does not wait for the other.
#[inline]
pub fn tag(id: usize) -> u16 {
    // Threads allocate in arenas of their own, so that the low bits of their addresses are often the same. The product's high bits
    // depend on all bits of the address (Knuth, The Art of Computer Programming 3, 6.4, multiplicative hashing).
    ((id as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 48).max(1) as u16
}

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

    /// Whether `holder` has the lease, or had it last.
    pub fn is_of(self, holder: u16) -> bool {
        self.0 & HOLDER == u64::from(holder)
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

    /// Grants the lease to `holder`, from `now` on, with `Some(true)`; ends it with `Some(false)`.
    pub fn set(&self, granted: Option<bool>, holder: u16, now: Nanos) {
        match granted {
            Some(true) => self.grant(holder, now + A::lease()),
            Some(false) => self.end(),
            None => {}
        }
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

/// Uses of one resource in a row after which a thread no longer alternates.
const SETTLED: u32 = 16;

/// What a thread remembers of the leases that it has met.
pub struct Past {
    /// When it last took a lease; 0 if it need not know.
    pub took: Nanos,
    /// When the period began in which it counts.
    since: Nanos,
    /// What it has counted in this period.
    counted: usize,
    /// The resource that it used last; `usize::MAX` before the first.
    resource: usize,
    /// Uses of this resource until it no longer alternates; 0 if it does not.
    alternates: u32,
}

impl Default for Past {
    fn default() -> Self {
        Self { took: 0, since: 0, counted: 0, resource: usize::MAX, alternates: 0 }
    }
}

impl Past {
    /// Notes that the thread uses a resource; returns whether it alternates between several. A thread that begins or ends to
    /// alternate forgets what else it remembers: it waits for another lease from then on.
    #[inline]
    pub fn turn_to(&mut self, resource: usize) -> bool {
        if resource != self.resource || self.alternates > 0 {
            self.turn(resource);
        }
        self.alternates()
    }

    fn turn(&mut self, resource: usize) {
        let was = self.alternates;
        self.alternates = match self.resource {
            usize::MAX => 0,
            last if last == resource => was - 1,
            _ => SETTLED,
        };
        self.resource = resource;
        if was == 0 || self.alternates == 0 {
            (self.took, self.since, self.counted) = (0, 0, 0);
        }
    }

    /// Whether the thread uses several resources by turns.
    #[inline]
    pub fn alternates(&self) -> bool {
        self.alternates > 0
    }

    /// Counts `n`; returns the count before, in this period. A period begins with the first call after the end of the last.
    pub fn count(&mut self, n: usize, now: Nanos, period: Nanos) -> usize {
        if now >= self.since.saturating_add(period) {
            (self.since, self.counted) = (now, 0);
        }
        let before = self.counted;
        self.counted = before.saturating_add(n);
        before
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arch::Native;

    #[test]
    fn the_end_and_the_holder_are_kept() {
        let lease = Lease::<Native>::new();
        assert!(lease.held().is_none() && !lease.held().is_anothers(7) && !lease.held().is_of(7));
        let end = 5_000_000_000_000_000;
        lease.grant(7, end);
        let held = lease.held();
        assert!(held.is_anothers(8) && !held.is_anothers(7) && !held.is_none());
        assert!(held.is_of(7) && !held.is_of(8));
        assert!((end - 1023..=end).contains(&held.end()), "{}", held.end());
        lease.end();
        assert!(lease.held().is_none());
    }

    #[test]
    fn what_is_counted_belongs_to_a_period() {
        let mut past = Past::default();
        assert_eq!([1000, 1040, 1099].map(|now| past.count(8, now, 100)), [0, 8, 16]);
        // One in each period never adds up.
        assert!((0..50).all(|i| past.count(8, 1100 + 100 * i, 100) == 0));
    }

    #[test]
    fn a_thread_that_begins_or_ends_to_alternate_forgets() {
        let mut past = Past::default();
        assert!(!past.turn_to(3), "its first");
        past.took = 1000;
        assert_eq!([1000, 1001].map(|now| past.count(8, now, 100)), [0, 8]);
        assert!(!past.turn_to(3));
        assert_eq!((past.count(8, 1002, 100), past.took), (16, 1000));
        assert!(past.turn_to(4));
        assert_eq!((past.count(8, 1003, 100), past.took), (0, 0));
        past.took = 1003;
        // It keeps what it knows while it alternates, also if it uses a resource several times in a row.
        for resource in [3, 4, 4, 5, 5, 5, 3] {
            assert!(past.turn_to(resource));
        }
        assert_eq!((past.count(8, 1004, 100), past.took), (8, 1003));
        let uses = (1..100).find(|_| !past.turn_to(3));
        assert_eq!((uses, past.count(8, 1005, 100), past.took), (Some(16), 0, 0));
    }

    #[test]
    fn addresses_in_arenas_of_their_own_have_different_tags() {
        // glibc's arenas begin at multiples of 64 MiB, and the first allocation of each has the same place.
        let tags: std::collections::HashSet<_> = (1..=64).map(|arena| tag(arena << 26 | 0x3080)).collect();
        assert!(tags.len() >= 63 && !tags.contains(&0), "{} of 64", tags.len());
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
