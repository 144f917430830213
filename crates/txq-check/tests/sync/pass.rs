//! Threads that pass a lock's queue while its front waiter does not run: one holder at a time, which observes what the holders
//! before it wrote, and every waiter gets the lock.
//!
//! Guards `txq-core/src/sync/spinlock/pass.rs`. (Unit tests there count the passes: they can read the queue.)
//! Mutants that it catches: a thread that passes without the lock's compare-and-swap, a front waiter that takes a lock
//! that it saw free, each by a causality violation at the data.

use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use txq_check::{Loom, Model, Shuttle};
use txq_core::arch::{Arch, CpuId, Nanos};
use txq_core::sync::spinlock::SpinLock;

/// A checker's machine, on which a thread may pass.
struct Preempted<M>(PhantomData<M>);

// SAFETY: everything is the checker's.
unsafe impl<M: Model> Arch for Preempted<M> {
    type AtomicU32 = M::AtomicU32;
    type AtomicU64 = M::AtomicU64;
    type AtomicPtr<T: 'static> = M::AtomicPtr<T>;
    type Cell<T> = M::Cell<T>;
    type Event = M::Event;

    fn fence(order: Ordering) {
        M::fence(order);
    }
    fn cpu() -> CpuId {
        M::cpu()
    }
    fn now() -> Nanos {
        M::now()
    }
    fn sleep(time: Nanos) {
        M::sleep(time);
    }
    fn relax() {
        M::relax();
    }
    fn yield_cpu() {
        M::yield_cpu();
    }
    fn passes() -> u32 {
        1
    }
}

/// Each of `threads` threads, and the one that starts them, adds 1 `each` times. The lock is recorded or not.
fn add<M: Model>(threads: u32, each: u64, records: bool) {
    let lock = Arc::new(SpinLock::<Preempted<M>, u64>::new(0));
    if records {
        lock.set_recording(true);
    }
    let adders: Vec<_> = (0..threads)
        .map(|cpu| {
            let lock = lock.clone();
            M::spawn(cpu + 1, move || (0..each).for_each(|_| lock.with(|held| *held.data() += 1)))
        })
        .collect();
    (0..each).for_each(|_| lock.with(|held| *held.data() += 1));
    adders.into_iter().for_each(|join| join());
    lock.with(|held| assert_eq!(*held.data(), u64::from(threads + 1) * each));
}

#[test]
fn two_pass_each_other_under_loom() {
    Loom::check(|| add::<Loom>(1, 2, false));
}

#[test]
fn three_pass_each_other_under_loom() {
    Loom::check(|| add::<Loom>(2, 1, false));
    Loom::check(|| add::<Loom>(2, 1, true));
}

#[test]
fn six_pass_each_other_under_shuttle() {
    Shuttle::check(|| add::<Shuttle>(5, 3, false));
    Shuttle::check(|| add::<Shuttle>(5, 3, true));
}
