//! A fair, queued spinlock: the kernel's qspinlock in the form of Mellor-Crummey and Scott (ACM TOCS 9(1), 1991).
//!
//! Each waiter spins on a word of its own, so a release disturbs one cache instead of all, and the lock goes to
//! waiters in the order of their arrival. The price is the one that user space knows best: when the next in line is
//! preempted, the lock is idle until it runs again, and everybody behind waits too. A waiter therefore spins for about
//! a microsecond and then yields its CPU at every turn ([`Atomic::wait_until`]); the lock stays fair, and with more
//! threads than CPUs it is slow. That is the measured cost of one lock on the way to a queue, and the reason for the
//! other disciplines.
//!
//! A waiter's node lies on its own stack, which is why the lock is held within a closure.

use std::ptr;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use crate::arch::{Arch, Atomic, AtomicPtr, CellApi};

/// A waiter's place in the queue.
struct Node<A: Arch> {
    /// Written once by the waiter behind, read by this one when it unlocks.
    next: A::AtomicPtr<Node<A>>,
    /// 1 while the waiter in front holds or waits; that waiter clears it.
    wait: A::AtomicU32,
}

/// Data that one thread at a time may use, in the order in which they asked.
pub struct SpinLock<A: Arch, T> {
    /// The last in the queue; null when the lock is free.
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
        Self { tail: A::AtomicPtr::new(ptr::null_mut()), data: A::Cell::new(data) }
    }

    /// Waits for the lock and calls `f` while holding it. The lock is released also when `f` panics.
    #[inline]
    pub fn with<R>(&self, f: impl FnOnce(&mut Held<'_, A, T>) -> R) -> R {
        let node = Node::new();
        let mut held = Held { lock: self, node: &node };
        held.acquire();
        f(&mut held)
    }

    /// Calls `f` if the lock is free.
    #[inline]
    pub fn try_with<R>(&self, f: impl FnOnce(&mut Held<'_, A, T>) -> R) -> Option<R> {
        let node = Node::new();
        let me = ptr::from_ref(&node).cast_mut();
        self.tail.compare_exchange(ptr::null_mut(), me, Acquire, Relaxed).ok()?;
        Some(f(&mut Held { lock: self, node: &node }))
    }

    /// The data, by the proof that nobody else has the lock.
    pub fn get_mut(&mut self) -> &mut T {
        // SAFETY: `&mut self` excludes every other access.
        self.data.with_mut(|d| unsafe { &mut *d })
    }
}

impl<A: Arch> Node<A> {
    fn new() -> Self {
        Self { next: A::AtomicPtr::new(ptr::null_mut()), wait: A::AtomicU32::new(0) }
    }
}

/// The lock, held. Dropping it releases.
pub struct Held<'a, A: Arch, T> {
    lock: &'a SpinLock<A, T>,
    node: &'a Node<A>,
}

impl<A: Arch, T> Held<'_, A, T> {
    /// The data.
    #[inline]
    pub fn data(&mut self) -> &mut T {
        // SAFETY: a `Held` exists only while its node is at the front of the queue, and there is one front. The borrow
        // ends with the borrow of `self`, so none is alive when `unlocked` or `drop` releases.
        self.lock.data.with_mut(|d| unsafe { &mut *d })
    }

    /// Releases the lock for the duration of `f` and queues for it again afterwards.
    #[inline]
    pub fn unlocked<R>(&mut self, f: impl FnOnce() -> R) -> R {
        /// Takes the lock back also when `f` panics, because the owner's `Held` will release it.
        struct Retake<'b, 'a, A: Arch, T>(&'b mut Held<'a, A, T>);
        impl<A: Arch, T> Drop for Retake<'_, '_, A, T> {
            fn drop(&mut self) {
                self.0.acquire();
            }
        }
        self.release();
        let _retake = Retake(self);
        f()
    }

    #[inline]
    fn acquire(&mut self) {
        let me = ptr::from_ref(self.node).cast_mut();
        self.node.next.store(ptr::null_mut(), Relaxed);
        // AcqRel: acquires the last holder's writes when the lock is free, and releases our `next = null` to the
        // waiter who will find us here.
        let before = self.lock.tail.swap(me, AcqRel);
        if before.is_null() {
            return;
        }
        self.node.wait.store(1, Relaxed);
        // SAFETY: the node before us stays on its owner's stack until that owner has handed the lock to the node
        // behind it, which it finds only through this store.
        unsafe { (*before).next.store(me, Release) };
        // Pairs with the release store of `wait` in `release`.
        self.node.wait.wait_until(Acquire, |w| w == 0);
    }

    #[inline]
    fn release(&mut self) {
        let me = ptr::from_ref(self.node).cast_mut();
        let mut next = self.node.next.load(Acquire);
        if next.is_null() {
            if self.lock.tail.compare_exchange(me, ptr::null_mut(), Release, Relaxed).is_ok() {
                return;
            }
            // Somebody has queued behind us and is about to tell us where.
            next = self.node.next.wait_until(Acquire, |n| !n.is_null());
        }
        // SAFETY: the waiter behind us stays in `acquire`, and so its node on its stack, until this store.
        unsafe { (*next).wait.store(0, Release) };
    }
}

impl<A: Arch, T> Drop for Held<'_, A, T> {
    #[inline]
    fn drop(&mut self) {
        self.release();
    }
}
