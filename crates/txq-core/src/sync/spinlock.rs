//! A queued spinlock: the kernel's qspinlock, a lock word with a queue of waiters after Mellor-Crummey and Scott (ACM TOCS
//! 9(1), 1991).
//!
//! A thread that finds the word free and the queue empty takes the lock with one compare-and-swap, and releases it with a
//! store. Any other thread queues and spins on a word of its own until it is at the front; only the front waiter spins on
//! the lock word. So a release disturbs the cache of one waiter and not of all, and threads get the lock in the order of
//! arrival. (A thread that saw the queue empty before a waiter joined may still overtake that waiter, once.)
//!
//! A queue has a price in user space: while the front waiter is preempted, the lock would be idle until that thread runs
//! again, and all waiters behind would wait too. So a waiter spins for about a microsecond and then yields its CPU at every
//! turn, and while the front waiter does not run, threads that come may pass the queue, a bounded number of times
//! (`pass.rs`). A thread with other work to do takes the lock out of turn or not at all
//! ([`SpinLock::try_lock_soon_at`]).
//!
//! In a simulation of an old kernel the lock is a ticket lock instead (`ticket.rs`).
//!
//! The lock can record its acquisitions: their sites, holds and waits (`sync/contention.rs`). The lock word says whether the
//! lock is recorded: a free recorded lock holds another value than the one that the compare-and-swap expects, which sends
//! every taker to the slow path. So the fast path is the same with and without recording.

mod pass;
mod ticket;

use std::ptr;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use crate::arch::{Arch, Atomic, AtomicPtr, CellApi};
use crate::stats::contention::ContentionReport;
use crate::stats::contention::{Lock, Site};
use crate::sync::contention::{Record, Recorded, Wait};

/// The lock word of a free lock that is not recorded.
const FREE: u32 = 0;
/// The lock is held.
const HELD: u32 = 1;
/// The lock is recorded.
const RECORD: u32 = 2;

/// A waiter's place in the queue, on its own stack while it waits. It has a line of its own: otherwise the stack's frames,
/// which differ in each build, would decide which data shares its line.
#[repr(align(64))]
struct Node<A: Arch> {
    /// The waiter behind; null while there is none. Written once by the waiter behind (Release), read by this one when it
    /// leaves the queue (Acquire): the waiter behind has initialised its node.
    next: A::AtomicPtr<Node<A>>,
    /// 1 until the waiter in front has left the queue, then 0. Written by the waiter in front (Release), read by this one
    /// (Acquire): the waiter in front has taken the lock.
    wait: A::AtomicU32,
}

/// A lock over data, which threads get in the order in which they ask. A first waiter without a CPU may be passed.
///
/// The fields lie in the order in which they are written: the lock's words are together on its first line, wherever the data
/// ends.
#[repr(C)]
pub struct SpinLock<A: Arch, T> {
    /// [`FREE`], or a sum of [`HELD`] and [`RECORD`]. A taker adds `HELD` with a compare-and-swap (Acquire: the last
    /// holder's writes); the holder stores the word without `HELD` (Release). Only the holder changes `RECORD`.
    locked: A::AtomicU32,
    /// The next turns. Of a ticket lock, the number of the next ticket: takers add to it (Relaxed: the lock word orders
    /// the data). Of a queued lock, 0 while the front waiter runs, as far as it is known, and otherwise 1 more than the number
    /// of threads that may still pass that waiter (`pass.rs`). The front waiter stores 0 when it starts to spin, and what was
    /// left before it yields its CPU. A thread that passes stores one less while it holds the lock. Takers that find a queue
    /// read it. All Relaxed: a stale value only delays or allows a pass, since the lock word orders the data.
    turns: A::AtomicU32,
    /// The last waiter in the queue; null if there is none. A thread that joins swaps its node in (AcqRel); the front waiter
    /// sets null when it leaves and is the last (Relaxed: the lock word orders the data). Takers read it (Relaxed) to see
    /// whether they must queue.
    tail: A::AtomicPtr<Node<A>>,
    /// The record; `None` until recording is first switched on. Accessed only by the holder.
    record: A::Cell<Option<Box<Record>>>,
    data: A::Cell<T>,
}

