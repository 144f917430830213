//! A lease that is over: of several threads that find it so one takes it, and none takes one that was ended meanwhile.
//!
//! Guards `txq/src/sync/lease.rs`. Seen when it was broken: with a take by a store, "taken twice" and "taken after its end".

use std::sync::Arc;

use txq::sync::lease::Lease;
use txq_check::{Loom, Model, Shuttle};

/// The lease's end at first, and that of each that takes it.
const FIRST: u64 = 1 << 20;
const NEXT: u64 = 1 << 21;

/// Each of `threads` takes the lease if it finds the first one still; returns how many did.
fn takers<A: Model>(lease: &Arc<Lease<A>>, threads: u16) -> Vec<impl FnOnce() -> Option<u16> + use<A>> {
    let take = |tag: u16| {
        let lease = lease.clone();
        A::spawn(tag.into(), move || {
            let held = lease.held();
            (held.end() == FIRST && lease.take(held, tag, NEXT)).then_some(tag)
        })
    };
    (1..=threads).map(take).collect()
}

fn one_takes<A: Model>(threads: u16) {
    let lease = Arc::new(Lease::<A>::new());
    lease.grant(9, FIRST);
    let took: Vec<u16> = takers(&lease, threads).into_iter().filter_map(|join| join()).collect();
    let [holder] = took[..] else { panic!("taken twice, or by nobody: {took:?}") };
    assert!(!lease.held().is_anothers(holder) && lease.held().end() == NEXT, "{:?}", lease.held());
}

fn ended_is_not_taken<A: Model>(threads: u16) {
    let lease = Arc::new(Lease::<A>::new());
    lease.grant(9, FIRST);
    let takers = takers(&lease, threads);
    lease.end();
    for join in takers {
        join();
    }
    assert!(lease.held().is_none(), "taken after its end: {:?}", lease.held());
}

#[test]
fn one_takes_it_under_loom() {
    Loom::check(|| one_takes::<Loom>(2));
}

#[test]
fn one_takes_it_under_shuttle() {
    Shuttle::check(|| one_takes::<Shuttle>(5));
}

#[test]
fn ended_it_is_not_taken_under_loom() {
    Loom::check(|| ended_is_not_taken::<Loom>(2));
}

#[test]
fn ended_it_is_not_taken_under_shuttle() {
    Shuttle::check(|| ended_is_not_taken::<Shuttle>(4));
}
