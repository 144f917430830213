use std::cell::Cell;
use std::rc::Rc;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use crossbeam_utils::CachePadded;
use txq_core::arch::{Arch, Atomic, CellApi};
use txq_core::stats::contention::Site;
use txq_core::sync::spinlock::SpinLock;

use super::{AtomicU32, Sim};
use crate::sim::machine::{Core, Line};
use crate::sim::testing::machine;
use crate::sim::{Machine, Picos, Task, World, sim};

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

/// A number and an atomic on a line of their own.
#[repr(align(64))]
struct Both {
    plain: <Sim as Arch>::Cell<u32>,
    atomic: AtomicU32,
}

/// Returns how long a task takes for `load` of each of eight lines of the other socket and for `end`.
fn loads(machine: &Machine, load: fn(&Both), end: fn(&AtomicU32)) -> Picos {
    let mut world = World::new(machine, 7);
    let both = || Both { plain: <Sim as Arch>::Cell::new(0), atomic: AtomicU32::new(0) };
    let lines: Rc<[Both]> = (0..8).map(|_| both()).collect();
    let (theirs, own, took) = (lines.clone(), word(), Rc::new(Cell::new(0)));
    let t = took.clone();
    world.spawn(on(4, 0), move || theirs.iter().for_each(|line| line.atomic.store(1, Relaxed)));
    world.spawn(on(0, 10 * US), move || {
        own.0.store(0, Relaxed);
        sim::work(US);
        let began = sim::now();
        lines.iter().for_each(load);
        end(&own.0);
        t.set(sim::now() - began);
    });
    assert!(world.run(100 * US).stuck.is_empty());
    took.get()
}

fn load_plain(line: &Both) {
    line.plain.with(|_| ());
}

/// Loads whose values nothing waits for overlap, as many as the core has room for; a read-modify-write waits for them.
#[test]
fn plain_loads_overlap_until_a_read_modify_write() {
    let with = |loads, window| {
        let machine = with_room();
        Machine {
            line: Line { loads, ..machine.line },
            core: Core { window, ..machine.core.clone() },
            ..machine
        }
    };
    let add = |word: &AtomicU32| assert_eq!(word.fetch_add(1, AcqRel), 0);
    let one = 180_000;
    assert_eq!(loads(&with(0, 100.0), load_plain, add), 8 * one + 5000, "none in flight");
    assert_eq!(loads(&with(4, 100.0), load_plain, add), 2 * one + 5000, "four at a time");
    assert_eq!(loads(&with(8, 100.0), load_plain, add), one + 5000);
    assert_eq!(loads(&with(8, 100.0), load_plain, |_| ()), 0, "nothing waits");
    assert_eq!(loads(&with(8, 100.0), |line| assert_eq!(line.atomic.load(Relaxed), 1), add), 8 * one + 5000);
    // The task works 150 ns: 100 ahead of the loads, and 50 after them.
    let work = |_: &AtomicU32| sim::work(150_000);
    assert_eq!(loads(&with(8, 100.0), load_plain, work), one + 50_000);
}

/// Returns how long a CPU takes for 64 stores of an array that the other socket has written, each followed by a
/// read-modify-write, in the order in which `line` returns their numbers.
fn stores_of(ahead: u32, line: fn(usize) -> usize) -> Picos {
    let machine = with_room();
    let machine = Machine { line: Line { ahead, ..machine.line }, ..machine };
    let mut world = World::new(&machine, 7);
    let words: Rc<[Word]> = (0..64).map(|_| Word(AtomicU32::new(0))).collect();
    Sim::array(&words);
    let (w, own, took) = (words.clone(), word(), Rc::new(Cell::new(0)));
    world.spawn(on(4, 0), move || w.iter().for_each(|word| word.0.store(1, Relaxed)));
    let t = took.clone();
    world.spawn(on(0, 50 * US), move || {
        own.0.fetch_add(1, AcqRel);
        let began = sim::now();
        (0..64).for_each(|index| {
            words[line(index)].0.store(2, Relaxed);
            own.0.fetch_add(1, AcqRel);
        });
        t.set(sim::now() - began);
    });
    assert!(world.run(100 * US).stuck.is_empty());
    took.get()
}

/// A thread that goes through an array in order waits for its first lines only, if the machine has a prefetcher.
#[test]
fn an_array_is_fetched_ahead_in_order() {
    let shuffled = |n| n * 37 % 64;
    let all = 64 * (180_000 + 5000);
    assert_eq!((stores_of(0, |n| n), stores_of(0, shuffled), stores_of(12, shuffled)), (all, all, all));
    let ahead = stores_of(12, |n| n);
    // Twelve lines arrive in the time of one way.
    let most = 3 * 185_000 + 64 * (180_000 / 12 + 5000);
    assert!(ahead < most && ahead > 64 * 180_000 / 12, "{ahead} of {all}");
}

/// Returns how long a lock takes from its holder to the next, with a number of tasks that take it again and again.
fn hand_over(tickets: bool, tasks: u32) -> Picos {
    let mut world = World::new(&with_room(), 7);
    world.ticket_locks(tickets);
    // At the beginning of a line: its words are not on one line everywhere.
    let lock = Rc::new(CachePadded::new(SpinLock::<Sim, Vec<u32>>::new(Vec::new())));
    for cpu in 0..tasks {
        let lock = lock.clone();
        world.spawn(on(cpu, 0), move || {
            while !sim::is_ending() {
                lock.with_at(Site::Control, |held| {
                    held.data().push(cpu);
                    sim::work(100_000);
                });
            }
        });
    }
    let time = 100 * US;
    assert!(world.run(time).stuck.is_empty());
    let taken = lock.with_at(Site::Control, |held| std::mem::take(held.data()));
    // In the order of arrival: each task in its turn.
    let turns = taken.windows(tasks as usize).skip(tasks as usize);
    let fair =
        turns.filter(|turn| turn.iter().collect::<std::collections::BTreeSet<_>>().len() == tasks as usize);
    assert!(fair.count() * 10 > taken.len() * 9, "{taken:?}");
    time / taken.len() as Picos - 100_000
}

/// Each release of a ticket lock takes the line from all waiters; a queued lock's disturbs one.
#[test]
fn a_ticket_lock_slows_with_its_waiters() {
    let [ticket, queued] = [true, false].map(|tickets| (hand_over(tickets, 2), hand_over(tickets, 4)));
    // CPUs 0 to 3 are in one socket.
    let growth = |(two, four): (Picos, Picos)| four as f64 / two as f64;
    assert!(growth(ticket) > 1.3 * growth(queued), "{ticket:?} {queued:?}");
}
