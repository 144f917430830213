//! Traces: each step of a packet is an event, events and counters agree, and a reader costs the senders nothing but events.

use std::collections::HashMap;
use std::thread;
use std::time::Duration;

use crate::device::{Wires, assert_conserved, pool};
use crate::loops::Tunnel;
use txq::drop::DropReason;
use txq::packet::PacketList;
use txq::pool::PoolConfig;
use txq::tc::Handle;
use txq::trace::Trace;
use txq::trace::{Event, EventKind, Filter};
use txq::{Discipline, NetDev};

use EventKind::{KfreeSkb, NetDevStartXmit, QdiscDequeue, QdiscEnqueue, QdiscRequeue};

fn device(wires: &Wires, qdisc: &str, discipline: Discipline) -> NetDev {
    let pool = PoolConfig { room: 4096, ..pool() };
    NetDev::builder(wires.clone())
        .bql(None)
        .qdisc(qdisc)
        .discipline(discipline)
        .pool_config(pool)
        .build()
        .unwrap()
}

fn read(trace: &mut Trace) -> Vec<Event> {
    std::iter::from_fn(|| trace.try_next()).collect()
}

fn count(events: &[Event], kind: EventKind) -> u64 {
    events.iter().filter(|event| event.kind == kind).count() as u64
}

/// Checks that the events agree with the counters, for a device without copies that was traced from its first packet on.
fn assert_counted(dev: &NetDev, events: &[Event]) {
    let stats = dev.audit().unwrap_or_else(|wrong| panic!("{wrong}"));
    let mut drops: HashMap<_, u64> = HashMap::new();
    for event in events.iter().filter(|event| event.kind == KfreeSkb) {
        *drops.entry(event.reason.expect("a drop has a reason")).or_default() += 1;
    }
    assert_eq!(drops, stats.dropped.iter().collect(), "drops by reason");
    let dropped_by_driver: u64 = stats.queues.iter().map(|queue| queue.counters.dropped).sum();
    assert_eq!(count(events, QdiscRequeue), stats.requeues);
    assert_eq!(count(events, NetDevStartXmit), stats.sent + stats.requeues + dropped_by_driver);
    assert!(events.is_sorted_by_key(|event| event.time) || dev.stats().senders.len() > 1);
}

#[test]
fn each_packet_is_enqueued_dequeued_and_sent() {
    for &discipline in Discipline::ALL {
        for qdisc in ["pfifo", "pfifo_fast", "fq_codel", "htb default 1"] {
            let dev = device(&Wires::new(1, None), qdisc, discipline);
            let mut trace = dev.trace(Filter::new());
            let mut sender = dev.sender("test");
            // All of one flow, so that they stay in order.
            let mut packet = |n: u8, len: usize| {
                let mut packet = sender.packet(&vec![0; len]).unwrap();
                packet.data_mut()[40] = n;
                packet
            };
            let single: Vec<_> = (0..100).map(|n| packet(n, 64)).collect();
            let mut batch: PacketList = (100..200).map(|n| packet(n, 300)).collect();
            for packet in single {
                let _ = sender.xmit(packet);
            }
            let _ = sender.xmit_batch(&mut batch);
            while dev.worker(0).poll().is_some() && !dev.is_idle() {}
            let events = read(&mut trace);
            let at = format!("{qdisc} {discipline}");
            for kind in [QdiscEnqueue, QdiscDequeue, NetDevStartXmit] {
                let of: Vec<_> = events.iter().filter(|event| event.kind == kind).collect();
                let bytes: Vec<u8> = of.iter().map(|event| event.data()[40]).collect();
                assert_eq!(bytes, (0..200).collect::<Vec<u8>>(), "{at}: {kind}");
                assert!(of.iter().all(|event| event.txq == Some(0)), "{at}");
                let lens = |event: &&Event| (event.len as usize, event.data().len());
                assert_eq!((lens(&of[0]), lens(&of[199])), ((64, 64), (300, txq::trace::SNAPLEN)), "{at}");
            }
            let sojourn = |event: &&Event| event.kind == QdiscDequeue && event.sojourn.is_none();
            assert_eq!(events.iter().filter(sojourn).count(), 0, "{at}");
            assert_eq!((events.len(), trace.lost()), (600, 0), "{at}");
            assert_counted(&dev, &events);
            drop(sender);
            assert_conserved(&dev);
        }
    }
}

