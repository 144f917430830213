//! A queue that fills up and drains, and senders that wait for room: each of them wakes, whatever becomes of the queue.
//!
//! Guards the word and the list of waiters (`txq/src/sync/fill.rs`). Time stands still under the checkers, so a sleep without a
//! wake is a deadlock, which they report. Seen when it was broken: without the second look at the word after the registration,
//! without `WAITERS`, with an owner that wakes nobody, and with a woken thread that wakes no other, a sender sleeps for ever; so
//! it does when a device that goes away wakes only one.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::{Wake, Waker};

use txq::arch::Nanos;
use txq::sync::fill::{Fill, Waiter};
use txq_check::{Loom, Model, Shuttle};

/// A time that never comes under the checkers.
const NEVER: Nanos = Nanos::MAX;
/// The low mark of the scenarios.
const LOW: usize = 2;

/// What a sender does at a full queue; tells whether it found the device gone.
fn wait<A: Model>(fill: &Fill<A>, refused: bool) -> bool {
    let waiter = Waiter::new();
    while fill.word().is_full(refused) {
        fill.wait(&waiter, refused, NEVER, || false);
    }
    fill.word().is_gone()
}

/// The end of an owner's turn (`run::turn`) with so many packets left.
fn end_of_turn<A: Model>(fill: &Fill<A>, left: usize) {
    if !fill.word().is_quiet() {
        fill.note_backlog(left);
        fill.wake();
    }
}

/// The queue is full and drains while `senders` come to wait.
fn drains<A: Model>(senders: usize, refused: bool) {
    let fill = Arc::new(Fill::<A>::new());
    if refused {
        fill.note_partial(LOW);
    } else {
        fill.note_full(LOW);
    }
    let senders: Vec<_> = (0..senders)
        .map(|who| {
            let fill = fill.clone();
            A::spawn(who as u32 + 1, move || wait(&fill, refused))
        })
        .collect();
    end_of_turn(&fill, LOW + 1);
    assert!(fill.word().is_full(refused), "it has room above its low mark");
    end_of_turn(&fill, LOW);
    senders.into_iter().for_each(|join| assert!(!join(), "nobody has ended the device"));
    assert!(fill.word().is_quiet(), "something is left: {:?}", fill.word());
}

#[test]
fn one_sender_waits_under_loom() {
    Loom::check(|| drains::<Loom>(1, false));
}

#[test]
fn one_refused_sender_waits_under_loom() {
    Loom::check(|| drains::<Loom>(1, true));
}

#[test]
fn two_senders_wait_under_loom() {
    Loom::check_to(1, || drains::<Loom>(2, false));
}

#[test]
fn four_senders_wait_under_shuttle() {
    Shuttle::check(|| drains::<Shuttle>(4, false));
}

/// The queue drains, fills up before all have woken, and drains again.
fn fills_up_again<A: Model>(senders: usize) {
    let fill = Arc::new(Fill::<A>::new());
    fill.note_full(LOW);
    let senders: Vec<_> = (0..senders)
        .map(|who| {
            let fill = fill.clone();
            A::spawn(who as u32 + 1, move || wait(&fill, false))
        })
        .collect();
    end_of_turn(&fill, LOW);
    fill.note_full(LOW);
    fill.note_partial(LOW);
    end_of_turn(&fill, 0);
    senders.into_iter().for_each(|join| assert!(!join()));
    assert!(fill.word().is_quiet(), "something is left: {:?}", fill.word());
}

#[test]
fn it_fills_up_again_under_loom() {
    Loom::check(|| fills_up_again::<Loom>(1));
}

#[test]
fn it_fills_up_again_under_shuttle() {
    Shuttle::check(|| fills_up_again::<Shuttle>(3));
}

/// An owner clears the queue and dies before it wakes anybody; the next owner comes with packets in the queue again.
fn owner_dies<A: Model>(senders: usize) {
    let fill = Arc::new(Fill::<A>::new());
    fill.note_full(LOW);
    let senders: Vec<_> = (0..senders)
        .map(|who| {
            let fill = fill.clone();
            A::spawn(who as u32 + 1, move || wait(&fill, false))
        })
        .collect();
    fill.note_backlog(0);
    end_of_turn(&fill, LOW + 1);
    senders.into_iter().for_each(|join| assert!(!join()));
}

#[test]
fn an_owner_dies_under_loom() {
    Loom::check(|| owner_dies::<Loom>(1));
}

#[test]
fn an_owner_dies_under_shuttle() {
    Shuttle::check(|| owner_dies::<Shuttle>(3));
}

/// The device goes away, or its qdisc is exchanged, while senders wait for a queue that never drains.
fn device_changes<A: Model>(senders: usize, gone: bool) {
    let fill = Arc::new(Fill::<A>::new());
    fill.note_full(LOW);
    let senders: Vec<_> = (0..senders)
        .map(|who| {
            let fill = fill.clone();
            A::spawn(who as u32 + 1, move || wait(&fill, false))
        })
        .collect();
    if gone {
        fill.end();
        // What an owner notes afterwards holds nobody.
        fill.note_full(LOW);
    } else {
        fill.reset(false);
    }
    senders.into_iter().for_each(|join| assert_eq!(join(), gone));
}

#[test]
fn the_device_goes_away_under_loom() {
    Loom::check(|| device_changes::<Loom>(1, true));
}

#[test]
fn the_device_goes_away_with_two_under_loom() {
    Loom::check_to(1, || device_changes::<Loom>(2, true));
}

#[test]
fn the_device_goes_away_under_shuttle() {
    Shuttle::check(|| device_changes::<Shuttle>(4, true));
}

#[test]
fn the_qdisc_is_exchanged_under_shuttle() {
    Shuttle::check(|| device_changes::<Shuttle>(4, false));
}

/// A task that is told, and panics at that if it is to.
struct Task {
    told: AtomicBool,
    panics: bool,
}

impl Wake for Task {
    fn wake(self: Arc<Self>) {
        self.told.store(true, Relaxed);
        assert!(!self.panics, "the task panics, as the scenario wants");
    }
}

/// An event loop that never asks again is in front of a thread that sleeps: both wake.
fn task_before_thread<A: Model>(panics: bool) {
    let fill = Arc::new(Fill::<A>::new());
    fill.note_full(LOW);
    let task = Arc::new(Task { told: AtomicBool::new(false), panics });
    let place = Waiter::new();
    fill.watch(&place, false, &Waker::from(task.clone()));
    let sender = {
        let fill = fill.clone();
        A::spawn(1, move || wait(&fill, false))
    };
    end_of_turn(&fill, 0);
    sender();
    assert!(task.told.load(Relaxed), "the task was not told");
    assert!(fill.word().is_quiet(), "something is left: {:?}", fill.word());
}

#[test]
fn a_task_and_a_thread_wait_under_loom() {
    Loom::check(|| task_before_thread::<Loom>(false));
}

#[test]
fn a_task_that_panics_keeps_nobody_asleep_under_shuttle() {
    Shuttle::check(|| task_before_thread::<Shuttle>(true));
}
