//! Passing a queue whose front waiter does not run, which happens where threads are preempted ([`Arch::passes`]).
//!
//! The lock of a queue's front waiter without a CPU would be idle until that thread runs again, and all threads that come
//! meanwhile would wait for it too. So they may take the lock out of turn (the kernel's qspinlock allows it in a guest whose
//! CPUs may be preempted, `pv_hybrid_queued_unfair_trylock`). While the front waiter spins nobody passes, so it gets the lock
//! at the next release. A thread that leaves the queue cannot know whether the next one runs, and lets others pass until
//! that one says that it does.
//!
//! How many may pass is bounded, so every waiter gets the lock: when no passes are left, all wait behind the front waiter.

use std::sync::atomic::Ordering::Relaxed;

use super::{HELD, SpinLock};
use crate::arch::{Arch, Atomic, AtomicPtr};

impl<A: Arch, T> SpinLock<A, T> {
    /// Takes the lock out of turn, if its word is `free` about as soon as a running holder needs and the front waiter does not
    /// run. Returns whether it did.
    pub(super) fn pass(&self, free: u32) -> bool {
        if A::passes() == 0 || self.tail.load(Relaxed).is_null() || self.turns.load(Relaxed) == 0 {
            return false;
        }
        if self.locked.spin_until(Relaxed, |word| word & HELD == 0).is_none() {
            return false;
        }
        // The front waiter may run by now.
        let passes = self.turns.load(Relaxed);
        let passed = passes > 0 && self.try_lock(free).is_ok();
        if passed {
            // The front waiter may have taken them back in between. Then this returns them until it says so once more.
            self.turns.store(passes - 1, Relaxed);
        }
        passed
    }

    /// Waits for the lock as the front waiter. Returns the word of the free lock.
    pub(super) fn wait_in_front(&self) -> u32 {
        let mut passes = A::passes();
        loop {
            self.turns.store(0, Relaxed);
            while let Some(free) = self.locked.spin_until(Relaxed, |word| word & HELD == 0) {
                if self.try_lock(free).is_ok() {
                    return free;
                }
            }
            self.turns.store(passes, Relaxed);
            A::yield_cpu();
            passes = passes.min(self.turns.load(Relaxed));
        }
    }

    /// Lets others pass the next waiter until it spins. The caller leaves the queue.
    pub(super) fn let_pass(&self) {
        if A::passes() > 0 {
            self.turns.store(A::passes(), Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{ptr, thread};

    use super::super::{FREE, Node};
    use super::*;
    use crate::arch::Native;
    use crate::stats::contention::Site;

    /// A queue of one waiter that does not run, and lets three pass.
    #[test]
    fn as_many_pass_as_the_front_waiter_lets() {
        type Atomic32 = <Native as Arch>::AtomicU32;
        let sleeper =
            Node::<Native> { next: AtomicPtr::new(ptr::null_mut()), wait: <Atomic32 as Atomic<u32>>::new(1) };
        let lock = SpinLock::<Native, _>::new(());
        lock.tail.store(ptr::from_ref(&sleeper).cast_mut(), Relaxed);
        lock.turns.store(3, Relaxed);
        let passes = || {
            let passed = lock.pass(FREE);
            if passed {
                assert!(!lock.pass(FREE), "while it is held");
                lock.release(FREE);
            }
            passed
        };
        assert_eq!([(); 5].map(|()| passes()), [true, true, true, false, false]);
    }

    /// A waiter that does not get the lock in time yields its CPU, and lets others pass; when it has the lock, nobody passes.
    #[test]
    fn a_waiter_lets_others_pass_until_it_has_the_lock() {
        let lock = SpinLock::<Native, _>::new(());
        thread::scope(|scope| {
            lock.with(|_| {
                scope.spawn(|| lock.with(|_| assert_eq!(lock.turns.load(Relaxed), 0)));
                lock.turns.wait_until(Relaxed, |passes| passes > 0);
            });
        });
        assert!(lock.tail.load(Relaxed).is_null());
    }

    /// Threads that are preempted at any time: each waiter gets the lock, whoever passes it.
    #[test]
    fn every_waiter_gets_the_lock() {
        let (threads, rounds) = (4, if cfg!(miri) { 10 } else { 3000 });
        let lock = SpinLock::<Native, _>::new([0; 4]);
        thread::scope(|scope| {
            for me in 0..threads {
                let lock = &lock;
                scope.spawn(move || {
                    (0..rounds).for_each(|_| lock.with_at(Site::Enqueue, |held| held.data()[me] += 1))
                });
            }
        });
        assert_eq!(lock.with(|held| *held.data()), [rounds; 4]);
    }
}