#[test]
fn noqueue_has_no_qdisc_and_drops_beyond_the_ring() {
    let wires = Wires::new(1, Some(2));
    let dev = device(&wires, "noqueue", Discipline::Combine);
    let mut trace = dev.trace(Filter::new());
    let mut sender = dev.sender("test");
    for n in 0..4 {
        let packet = sender.packet(&[n; 64]).unwrap();
        let _ = sender.xmit(packet);
    }
    let events = read(&mut trace);
    assert_eq!(count(&events, NetDevStartXmit), 2);
    assert_eq!(count(&events, KfreeSkb), 2);
    assert!(events.iter().all(|event| event.queue.is_none() && event.txq == Some(0)));
    assert!(events[2..].iter().all(|event| event.reason == Some(DropReason::FullRing)));
    assert_counted(&dev, &events);
    wires.at(0).complete(2);
    while dev.worker(0).poll().is_some() && !dev.is_idle() {}
}

/// Overlimit while the ring is full, refusals, drops by the driver, a purge, and a device that is down.
#[test]
fn every_drop_and_refusal_is_an_event() {
    for &discipline in Discipline::ALL {
        let wires = Wires::new(1, Some(4));
        let dev = device(&wires, "pfifo limit 8", discipline);
        let mut trace = dev.trace(Filter::new());
        let mut sender = dev.sender("test");
        let mut send = |len: usize, n: usize| {
            let mut batch: PacketList = (0..n).map(|_| sender.packet(&vec![0; len]).unwrap()).collect();
            let _ = sender.xmit_batch(&mut batch);
        };
        let work = || {
            for _ in 0..20 {
                let _ = dev.worker(0).poll();
            }
        };
        wires.at(0).longest = Some(100);
        send(200, 1);
        wires.at(0).busy = 2;
        send(64, 2);
        while dev.stats().queued > 0 {
            work();
        }
        send(64, 30);
        work();
        let queued = dev.stats().queued;
        dev.reset_qdisc("root").unwrap();
        dev.deactivate();
        send(64, 3);
        work();
        let events = read(&mut trace);
        let stats = dev.stats();
        let reasons = [
            DropReason::PktTooBig,
            DropReason::QdiscOverlimit,
            DropReason::QueuePurge,
            DropReason::QdiscDrop,
        ];
        assert!(
            reasons.iter().all(|&reason| stats.dropped.get(reason) > 0),
            "{discipline}: {:?}",
            stats.dropped
        );
        assert!(stats.requeues > 0, "{discipline}");
        assert_counted(&dev, &events);
        let purged: Vec<_> =
            events.iter().filter(|event| event.reason == Some(DropReason::QueuePurge)).collect();
        assert_eq!(purged.len() as u64, queued, "{discipline}");
        assert!(purged.iter().all(|event| event.sojourn.is_some() && event.txq == Some(0)), "{discipline}");
        wires.at(0).forget();
        wires.at(0).complete(usize::MAX);
        work();
    }
}

#[test]
fn many_senders_and_workers_agree_with_the_counters() {
    for &discipline in Discipline::ALL {
        for qdisc in ["mq", "pfifo"] {
            let wires = Wires::new(2, None);
            let builder = NetDev::builder(wires).bql(None).qdisc(qdisc).discipline(discipline);
            let dev = builder.pool_config(PoolConfig { room: 4096, ..pool() }).xps(None).start().unwrap();
            let mut trace = dev.trace_with(Filter::new(), 1 << 16);
            thread::scope(|scope| {
                for cpu in 0..3 {
                    let dev = &dev;
                    scope.spawn(move || {
                        let mut sender = dev.sender_on("test", cpu);
                        for n in 0..500u16 {
                            if let Ok(packet) = sender.packet(&[n as u8; 64]) {
                                let _ = sender.xmit(packet);
                            }
                        }
                    });
                }
            });
            assert!(dev.drain(Duration::from_secs(10)));
            let events = read(&mut trace);
            let at = format!("{qdisc} {discipline}");
            assert_eq!(trace.lost(), 0, "{at}");
            assert_counted(&dev, &events);
            let stats = dev.stats();
            let early =
                events.iter().filter(|event| event.kind == KfreeSkb && event.sojourn.is_none()).count();
            assert_eq!(count(&events, QdiscEnqueue) + early as u64, stats.accepted, "{at}");
            assert_eq!(count(&events, QdiscDequeue), stats.sent, "{at}");
            assert!(events.iter().all(|event| event.txq.is_some()), "{at}");
        }
    }
}

