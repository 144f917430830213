use std::sync::Weak;
use std::sync::atomic::{AtomicBool, AtomicUsize};

use super::*;
use crate::arch::Native;

static ALIVE: AtomicUsize = AtomicUsize::new(0);

/// A value that is whole if both halves are equal.
struct Halves(usize, Box<usize>);

impl Halves {
    fn new(n: usize) -> Self {
        ALIVE.fetch_add(1, Relaxed);
        Self(n, Box::new(n))
    }
}

impl Drop for Halves {
    fn drop(&mut self) {
        ALIVE.fetch_sub(1, Relaxed);
    }
}

/// Readers update, keep a version, begin and end while versions are published: each sees whole versions, and all are freed.
#[test]
fn readers_see_whole_versions_and_old_ones_are_freed() {
    let versions = if cfg!(miri) { 30 } else { 20_000 };
    let rcu = Arc::new(Rcu::<Native, _>::new(Halves::new(0)));
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let mut reader = rcu.reader();
                let mut newest = 0;
                while !done.load(Relaxed) {
                    if reader.is_stale() {
                        reader.update();
                    }
                    let Halves(left, right) = reader.get();
                    assert_eq!(left, &**right);
                    assert!(*left >= newest);
                    newest = *left;
                    if left % 7 == 0 {
                        reader = rcu.reader();
                    }
                    thread::yield_now();
                }
            });
        }
        (1..=versions).for_each(|n| rcu.publish(Halves::new(n)));
        done.store(true, Relaxed);
    });
    assert_eq!(rcu.versions(), 1);
    assert_eq!(ALIVE.load(Relaxed), 1);
    drop(rcu);
    assert_eq!(ALIVE.load(Relaxed), 0);
}

/// A value that counts its drops, and panics or reads its own [`Rcu`] meanwhile.
struct Awkward {
    dropped: Arc<AtomicUsize>,
    panics: bool,
    reads: Option<Weak<Rcu<Native, Awkward>>>,
}

impl Drop for Awkward {
    fn drop(&mut self) {
        self.dropped.fetch_add(1, Relaxed);
        if let Some(rcu) = self.reads.as_ref().and_then(Weak::upgrade) {
            assert!(rcu.versions() >= 1);
            assert!(rcu.reader().get().reads.is_some());
        }
        assert!(!self.panics, "a drop panics, as the test wants");
    }
}

/// Drops of several versions panic: each version is dropped once, the caller gets a panic, and the value stays usable.
#[test]
fn a_version_whose_drop_panics_is_dropped_once() {
    let dropped = Arc::new(AtomicUsize::new(0));
    let new = || Awkward { dropped: dropped.clone(), panics: true, reads: None };
    let panics = |f: &mut dyn FnMut()| assert!(catch_unwind(AssertUnwindSafe(f)).is_err());
    let rcu = Arc::new(Rcu::<Native, _>::new(new()));
    panics(&mut || rcu.publish(new()));
    assert_eq!((rcu.versions(), dropped.load(Relaxed)), (1, 1));
    // A reader keeps two versions; both are freed when it is dropped.
    let mut reader = Some(rcu.reader());
    rcu.publish(new());
    rcu.publish(new());
    assert_eq!((rcu.versions(), dropped.load(Relaxed)), (3, 1));
    panics(&mut || drop(reader.take()));
    assert_eq!((rcu.versions(), dropped.load(Relaxed)), (1, 3));
    let mut rcu = Some(rcu);
    panics(&mut || drop(rcu.take()));
    assert_eq!(dropped.load(Relaxed), 4);
}

/// A thread that panics while it holds versions ends with that panic, and does not abort.
#[test]
fn versions_panic_while_the_thread_does() {
    let dropped = Arc::new(AtomicUsize::new(0));
    let new = || Awkward { dropped: dropped.clone(), panics: true, reads: None };
    let rcu = Arc::new(Rcu::<Native, _>::new(new()));
    let reader = rcu.reader();
    rcu.publish(new());
    let ended = catch_unwind(AssertUnwindSafe(|| {
        let _held = (reader, rcu);
        panic!("the thread panics, as the test wants");
    }));
    assert_eq!((ended.is_err(), dropped.load(Relaxed)), (true, 2));
}

/// A value that uses its own `Rcu` while it is dropped: from `publish`, from a reader that ends, from `versions`.
#[test]
fn a_drop_may_use_its_own_rcu() {
    let dropped = Arc::new(AtomicUsize::new(0));
    let (done, ended) = std::sync::mpsc::channel();
    let count = dropped.clone();
    // On a thread of its own: in a failure it would wait for itself.
    thread::spawn(move || {
        let rcu = Arc::new_cyclic(|reads| {
            Rcu::<Native, _>::new(Awkward {
                dropped: count.clone(),
                panics: false,
                reads: Some(reads.clone()),
            })
        });
        let new = || Awkward { dropped: count.clone(), panics: false, reads: Some(Arc::downgrade(&rcu)) };
        rcu.publish(new());
        let reader = rcu.reader();
        rcu.publish(new());
        drop(reader);
        assert_eq!(rcu.versions(), 1);
        drop(rcu);
        done.send(()).unwrap();
    });
    ended.recv_timeout(std::time::Duration::from_secs(60)).expect("the drop ends");
    assert_eq!(dropped.load(Relaxed), 3);
}
