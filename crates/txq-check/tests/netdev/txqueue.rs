//! A txq that stops and wakes, and a worker that sleeps and is woken: queued packets leave without further packets.
//!
//! Guards stop (`txq/src/generic/txqueue.rs`) and reap (`transfer/reap.rs`), each for the ring and for the byte queue limit, the
//! worker's wake-up (`schedule.rs`) and the end of a quota (`run.rs`). Mutants that it catches: stop or reap without its
//! fence; a wake, a quota's end or a txq to reap that is not scheduled or not
//! notified. Each shows as a model that never ends ("Model exceeded maximum number of branches", "exceeded max_steps"),
//! because it waits for a packet that stays.

use std::time::Duration;

use super::device::{Device, Record, assert_conserved, assert_order, packets};
use txq::bql::BqlConfig;
use txq::generic::netdev::{Builder, Completions, NetDev};
use txq::generic::{Discipline, Sender};
use txq_check::{Loom, Model, Shuttle};
use txq_core::packet::PacketList;

/// The properties of a device, and the load of its senders.
#[derive(Clone, Copy)]
struct Load {
    txqs: u16,
    senders: u64,
    /// Number of calls of each sender.
    calls: u64,
    /// Number of packets per call.
    each: u64,
    ring: u32,
    inline: bool,
    /// Maximum number of bytes in flight that does not stop a txq; `None`: no limit. A packet has 8 bytes.
    limit: Option<u32>,
}

/// Sets a byte queue limit that does not change.
fn limited<A: Model>(builder: Builder<A>, limit: Option<u32>) -> Builder<A> {
    let fixed = |limit| BqlConfig { limit, limit_min: limit, limit_max: limit, ..BqlConfig::default() };
    builder.bql(limit.map(fixed))
}

/// Senders, a device that stops when it keeps `ring` packets, and a worker that sleeps when it has nothing to do: all
/// packets leave without further ones.
fn stop_and_wake<A: Model>(discipline: Discipline, load: Load) {
    let Load { txqs, senders, calls, each, ring, inline, limit } = load;
    let record = Record::<A>::new(txqs);
    let device = Device { record: record.clone(), ring: Some(ring), inline };
    let builder = limited(device.builder(), limit);
    let mut dev = builder.discipline(discipline).build().expect("a device");
    let worker = dev.worker(0);
    let worker = A::spawn(1, move || worker.run());
    let send = move |mut sender: Sender<A>, mut packets: PacketList<A>| {
        let mut one_call = PacketList::new();
        while !packets.is_empty() {
            packets.move_front(each as usize, &mut one_call);
            let _ = sender.xmit_batch(&mut one_call);
        }
        sender
    };
    let mut others = Vec::new();
    for who in 1..senders {
        let mut sender = dev.sender_on("s", who as u32 % u32::from(txqs));
        let packets = packets(&mut sender, who, calls * each);
        others.push(A::spawn(who as u32 + 1, move || send(sender, packets)));
    }
    let mut sender = dev.sender_on("s", 0);
    let packets = packets(&mut sender, 0, calls * each);
    let sender = send(sender, packets);
    others.into_iter().for_each(|join| drop(join()));
    finish(&mut dev, sender);
    worker();
    assert_conserved(&dev);
    assert_order(&record.sent(), senders, calls * each, false);
    if txqs == 1 && limit.is_none() {
        // A txq is open when there is room, and the owner observes the room: it dequeues no packet without room. With two
        // reasons to stop, a thread that clears one of them may be late and find the other one set anew; then a batch is
        // refused and the txq stopped again.
        assert_eq!(dev.stats().requeues, 0, "a batch was dequeued for which there was no room");
    }
}

/// The txq stops at the moment at which the worker reaps every packet whose completion could wake it. The device already
/// keeps a packet, so that the worker is on its way to the txq while the sender fills it.
fn stop_against_reap<A: Model>(discipline: Discipline) {
    let record = Record::<A>::new(1);
    let device = Device { record: record.clone(), ring: Some(2), inline: false };
    let mut dev = device.builder().discipline(discipline).build().expect("a device");
    let mut sender = dev.sender_on("s", 0);
    let mut packets = packets(&mut sender, 0, 3);
    let mut first = PacketList::new();
    packets.move_front(1, &mut first);
    let _ = sender.xmit_batch(&mut first);
    let worker = dev.worker(0);
    let worker = A::spawn(1, move || worker.run());
    let _ = sender.xmit_batch(&mut packets);
    finish(&mut dev, sender);
    worker();
    assert_conserved(&dev);
    assert_order(&record.sent(), 1, 3, false);
}

