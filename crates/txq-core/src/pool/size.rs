//! The number of a pool's buffers in circulation, and the list of the others.
//!
//! A pool reserves the addresses of all buffers of its maximum at once, so that its region is contiguous and never moves (a UMEM
//! is registered once). Buffers beyond the pool's size are parked. To shrink, a pool closes its stock: buffers freed to the
//! stock are parked instead, until the surplus is gone. Closing is a bit that a put reads anyway (`pool/depot.rs`), so a pool
//! that does not shrink pays nothing. A put takes a lock only while the pool shrinks.
//!
//! No buffer is begun at first ([`Slots::begin`]). A sender that finds the stock empty begins a batch of fresh ones under the
//! same lock ([`Size::begin`]). Buffers begin in the order of their indices, so one number says which have begun, and another
//! how many of the others are in circulation: to park or to unpark fresh buffers changes that number alone. A sender that
//! finds no fresh buffer reads one word and takes no lock.
//!
//! Senders that wait for a buffer close the stock for the same reason: each buffer then passes the lock, under which their
//! line lies (`pool/line.rs`).

use std::ops::Range;
use std::ptr::{self, NonNull};
use std::sync::atomic::Ordering::Relaxed;
use std::task::Waker;

use crossbeam_utils::CachePadded;

use crate::arch::{Arch, Atomic, CellApi};
use crate::pool::cache::CACHE_SIZE;
use crate::pool::home::Home;
use crate::pool::line::Line;
use crate::pool::retired::Run;
use crate::pool::slot::Slot;
use crate::pool::slots::Slots;
use crate::sync::spinlock::SpinLock;

/// The most buffers that are unparked in one hold of the lock.
const UNPARKED_PER_LOCK: u32 = 256;

/// The number of buffers that a pool begins first. Later it begins as many as have begun, so that a pool of few packets takes
/// little memory.
const FIRST: u32 = 8;

/// The size of a pool, and its parked buffers.
pub(super) struct Size<A: Arch> {
    /// The pool's maximum ([`Pool::max_buffers`](super::Pool::max_buffers)).
    max: u32,
    /// Copies of `parking`'s numbers for readers without the lock.
    told: CachePadded<Told<A>>,
    parking: CachePadded<SpinLock<A, Parking<A>>>,
}

/// Copies of [`Parking`]'s numbers. The holder of the parking lock writes them; any thread reads them. Relaxed: each is a
/// number on its own, and may be stale.
struct Told<A: Arch> {
    /// The number of buffers that the pool was last set to.
    size: A::AtomicU32,
    /// Buffers out of circulation.
    parked: A::AtomicU32,
    /// Buffers that must still be parked.
    surplus: A::AtomicU32,
    /// Buffers in circulation that have not begun. A sender that reads 0 after the last change of the size takes no lock; one
    /// that reads a stale number finds no buffer, and reads it again after it has joined the line, under the lock.
    fresh: A::AtomicU32,
    /// Senders that wait for a buffer. A sender reads it after it was kicked, and the kick (release, acquire) orders the
    /// value that the first waiting sender stored before.
    waiting: A::AtomicU32,
}

/// The state under the parking lock.
struct Parking<A: Arch> {
    /// The number of buffers that the pool was last set to.
    size: u32,
    /// Parked buffers that have begun, linked by `next` up to a null.
    list: *mut Slot<A>,
    /// Buffers out of circulation, begun or not.
    parked: u32,
    /// Buffers that have begun: those with the lowest indices.
    begun: u32,
    /// Buffers in circulation that have not begun. 0 while there is a surplus.
    fresh: u32,
    /// How many more buffers must be parked. The stock is closed while this is not 0.
    surplus: u32,
    /// The senders that wait for a buffer. The stock is closed while there are any.
    line: Line<A>,
}

impl<A: Arch> Parking<A> {
    /// Whether the stock must be closed.
    fn is_short(&self) -> bool {
        self.surplus > 0 || !self.line.is_empty()
    }
}

// SAFETY: the list owns its buffers, and the homes in the line are shared between threads.
unsafe impl<A: Arch> Send for Parking<A> {}

impl<A: Arch> Size<A> {
    /// Returns the size of a pool with `size` of its `max` buffers in circulation, none of them begun.
    pub(super) fn new(size: u32, max: u32) -> Self {
        let told = Told {
            size: A::AtomicU32::new(size),
            parked: A::AtomicU32::new(max - size),
            surplus: A::AtomicU32::new(0),
            fresh: A::AtomicU32::new(size),
            waiting: A::AtomicU32::new(0),
        };
        let (list, parked) = (ptr::null_mut(), max - size);
        let parking = Parking { size, list, parked, begun: 0, fresh: size, surplus: 0, line: Line::new() };
        Self { max, told: CachePadded::new(told), parking: CachePadded::new(SpinLock::new(parking)) }
    }