// SAFETY: the lock hands `T` to one thread at a time, which is what `T: Send` allows.
unsafe impl<A: Arch, T: Send> Send for SpinLock<A, T> {}
// SAFETY: as above; all access to `data` is through a `Held`, of which there is one at a time.
unsafe impl<A: Arch, T: Send> Sync for SpinLock<A, T> {}

impl<A: Arch, T> SpinLock<A, T> {
    /// Creates a free lock over `data`.
    pub fn new(data: T) -> Self {
        Self {
            locked: A::AtomicU32::new(FREE),
            turns: A::AtomicU32::new(0),
            tail: A::AtomicPtr::new(ptr::null_mut()),
            record: A::Cell::new(None),
            data: A::Cell::new(data),
        }
    }

    /// Names the lock's words and the data ([`Arch::name`]).
    pub fn name_lines(&self, lock: &str, data: &str) {
        A::name(&self.locked, lock);
        A::name(&self.tail, lock);
        A::name(&self.record, lock);
        A::name(&self.data, data);
    }

    /// Waits for the lock and calls `f` while holding it, as [`Site::Control`]. The lock is released also when `f` panics.
    #[inline]
    pub fn with<R>(&self, f: impl FnOnce(&mut Held<'_, A, T>) -> R) -> R {
        self.with_at(Site::Control, f)
    }

    /// Waits for the lock and calls `f` while holding it.
    #[inline]
    pub fn with_at<R>(&self, site: Site, f: impl FnOnce(&mut Held<'_, A, T>) -> R) -> R {
        f(&mut self.lock_at(site))
    }

    /// Waits for the lock and returns a guard, which releases the lock when dropped.
    #[inline]
    pub fn lock_at(&self, site: Site) -> Held<'_, A, T> {
        let free = self.acquire(site);
        Held { lock: self, free }
    }

    /// Calls `f` while holding the lock, if it is free; else returns `None`.
    #[inline]
    pub fn try_with_at<R>(&self, site: Site, f: impl FnOnce(&mut Held<'_, A, T>) -> R) -> Option<R> {
        self.try_lock_at(site).map(|mut held| f(&mut held))
    }

    /// Takes the lock if it is free, and returns a guard; else returns `None`.
    #[inline]
    pub fn try_lock_at(&self, site: Site) -> Option<Held<'_, A, T>> {
        if A::ticket_locks() {
            return self.try_ticket(site).map(|free| Held { lock: self, free });
        }
        let free = match self.try_lock(FREE) {
            Ok(_) => FREE,
            Err(RECORD) if self.try_recorded(site) => RECORD,
            Err(_) => return None,
        };
        Some(Held { lock: self, free })
    }

    /// As [`try_lock_at`](SpinLock::try_lock_at), but first waits about as long as a running holder needs. Takes the lock
    /// also while others wait, as the kernel's qspinlock does in a guest whose CPUs may be preempted
    /// (`pv_hybrid_queued_unfair_trylock`): otherwise the lock would be idle while the front waiter does not run.
    #[inline]
    pub fn try_lock_soon_at(&self, site: Site) -> Option<Held<'_, A, T>> {
        if A::ticket_locks() {
            return self.try_lock_at(site);
        }
        match self.try_lock(FREE) {
            Ok(_) => Some(Held { lock: self, free: FREE }),
            Err(word) => self.try_lock_soon_slow(site, word),
        }
    }

