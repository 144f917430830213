//! Passing a queue whose front waiter does not run, which happens where threads are preempted ([`Arch::passes`]).
//!
//! While the front waiter has no CPU the lock would be idle, and all threads that come would wait for it too. So they may take
//! the lock out of turn (the kernel's qspinlock allows it in a guest whose CPUs may be preempted,
//! `pv_hybrid_queued_unfair_trylock`). The front waiter grants passes before it yields its CPU. If it was preempted while it
//! ran, a taker detects that: the lock stays free for the microsecond of a spin. A front waiter that runs again withdraws the
//! passes, and gets the lock at the next release.
//!
//! The passes in a row are limited ([`Arch::passes`]). After the last one all takers queue. They yield their CPUs to the front
//! waiter, which would otherwise wait for the end of their time slices.

use std::sync::atomic::Ordering::Relaxed;

use super::{HELD, SpinLock};
use crate::arch::{Arch, Atomic, AtomicPtr};

/// The value of `turns` while the front waiter runs, as far as it is known.
const RUNS: u32 = 0;
/// The value of `turns` when the front waiter does not run and no thread may pass it any more.
const LAST: u32 = 1;

impl<A: Arch, T> SpinLock<A, T> {
    /// Takes the lock out of turn if the front waiter does not run and the lock word is `free` within the time of a spin. Returns
    /// whether it did.
    pub(super) fn pass(&self, free: u32) -> bool {
        if A::passes() == 0 || self.tail.load(Relaxed).is_null() {
            return false;
        }
        let left = match self.turns.load(Relaxed) {
            RUNS if self.locked.spin_until(Relaxed, |word| word & HELD != 0).is_some() => return false,
            RUNS => LAST + A::passes(),
            LAST => return false,
            _ if self.locked.spin_until(Relaxed, |word| word & HELD == 0).is_none() => return false,
            // The front waiter may have come back meanwhile.
            _ => self.turns.load(Relaxed),
        };
        let passed = left > LAST && self.try_lock(free).is_ok();
        if passed {
            // This may overwrite the 0 of a front waiter that has just started to spin. That waiter stores again after its spin.
            self.turns.store(left - 1, Relaxed);
        }
        passed
    }

    /// Waits for the lock as the front waiter. Returns the word of the free lock.
    pub(super) fn wait_in_front(&self) -> u32 {
        let mut left = LAST + A::passes();
        loop {
            self.turns.store(RUNS, Relaxed);
            while let Some(free) = self.locked.spin_to_write(Relaxed, |word| word & HELD == 0) {
                if self.try_lock(free).is_ok() {
                    return free;
                }
            }
            self.turns.store(left, Relaxed);
            A::yield_cpu();
            left = left.min(self.turns.load(Relaxed).max(LAST));
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

    /// A queue of one waiter that does not run. A thread that finds the lock free for long passes, and as many others as may.
    #[test]
    fn a_number_of_threads_pass_a_front_waiter_that_does_not_run() {
        type Atomic32 = <Native as Arch>::AtomicU32;
        let sleeper =
            Node::<Native> { next: AtomicPtr::new(ptr::null_mut()), wait: <Atomic32 as Atomic<u32>>::new(1) };
        let lock = SpinLock::<Native, _>::new(());
        assert!(!lock.pass(FREE), "there is no queue");
        lock.tail.store(ptr::from_ref(&sleeper).cast_mut(), Relaxed);
        for _ in 0..Native::passes() {
            assert!(lock.pass(FREE));
            lock.release(FREE);
        }
        assert!(!lock.pass(FREE), "all passes are used up");
        // It runs again for a moment.
        lock.turns.store(RUNS, Relaxed);
        assert!(lock.pass(FREE));
        assert!(!lock.pass(FREE), "it is held");
        lock.turns.store(RUNS, Relaxed);
        assert!(!lock.pass(FREE), "it is held, so the front waiter may run");
        lock.release(FREE);
    }

    /// A waiter that has become the first one takes back what others know of the one before.
    #[test]
    fn a_waiter_that_runs_is_not_passed() {
        let lock = SpinLock::<Native, _>::new(());
        thread::scope(|scope| {
            lock.with(|_| {
                lock.turns.store(7, Relaxed);
                scope.spawn(|| lock.with(|_| assert_eq!(lock.turns.load(Relaxed), RUNS)));
                lock.turns.wait_until(Relaxed, |turns| turns == RUNS);
            });
        });
        assert!(lock.tail.load(Relaxed).is_null());
    }

    /// Threads that are preempted at any time: each waiter gets the lock, though others pass it.
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
