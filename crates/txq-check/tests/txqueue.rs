//! A txq that stops and wakes, and a worker that sleeps and is woken: what is queued leaves, though nobody sends any more.
//!
//! Guards stop and reap (`txq/src/txqueue.rs`), the worker's wake-up (`schedule.rs`) and the end of a quota (`run.rs`).

mod device;

use device::{Device, Record, assert_conserved, assert_order, packets};
use txq::{Sender, enqueue};
use txq_check::{Loom, Model, Shuttle};

/// Senders, a device that stops when it keeps `ring` packets, and a worker that sleeps when it has nothing to do: all
/// packets leave although nobody sends any more.
fn stop_and_wake<A: Model>(discipline: &str, senders: u64, each: u64, ring: u32, inline: bool) {
    let record = Record::<A>::new();
    let device = Device { record: record.clone(), ring: Some(ring), inline };
    let mut dev = device.builder().discipline(discipline).build().expect("a device");
    let worker = dev.worker(0);
    let worker = A::spawn(1, move || worker.run());
    let send = move |mut sender: Sender<A>, mut packets| {
        let _ = sender.xmit_batch(&mut packets);
        sender
    };
    let mut others = Vec::new();
    for who in 1..senders {
        let mut sender = dev.sender_on("s", 0);
        let packets = packets(&mut sender, who, each);
        others.push(A::spawn(who as u32 + 1, move || send(sender, packets)));
    }
    let mut sender = dev.sender_on("s", 0);
    let packets = packets(&mut sender, 0, each);
    drop(send(sender, packets));
    others.into_iter().for_each(|join| drop(join()));
    // Time stands still, so this waits for ever if a packet does.
    assert!(dev.drain(1));
    dev.shutdown().expect("the device finishes");
    worker();
    assert_conserved(&dev);
    assert_order(&record.sent(), senders, each, false);
}

#[test]
fn stop_and_wake_under_loom() {
    for discipline in enqueue::names() {
        Loom::check(|| stop_and_wake::<Loom>(discipline, 1, 2, 1, false));
    }
}

#[test]
fn stop_and_wake_by_a_sender_under_loom() {
    Loom::check(|| stop_and_wake::<Loom>("spinlock", 1, 2, 1, true));
}

#[test]
fn stop_and_wake_under_shuttle() {
    for discipline in enqueue::names() {
        for inline in [false, true] {
            Shuttle::check(move || stop_and_wake::<Shuttle>(discipline, 3, 4, 2, inline));
        }
    }
}

/// The worker goes on where a sender's quota ended.
#[test]
fn a_quota_ends_under_shuttle() {
    for discipline in enqueue::names() {
        Shuttle::check(|| stop_and_wake::<Shuttle>(discipline, 1, 70, 128, true));
    }
}