/// Waits until all packets have left, and ends the worker. Time stands still, so it waits for ever if one packet stays.
fn finish<A: Model>(dev: &mut NetDev<A>, sender: Sender<A>) {
    drop(sender);
    assert!(dev.drain(Duration::from_nanos(1)));
    let stats = dev.stats();
    assert_eq!(stats.sent, stats.accepted, "the queues are not empty yet");
    dev.shutdown().expect("the device finishes");
}

/// A thread per txq reaps, and the worker only runs the queues that these threads wake.
fn completions_by_a_thread_of_their_own(discipline: Discipline) {
    let record = Record::<Shuttle>::new(1);
    let device = Device { record: record.clone(), ring: Some(2), inline: true };
    let builder = limited(device.builder(), Some(8)).completions(Completions::PerQueue);
    let mut dev = builder.discipline(discipline).build().expect("a device");
    let (worker, completer) = (dev.worker(0), dev.completer(0));
    let worker = Shuttle::spawn(1, move || worker.run());
    let completer = Shuttle::spawn(2, move || completer.run());
    let mut sender = dev.sender_on("s", 0);
    let mut packets = packets(&mut sender, 0, 6);
    let _ = sender.xmit_batch(&mut packets);
    finish(&mut dev, sender);
    worker();
    completer();
    assert_conserved(&dev);
    assert_order(&record.sent(), 1, 6, false);
}

/// A module of tests for each discipline, so that each can run alone.
macro_rules! disciplines {
    ($($module:ident: $discipline:ident,)*) => {
        $(mod $module {
            use super::*;

            const DISCIPLINE: Discipline = Discipline::$discipline;

            /// The wake comes at any moment, also where lockless has just cleared `MISSED` and is about to check whether the
            /// txq is stopped. (T12)
            #[test]
            fn stop_and_wake_under_loom() {
                let load = Load { txqs: 1, senders: 1, calls: 1, each: 2, ring: 1, inline: false, limit: None };
                // A thread that finds these two in use leaves and retries, which makes executions long: combine takes a
                // minute even with one preemption. Both have the seat of the txq, so lockless stands for combine.
                match DISCIPLINE {
                    Discipline::Combine if !txq_check::is_thorough() => {}
                    Discipline::Combine | Discipline::Lockless if !txq_check::deep() => {
                        Loom::check_to(1, move || stop_and_wake::<Loom>(DISCIPLINE, load));
                    }
                    _ => Loom::check_long(move || stop_and_wake::<Loom>(DISCIPLINE, load)),
                }
            }

            #[test]
            fn stop_against_reap_under_loom() {
                // The protocol is the txq's. busylock stands for the disciplines that take its locks; those that have the seat
                // take half a minute each, and `stop_and_wake` explores the same two moments with another packet.
                if txq_check::is_thorough() || DISCIPLINE == Discipline::Busylock {
                    Loom::check_long(|| stop_against_reap::<Loom>(DISCIPLINE));
                }
            }

            #[test]
            fn stop_and_wake_under_shuttle() {
                for (txqs, inline) in [(1, false), (1, true), (2, false)] {
                    let load = Load { txqs, senders: 3, calls: 2, each: 2, ring: 2, inline, limit: None };
                    Shuttle::check(move || stop_and_wake::<Shuttle>(DISCIPLINE, load));
                }
            }

            /// Both reasons to stop, at different moments: a ring of 2, and a limit that one packet keeps and two exceed.
            #[test]
            fn stop_by_bytes_and_wake_under_shuttle() {
                for (txqs, inline, ring, limit) in [(1, false, 2, 8), (2, true, 8, 0)] {
                    let load = Load { txqs, senders: 3, calls: 1, each: 4, ring, inline, limit: Some(limit) };
                    Shuttle::check(move || stop_and_wake::<Shuttle>(DISCIPLINE, load));
                }
            }

            #[test]
            fn completions_by_a_thread_of_their_own_under_shuttle() {
                Shuttle::check(|| completions_by_a_thread_of_their_own(DISCIPLINE));
            }

            /// The worker continues where a sender's quota ended.
            #[test]
            fn a_quota_ends_under_shuttle() {
                let load = Load { txqs: 1, senders: 1, calls: 1, each: 70, ring: 128, inline: true, limit: None };
                Shuttle::check(move || stop_and_wake::<Shuttle>(DISCIPLINE, load));
            }

            /// Senders whose turns end with packets left, of their own and of each other.
            #[test]
            fn turns_end_under_shuttle() {
                let load = Load { txqs: 1, senders: 4, calls: 3, each: 64, ring: 1024, inline: true, limit: None };
                Shuttle::check(move || stop_and_wake::<Shuttle>(DISCIPLINE, load));
            }
        })*
    };
}

