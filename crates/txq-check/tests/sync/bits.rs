//! Numbers that several threads add and one thread takes: none is lost, and the taker observes the writes before each
//! addition.
//!
//! Guards the set (`txq/src/sync/bits.rs`) and the taker's sleep (`schedule.rs`), T15. Mutants that it catches: a relaxed
//! addition or a relaxed take, by a causality violation at the payload; a take in two steps, or an addition that does not
//! notify, by a taker that sleeps for ever (a deadlock).

use std::sync::Arc;

use txq_check::{Loom, Model, Shuttle};
use txq_core::arch::{CellApi, Event};
use txq_core::sync::bits::Bits;

struct Shared<A: Model> {
    bits: Bits<A>,
    event: A::Event,
    /// One cell for each addition. The adder writes it, and the taker reads it.
    payload: Box<[A::Cell<u64>]>,
}

// SAFETY: a cell is written before its number is added, and read after it is taken; the checker verifies that.
unsafe impl<A: Model> Send for Shared<A> {}
// SAFETY: as above.
unsafe impl<A: Model> Sync for Shared<A> {}

/// Each of `threads` threads adds `each` numbers of its own; the taker sleeps until it has all of them.
fn add_and_take<A: Model>(threads: usize, each: usize) {
    let n = threads * each;
    let payload = (0..n).map(|_| A::Cell::new(0)).collect();
    let shared = Arc::new(Shared::<A> { bits: Bits::new(n), event: A::Event::new(), payload });
    let adders: Vec<_> = (0..threads)
        .map(|who| {
            let shared = shared.clone();
            A::spawn(who as u32 + 1, move || {
                for i in who * each..(who + 1) * each {
                    // SAFETY: see above.
                    shared.payload[i].with_mut(|p| unsafe { *p = i as u64 + 1 });
                    if shared.bits.set(i) {
                        shared.event.notify();
                    }
                }
            })
        })
        .collect();
    let mut taken = vec![0; n];
    loop {
        shared.bits.take(|i| {
            // SAFETY: see above.
            assert_eq!(shared.payload[i].with(|p| unsafe { *p }), i as u64 + 1);
            taken[i] += 1;
        });
        if taken.iter().all(|&times| times > 0) {
            break;
        }
        shared.event.wait(None);
    }
    adders.into_iter().for_each(|join| join());
    assert!(taken.iter().all(|&times| times == 1), "taken twice: {taken:?}");
}

#[test]
fn two_add_under_loom() {
    Loom::check(|| add_and_take::<Loom>(2, 1));
}

#[test]
fn one_adds_twice_under_loom() {
    Loom::check(|| add_and_take::<Loom>(1, 2));
}

#[test]
fn four_add_under_shuttle() {
    Shuttle::check(|| add_and_take::<Shuttle>(4, 20));
}
