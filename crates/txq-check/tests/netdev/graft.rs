//! The number of queues changes while senders send: no packet is lost, reordered or left behind.
//!
//! Guards the rule (`txq/src/generic/datapath/selector.rs`), its change (`netdev/rule.rs`) and the queues that are not in force
//! (`run/relay.rs`). Mutants that it catches: a sender that does not wait for its packets in an old queue, by "doubled or out of
//! order"; an old queue that is not run after the change, or never relays, by a model that never ends.

use std::time::Duration;

use super::device::{Device, Record, assert_conserved, assert_order, packets};
use txq::Discipline;
use txq_check::{Model, Shuttle};

/// Senders send single packets to the first of the txqs; another thread switches the device through `roots`; a worker for each
/// txq does the rest.
fn change<A: Model>(
    discipline: Discipline,
    txqs: u16,
    senders: u64,
    each: u64,
    roots: &'static [&'static str],
) {
    let record = Record::<A>::new(txqs);
    let device = Device { record: record.clone(), ring: None, inline: true };
    let builder = device.builder().discipline(discipline).workers(txqs.into());
    let mut dev = builder.build().expect("a device");
    let workers: Vec<_> = (0..txqs)
        .map(|n| {
            let worker = dev.worker(n.into());
            A::spawn(1, move || worker.run())
        })
        .collect();
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
        dev.tc(&format!("qdisc replace {root}")).expect("it can be");
    }
    threads.into_iter().for_each(|join| join());
    assert!(dev.drain(Duration::from_nanos(1)));
    dev.shutdown().expect("the device finishes");
    workers.into_iter().for_each(|join| join());
    assert_conserved(&dev);
    assert_order(&record.sent(), senders, each, true);
}

#[test]
fn queues_change_under_shuttle() {
    for &discipline in Discipline::ALL {
        Shuttle::check(move || {
            change::<Shuttle>(
                discipline,
                1,
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
        Shuttle::check(move || change::<Shuttle>(discipline, 1, 2, 1, &["root noqueue"]));
    }
}

/// One queue for each txq, one for both, none: queues relay to queues that are closed next.
#[test]
fn three_rules_alternate_under_shuttle() {
    const ROOTS: &[&str] =
        &["root pfifo", "root mq", "root noqueue", "root pfifo_fast", "root mq", "root pfifo"];
    for &discipline in Discipline::ALL {
        Shuttle::check(move || change::<Shuttle>(discipline, 2, 2, 6, ROOTS));
    }
}
