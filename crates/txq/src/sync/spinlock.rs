//! A fair spinlock: the kernel's qspinlock, a lock word and behind it a queue after Mellor-Crummey and Scott (ACM TOCS
//! 9(1), 1991).
//!
//! Who finds the word free and nobody queued takes it with one compare-and-swap, and gives it back with a store. Who
//! does not, queues, and spins on a word of its own until it is at the front; only the front spins on the lock word. So a
//! release disturbs one waiter's cache and not all, and the lock goes round in the order of arrival. (A thread that saw the
//! queue empty before a waiter joined may still overtake that waiter, once.)
//!
//! The price of a queue is the one that user space knows best: when the front waiter is preempted, the lock is idle until
//! that thread runs again, and everybody behind waits too. A waiter spins for about a microsecond and then
//! yields its CPU at every turn ([`Atomic::wait_until`]); the lock stays fair, and with more threads than CPUs it is slow.
//! That is the measured cost of one lock on the way to a queue, and the reason for the other disciplines.

use std::ptr;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use crate::arch::{Arch, Atomic, AtomicPtr, CellApi};

/// A waiter's place in the queue, on its own stack while it waits.
struct Node<A: Arch> {
    /// Written once by the waiter behind, read by this one when it leaves the queue.
    next: A::AtomicPtr<Node<A>>,
    /// 1 until the waiter in front has left the queue.
    wait: A::AtomicU32,
}

/// Data that one thread at a time may use, in the order in which they asked.
pub struct SpinLock<A: Arch, T> {
    /// 1 while the lock is held.
    locked: A::AtomicU32,
    /// The last of those that wait; null when nobody does.
    tail: A::AtomicPtr<Node<A>>,
    data: A::Cell<T>,
}

// SAFETY: the lock hands `T` to one thread at a time, which is what `T: Send` allows.
unsafe impl<A: Arch, T: Send> Send for SpinLock<A, T> {}
// SAFETY: as above; all access to `data` is through a `Held`, of which there is one at a time.
unsafe impl<A: Arch, T: Send> Sync for SpinLock<A, T> {}

impl<A: Arch, T> SpinLock<A, T> {
    /// A free lock over `data`.
    pub fn new(data: T) -> Self {
        let locked = A::AtomicU32::new(0);
        Self { locked, tail: A::AtomicPtr::new(ptr::null_mut()), data: A::Cell::new(data) }
    }

    /// Waits for the lock and calls `f` while holding it. The lock is released also when `f` panics.
    #[inline]
    pub fn with<R>(&self, f: impl FnOnce(&mut Held<'_, A, T>) -> R) -> R {
        self.acquire();
        f(&mut Held { lock: self })
    }

    /// Waits for the lock, and has it until the guard is dropped: for who must let go of it in the midst of another
    /// lock's critical section.
    #[inline]
    pub fn lock(&self) -> Held<'_, A, T> {
        self.acquire();
        Held { lock: self }
    }

