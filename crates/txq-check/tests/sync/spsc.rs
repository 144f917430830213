//! The ring from one thread to another: all values arrive in order, through slots that are reused.
//!
//! Guards `push`, `pop` and the two `publish` of `txq/src/sync/spsc.rs`. Mutants that it catches: each missing acquire or
//! release, by loom's "Causality violation" between the write and the read of a slot; a ring that takes one value too many,
//! by "a value is lost, doubled or out of order".

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use txq_check::{Loom, Model, Shuttle};
use txq_core::sync::spsc::ring;

/// A value that is counted while it lives. The count is std's, because it is not part of the model.
struct Value(usize, Arc<AtomicUsize>);

impl Value {
    fn new(number: usize, alive: &Arc<AtomicUsize>) -> Self {
        alive.fetch_add(1, Relaxed);
        Self(number, alive.clone())
    }
}

impl Drop for Value {
    fn drop(&mut self) {
        self.1.fetch_sub(1, Relaxed);
    }
}

/// The producer publishes every `batch` values and when the ring is full, the consumer every `batch` values and when it is
/// empty.
fn scenario<A: Model>(capacity: u32, values: usize, batch: usize) {
    let alive = Arc::new(AtomicUsize::new(0));
    let (mut producer, mut consumer) = ring::<A, Value>(capacity);
    let counted = alive.clone();
    let thread = A::spawn(1, move || {
        for number in 0..values {
            let mut value = Value::new(number, &counted);
            while let Err(back) = producer.push(value) {
                value = back;
                producer.publish();
                A::relax();
            }
            if number % batch == batch - 1 {
                producer.publish();
            }
        }
        producer.publish();
        producer
    });
    // The last value stays in the ring; dropping the ring drops it.
    for number in 0..values - 1 {
        while consumer.peek().is_none() {
            consumer.publish();
            A::relax();
        }
        let value = consumer.pop().expect("peeked");
        assert_eq!(value.0, number, "a value is lost, doubled or out of order");
        if number % batch == batch - 1 {
            consumer.publish();
        }
    }
    consumer.publish();
    drop(thread());
    drop(consumer);
    assert_eq!(alive.load(Relaxed), 0, "a value is leaked or dropped twice");
}

#[test]
fn one_slot_under_loom() {
    Loom::check(|| scenario::<Loom>(1, 3, 1));
}

#[test]
fn two_slots_under_loom() {
    Loom::check(|| scenario::<Loom>(2, 4, 1));
}

#[test]
fn batches_under_loom() {
    Loom::check(|| scenario::<Loom>(2, 5, 2));
}

#[test]
fn four_slots_under_shuttle() {
    Shuttle::check(|| scenario::<Shuttle>(4, 20, 3));
}
