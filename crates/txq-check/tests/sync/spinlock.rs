//! The queued spinlock: one holder at a time, which observes all writes of earlier holders. (The lock's unit test shows its
//! fairness; it can read the queue.)
//!
//! Each scenario runs without recording, with it, and while it is switched on.
//!
//! Guards `try_with_at`, `acquire` and `release` of `txq/src/sync/spinlock.rs`. Mutants that it catches: each missing
//! acquire or release, by loom's "Causality violation: Concurrent write accesses to `UnsafeCell`"; a release that does not
//! wait for a successor that has not linked itself yet, by a model that never ends.

use std::sync::Arc;

use txq::stats::contention::LockStats;
use txq_check::{Loom, Model, Shuttle};
use txq_core::arch::{Arch, Atomic};
use txq_core::stats::contention::Site;
use txq_core::sync::spinlock::{Held, SpinLock};

use std::sync::atomic::Ordering::Relaxed;

struct Guarded<A: Arch> {
    lock: SpinLock<A, u32>,
    /// 1 while a holder is inside. Relaxed, so that only the lock orders accesses.
    inside: A::AtomicU32,
}

impl<A: Arch> Guarded<A> {
    fn new() -> Arc<Self> {
        Arc::new(Self { lock: SpinLock::new(0), inside: A::AtomicU32::new(0) })
    }

    fn visit(&self, held: &mut Held<'_, A, u32>) {
        assert_eq!(self.inside.swap(1, Relaxed), 0, "two holders");
        *held.data() += 1;
        self.inside.store(0, Relaxed);
    }
}

/// Each thread takes the lock in each way: waiting, releasing it in between, and trying.
fn scenario<A: Model>(threads: u32, ways: &'static [Way]) {
    let guarded = Guarded::<A>::new();
    let threads: Vec<_> = (1..=threads)
        .map(|cpu| {
            let guarded = guarded.clone();
            A::spawn(cpu, move || ways.iter().map(|way| way.go(&guarded)).sum::<u32>())
        })
        .collect();
    let visits: u32 = threads.into_iter().map(|join| join()).sum();
    let count = guarded.lock.try_with_at(Site::Reap, |held| *held.data()).expect("nobody is left to hold it");
    assert_eq!(count, visits, "a holder did not see what an earlier one wrote");
}

enum Way {
    With,
    Unlocked,
    Try,
}

impl Way {
    /// Takes the lock this way; returns the number of visits.
    fn go<A: Arch>(&self, guarded: &Guarded<A>) -> u32 {
        match self {
            Way::With => guarded.lock.with_at(Site::Enqueue, |held| {
                guarded.visit(held);
                1
            }),
            Way::Unlocked => guarded.lock.with_at(Site::Enqueue, |held| {
                guarded.visit(held);
                held.unlocked_at(Site::Retake, A::relax);
                guarded.visit(held);
                2
            }),
            Way::Try => guarded.lock.try_with_at(Site::Reap, |held| guarded.visit(held)).map_or(0, |()| 1),
        }
    }
}

/// Runs the scenario while one more thread switches recording on: the recorded acquisitions are a part of the visits, each
/// recorded hold has ended, and no two threads write the record at the same time.
fn recorded<A: Model>(threads: u32, ways: &'static [Way], on: On) {
    let guarded = Guarded::<A>::new();
    if on == On::Before {
        guarded.lock.set_recording(true);
    }
    let visitors: Vec<_> = (1..=threads)
        .map(|cpu| {
            let guarded = guarded.clone();
            A::spawn(cpu, move || ways.iter().map(|way| way.go(&guarded)).sum::<u32>())
        })
        .collect();
    if on == On::Meanwhile {
        guarded.lock.set_recording(true);
    }
    let visits: u32 = visitors.into_iter().map(|join| join()).sum();
    let record = guarded.lock.recorded().expect("it is on");
    let mut sum = LockStats::default();
    [Site::Enqueue, Site::Retake, Site::Reap].iter().for_each(|&site| sum.merge(record.at(site)));
    assert_eq!(sum.hold.count, sum.acquisitions, "a hold and its end");
    match on {
        On::Before => assert_eq!(sum.acquisitions, u64::from(visits), "an acquisition is not in the record"),
        On::Meanwhile => assert!(sum.acquisitions <= u64::from(visits)),
    }
    assert_eq!(sum.waits.count(), sum.contended);
    assert!(sum.contended <= sum.acquisitions);
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum On {
    Before,
    Meanwhile,
}

#[test]
fn recorded_under_loom() {
    Loom::check(|| recorded::<Loom>(2, &[Way::With], On::Before));
    Loom::check(|| recorded::<Loom>(2, &[Way::Unlocked], On::Before));
    Loom::check(|| recorded::<Loom>(2, &[Way::Try, Way::With], On::Before));
}

#[test]
fn recorded_from_now_on_under_loom() {
    Loom::check(|| recorded::<Loom>(1, &[Way::With, Way::Try, Way::With], On::Meanwhile));
    Loom::check(|| recorded::<Loom>(2, &[Way::With], On::Meanwhile));
}

#[test]
fn recorded_under_shuttle() {
    Shuttle::check(|| recorded::<Shuttle>(4, &[Way::With, Way::Unlocked, Way::Try], On::Before));
    Shuttle::check(|| recorded::<Shuttle>(4, &[Way::With, Way::Unlocked, Way::Try], On::Meanwhile));
}

#[test]
fn two_threads_under_loom() {
    Loom::check(|| scenario::<Loom>(2, &[Way::With, Way::With]));
}

#[test]
fn three_threads_under_loom() {
    Loom::check(|| scenario::<Loom>(3, &[Way::With]));
}

#[test]
fn giving_up_in_between_under_loom() {
    Loom::check(|| scenario::<Loom>(2, &[Way::Unlocked]));
}

#[test]
fn trying_under_loom() {
    Loom::check(|| scenario::<Loom>(2, &[Way::Try, Way::With]));
}

#[test]
fn six_threads_under_shuttle() {
    Shuttle::check(|| scenario::<Shuttle>(6, &[Way::With, Way::Unlocked, Way::Try]));
}
