//! Completions that a lone sender leaves to its next calls: the worker reaps those that remain when the sender sends no
//! more.
//!
//! Guards `txq/src/generic/transfer/defer.rs` and the worker's check of it (`worker.rs`). Mutants that it catches: an owner that does
//! not schedule the worker, or a worker that drops a txq although its owner defers, by "the device keeps packets"; a worker
//! that ends the watch without the owner's place, by "Causality violation".

use super::device::{Device, Record, assert_conserved, assert_order, packets};
use txq::Discipline;
use txq_check::{Loom, Model, Shuttle};

/// A sender sends single packets, and stays. The worker polls at any moment, and then as long as it returns that it has to
/// poll again. Then every buffer is home, without a further call of the sender.
fn left_to_the_worker<A: Model>(queue: &str, discipline: Discipline, calls: u64, polls: usize) {
    let record = Record::<A>::new(1);
    let device = Device { record: record.clone(), ring: Some(64), inline: true };
    let builder = device.builder().qdisc(queue).discipline(discipline).defer_completions(true);
    let dev = builder.build().expect("a device");
    let mut sender = dev.sender_on("s", 0);
    let mut packets = packets(&mut sender, 0, calls);
    let mut worker = dev.worker(0);
    let worker = A::spawn(1, move || {
        for _ in 0..polls {
            let _ = worker.poll();
        }
        worker
    });
    while let Some(packet) = packets.pop_front() {
        let _ = sender.xmit(packet);
    }
    let mut worker = worker();
    while worker.poll().is_some() {}
    assert_eq!(dev.pool().in_use(), Default::default(), "the device keeps packets that nobody reaps");
    drop(sender);
    assert_conserved(&dev);
    assert_order(&record.sent(), 1, calls, false);
}

/// A module of tests for each queue whose owner may defer, so that each can run alone.
macro_rules! queues {
    ($($name:ident: $queue:literal, $discipline:ident;)*) => {
        $(mod $name {
            use super::*;

            #[test]
            fn left_to_the_worker_under_loom() {
                Loom::check_to(1, || left_to_the_worker::<Loom>($queue, Discipline::$discipline, 3, 1));
            }

            #[test]
            fn left_to_the_worker_under_shuttle() {
                Shuttle::check(|| left_to_the_worker::<Shuttle>($queue, Discipline::$discipline, 6, 3));
            }
        })*
    };
}

queues! {
    combine: "pfifo", Combine;
    llist: "pfifo", Llist;
    lockless: "pfifo", Lockless;
    noqueue: "noqueue", Combine;
}
