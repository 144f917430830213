use std::thread;

use super::*;
use crate::arch::Native;
use crate::stats::contention::LockStats;

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
                        held.unlocked_at(Site::Retake, || ());
                        *held.data() += 1;
                    });
                    while lock.try_with_at(Site::Reap, |held| *held.data() += 1).is_none() {
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

/// `perf lock contention` counts the waits behind another waiter only.
#[test]
fn the_first_waiter_is_told_from_those_behind_it() {
    let lock = SpinLock::<Native, _>::new(());
    lock.set_recording(true);
    thread::scope(|scope| {
        lock.with(|_| {
            let mut last = ptr::null_mut();
            for _ in 0..3 {
                let lock = &lock;
                scope.spawn(move || lock.with_at(Site::Enqueue, |_| ()));
                last = lock.tail.wait_until(Relaxed, |tail| tail != last);
            }
        });
    });
    let record = lock.recorded().unwrap();
    let stats = record.at(Site::Enqueue);
    assert_eq!((stats.contended, stats.queued.count), (3, 2));
    assert!(stats.queued.total < stats.wait.total, "{stats:?}");
}

/// Also a thread that waits only a moment, and gets the lock, has waited.
#[test]
fn a_short_wait_is_recorded() {
    let lock = SpinLock::<Native, _>::new(());
    lock.set_recording(true);
    // The lock was held when the caller read it, and has been released since.
    assert!(lock.try_lock_soon_slow(Site::Worker, HELD | RECORD).is_some());
    let record = lock.recorded().unwrap();
    let stats = record.at(Site::Worker);
    assert_eq!((stats.acquisitions, stats.contended, stats.queued.count, stats.hold.count), (1, 1, 0, 1));
}

/// The record has every acquisition, and each wait with its waiter's site and the holder's site.
#[test]
fn a_record_is_exact() {
    let (threads, rounds) = (4, if cfg!(miri) { 10 } else { 3000 });
    let lock = SpinLock::<Native, _>::new(0);
    lock.set_recording(true);
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                for _ in 0..rounds {
                    lock.with_at(Site::Enqueue, |held| {
                        *held.data() += 1;
                        held.unlocked_at(Site::Retake, || ());
                    });
                    while lock.try_with_at(Site::Reap, |_| ()).is_none() {
                        Native::relax();
                    }
                }
            });
        }
    });
    let record = lock.recorded().unwrap();
    let mut sum = LockStats::default();
    for site in [Site::Enqueue, Site::Retake, Site::Reap] {
        let stats = record.at(site);
        assert_eq!((stats.acquisitions, stats.hold.count), (threads * rounds, threads * rounds));
        sum.merge(stats);
    }
    assert!(sum.contended <= sum.acquisitions && sum.acquisition_bounces <= sum.acquisitions);
    assert!(sum.contention_bounces <= sum.contended.min(sum.acquisition_bounces));
    assert_eq!(
        (sum.wait.count, sum.waits.count(), sum.held_up),
        (sum.contended, sum.contended, sum.contended)
    );
    assert_eq!(record.at(Site::Reap).contended, 0, "who only tries does not wait");
}

/// One thread waits while another sleeps with the lock held: one wait, as long as the sleep.
#[test]
fn a_wait_is_as_long_as_the_hold() {
    let lock = SpinLock::<Native, _>::new(());
    lock.set_recording(true);
    let nap = std::time::Duration::from_millis(3);
    thread::scope(|scope| {
        lock.with_at(Site::Retake, |_| {
            scope.spawn(|| lock.with_at(Site::Enqueue, |_| ()));
            lock.tail.wait_until(Relaxed, |tail| !tail.is_null());
            thread::sleep(nap);
        });
    });
    let record = lock.recorded().unwrap();
    let waiter = record.at(Site::Enqueue);
    assert_eq!((waiter.acquisitions, waiter.contended, record.at(Site::Retake).held_up), (1, 1, 1));
    assert!(waiter.wait.total >= nap.as_nanos() as u64, "{waiter:?}");
    assert_eq!((waiter.wait.min, waiter.wait.max), (waiter.wait.total, waiter.wait.total));
    assert!(record.at(Site::Retake).hold.total >= waiter.wait.total.min(nap.as_nanos() as u64));
}

/// Without recording there is no record; switched off, the record stays as it is until recording begins anew.
#[test]
fn recording_is_off_unless_it_is_on() {
    let lock = SpinLock::<Native, _>::new(());
    let visit = || lock.with_at(Site::Enqueue, |_| ());
    let seen = || lock.recorded().map(|record| record.at(Site::Enqueue).acquisitions);
    visit();
    assert_eq!(seen(), None);
    lock.set_recording(true);
    (0..3).for_each(|_| visit());
    lock.set_recording(true);
    assert_eq!(seen(), Some(3));
    lock.set_recording(false);
    visit();
    assert_eq!(seen(), Some(3));
    let record = lock.recorded().unwrap();
    let control = record.at(Site::Control);
    assert_eq!(control.acquisitions, control.hold.count, "each hold has ended");
    lock.set_recording(true);
    assert_eq!(seen(), Some(0));
}

#[test]
fn a_panic_releases() {
    let lock = SpinLock::<Native, _>::new(());
    let panics = |f: &dyn Fn()| assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(f)).is_err());
    panics(&|| lock.with(|_| panic!("while holding")));
    panics(&|| lock.with(|held| held.unlocked_at(Site::Retake, || panic!("while not holding"))));
    assert!(lock.try_with_at(Site::Reap, |_| ()).is_some());
}
