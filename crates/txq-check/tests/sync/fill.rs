//! A queue that fills and drains, and senders that wait for room: each of them wakes, whatever happens to the queue.
//!
//! Guards the word and the list of waiters (`txq/src/sync/fill.rs`). Time stands still under the checkers, so a sleep
//! without a wake is a deadlock, which they report. Mutants that it catches, each by a sender that sleeps for ever: no
//! second check of the word after the registration; no `WAITERS`; an owner that wakes no thread; a woken thread that wakes no
//! other; a vanishing device that wakes only one.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::{Wake, Waker};

use txq_check::{Loom, Model, Shuttle};
use txq_core::arch::Nanos;
use txq_core::sync::fill::{Fill, Waiter};

/// A time that is never reached under the checkers.
const NEVER: Nanos = Nanos::MAX;
/// The low mark of the scenarios.
const LOW: usize = 2;

/// Waits as a sender at a full queue does; returns whether the device is gone.
fn wait<A: Model>(fill: &Fill<A>, refused: bool) -> bool {
    let waiter = Waiter::new();
    while fill.word().is_full(refused) {
        fill.wait(&waiter, refused, NEVER, || false);
    }
    fill.word().is_gone()
}

/// Ends an owner's turn (`run::turn`) with `left` packets in the queue.
fn end_of_turn<A: Model>(fill: &Fill<A>, left: usize) {
    if !fill.word().is_quiet() {
        fill.note_backlog(left);
        fill.wake();
    }
}

/// The queue is full and drains while `senders` begin to wait.
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

/// The queue drains, fills again before all senders have woken, and drains again.
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

/// An owner clears the queue and dies before it wakes a sender; the next owner finds packets in the queue again.
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

/// The device is removed, or its qdisc is exchanged, while senders wait for a queue that never drains.
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
        // A full mark that an owner sets afterwards blocks no sender.
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

/// A task's waker: it records the wake, and then panics if it is set to.
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

/// An event loop that never polls again is in front of a sleeping thread: both wake.
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