    /// Calls `f` if the lock is free.
    #[inline]
    pub fn try_with<R>(&self, f: impl FnOnce(&mut Held<'_, A, T>) -> R) -> Option<R> {
        self.try_lock().then(|| f(&mut Held { lock: self }))
    }

    /// The data, by the proof that nobody else has the lock.
    pub fn get_mut(&mut self) -> &mut T {
        // SAFETY: `&mut self` excludes every other access.
        self.data.with_mut(|d| unsafe { &mut *d })
    }

    #[inline]
    fn try_lock(&self) -> bool {
        // Acquire: the last holder's writes; pairs with the store in `release`.
        self.locked.compare_exchange(0, 1, Acquire, Relaxed).is_ok()
    }

    #[inline]
    fn acquire(&self) {
        if !self.tail.load(Relaxed).is_null() || !self.try_lock() {
            self.queue();
        }
    }

    #[inline]
    fn release(&self) {
        self.locked.store(0, Release);
    }

    #[cold]
    fn queue(&self) {
        let node = Node::<A> { next: A::AtomicPtr::new(ptr::null_mut()), wait: A::AtomicU32::new(1) };
        let me = ptr::from_ref(&node).cast_mut();
        // Release: `wait` and `next` as initialised, to the waiter that will queue behind us. Acquire: the same of the
        // one in front.
        let before = self.tail.swap(me, AcqRel);
        if !before.is_null() {
            // SAFETY: the waiter in front stays in this function, and so its node on its stack, until it has told the
            // node behind it, which it finds only through this store.
            unsafe { (*before).next.store(me, Release) };
            // Acquire: so that the waiter in front has left before we touch the lock word.
            node.wait.wait_until(Acquire, |w| w == 0);
        }
        while !self.try_lock() {
            self.locked.wait_until(Relaxed, |l| l == 0);
        }
        // The lock is ours. Leave the queue: the next one comes to the front.
        let mut next = node.next.load(Acquire);
        if next.is_null() {
            if self.tail.compare_exchange(me, ptr::null_mut(), Release, Relaxed).is_ok() {
                return;
            }
            // Somebody has queued behind us and is about to tell us where.
            next = node.next.wait_until(Acquire, |n| !n.is_null());
        }
        // SAFETY: the waiter behind us stays in this function until this store.
        unsafe { (*next).wait.store(0, Release) };
    }
}

/// The lock, held. Dropping it releases.
pub struct Held<'a, A: Arch, T> {
    lock: &'a SpinLock<A, T>,
}

impl<A: Arch, T> Held<'_, A, T> {
    /// The data.
    #[inline]
    pub fn data(&mut self) -> &mut T {
        // SAFETY: a `Held` exists only while the lock word is 1 by its own doing. The borrow ends with the borrow of
        // `self`, so none is alive when `unlocked` or `drop` releases.
        self.lock.data.with_mut(|d| unsafe { &mut *d })
    }

    /// Releases the lock for the duration of `f` and waits for it again afterwards, also when `f` panics.
    #[inline]
    pub fn unlocked<R>(&mut self, f: impl FnOnce() -> R) -> R {
        struct Retake<'a, A: Arch, T>(&'a SpinLock<A, T>);
        impl<A: Arch, T> Drop for Retake<'_, A, T> {
            fn drop(&mut self) {
                self.0.acquire();
            }
        }
        self.lock.release();
        let _retake = Retake(self.lock);
        f()
    }
}

impl<A: Arch, T> Drop for Held<'_, A, T> {
    #[inline]
    fn drop(&mut self) {
        self.lock.release();
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;
    use crate::arch::Native;

    #[test]
    fn one_holder_at_a_time() {
        let (threads, rounds) = (3, if cfg!(miri) { 10 } else { 5000 });
        let lock = SpinLock::<Native, _>::new(0);
        thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    for _ in 0..rounds {
                        lock.with(|held| {
                            *held.data() += 1;
                            held.unlocked(|| ());
                            *held.data() += 1;
                        });
                        while lock.try_with(|held| *held.data() += 1).is_none() {
                            Native::relax();
                        }
                    }
                });
            }
        });
        assert_eq!(lock.with(|held| *held.data()), 3 * threads * rounds);
    }

    /// The lock goes to waiters in the order in which they queued.
    #[test]
    fn first_come_first_served() {
        let waiters = 4;
        let lock = SpinLock::<Native, _>::new(Vec::new());
        thread::scope(|scope| {
            lock.with(|_| {
                let mut last = ptr::null_mut();
                for waiter in 0..waiters {
                    let lock = &lock;
                    scope.spawn(move || lock.with(|held| held.data().push(waiter)));
                    last = lock.tail.wait_until(Relaxed, |tail| tail != last);
                }
            });
        });
        assert_eq!(lock.with(|held| held.data().clone()), Vec::from_iter(0..waiters));
    }

    #[test]
    fn a_panic_releases() {
        let lock = SpinLock::<Native, _>::new(());
        let panics =
            |f: &dyn Fn()| assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(f)).is_err());
        panics(&|| lock.with(|_| panic!("while holding")));
        panics(&|| lock.with(|held| held.unlocked(|| panic!("while not holding"))));
        assert!(lock.try_with(|_| ()).is_some());
    }
}