/// A sender that has a permit to bypass the qdisc is traced from the next packet on, and takes its short cuts again later.
#[test]
fn a_trace_begins_and_ends_under_traffic() {
    for &discipline in Discipline::ALL {
        let wires = Wires::new(1, Some(64));
        wires.at(0).prompt = true;
        let dev = device(&wires, "pfifo", discipline);
        let mut sender = dev.sender("test");
        let mut send = |n: usize| {
            for _ in 0..n {
                let packet = sender.packet(&[0; 64]).unwrap();
                let _ = sender.xmit(packet);
            }
        };
        for _ in 0..3 {
            send(200);
            let mut trace = dev.trace(Filter::new());
            assert_eq!(read(&mut trace).len(), 0);
            send(50);
            assert_eq!(read(&mut trace).len(), 150, "{discipline}");
            drop(trace);
        }
        send(50);
        let _ = dev.worker(0).poll();
        assert_eq!(dev.audit().unwrap().sent, 800);
    }
}

/// A sender that drivers use never follows a new rule, and is traced all the same.
#[test]
fn a_nested_sender_is_traced() {
    let tunnel = Tunnel::default();
    let builder = NetDev::builder(tunnel.clone()).bql(None).pool_config(pool());
    let (outer, inner) =
        (builder.build().unwrap(), device(&Wires::new(1, None), "pfifo", Discipline::Combine));
    *tunnel.0.lock().unwrap() = Some(inner.sender("nested"));
    let mut sender = outer.sender("test");
    let mut send = || {
        for _ in 0..5 {
            let packet = sender.packet(&[0; 64]).unwrap();
            let _ = sender.xmit(packet);
        }
    };
    send();
    let (mut trace, mut outside) = (inner.trace(Filter::new()), outer.trace(Filter::new()));
    send();
    assert_eq!((read(&mut trace).len(), read(&mut outside).len()), (15, 15));
    drop(trace);
    send();
    assert_eq!((inner.stats().sent, read(&mut outside).len()), (15, 15));
    *tunnel.0.lock().unwrap() = None;
}

#[test]
fn a_stalled_reader_loses_events_and_nothing_else() {
    let wires = Wires::new(1, None);
    let dev = device(&wires, "pfifo", Discipline::Combine);
    let mut stalled = dev.trace_with(Filter::new(), 64);
    let mut reader = dev.trace(Filter::new());
    let mut sender = dev.sender("test");
    for _ in 0..1000 {
        let packet = sender.packet(&[0; 64]).unwrap();
        let _ = sender.xmit(packet);
    }
    assert_eq!(dev.stats().sent, 1000);
    assert_eq!((read(&mut reader).len(), reader.lost()), (3000, 0));
    let kept = read(&mut stalled).len() as u64;
    assert_eq!((kept, kept + stalled.lost()), (64, 3000));
    // The times of packets whose enqueue was lost are not known.
    let packet = sender.packet(&[0; 64]).unwrap();
    let _ = sender.xmit(packet);
    let next = read(&mut stalled);
    assert!(next.len() == 3 && next[1].sojourn.is_some(), "{next:?}");
}

