//! Names of lines, and the counts of their accesses.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use txq_core::arch::{Arch, Atomic, Memory, Work};
use txq_core::sync::spinlock::SpinLock;

use super::*;
use crate::sim::arch::{Sim, write_packet};
use crate::sim::footprint::Footprint;
use crate::sim::keys;
use crate::sim::sim;
use crate::sim::testing::machine;
use crate::sim::world::{Outcome, Task, World};

/// A value alone on its line.
#[repr(align(128))]
struct Word(<Sim as Arch>::AtomicU64);

impl Word {
    fn new() -> Arc<Self> {
        Arc::new(Self(<Sim as Arch>::AtomicU64::new(0)))
    }
}

fn on(cpu: u32) -> Task {
    Task { cpu: Some(cpu), ..Task::default() }
}

const END: Picos = 100_000_000;

/// Runs two tasks on two sockets, created by `f`; returns the counts of lines and the outcome.
fn two<F: FnOnce() + 'static>(watch: bool, mut f: impl FnMut() -> F) -> (Vec<LineUse>, Outcome) {
    let machine = machine();
    let mut world = World::new(&machine, 1);
    if watch {
        world.name_lines();
    }
    for cpu in [0, 4] {
        world.spawn(on(cpu), f());
    }
    if watch {
        world.watch_lines(0);
    }
    world.advance(END);
    (world.line_uses(END), world.run(END))
}

fn of<'u>(uses: &'u [LineUse], name: Option<&str>) -> &'u LineUse {
    uses.iter().find(|line| line.name.as_deref() == name).unwrap_or_else(|| panic!("no {name:?} in {uses:?}"))
}

#[test]
fn a_line_has_the_name_of_the_smallest_thing_that_was_named_there() {
    let memory = vec![0_u64; 512];
    let at = |byte: usize| memory.as_ptr().addr().next_multiple_of(128) + byte;
    let mut names = Names::default();
    let [all, part, tail] = ["all", "part", "tail"].map(|text| names.kind(text.into()));
    assert_eq!(names.kind("part".into()), part);
    names.put(at(0), 1024, all);
    names.put(at(0), 128, part);
    names.put(at(1040), 16, tail);
    names.put(at(600), 8, tail);
    let line = |byte| names.of(at(byte) as u64 >> 6, Phase::Free);
    assert_eq!([0, 64, 128, 576, 960, 1024].map(line), [part, part, all, tail, all, tail]);
    let word = |byte| &memory[(at(byte) - memory.as_ptr().addr()) / size_of::<u64>()];
    let object = |byte| names.of(keys::object(word(byte), 1).start, Phase::Free);
    assert_eq!([16, 144, 592, 600, 1040, 1048].map(object), [part, all, all, tail, tail, tail]);
    // A line belongs to the object on it; an object's key only to the object that begins there.
    assert_eq!(object(1056), Kind::unnamed(Phase::Free));
    assert_eq!(line(1088), Kind::unnamed(Phase::Free));
    assert_eq!(names.told(part.index()), (Some("part".into()), None));
    assert_eq!(names.told(Kind::unnamed(Phase::Free).index()), (None, Some(Phase::Free)));
}

#[test]
fn a_word_of_two_sockets_is_told_by_its_name_and_changes_nothing() {
    let word = Word::new();
    let body = |word: Arc<Word>| {
        move || {
            Sim::spend(|| Work::Enqueue(1));
            while !sim::is_ending() {
                word.0.fetch_add(1, Relaxed);
            }
        }
    };
    let (uses, watched) = two(true, || {
        Sim::name(&*word, "word");
        body(word.clone())
    });
    let line = of(&uses, Some("word"));
    assert_eq!((line.lines, line.phase, line.waits), (1, Phase::Enqueue, 0));
    assert!(line.accesses >= line.transfers && line.transfers > 200, "{line:?}");
    // It is nearly always in transfer, and both tasks wait for that.
    assert!((0.8..=1.0).contains(&line.busiest), "{line:?}");
    assert!((END..=2 * END).contains(&line.time), "{line:?}");
    let again = Word::new();
    let (none, plain) = two(false, || body(again.clone()));
    assert!(none.is_empty(), "nobody asked");
    assert_eq!((watched.hash, watched.accesses), (plain.hash, plain.accesses));
    let unnamed = Word::new();
    let (uses, _) = two(true, || body(unnamed.clone()));
    assert_eq!(of(&uses, None).phase, Phase::Enqueue, "by the phase, for want of a name");
}