    /// Names its lines ([`Arch::name`]).
    pub(super) fn name_lines(&self) {
        A::name(&self.told, "pool: its size");
        self.parking.name_lines("pool: parking lock", "pool: what is parked");
    }

    /// The number of buffers that the pool was last set to.
    #[inline]
    pub(super) fn get(&self) -> u32 {
        self.told.size.load(Relaxed)
    }

    /// Returns the number of buffers out of circulation.
    pub(super) fn parked(&self) -> u32 {
        self.told.parked.load(Relaxed)
    }

    /// Whether more buffers must be parked.
    #[inline]
    pub(super) fn is_shrinking(&self) -> bool {
        self.told.surplus.load(Relaxed) > 0
    }

    /// Whether senders must keep no free buffer: the pool shrinks, or senders wait for a buffer.
    #[inline]
    pub(super) fn is_short(&self) -> bool {
        self.is_shrinking() || self.told.waiting.load(Relaxed) > 0
    }

    /// Returns the most buffers that a cache may hold: a 32nd of the pool, so that the caches of a few senders cannot hold
    /// all of it.
    pub(super) fn cache(&self) -> usize {
        Self::cache_of(self.get())
    }

    /// Returns the most buffers that a cache may hold once the pool has its maximum.
    pub(super) fn cache_max(&self) -> usize {
        Self::cache_of(self.max)
    }

    fn cache_of(size: u32) -> usize {
        (size as usize / 32).clamp(1, CACHE_SIZE)
    }

    /// Returns the number of buffers that move between a cache and the stock at a time (`NAPI_SKB_CACHE_BULK`).
    #[inline]
    pub(super) fn bulk(&self) -> usize {
        (self.cache() / 4).max(1)
    }

    /// Reads the size for a new sender, after its home is on the list: later changes reach it by its kick. Returns the most
    /// buffers that its cache may hold, and whether the sender must keep no free buffer. Calls `open` if no sender waits for
    /// a buffer, so that the inboxes of its home may open.
    pub(super) fn join(&self, open: impl FnOnce()) -> (usize, bool) {
        // The lock orders this against a resize or a sender that begins to wait. Both walk the homes after they have
        // held the lock: either they find the new home, or the state read here is theirs.
        self.parking.with(|held| {
            let parking = held.data();
            if parking.line.is_empty() {
                open();
            }
            (Self::cache_of(parking.size), parking.is_short())
        })
    }

    /// Calls `open` if no sender waits for a buffer.
    pub(super) fn unless_waiting(&self, open: impl FnOnce()) {
        self.parking.with(|held| {
            if held.data().line.is_empty() {
                open();
            }
        });
    }

    /// Appends the sender of `home` to the line, and calls `close` if the line was empty; returns whether it was.
    pub(super) fn wait(&self, home: &Home<A>, waker: &Waker, close: impl FnOnce()) -> bool {
        let waker = waker.clone();
        self.parking.with(|held| {
            let line = &mut held.data().line;
            let first = line.is_empty();
            line.join(home, waker);
            self.told.waiting.store(line.len() as u32, Relaxed);
            if first {
                close();
            }
            first
        })
    }

    /// Calls `f` with the line under the lock, and returns its result. Calls `open` if the line was what kept the stock
    /// closed.
    pub(super) fn with_line<R>(&self, open: impl FnOnce(), f: impl FnOnce(&mut Line<A>) -> R) -> R {
        self.parking.with(|held| {
            let parking = held.data();
            let before = parking.line.len();
            let result = f(&mut parking.line);
            self.told.waiting.store(parking.line.len() as u32, Relaxed);
            if before > 0 && !parking.is_short() {
                open();
            }
            result
        })
    }

    /// Changes the size, and parks or unparks fresh buffers at once; calls `count` with the number that came into circulation
    /// or left it. Calls `close` with whether the stock must be closed, and returns that.
    pub(super) fn set(&self, size: u32, count: impl FnOnce(i64), close: impl FnOnce(bool)) -> bool {
        self.parking.with(|held| {
            let parking = held.data();
            parking.size = size;
            let (before, unbegun) = (parking.fresh, self.max - parking.begun);
            let wanted = self.max - size;
            // Those of the parked buffers that have not begun come first: they are not on the list.
            parking.fresh += parking.parked.saturating_sub(wanted).min(unbegun - parking.fresh);
            parking.fresh -= wanted.saturating_sub(parking.parked).min(parking.fresh);
            let change = i64::from(parking.fresh) - i64::from(before);
            parking.parked = parking.parked.wrapping_sub(change as u32);
            parking.surplus = wanted.saturating_sub(parking.parked);
            count(change);
            self.told.size.store(size, Relaxed);
            self.told.parked.store(parking.parked, Relaxed);
            self.told.surplus.store(parking.surplus, Relaxed);
            self.told.fresh.store(parking.fresh, Relaxed);
            close(parking.is_short());
            parking.is_short()
        })
    }