    /// As [`try_lock_soon_at`](SpinLock::try_lock_soon_at), for a lock whose word was `seen`: held, recorded or both.
    #[cold]
    fn try_lock_soon_slow(&self, site: Site, seen: u32) -> Option<Held<'_, A, T>> {
        if seen == RECORD && self.try_recorded(site) {
            return Some(Held { lock: self, free: RECORD });
        }
        let began = if seen & RECORD == 0 { 0 } else { A::now() };
        let free = self.locked.spin_until(Relaxed, |word| word & HELD == 0)?;
        self.try_lock(free).ok()?;
        if free == RECORD {
            let wait = Wait { began, behind: false };
            self.note(|record| record.acquired(site, A::cpu(), A::now(), Some(wait)));
        }
        Some(Held { lock: self, free })
    }

    /// Calls `f` with the data, without the lock, for a protocol that at times gives the data to one thread by other means.
    /// Accesses through the pointer are sound only while that protocol excludes every holder of the lock and every other
    /// caller of this.
    #[inline]
    pub fn as_owner<R>(&self, f: impl FnOnce(*mut T) -> R) -> R {
        self.data.with_mut(f)
    }

    /// Returns the data. `&mut self` proves that no thread holds the lock.
    pub fn get_mut(&mut self) -> &mut T {
        // SAFETY: `&mut self` excludes every other access.
        self.data.with_mut(|d| unsafe { &mut *d })
    }

    /// Takes the lock if its word is `free`; else returns the word as the error.
    #[inline]
    fn try_lock(&self, free: u32) -> Result<u32, u32> {
        // Acquire: the last holder's writes; pairs with the store in `release`.
        self.locked.compare_exchange(free, free | HELD, Acquire, Relaxed)
    }

    /// Waits for the lock. Returns the word that the release stores: [`FREE`] or [`RECORD`].
    #[inline]
    fn acquire(&self, site: Site) -> u32 {
        if A::ticket_locks() {
            self.acquire_ticket(site)
        } else if self.tail.load(Relaxed).is_null() && self.try_lock(FREE).is_ok() {
            FREE
        } else {
            self.acquire_slow(site)
        }
    }

    #[inline]
    fn release(&self, free: u32) {
        if free != FREE {
            self.note_release();
        }
        let word = if A::ticket_locks() { self.next_ticket(free) } else { free };
        self.locked.store(word, Release);
    }

    /// As [`acquire`](SpinLock::acquire), for a lock that is held, waited for or recorded.
    #[cold]
    fn acquire_slow(&self, site: Site) -> u32 {
        if self.locked.load(Relaxed) & RECORD == 0 {
            if self.pass(FREE) {
                return FREE;
            }
            let (free, behind) = self.queue();
            if free != FREE {
                // Recording began meanwhile: count the wait from then.
                let wait = Some(Wait { began: 0, behind });
                self.note(|record| record.acquired(site, A::cpu(), A::now(), wait));
            }
            return free;
        }
        if self.tail.load(Relaxed).is_null() && self.try_recorded(site) {
            return RECORD;
        }
        let began = A::now();
        let (free, behind) = if self.pass(RECORD) { (RECORD, true) } else { self.queue() };
        if free != FREE {
            self.note(|record| record.acquired(site, A::cpu(), A::now(), Some(Wait { began, behind })));
        }
        free
    }

    /// Takes a recorded lock if it is free.
    #[cold]
    fn try_recorded(&self, site: Site) -> bool {
        let taken = self.try_lock(RECORD).is_ok();
        if taken {
            self.note(|record| record.acquired(site, A::cpu(), A::now(), None));
        }
        taken
    }

    #[cold]
    fn note_release(&self) {
        self.note(|record| record.released(A::now()));
    }

    /// Calls `f` with the record, if there is one. The caller holds the lock.
    fn note(&self, f: impl FnOnce(&mut Record)) {
        // SAFETY: only the holder calls this, and only with closures that do not call it again.
        self.record.with_mut(|record| unsafe { (*record).as_deref_mut() }.map(f));
    }

    /// Waits for the lock behind all other waiters. Returns the free lock's word, [`FREE`] or [`RECORD`], and whether there
    /// were other waiters.
    #[cold]
    fn queue(&self) -> (u32, bool) {
        let node = Node::<A> { next: A::AtomicPtr::new(ptr::null_mut()), wait: A::AtomicU32::new(1) };
        let me = ptr::from_ref(&node).cast_mut();
        // Release: this node's initial `wait` and `next`, to the waiter that queues behind. Acquire: those of the node in
        // front.
        let before = self.tail.swap(me, AcqRel);
        let behind = !before.is_null();
        if behind {
            // SAFETY: the waiter in front stays in this function, and its node on its stack, until it has stored to the node
            // behind it, which it finds only through this store.
            unsafe { (*before).next.store(me, Release) };
            // Acquire: the waiter in front has left the queue before this one accesses the lock word.
            node.wait.wait_until(Acquire, |w| w == 0);
        }
        let free = if A::passes() > 0 { self.wait_in_front() } else { self.wait_in_turn() };
        // This thread has the lock. It leaves the queue and moves the next waiter to the front.
        let mut next = node.next.load(Acquire);
        if next.is_null() {
            // Relaxed: a thread that finds null reads no node, and the lock word orders the data.
            if self.tail.compare_exchange(me, ptr::null_mut(), Relaxed, Relaxed).is_ok() {
                return (free, behind);
            }
            // A waiter has queued behind this one and is about to store its node in `next`.
            next = node.next.wait_until(Acquire, |n| !n.is_null());
        }
        // SAFETY: the waiter behind stays in this function until this store.
        unsafe { (*next).wait.store(0, Release) };
        (free, behind)
    }

    /// Waits for the lock as the front waiter that nobody passes. Returns the word of the free lock.
    fn wait_in_turn(&self) -> u32 {
        let mut free = FREE;
        while self.try_lock(free).is_err() {
            free = self.locked.wait_to_write(Relaxed, |word| word & HELD == 0);
        }
        free
    }

    /// Switches recording on, from zero, or off, which keeps the record.
    pub fn set_recording(&self, on: bool) {
        // Allocated and freed here, with the lock released.
        let mut record = on.then(|| Box::new(Record::new(A::cpu(), A::now())));
        self.with(|held| held.set_recording(&mut record));
    }

    /// Returns a copy of the record; `None` if recording was never switched on. Takes the lock, as [`Site::Control`].
    pub fn recorded(&self) -> Option<Record> {
        // SAFETY: only the holder accesses the record.
        self.with(|held| held.lock.record.with(|record| unsafe { (*record).as_deref() }.copied()))
    }
}

