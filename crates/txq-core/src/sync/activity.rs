//! How many of several owners have work now. Each owner writes a word of its own, and any of them counts.
//!
//! The count is an estimate: an owner that begins or ends meanwhile may or may not count. Nothing but the count follows
//! from it, so no access orders another.

use std::sync::atomic::Ordering::Relaxed;

use crossbeam_utils::CachePadded;

use crate::arch::{Arch, Atomic, Nanos};

/// The word of an owner that has work.
const BUSY: u64 = u64::MAX;

/// The words of all owners.
pub struct Activity<A: Arch> {
    /// For each owner [`BUSY`], or when it last had work; 0 if it never had. Written by the owner alone, where it begins
    /// and ends; read by all that count. Relaxed: a word publishes no other memory.
    owners: Box<[CachePadded<A::AtomicU64>]>,
}

impl<A: Arch> Activity<A> {
    /// Returns the words of `owners` that never had work.
    pub fn new(owners: usize) -> Self {
        Self { owners: (0..owners).map(|_| CachePadded::new(A::AtomicU64::new(0))).collect() }
    }

    /// Says that an owner has work.
    pub fn begin(&self, owner: usize) {
        self.owners[owner].store(BUSY, Relaxed);
    }

    /// Says that an owner has had work until `now`.
    pub fn end(&self, owner: usize, now: Nanos) {
        self.owners[owner].store(now, Relaxed);
    }

    /// Returns how many owners have work, or had some at `since` or later.
    pub fn count(&self, since: Nanos) -> usize {
        self.owners.iter().filter(|owner| owner.load(Relaxed) >= since).count()
    }

    /// Names its memory for a simulator's report ([`Arch::name`]).
    pub fn name(&self) {
        A::name(&*self.owners, "what queues are active");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arch::Native;

    #[test]
    fn owners_count_while_they_have_work_and_for_a_while() {
        let activity = Activity::<Native>::new(3);
        assert_eq!(activity.count(1), 0);
        activity.begin(0);
        activity.begin(2);
        assert_eq!(activity.count(5000), 2);
        activity.end(2, 5000);
        assert_eq!([5000, 5001].map(|since| activity.count(since)), [2, 1]);
    }
}