    /// Begins up to `n` fresh buffers, which are the caller's, and calls `take` with each: at most as many as have begun, or
    /// [`FIRST`]. Returns their indices.
    #[cold]
    pub(super) fn begin(
        &self,
        n: u32,
        slots: &Slots<A>,
        mut take: impl FnMut(NonNull<Slot<A>>),
    ) -> Range<u32> {
        if self.told.fresh.load(Relaxed) == 0 {
            return 0..0;
        }
        self.parking.with(|held| {
            let parking = held.data();
            let n = n.min(parking.begun.max(FIRST));
            let n = n.min(parking.fresh);
            let begun = parking.begun..parking.begun + n;
            // Under the lock, so that `begun` is never ahead of the descriptors.
            // SAFETY: the lock's holder alone begins buffers, and `begun` passes each index once.
            scattered(n).for_each(|i| take(unsafe { slots.begin(begun.start + i) }));
            parking.begun += n;
            parking.fresh -= n;
            self.told.fresh.store(parking.fresh, Relaxed);
            begun
        })
    }

    /// Returns the number of buffers that have begun, those with the lowest indices. Their descriptors were written before.
    pub(super) fn begun(&self) -> u32 {
        self.parking.with(|held| held.data().begun)
    }

    /// Takes up to [`UNPARKED_PER_LOCK`] buffers of the parking list that the size puts back into circulation; an empty run means none.
    pub(super) fn unpark(&self) -> Run<A> {
        let mut run = Run::new();
        self.parking.with(|held| {
            let parking = held.data();
            while run.len() < UNPARKED_PER_LOCK && parking.parked > self.max - parking.size {
                let Some(slot) = NonNull::new(parking.list) else { break };
                // SAFETY: parked buffers are ours, linked up to a null.
                parking.list = unsafe { slot.as_ref().next.with(|n| *n) };
                parking.parked -= 1;
                run.push(slot);
            }
            self.told.parked.store(parking.parked, Relaxed);
        });
        run
    }

    /// Parks the surplus from the buffers linked from `first` up to a null, and gives the others to the senders that wait;
    /// returns the rest, and the wakers of the senders that got one. Calls `open` once no sender waits and the surplus is
    /// gone.
    ///
    /// # Safety
    /// The caller owns the buffers, and they are linked up to a null.
    #[cold]
    pub(super) unsafe fn park(
        &self,
        mut first: *mut Slot<A>,
        open: impl FnOnce(),
    ) -> (*mut Slot<A>, Vec<Waker>) {
        let mut woken = Vec::new();
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
            }
            // SAFETY: the caller's promise; the buffers that are left are linked as before.
            first = unsafe { parking.line.serve(first, &mut woken) };
            if !parking.is_short() {
                open();
            }
            self.told.parked.store(parking.parked, Relaxed);
            self.told.surplus.store(parking.surplus, Relaxed);
            self.told.waiting.store(parking.line.len() as u32, Relaxed);
        });
        (first, woken)
    }
}

/// Returns the numbers below `n`, 1 or more, in an order without a stride: that of their bits in reverse. A CPU that walks descriptors at a
/// constant distance prefetches the next ones, too. They are another sender's, whose CPU then misses its own cache lines.
/// A queue of thousands of packets loses the prefetching, too: pfifo takes 1.6 ns a packet more with 8,192, 8 ns with 131,072.
/// `cargo lab bench xps --batch 32 --threads 1,2` and `cargo lab bench qdisc --qdisc pfifo --flows 4096,65536` show both.
fn scattered(n: u32) -> impl Iterator<Item = u32> {
    let bits = n.next_power_of_two().trailing_zeros();
    let reversed = move |i: u32| i.reverse_bits().checked_shr(u32::BITS - bits).unwrap_or(0);
    (0..1 << bits).map(reversed).filter(move |i| *i < n)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "numbers alone, and many of them")]
    fn buffers_begin_each_once_and_at_no_constant_distance() {
        for n in 1..300 {
            let order: Vec<u32> = scattered(n).collect();
            let mut sorted = order.clone();
            sorted.sort_unstable();
            assert!(sorted.into_iter().eq(0..n), "{n}: {order:?}");
            let is_stride = |w: &[u32]| w[1].wrapping_sub(w[0]) == w[2].wrapping_sub(w[1]);
            assert!(n < 4 || !order.windows(3).any(is_stride), "{n}: {order:?}");
        }
    }
}