impl<A: Arch, T> Recorded for SpinLock<A, T> {
    fn set_recording(&self, on: bool) {
        SpinLock::set_recording(self, on);
    }

    fn report(&self, lock: Lock, report: &mut ContentionReport) -> bool {
        let record = self.recorded();
        let rows = record.iter().flat_map(|record| Site::ALL.iter().map(|&site| (site, record.at(site))));
        rows.for_each(|(site, stats)| report.add(lock, site, stats));
        record.is_some()
    }
}

/// Holds the lock until it is dropped.
pub struct Held<'a, A: Arch, T> {
    lock: &'a SpinLock<A, T>,
    /// The word that the release stores: [`FREE`] or [`RECORD`].
    free: u32,
}

impl<A: Arch, T> Held<'_, A, T> {
    /// Returns the data.
    #[inline]
    pub fn data(&mut self) -> &mut T {
        // SAFETY: this `Held` has set `HELD`. The borrow ends with the borrow of `self`, so none is alive when `unlocked_at`
        // or
        // `drop` releases the lock.
        self.lock.data.with_mut(|d| unsafe { &mut *d })
    }

    /// Releases the lock for the duration of `f` and waits for it again afterwards, as `site`, also when `f` panics.
    #[inline]
    pub fn unlocked_at<R>(&mut self, site: Site, f: impl FnOnce() -> R) -> R {
        struct Retake<'h, 'a, A: Arch, T>(&'h mut Held<'a, A, T>, Site);
        impl<A: Arch, T> Drop for Retake<'_, '_, A, T> {
            fn drop(&mut self) {
                self.0.free = self.0.lock.acquire(self.1);
            }
        }
        self.lock.release(self.free);
        let _retake = Retake(self, site);
        f()
    }

    /// Switches recording on if `record` holds one, else off. A recording that is already on continues. The record that is
    /// not needed is in `record` afterwards.
    fn set_recording(&mut self, record: &mut Option<Box<Record>>) {
        let (was, on) = (self.free != FREE, record.is_some());
        if on && !was {
            // SAFETY: only the holder accesses the record.
            self.lock.record.with_mut(|old| std::mem::swap(unsafe { &mut *old }, record));
            self.free = RECORD;
        } else if was && !on {
            self.lock.note_release();
            self.free = FREE;
        }
    }
}

impl<A: Arch, T> Drop for Held<'_, A, T> {
    #[inline]
    fn drop(&mut self) {
        self.lock.release(self.free);
    }
}

#[cfg(test)]
mod tests;
