//! Drops and sampled times of a sender's packets, kept at their home.
//!
//! No counter counts packets sent. A sender's credit gives the number of its packets freed; those not dropped were sent. So
//! a packet that is sent pays for no counter, and drops cost two additions per run of packets dropped for one reason.

use std::array;
use std::ptr::NonNull;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, OnceLock};

use crate::arch::{Arch, Atomic, Nanos};
use crate::drop::{DropCounts, DropReason};
use crate::pool::Shared;
use crate::pool::account::since;
use crate::pool::home::Home;
use crate::pool::times::Times;
use crate::sync::waiter;

/// Counters of one home, on a line that only drops and samples touch.
pub(super) struct Fate<A: Arch> {
    /// Packets of this home that were dropped, by all senders that have lived here. Written by any thread that frees
    /// dropped packets, before their credit returns. Relaxed: the reader only shows it.
    dropped: A::AtomicU64,
    /// The same by reason, written with it. Relaxed: a reader may find a packet in one of both and not in the other.
    reasons: [A::AtomicU64; DropReason::ALL.len()],
    /// Senders that have moved in, modulo 2^32. Written by the sender that moves in, before its first packet.
    tenancy: A::AtomicU32,
    /// Times of this sender's sampled packets. Cleared by the next sender that moves in, when no packet of the last one is
    /// on its way.
    to_driver: OnceLock<Times<A>>,
}

impl<A: Arch> Fate<A> {
    pub(super) fn new() -> Self {
        Self {
            dropped: A::AtomicU64::new(0),
            reasons: array::from_fn(|_| A::AtomicU64::new(0)),
            tenancy: A::AtomicU32::new(0),
            to_driver: OnceLock::new(),
        }
    }

    /// Counts `n` packets dropped for `reason`. The caller frees them next.
    #[inline]
    pub(super) fn note_dropped(&self, reason: DropReason, n: u32) {
        self.reasons[reason as usize].fetch_add(n.into(), Relaxed);
        self.dropped.fetch_add(n.into(), Relaxed);
    }

    /// Returns the drops by reason, by all senders that have lived here.
    fn reasons(&self) -> DropCounts {
        let mut counts = DropCounts::default();
        let words = DropReason::ALL.iter().zip(&self.reasons);
        words.for_each(|(&reason, word)| counts.add(reason, word.load(Relaxed)));
        counts
    }

    /// Records the time of a sampled packet.
    pub(super) fn note_time(&self, time: Nanos) {
        self.to_driver.get_or_init(Times::new).record(time);
    }

    /// Prepares the counters for the sender that moves in.
    pub(super) fn occupied(&self) {
        self.tenancy.store(self.tenancy.load(Relaxed).wrapping_add(1), Relaxed);
        if let Some(times) = self.to_driver.get() {
            times.clear();
        }
    }
}

/// A sender's view of its home, which outlives the sender.
pub struct Tally<A: Arch> {
    home: NonNull<Home<A>>,
    tenancy: u32,
    /// Packets dropped at this home before the sender moved in.
    dropped_before: u64,
    /// The same by reason.
    reasons_before: DropCounts,
    /// Keeps the home alive.
    pool: Arc<Shared<A>>,
}

// SAFETY: the home is shared by threads, and `pool` keeps it alive.
unsafe impl<A: Arch> Send for Tally<A> {}
// SAFETY: as above; every access is to atomics.
unsafe impl<A: Arch> Sync for Tally<A> {}

impl<A: Arch> Tally<A> {
    /// Returns the view of the sender that lives at `home`, which belongs to `pool`.
    pub(super) fn new(pool: Arc<Shared<A>>, home: NonNull<Home<A>>) -> Self {
        // SAFETY: homes live as long as their pool.
        let fate = unsafe { home.as_ref() }.fate();
        let (tenancy, dropped_before) = (fate.tenancy.load(Relaxed), fate.dropped.load(Relaxed));
        Self { home, tenancy, dropped_before, reasons_before: fate.reasons(), pool }
    }

    fn home(&self) -> &Home<A> {
        // SAFETY: homes live as long as their pool, which `pool` keeps alive.
        unsafe { self.home.as_ref() }
    }

    /// Wakes the sender to check its device again, if it waits for credit or for a buffer. It keeps its place in the line.
    pub fn wake_to_recheck(&self) {
        self.home().wake_to_recheck();
        let mut waker = None;
        self.pool.memory.store.with_line(|line| line.renew(self.home.as_ptr(), &mut waker));
        waker.into_iter().for_each(waiter::wake);
    }

    /// Whether no other sender has moved in since. If one has, the other methods include its packets.
    pub fn is_current(&self) -> bool {
        self.home().fate().tenancy.load(Relaxed) == self.tenancy
    }

    /// Returns the number of the sender's packets that were dropped.
    pub fn dropped(&self) -> u64 {
        self.home().fate().dropped.load(Relaxed).wrapping_sub(self.dropped_before)
    }

    /// Returns the drops of the sender's packets, of which none is on its way any more, if `next` is the view of the sender that moved
    /// in after it.
    pub fn final_drops(&self, next: &Self) -> Option<DropCounts> {
        let follows = self.home == next.home && self.tenancy.wrapping_add(1) == next.tenancy;
        follows.then(|| next.reasons_before.since(&self.reasons_before))
    }

    /// Returns the number of the sender's packets that were dropped, by reason.
    pub fn drops(&self) -> DropCounts {
        self.home().fate().reasons().since(&self.reasons_before)
    }

    /// Returns how many of the sender's packets are not yet freed, given that `out` were not when `seen` had been freed
    /// elsewhere ([`Cache::credit`](crate::pool::Cache)).
    pub fn pending(&self, out: u32, seen: u32) -> u32 {
        out.saturating_sub(since(self.home().account().read().freed(), seen))
    }

    /// Returns the times of the sender's sampled packets, if there are any.
    pub fn times(&self) -> Option<&Times<A>> {
        self.home().fate().to_driver.get()
    }
}
