//! The ticket lock: it has one holder at a time, and a holder observes what the holders before it wrote.
//!
//! Guards `txq-core/src/sync/spinlock/ticket.rs`, which only simulations of old kernels use. Mutants that it catches, each by a
//! causality violation at the data: a try that takes the lock out of its turn, one ticket for two threads, a wait that acquires
//! nothing.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use txq_check::{Loom, Model};
use txq_core::arch::{Arch, CpuId, Nanos};
use txq_core::stats::contention::Site;
use txq_core::sync::spinlock::SpinLock;

/// loom's machine, whose spinlocks are ticket locks.
struct Tickets;

// SAFETY: everything is loom's.
unsafe impl Arch for Tickets {
    type AtomicU32 = <Loom as Arch>::AtomicU32;
    type AtomicU64 = <Loom as Arch>::AtomicU64;
    type AtomicPtr<T: 'static> = <Loom as Arch>::AtomicPtr<T>;
    type Cell<T> = <Loom as Arch>::Cell<T>;
    type Event = <Loom as Arch>::Event;

    fn fence(order: Ordering) {
        Loom::fence(order);
    }
    fn cpu() -> CpuId {
        Loom::cpu()
    }
    fn now() -> Nanos {
        Loom::now()
    }
    fn sleep(time: Nanos) {
        Loom::sleep(time);
    }
    fn relax() {
        Loom::relax();
    }
    fn yield_cpu() {
        Loom::yield_cpu();
    }
    fn ticket_locks() -> bool {
        true
    }
}

/// Each of `threads` threads adds 1 `each` times, and one thread as often as the lock is free when it tries.
fn add(threads: u32, each: u64, tries: u64) {
    let lock = Arc::new(SpinLock::<Tickets, u64>::new(0));
    let adders: Vec<_> = (0..threads)
        .map(|cpu| {
            let lock = lock.clone();
            Loom::spawn(cpu + 1, move || (0..each).for_each(|_| lock.with(|held| *held.data() += 1)))
        })
        .collect();
    let mut done = 0;
    for _ in 0..tries {
        if let Some(mut held) = lock.try_lock_at(Site::Control) {
            *held.data() += 1;
            done += 1;
        }
    }
    adders.into_iter().for_each(|join| join());
    lock.with(|held| assert_eq!(*held.data(), u64::from(threads) * each + done));
}

#[test]
fn two_add_under_loom() {
    Loom::check(|| add(2, 1, 0));
}

#[test]
fn one_adds_twice_while_another_tries_under_loom() {
    Loom::check(|| add(1, 2, 2));
}
