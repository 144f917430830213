use super::*;
use crate::sim::testing::machine;

/// CPUs of the test machine: 0 and 8 share a core, 1 is in the complex of 0, 2 in its die, 4 in the other socket.
struct Bench {
    lines: Lines,
    line: u32,
}

impl Bench {
    fn new() -> Self {
        let mut lines = Lines::new(&machine());
        (0..16).for_each(|_| lines.add_task());
        let line = lines.find(7);
        Self { lines, line }
    }

    /// Performs an access by the CPU's own task.
    fn at(&mut self, now: Picos, cpu: u32, kind: Kind) -> Answer {
        self.lines.access(self.line, cpu, now * 1000, kind)
    }
}

fn hit(ns: Picos) -> Answer {
    Answer::Hit(ns * 1000)
}

fn miss(ns: Picos) -> Answer {
    Answer::Miss(ns * 1000)
}

use Kind::{Load, Rmw, Store};

#[test]
fn an_access_pays_for_the_distance() {
    let mut b = Bench::new();
    assert_eq!(b.at(0, 0, Store), miss(90));
    assert_eq!(b.at(1000, 0, Load), hit(1));
    assert_eq!(b.at(1001, 0, Rmw), hit(5));
    assert_eq!(b.at(2000, 8, Store), hit(4));
    assert_eq!(b.at(3000, 0, Rmw), hit(4 + 5));
    assert_eq!(b.at(4000, 1, Store), miss(4020));
    assert_eq!(b.at(5000, 2, Store), miss(5045));
    assert_eq!(b.at(6000, 4, Rmw), miss(6000 + 180 + 5));
}

#[test]
fn readers_share_and_a_writer_pays_for_the_farthest() {
    let mut b = Bench::new();
    b.at(0, 0, Store);
    assert_eq!(b.at(1000, 1, Load), miss(1020));
    assert_eq!(b.at(2000, 0, Load), hit(1));
    assert_eq!(b.at(2000, 1, Load), hit(1));
    assert_eq!(b.at(2000, 9, Load), hit(1), "the other thread of a core that has it");
    // From CPU 1, which is nearer than 0, the first holder.
    assert_eq!(b.at(3000, 4, Load), miss(3180));
    assert_eq!(b.at(4000, 5, Load), miss(4020));
    assert_eq!(b.at(5000, 0, Store), miss(5180));
    assert_eq!(b.at(6000, 0, Store), hit(1));
    assert_eq!(b.at(7000, 1, Load), miss(7020));
}

/// Four CPUs request it at once: each transfer begins when the previous CPU has held the line for half of the transfer, and
/// arrives half a transfer later.
#[test]
fn a_contended_line_serves_in_order() {
    let mut b = Bench::new();
    b.at(0, 0, Store);
    assert_eq!(b.at(1000, 1, Rmw), miss(1025));
    assert_eq!(b.at(1000, 2, Rmw), miss(1025 + 50));
    assert_eq!(b.at(1000, 4, Rmw), miss(1075 + 185));
    assert_eq!(b.at(1001, 0, Rmw), hit(5), "the first request is still on its way");
    assert_eq!(b.at(1010, 0, Rmw), miss(1260 + 185));
}

/// Readers follow each other by the read gap, although each waits for the whole transfer.
#[test]
fn reads_overlap() {
    let mut b = Bench::new();
    b.at(0, 0, Store);
    assert_eq!(b.at(1000, 4, Load), miss(1180));
    assert_eq!(b.at(1000, 2, Load), miss(1098 + 45));
    assert_eq!(b.at(1000, 3, Load), miss(1106 + 20));
}

