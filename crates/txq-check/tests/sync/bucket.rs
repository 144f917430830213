//! A bucket whose tokens several threads take: no token is spent twice, and what is spent never exceeds the time and the
//! depth.
//!
//! Guards `txq-core/src/sync/bucket.rs`. Mutants that it catches, by "spent twice": a take by a store; a return by a store;
//! a take that begins at the depth's end although the tokens there are taken; a lease that grows over another's.

use std::sync::Arc;

use txq_check::{Loom, Model, Shuttle};
use txq_core::arch::Nanos;
use txq_core::sync::bucket::{Bucket, Tokens};

/// The time, and the depth of the bucket.
const NOW: Nanos = 1000;
const DEPTH: Nanos = 6;

/// Takes so that `held` has `n` tokens.
fn take<A: Model>(bucket: &Bucket<A>, held: &mut Tokens, n: Nanos) {
    bucket.take(held, NOW - DEPTH, |from, have| from + n.saturating_sub(have));
}

/// Takes and spends one packet's tokens, extends the lease and spends from it; what is left is returned. Returns the
/// nanoseconds that it spent.
fn sender<A: Model>(bucket: &Bucket<A>, cost: Nanos) -> Vec<Nanos> {
    let (mut held, mut spent) = (Tokens::default(), Vec::new());
    let mut spend = |held: &mut Tokens| {
        spent.extend(held.due(0)..held.due(cost));
        held.spend(cost);
    };
    take(bucket, &mut held, cost + 1);
    spend(&mut held);
    take(bucket, &mut held, cost + 1);
    spend(&mut held);
    bucket.give_back(&mut held);
    spent
}

fn none_is_spent_twice<A: Model>(threads: u32) {
    let bucket = Arc::new(Bucket::<A>::new());
    let senders: Vec<_> = (1..=threads)
        .map(|cost| {
            let bucket = bucket.clone();
            A::spawn(cost, move || sender(&bucket, cost.into()))
        })
        .collect();
    let mut spent: Vec<_> = senders.into_iter().flat_map(|join| join()).collect();
    // The next one finds what the others returned.
    spent.extend(sender(&bucket, 1));
    let all = spent.len();
    spent.sort_unstable();
    spent.dedup();
    assert_eq!(spent.len(), all, "spent twice: {spent:?}");
    assert!(spent[0] >= NOW - DEPTH, "older than the depth: {spent:?}");
    let now = spent.iter().filter(|&&token| token < NOW).count() as Nanos;
    assert!(now <= DEPTH, "{now} tokens now");
}

#[test]
fn no_token_is_spent_twice_under_loom() {
    Loom::check(|| none_is_spent_twice::<Loom>(2));
}

#[test]
fn no_token_of_three_is_spent_twice_under_loom() {
    Loom::check_to(2, || none_is_spent_twice::<Loom>(3));
}

#[test]
fn no_token_is_spent_twice_under_shuttle() {
    Shuttle::check(|| none_is_spent_twice::<Shuttle>(5));
}
