//! The ring whose producers never wait: a value arrives whole or counts as lost, and those of one producer arrive in order.
//!
//! Guards `push` and `pop` of `txq-core/src/sync/lossy.rs`. Mutants that it catches: each missing acquire or release, by
//! loom's "Causality violation" between the write and the read of a slot; a slot that is given to two producers.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use txq_check::{Loom, Model, Shuttle};
use txq_core::sync::lossy::{Consumer, ring};

/// Reads all values that are there; `last` has the last number of each producer.
fn read<A: Model>(consumer: &mut Consumer<A, (usize, u64)>, last: &mut [u64; 2]) -> u64 {
    let mut count = 0;
    while let Some((producer, number)) = consumer.pop(|value| *value) {
        assert!(number > last[producer], "a value is doubled or out of order");
        last[producer] = number;
        count += 1;
    }
    count
}

/// Two producers push `values` each, while the consumer reads `reads` times, and once more at the end.
fn scenario<A: Model>(capacity: usize, values: u64, reads: usize) {
    let (ring, mut consumer) = ring::<A, _>(capacity, || (usize::MAX, 0));
    // std's, because it is not part of the model.
    let pushed = Arc::new(AtomicU64::new(0));
    let produce = |producer: usize| {
        let (ring, pushed) = (ring.clone(), pushed.clone());
        A::spawn(producer as u32 + 1, move || {
            for number in 1..=values {
                let done = ring.push(|value| *value = (producer, number));
                pushed.fetch_add(done.into(), Relaxed);
            }
        })
    };
    let producers = [produce(0), produce(1)];
    // A thread of its own: loom explores few interleavings of the thread that starts the others.
    let reader = A::spawn(3, move || {
        let (mut last, mut count) = ([0; 2], 0);
        for _ in 0..reads {
            count += read(&mut consumer, &mut last);
        }
        (consumer, last, count)
    });
    producers.into_iter().for_each(|thread| thread());
    let (mut consumer, mut last, mut count) = reader();
    count += read(&mut consumer, &mut last);
    assert_eq!(count, pushed.load(Relaxed), "a value is lost that was written");
    assert_eq!(count + ring.lost(), 2 * values, "a loss is not counted");
    assert!(count >= capacity.min(2 * values as usize) as u64, "a value is lost although a slot was free");
}

#[test]
fn two_slots_under_loom() {
    Loom::check(|| scenario::<Loom>(2, 2, 1));
}

#[test]
fn four_slots_under_shuttle() {
    Shuttle::check(|| scenario::<Shuttle>(4, 10, 4));
}
