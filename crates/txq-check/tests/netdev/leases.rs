//! Busy senders of a combine queue take turns: no packet is lost, sent twice or left behind, each sender's packets leave in order,
//! and every wait ends, also beside a worker that runs the queue and beside completions.
//!
//! Guards `txq/src/generic/datapath/lease.rs`. Mutants that it catches: a turn without an end and a sender that does not become the
//! user of its queue, by "the next one has no turn"; a wait without an end, by more steps than a model may have.

use super::device::{Device, Record, assert_conserved, assert_order, packets};
use txq::Discipline;
use txq_check::{Loom, Model, Shuttle};
use txq_core::packet::PacketList;

/// The thread that reaps, and other work for the device.
#[derive(Clone, Copy, PartialEq)]
enum Beside {
    /// The device keeps no packets.
    Nothing,
    /// Senders reap, and leave completions to their next calls.
    Completions,
    /// A worker reaps the device's ring of one packet, and runs the queue that it wakes.
    Worker,
}

/// Busy senders, each with `calls` calls of one packet. With several txqs they use all of them by turns.
fn busy<A: Model>(senders: u64, calls: u64, txqs: u16, beside: Beside) {
    let record = Record::<A>::new(txqs);
    let ring = match beside {
        Beside::Nothing => None,
        Beside::Completions => Some(8),
        Beside::Worker => Some(1),
    };
    let device = Device { record: record.clone(), ring, inline: beside != Beside::Worker };
    let builder = device.builder().discipline(Discipline::Combine);
    let dev = builder.defer_completions(beside == Beside::Completions).build().expect("a device");
    let worker = (beside == Beside::Worker).then(|| {
        let mut worker = dev.worker(0);
        A::spawn(1, move || {
            let _ = worker.poll();
            worker
        })
    });
    let threads: Vec<_> = (0..senders)
        .map(|who| {
            let mut sender = dev.sender_on("s", (who % u64::from(txqs)) as u32);
            let mut packets = packets(&mut sender, who, calls);
            A::spawn(who as u32 + 2, move || {
                let mut one_call = PacketList::new();
                while !packets.is_empty() {
                    packets.move_front(1, &mut one_call);
                    sender.assume_busy();
                    let _ = sender.xmit_batch(&mut one_call);
                }
                sender
            })
        })
        .collect();
    threads.into_iter().for_each(|join| drop(join()));
    let mut worker = worker.map_or_else(|| dev.worker(0), |worker| worker());
    // Each poll completes what the device has kept, at the latest when it is time.
    for _ in 0..2 * senders * calls + 2 {
        let _ = worker.poll();
        A::sleep(1_000_000);
    }
    assert_conserved(&dev);
    assert_order(&record.sent(), senders, calls, false);
}

/// A busy sender that meets another one gets its turn when that one's is over.
#[test]
fn the_next_one_has_its_turn_under_loom() {
    Loom::check(|| {
        let device = Device { record: Record::<Loom>::new(1), ring: None, inline: true };
        let dev = device.builder().discipline(Discipline::Combine).build().expect("a device");
        let [mut holder, mut next] = [0, 0].map(|cpu| dev.sender_on("s", cpu));
        for sender in [&mut holder, &mut next] {
            sender.assume_busy();
            let mut one = packets(sender, 0, 1);
            let _ = sender.xmit_batch(&mut one);
            assert!(sender.uses_queue_of(0), "the next one has no turn");
        }
    });
}

#[test]
fn two_busy_senders_under_loom() {
    Loom::check_long(|| busy::<Loom>(2, 2, 1, Beside::Nothing));
}

#[test]
fn busy_senders_beside_completions_under_loom() {
    Loom::check_to(1, || busy::<Loom>(2, 2, 1, Beside::Completions));
}

#[test]
fn busy_senders_beside_a_worker_under_loom() {
    Loom::check_to(1, || busy::<Loom>(2, 1, 1, Beside::Worker));
}

#[test]
fn busy_senders_under_shuttle() {
    Shuttle::check(|| busy::<Shuttle>(5, 3, 1, Beside::Nothing));
    Shuttle::check(|| busy::<Shuttle>(4, 3, 2, Beside::Nothing));
    Shuttle::check(|| busy::<Shuttle>(3, 3, 1, Beside::Completions));
    Shuttle::check(|| busy::<Shuttle>(3, 3, 1, Beside::Worker));
}
