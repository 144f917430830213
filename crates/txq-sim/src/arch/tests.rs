use std::cell::Cell;
use std::rc::Rc;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use txq_core::arch::Atomic;

use super::AtomicU32;
use crate::machine::Line;
use crate::testing::machine;
use crate::{Machine, Picos, Task, World, sim};

const US: Picos = 1_000_000;

/// A word on a line of its own.
#[repr(align(64))]
struct Word(AtomicU32);

fn word() -> Rc<Word> {
    Rc::new(Word(AtomicU32::new(0)))
}

/// The test machine, with a store buffer on each core.
fn with_room() -> Machine {
    Machine { line: Line { stores: 8, ..machine().line }, ..machine() }
}

fn on(cpu: u32, start: Picos) -> Task {
    Task { cpu: Some(cpu), start, ..Task::default() }
}

/// A store does not block its task, and a task that observes a release observes all earlier stores. Here the store is to a
/// line from the other socket; the release to a near line must wait for it.
#[test]
fn a_release_is_seen_after_what_was_stored_before_it() {
    let mut world = World::new(&with_room(), 7);
    let (far, near) = (word(), word());
    let w = far.clone();
    world.spawn(on(4, 0), move || w.0.store(1, Relaxed));
    let (w, n) = (far.clone(), near.clone());
    let began = Rc::new(Cell::new(0));
    let b = began.clone();
    world.spawn(on(0, 10 * US), move || {
        b.set(sim::now());
        w.0.store(2, Relaxed);
        n.0.store(1, Release);
        assert_eq!(sim::now() - b.get(), 2000, "two stores");
    });
    world.spawn(on(1, 0), move || {
        near.0.store(0, Relaxed);
        near.0.wait_until(Acquire, |value| value == 1);
        assert_eq!(sim::now() - began.get(), 180_000 + 20_000, "the far line, and the way from CPU 0");
        assert_eq!(far.0.load(Relaxed), 2);
    });
    assert!(world.run(100 * US).stuck.is_empty());
}

/// A load with intent to write fetches the line once, for the write.
#[test]
fn a_load_to_write_brings_the_line_for_the_write() {
    let took = |load: fn(&AtomicU32) -> u32| {
        let mut world = World::new(&with_room(), 7);
        let (word, time) = (word(), Rc::new(Cell::new(0)));
        let (w, t) = (word.clone(), time.clone());
        world.spawn(on(4, 0), move || w.0.store(1, Relaxed));
        world.spawn(on(0, 10 * US), move || {
            let began = sim::now();
            let seen = load(&word.0);
            word.0.compare_exchange(seen, 2, AcqRel, Relaxed).expect("nobody else writes");
            t.set(sim::now() - began);
        });
        assert!(world.run(100 * US).stuck.is_empty());
        time.get()
    };
    assert_eq!(took(|word| word.load(Relaxed)), 180_000 + 180_000 + 5000);
    assert_eq!(took(|word| word.load_to_write(Relaxed)), 180_000 + 5000);
}

/// A wait with intent to write ends with the line fetched for writing.
#[test]
fn a_wait_to_write_ends_with_the_line() {
    let mut world = World::new(&with_room(), 7);
    let lock = word();
    let l = lock.clone();
    world.spawn(on(0, 0), move || {
        l.0.store(1, Relaxed);
        sim::work(10 * US);
        l.0.store(0, Release);
    });
    world.spawn(on(4, US), move || {
        lock.0.wait_to_write(Relaxed, |value| value == 0);
        let seen = sim::now();
        assert!(lock.0.compare_exchange(0, 1, Acquire, Relaxed).is_ok());
        assert_eq!(sim::now() - seen, 5000, "a hit");
    });
    assert!(world.run(100 * US).stuck.is_empty());
}