#[test]
fn events_name_their_queue() {
    let dev = device(&Wires::new(2, None), "mq", Discipline::Llist);
    let mut trace = dev.trace(Filter::new().event(QdiscEnqueue));
    let mut sender = dev.sender_on("test", 1);
    let mut queue = || {
        let packet = sender.packet(&[0; 64]).unwrap();
        let _ = sender.xmit(packet);
        let events = read(&mut trace);
        assert_eq!(events.len(), 1);
        (events[0].txq.unwrap(), events[0].queue)
    };
    let (txq, names) = queue();
    let minor = txq + 1;
    assert_eq!(names, Some((Handle::UNSPEC, Handle::new(0x8001, minor))));
    dev.tc("qdisc replace root handle 1: mq").unwrap();
    dev.tc(&format!("qdisc replace parent 1:{minor:x} handle 20: pfifo")).unwrap();
    assert_eq!(queue(), (txq, Some((Handle::new(0x20, 0), Handle::new(1, minor)))));
    dev.tc("qdisc replace root handle 7: pfifo").unwrap();
    assert_eq!(queue(), (txq, Some((Handle::new(7, 0), Handle::ROOT))));
}

/// A copy has no enqueue, so the time of a copy is unknown, even if its buffer was that of another packet.
#[test]
fn copies_are_dequeued_and_sent() {
    let dev = device(&Wires::new(1, None), "netem duplicate 100%", Discipline::Combine);
    let mut trace = dev.trace(Filter::new());
    let mut sender = dev.sender("test");
    for _ in 0..50 {
        let packet = sender.packet(&[0; 64]).unwrap();
        let _ = sender.xmit(packet);
    }
    let events = read(&mut trace);
    assert_counted(&dev, &events);
    let counts = [QdiscEnqueue, QdiscDequeue, NetDevStartXmit].map(|kind| count(&events, kind));
    assert_eq!(counts, [50, 100, 100]);
    let timed = events.iter().filter(|event| event.kind == QdiscDequeue && event.sojourn.is_some());
    assert_eq!(timed.count(), 50);
}

#[test]
fn filters_choose_queues_packets_kinds_and_reasons() {
    let wires = Wires::new(1, Some(1));
    let dev = device(&wires, "pfifo limit 2", Discipline::Combine);
    dev.tc("qdisc replace root handle 5: pfifo limit 2").unwrap();
    let filters = [
        (Filter::new().txq(0), 9),
        (Filter::new().txq(1), 0),
        (Filter::new().handle(Handle::new(5, 0)), 9),
        (Filter::new().handle(Handle::new(6, 0)), 0),
        (Filter::new().event(KfreeSkb), 2),
        (Filter::new().event(QdiscDequeue).event(NetDevStartXmit), 2),
        (Filter::new().reason(DropReason::QdiscOverlimit), 2),
        (Filter::new().reason(DropReason::QueuePurge), 0),
        (Filter::new().event(QdiscEnqueue).reason(DropReason::QdiscOverlimit), 0),
        (Filter::new().expr("less 64".parse().unwrap()), 0),
        (Filter::new().expr("not less 64".parse().unwrap()), 9),
        (Filter::new().expr("udp".parse().unwrap()), 0),
    ];
    let mut traces: Vec<_> = filters.iter().map(|(filter, _)| dev.trace(filter.clone())).collect();
    let mut sender = dev.sender("test");
    for _ in 0..5 {
        let packet = sender.packet(&[0; 80]).unwrap();
        let _ = sender.xmit(packet);
    }
    for (trace, (filter, expected)) in traces.iter_mut().zip(&filters) {
        assert_eq!(read(trace).len(), *expected, "{filter:?}");
    }
    drop(traces);
    wires.at(0).complete(1);
}

#[test]
fn a_trace_outlives_its_device() {
    let dev = device(&Wires::new(1, None), "pfifo", Discipline::Combine);
    let mut trace = dev.trace(Filter::new());
    let mut sender = dev.sender("test");
    let packet = sender.packet(&[0; 64]).unwrap();
    let _ = sender.xmit(packet);
    drop(dev);
    assert!(trace.is_over());
    let packet = sender.packet(&[0; 64]).unwrap();
    let _ = sender.xmit(packet);
    let events = read(&mut trace);
    assert_eq!(events.last().map(|event| event.reason), Some(Some(DropReason::QdiscDrop)));
    drop(sender);
    assert!(trace.next_within(Duration::from_secs(60)).is_none());
}