/// The line's holder hits until the next transfer begins, and no longer.
#[test]
fn the_hold_window_lets_a_second_try_hit() {
    let mut b = Bench::new();
    b.at(0, 0, Store);
    assert_eq!(b.at(1000, 1, Rmw), miss(1025));
    assert_eq!(b.at(1001, 2, Rmw), miss(1025 + 50));
    assert_eq!(b.at(1002, 3, Rmw), miss(1075 + 25));
    assert_eq!(b.at(1025, 1, Rmw), hit(5));
    assert_eq!(b.at(1044, 1, Store), hit(1));
    // From 1047.5 on it is in transfer to CPU 2; CPU 1 queues behind 3.
    assert_eq!(b.at(1048, 1, Store), miss(1100 + 45));
    assert_eq!(b.at(1084, 2, Store), hit(1));
}

/// The owner uses the line until a request reaches it, half a transfer after it was made; a store in flight takes the line at
/// once.
#[test]
fn an_owner_goes_on_until_the_request_arrives() {
    let mut b = Bench::new();
    b.at(0, 0, Store);
    assert_eq!(b.at(1000, 4, Rmw), miss(1185));
    assert_eq!(b.at(1089, 0, Rmw), hit(5));
    // The owner is without the line until half a hold and the way back are over.
    assert_eq!(b.at(1090, 0, Rmw), miss(1185 + 90 + 90 + 5));
    assert_eq!(b.at(2000, 4, Store), miss(2180));
    assert_eq!(b.at(2001, 0, Store), miss(2180 + 180));
}

#[test]
fn waiters_stand_in_line() {
    let mut b = Bench::new();
    let line = b.line;
    for task in [3, 5, 7] {
        b.lines.wait(line, task);
    }
    b.lines.unwait(5);
    b.lines.unwait(5);
    assert_eq!(b.lines.first_waiter(line), 3);
    b.lines.unwait(3);
    assert_eq!(b.lines.first_waiter(line), 7);
    b.lines.unwait(7);
    assert_eq!(b.lines.first_waiter(line), NONE);
}

/// Whether a waiter leaves in the middle or at an end, the others keep their order, and a new one is the last.
#[test]
fn waiters_leave_and_come() {
    let mut b = Bench::new();
    for leaves in [&[2, 3][..], &[3, 2], &[1, 3], &[3], &[2], &[1]] {
        (1..=3).for_each(|task| b.lines.wait(b.line, task));
        leaves.iter().for_each(|&task| b.lines.unwait(task));
        b.lines.wait(b.line, 4);
        for task in (1..=4).filter(|task| !leaves.contains(task)) {
            assert_eq!(b.lines.first_waiter(b.line), task, "without {leaves:?}");
            b.lines.unwait(task);
        }
        assert_eq!(b.lines.first_waiter(b.line), NONE);
    }
}

/// Numbers follow the order of first touches, whatever the keys are, and stay the same while the table grows.
#[test]
fn lines_are_numbered_by_their_first_touch() {
    let mut lines = Lines::new(&machine());
    let mut number = |i: u64| {
        let line = lines.find(i.wrapping_mul(0xDEAD_BEEF_1234_5677) >> 3);
        lines.touch(line);
        lines.number(line)
    };
    assert!((0..50_000).all(|i| number(u64::from(i)) == i));
    assert!((0..50_000).all(|i| number(u64::from(i)) == i));
}

/// Each request that waits makes a transfer longer, up to four of them; the one that is served is none of those.
#[test]
fn a_crowd_slows_each_transfer() {
    let mut machine = machine();
    machine.topology.cores = 8;
    machine.line = crate::sim::machine::Line { snoop: 0.5, hold: 0.0, crowd: 0.25, ..machine.line };
    let mut lines = Lines::new(&machine);
    let line = lines.find(7);
    assert_eq!(lines.access(line, 0, 0, Rmw), miss(95));
    // The way between two cores of a complex is 20: half of it until the owner knows, half until the line is there.
    let mut free = 0;
    for (cpu, longer) in (1..8).zip([0, 0, 5, 10, 15, 20, 20]) {
        let Answer::Miss(at) = lines.access(line, cpu, 1_000_000, Rmw) else { panic!("a hit") };
        let start = std::cmp::max(1_000_000 + 10_000, free);
        assert_eq!(at, start + (10 + longer + 5) * 1000, "CPU {cpu}");
        free = at;
    }
}