#[test]
fn plain_memory_is_told_by_its_name() {
    let memory = Arc::new([0_u8; 100]);
    let (uses, _) = two(true, || {
        Sim::name(&*memory, "memory");
        let memory = memory.clone();
        move || {
            while !sim::is_ending() {
                Sim::touch(|| &*memory, Memory::Enqueue);
                sim::work(100_000);
            }
        }
    });
    let line = of(&uses, Some("memory"));
    assert!(line.lines == 2 && line.transfers > 100, "{line:?}");
}

/// A flow's first packet is where its last one was queued, maybe by another CPU.
#[test]
fn a_dequeued_packet_s_flow_comes_from_who_queued_it() {
    let (machine, qdisc, frame) = (machine(), Arc::new(0_u64), [1_u8; 42]);
    let run = |flow: u32| {
        let mut world = World::new(&machine, 1);
        world.name_lines();
        world.footprint(Footprint { flow, ..Footprint::default() });
        let (enqueues, dequeues) = (qdisc.clone(), qdisc.clone());
        world.spawn(on(0), move || {
            while !sim::is_ending() {
                Sim::classify(|| (&*enqueues, std::iter::once(&frame[..])));
                sim::work(100_000);
            }
        });
        world.spawn(on(4), move || {
            while !sim::is_ending() {
                Sim::dequeued(|| (&*dequeues, std::iter::once(&frame[..])));
                sim::work(100_000);
            }
        });
        world.watch_lines(0);
        world.advance(END);
        let uses = world.line_uses(END);
        world.run(END);
        uses.iter().find(|line| line.name.as_deref() == Some("qdisc: a flow")).map(|l| (l.lines, l.transfers))
    };
    assert_eq!(run(0), None);
    assert!(run(1).is_some_and(|(lines, transfers)| lines == 1 && transfers > 100));
}

/// Dequeue reads as many of a packet's lines as the footprint says. They come from the CPU that wrote the packet.
#[test]
fn a_dequeued_packet_s_lines_come_from_who_wrote_it() {
    #[repr(align(64))]
    struct Frame([u8; 192]);
    let machine = machine();
    let run = |peek: u32| {
        let (written, read) = (Arc::new(Frame([0; 192])), Arc::new(0_u64));
        let dequeued = written.clone();
        let mut world = World::new(&machine, 1);
        world.name_lines();
        Sim::name(&*written, "the packet");
        world.footprint(Footprint { peek, ..Footprint::default() });
        world.spawn(on(0), move || {
            while !sim::is_ending() {
                write_packet(&written.0);
                sim::work(100_000);
            }
        });
        world.spawn(on(4), move || {
            while !sim::is_ending() {
                Sim::dequeued(|| (&*read, std::iter::once(&dequeued.0[..])));
                sim::work(100_000);
            }
        });
        world.watch_lines(0);
        world.advance(END);
        let uses = world.line_uses(END);
        world.run(END);
        let row = uses.iter().find(|line| line.name.as_deref() == Some("the packet"));
        row.map_or(0, |row| row.transfers)
    };
    let [none, one, two] = [0, 1, 2].map(run);
    assert!(none < 10, "{none}");
    assert!(one > 100 && two > one + one / 10, "{one} {two}");
}

/// Waiters wait on their own stacks, and that time belongs to the lock.
#[test]
fn who_waits_in_a_lock_s_queue_waits_for_the_lock() {
    #[repr(align(128))]
    struct Lock(SpinLock<Sim, u64>);
    let lock = Arc::new(Lock(SpinLock::new(0)));
    let machine = machine();
    let mut world = World::new(&machine, 1);
    world.name_lines();
    Sim::name(&*lock, "lock");
    for cpu in 0..4 {
        let lock = lock.clone();
        world.spawn(on(cpu), move || {
            while !sim::is_ending() {
                lock.0.with(|held| {
                    *held.data() += 1;
                    Sim::work(500);
                });
            }
        });
    }
    world.watch_lines(0);
    world.advance(END);
    let uses = world.line_uses(END);
    let line = of(&uses, Some("lock"));
    assert_eq!(line.lines, 1, "places in the queue are no lines of the lock");
    // Three of four tasks wait at any time.
    assert!((2 * END..=3 * END).contains(&line.waits), "{line:?}");
    assert!(uses.iter().all(|other| other.name == line.name || other.waits == 0), "{uses:?}");
    world.run(END);
}
