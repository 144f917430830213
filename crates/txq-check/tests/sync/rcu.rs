//! The replaceable value: readers see whole versions that are alive, and old ones are freed once no reader can hold them.
//!
//! Guards `publish`, `reader`, `update` and `free_unread` of `txq/src/sync/rcu.rs`. Mutants that it catches: `publish`
//! without release or `update` without acquire, by loom's "Causality violation" where the reader reads the content; a
//! reader's announcement without release, its check without acquire, or a free of versions that a reader holds, by the same
//! where the version is freed, or by "a reader holds a version that was freed".

use std::sync::Arc;

use txq_check::{Loom, Model, Shuttle};
use txq_core::arch::{Arch, CellApi};
use txq_core::sync::rcu::{Rcu, Reader};

/// The content of a freed version.
const FREED: u32 = u32::MAX;

/// A version's content, allocated apart from the version, so that it can be read after the version is gone.
struct Content<A: Arch>(A::Cell<u32>);

// SAFETY: readers only read the cell, and it is written before the version is published and after it is freed; the checker
// verifies that.
unsafe impl<A: Arch> Send for Content<A> {}
// SAFETY: as above.
unsafe impl<A: Arch> Sync for Content<A> {}

struct Version<A: Arch>(Arc<Content<A>>);

impl<A: Arch> Version<A> {
    fn new(number: u32) -> Self {
        let content: Arc<Content<A>> = Arc::new(Content(A::Cell::new(0)));
        // SAFETY: not shared yet.
        content.0.with_mut(|c| unsafe { *c = number });
        Self(content)
    }
}

impl<A: Arch> Drop for Version<A> {
    fn drop(&mut self) {
        // SAFETY: no thread reads a freed version.
        self.0.0.with_mut(|c| unsafe { *c = FREED });
    }
}

fn read<A: Arch>(reader: &Reader<A, Version<A>>) -> u32 {
    // SAFETY: the reader keeps the version alive, and no thread writes to a live one.
    let number = reader.get().0.0.with(|c| unsafe { *c });
    assert_ne!(number, FREED, "a reader holds a version that was freed");
    number
}

/// Readers update `steps` times; `late` of them start while versions are published. `writers` publish one version each.
fn scenario<A: Model>(early: u32, late: u32, steps: u32, writers: u32) {
    let rcu = Arc::new(Rcu::<A, _>::new(Version::new(0)));
    let readers = (0..early + late).map(|i| {
        let rcu = rcu.clone();
        let reader = (i < early).then(|| rcu.reader());
        A::spawn(i + 1, move || {
            let mut reader = reader.unwrap_or_else(|| rcu.reader());
            let mut newest = read(&reader);
            for _ in 0..steps {
                reader.update();
                let number = read(&reader);
                // With several writers the versions' numbers have no order.
                assert!(writers > 1 || number >= newest, "a reader went back");
                newest = number;
            }
        })
    });
    let mut threads: Vec<Box<dyn FnOnce()>> = readers.map(|join| Box::new(join) as _).collect();
    for writer in 1..writers {
        let rcu = rcu.clone();
        threads.push(Box::new(A::spawn(early + late + writer, move || rcu.publish(Version::new(writer)))));
    }
    if writers > 1 {
        rcu.publish(Version::new(writers));
    } else {
        let held = rcu.reader();
        let before = read(&held);
        rcu.publish(Version::new(1));
        rcu.publish(Version::new(2));
        assert_eq!(read(&held), before);
    }
    threads.into_iter().for_each(|join| join());
    assert_eq!(rcu.versions(), 1, "a version that nobody holds is kept");
}

#[test]
fn a_reader_and_a_writer_under_loom() {
    Loom::check(|| scenario::<Loom>(1, 0, 2, 1));
}

#[test]
fn a_reader_is_born_under_loom() {
    Loom::check(|| scenario::<Loom>(0, 1, 1, 1));
}

#[test]
fn two_writers_under_loom() {
    Loom::check(|| scenario::<Loom>(1, 0, 1, 2));
}

#[test]
fn six_threads_under_shuttle() {
    Shuttle::check(|| scenario::<Shuttle>(2, 2, 4, 2));
}
