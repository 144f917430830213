//! The number of queues changes while senders send: no packet is lost, reordered or left behind.
//!
//! Guards the rule (`txq/src/datapath/selector.rs`), its change (`graft.rs`) and the queues that are not in force
//! (`run/relay.rs`). Mutants that it catches: a sender that does not wait for its packets in an old queue, or a queue that
//! relays to itself, by "doubled or out of order"; an old queue that is not run after the change, by a model that never
//! ends.

use std::time::Duration;

use super::device::{Device, Record, assert_conserved, assert_order, packets};
use txq::Discipline;
use txq_check::{Model, Shuttle};

/// Senders send single packets; another thread switches the device through `roots`; a worker does the rest.
fn change<A: Model>(discipline: Discipline, senders: u64, each: u64, roots: &'static [&'static str]) {
    let record = Record::<A>::new(1);
    let device = Device { record: record.clone(), ring: None, inline: true };
    let mut dev = device.builder().discipline(discipline).build().expect("a device");
    let worker = dev.worker(0);
    let worker = A::spawn(1, move || worker.run());
    let threads: Vec<_> = (0..senders)
        .map(|who| {
            let mut sender = dev.sender_on("s", 0);
            let mut packets = packets(&mut sender, who, each);
            A::spawn(who as u32 + 2, move || {
                while let Some(packet) = packets.pop_front() {
                    let _ = sender.xmit(packet);
                }
            })
        })
        .collect();
    for root in roots {
        dev.replace_qdisc(root).expect("it can be");
    }
    threads.into_iter().for_each(|join| join());
    assert!(dev.drain(Duration::from_nanos(1)));
    dev.shutdown().expect("the device finishes");
    worker();
    assert_conserved(&dev);
    assert_order(&record.sent(), senders, each, true);
}

#[test]
fn queues_change_under_shuttle() {
    for &discipline in Discipline::ALL {
        Shuttle::check(move || {
            change::<Shuttle>(
                discipline,
                3,
                6,
                &["root noqueue", "root pfifo_fast", "root noqueue", "root pfifo", "root pfifo limit 9"],
            )
        });
    }
}

/// The last change closes a queue. A sender may still enter it while it is in force and does not relay yet; no packet and no
/// change comes after that.
#[test]
fn the_last_packet_leaves_under_shuttle() {
    for &discipline in Discipline::ALL {
        Shuttle::check(move || change::<Shuttle>(discipline, 2, 1, &["root noqueue"]));
    }
}
