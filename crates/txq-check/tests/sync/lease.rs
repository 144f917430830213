//! An expired lease: of several threads that find it expired exactly one takes it, and none takes a lease that was ended
//! meanwhile.
//!
//! Guards `txq/src/sync/lease.rs`. A mutant that it catches: a take by a store, by "taken twice" and "taken after its end".

use std::sync::Arc;

use txq_check::{Loom, Model, Shuttle};
use txq_core::sync::lease::Lease;

/// The first end of the lease, and the end that each taker sets.
const FIRST: u64 = 1 << 20;
const NEXT: u64 = 1 << 21;

/// Starts `threads` threads; each takes the lease if it still finds the first one, and its join returns its tag if it did.
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