disciplines! {
    combine: Combine,
    llist: Llist,
    lockless: Lockless,
    busylock: Busylock,
    spinlock: Spinlock,
}

/// As above for bytes, with a ring that never fills. One packet is within the limit, and two are not: when both are complete
/// the txq must not be stopped, because nothing would wake it any more. (T18)
#[test]
fn stop_by_bytes_against_reap_under_loom() {
    Loom::check_long(|| {
        let device = Device { record: Record::<Loom>::new(1), ring: Some(8), inline: false };
        let mut dev =
            limited(device.builder(), Some(8)).discipline(Discipline::Spinlock).build().expect("a device");
        let mut sender = dev.sender_on("s", 0);
        let mut packets = packets(&mut sender, 0, 2);
        let _ = sender.xmit(packets.pop_front().expect("two packets"));
        let worker = dev.worker(0);
        let worker = Loom::spawn(1, move || worker.run());
        let _ = sender.xmit(packets.pop_front().expect("two packets"));
        finish(&mut dev, sender);
        worker();
        assert_conserved(&dev);
        assert!(!dev.stats().queues[0].stopped, "stopped, with nothing in flight");
    });
}

#[test]
fn stop_by_bytes_and_wake_under_loom() {
    let load = Load { txqs: 1, senders: 1, calls: 1, each: 2, ring: 8, inline: false, limit: Some(0) };
    Loom::check_long(move || stop_and_wake::<Loom>(Discipline::Spinlock, load));
}

#[test]
fn stop_and_wake_by_a_sender_under_loom() {
    let load = Load { txqs: 1, senders: 1, calls: 1, each: 2, ring: 1, inline: true, limit: None };
    Loom::check_long(move || stop_and_wake::<Loom>(Discipline::Spinlock, load));
}

/// The txq is full again when the worker processes the completion of the first packet: a wake happens only if there is room,
/// and a sender that finds the txq open observes the room.
#[test]
fn a_wake_is_for_room_under_loom() {
    let load = Load { txqs: 1, senders: 1, calls: 1, each: 3, ring: 1, inline: false, limit: None };
    Loom::check_to(if txq_check::deep() { 2 } else { 1 }, move || {
        stop_and_wake::<Loom>(Discipline::Spinlock, load)
    });
}

/// A sender pushes a packet onto llist's empty list, because another one holds the lock, while the worker opens the txq: either
/// the worker notices the list and the sender the open txq, or the worker runs the queue. (T16)
#[test]
fn a_push_against_the_wake_under_loom() {
    Loom::check_long(|| {
        let record = Record::<Loom>::new(1);
        let device = Device { record: record.clone(), ring: Some(1), inline: false };
        let dev = device.builder().discipline(Discipline::Llist).build().expect("a device");
        let [mut one, mut other] = [0, 1].map(|cpu| dev.sender_on("s", cpu));
        let mut first = packets(&mut one, 0, 2);
        let mut second = packets(&mut other, 1, 1);
        let _ = one.xmit(first.pop_front().expect("two packets"));
        assert!(dev.stats().queues[0].stopped, "the device keeps a packet");
        let mut worker = dev.worker(0);
        let worker = Loom::spawn(1, move || {
            let _ = worker.poll();
            worker
        });
        let other = Loom::spawn(2, move || {
            let _ = other.xmit_batch(&mut second);
            other
        });
        let _ = one.xmit_batch(&mut first);
        let (mut worker, other) = (worker(), other());
        // Each poll completes one packet, and makes room for the next.
        for _ in 0..4 {
            let _ = worker.poll();
        }
        drop((one, other));
        assert_conserved(&dev);
        assert_order(&record.sent(), 2, 1, true);
        assert_eq!(record.sent().len(), 3);
    });
}
