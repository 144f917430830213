//! A packet's path from xmit to completion, step by step, on a device that the test controls.

use crate::device::{Wires, assert_conserved, pool};
use txq::drop::DropReason;
use txq::netdev::{Builder, Sampling};
use txq::packet::PacketList;
use txq::qdisc::Verdict;
use txq::{Discipline, NetDev, Sender, Worker};

pub(crate) fn builder(wires: &Wires) -> Builder {
    // The ring stops packets here, not a byte limit; `bql.rs` tests that.
    NetDev::builder(wires.clone()).pool_config(pool()).bql(None)
}

/// Returns packets with the cookies `from..to`.
pub(crate) fn packets(sender: &mut Sender, cookies: std::ops::Range<u64>) -> PacketList {
    let one = |cookie| {
        let mut packet = sender.alloc(60).unwrap();
        packet.set_cookie(cookie);
        packet
    };
    cookies.map(one).collect()
}

fn disciplines(test: impl Fn(Discipline)) {
    Discipline::ALL.iter().copied().for_each(test);
}

#[test]
fn a_packet_goes_straight_through() {
    disciplines(|discipline| {
        for qdisc in ["pfifo", "bfifo", "pfifo_fast", "noqueue"] {
            let wires = Wires::new(1, None);
            let dev = builder(&wires).qdisc(qdisc).discipline(discipline).build().unwrap();
            let mut sender = dev.sender("s");
            for cookie in 0..10 {
                let mut one = packets(&mut sender, cookie..cookie + 1);
                assert_eq!(sender.xmit(one.pop_front().unwrap()), Verdict::Success);
            }
            assert_eq!(sender.xmit_batch(&mut packets(&mut sender_of(&dev), 10..20)), Verdict::Success);
            assert_eq!(wires.at(0).sent(), (0..20).collect::<Vec<_>>(), "{qdisc}");
            assert_eq!(assert_conserved(&dev).sent, 20);
        }
    });
}

pub(crate) fn sender_of(dev: &NetDev) -> Sender {
    dev.sender("other")
}

/// The driver refuses; the packets are sent again, first and in order, when the worker's timer expires.
#[test]
fn what_the_driver_refuses_is_requeued_in_front() {
    disciplines(|discipline| {
        let wires = Wires::new(1, None);
        let dev = builder(&wires).qdisc("pfifo").discipline(discipline).build().unwrap();
        let (mut sender, mut worker) = (dev.sender("s"), dev.worker(0));
        wires.at(0).busy = 1;
        let _ = sender.xmit_batch(&mut packets(&mut sender_of(&dev), 0..5));
        let stats = dev.stats();
        assert_eq!((stats.sent, stats.queued, stats.requeues), (0, 5, 5));
        assert_eq!(
            dev.qdiscs(Default::default())[0].stats.qlen,
            5,
            "requeued packets are still part of the queue"
        );
        let _ = sender.xmit_batch(&mut packets(&mut sender_of(&dev), 5..8));
        worker.poll();
        assert_eq!(wires.at(0).sent(), (0..8).collect::<Vec<_>>());
        assert_conserved(&dev);
    });
}

/// Polls a worker after a millisecond: it waits for at most 0.1 ms between two polls of a txq.
pub(crate) fn poll_after_wait(worker: &mut Worker) {
    std::thread::sleep(std::time::Duration::from_millis(1));
    worker.poll();
}

/// The ring is full: the txq stops, the driver gets nothing, and a completion restarts it without a further packet.
#[test]
fn a_full_ring_stops_the_txq_and_a_completion_wakes_it() {
    disciplines(|discipline| {
        let wires = Wires::new(1, Some(8));
        let dev = builder(&wires).qdisc("pfifo").discipline(discipline).build().unwrap();
        let (mut sender, mut worker) = (dev.sender("s"), dev.worker(0));
        let _ = sender.xmit_batch(&mut packets(&mut sender_of(&dev), 0..20));
        worker.poll();
        let stats = dev.stats();
        assert_eq!((stats.sent, stats.queued, stats.in_flight), (8, 12, 8));
        assert!(stats.queues[0].stopped);
        // Room for less than a quarter of the ring does not wake the txq.
        wires.at(0).complete(1);
        poll_after_wait(&mut worker);
        assert_eq!(dev.stats().sent, 8);
        wires.at(0).complete(1);
        poll_after_wait(&mut worker);
        worker.poll();
        assert_eq!(dev.stats().sent, 10);
        while !dev.is_idle() {
            wires.at(0).complete(usize::MAX);
            worker.poll();
        }
        assert_eq!(wires.at(0).sent(), (0..20).collect::<Vec<_>>());
        assert_conserved(&dev);
    });
}

/// A sender sends the packets that it brings, and no batch is larger than the quota. `disciplines.rs` tests the packets of
/// others, for which the quota exists.
#[test]
fn no_batch_is_larger_than_the_quota() {
    disciplines(|discipline| {
        let wires = Wires::new(1, None);
        let dev = builder(&wires).qdisc("pfifo").discipline(discipline).build().unwrap();
        let mut sender = dev.sender("s");
        let _ = sender.xmit_batch(&mut packets(&mut sender_of(&dev), 0..200));
        assert_eq!(wires.at(0).sent(), (0..200).collect::<Vec<_>>());
        assert_eq!(Vec::from_iter(wires.at(0).batches.iter().map(Vec::len)), [64, 64, 64, 8]);
        assert_conserved(&dev);
    });
}

/// T38: a program that sends alone learns that the qdisc drops.
#[test]
fn a_lone_sender_gets_the_qdiscs_verdict() {
    disciplines(|discipline| {
        let wires = Wires::new(1, None);
        let dev = builder(&wires).qdisc("pfifo limit 0").discipline(discipline).build().unwrap();
        let mut sender = dev.sender("s");
        let packet = sender.packet(b"probe").unwrap();
        assert_eq!(sender.xmit(packet), Verdict::Drop);
        assert_eq!(sender.xmit_batch(&mut packets(&mut sender_of(&dev), 0..5)), Verdict::Drop);
        let shown = dev.qdiscs(Default::default());
        assert_eq!((shown[0].stats.packets, shown[0].stats.drops), (0, 6));
        assert_eq!(assert_conserved(&dev).dropped.get(DropReason::QdiscOverlimit), 6);
    });
}

#[test]
fn a_batch_that_is_dropped_in_part_says_so() {
    disciplines(|discipline| {
        let wires = Wires::new(1, None);
        let dev = builder(&wires).qdisc("pfifo limit 3").discipline(discipline).build().unwrap();
        let mut sender = dev.sender("s");
        assert_eq!(sender.xmit_batch(&mut packets(&mut sender_of(&dev), 0..5)), Verdict::Congested);
        let stats = assert_conserved(&dev);
        assert_eq!((stats.sent, stats.dropped.get(DropReason::QdiscOverlimit)), (3, 2));
    });
}

/// Without a qdisc packets cannot wait: those that the device does not take are dropped.
#[test]
fn noqueue_drops_what_the_device_does_not_take() {
    let wires = Wires::new(2, Some(4));
    let dev = builder(&wires).qdisc("noqueue").xps(one_txq(0)).build().unwrap();
    let mut sender = dev.sender_on("s", 0);
    assert_eq!(sender.xmit_batch(&mut packets(&mut sender_of(&dev), 0..4)), Verdict::Success);
    assert_eq!(sender.xmit_batch(&mut packets(&mut sender_of(&dev), 4..6)), Verdict::Drop);
    wires.at(0).complete(4);
    dev.worker(0).poll();
    let stats = assert_conserved(&dev);
    assert_eq!((stats.sent, stats.dropped.get(DropReason::FullRing)), (4, 2));
    assert!(
        txq::tc::show_text(&dev.qdiscs(Default::default()), false)
            .starts_with("qdisc noqueue 0: dev wires root")
    );
}

/// Returns a map that sends CPU 0 and 1 to `txq` of two.
fn one_txq(txq: usize) -> txq::xps::XpsMap {
    let mut masks = vec![txq::cpumask::CpuMask::new(); 2];
    masks[txq] = [0, 1].into_iter().collect();
    txq::xps::XpsMap::from_masks(&masks, 2, 2).unwrap()
}

#[test]
fn the_driver_may_drop_with_a_reason() {
    let wires = Wires::new(1, None);
    wires.at(0).longest = Some(59);
    let dev = builder(&wires).build().unwrap();
    let mut sender = dev.sender("s");
    let _ = sender.xmit_batch(&mut packets(&mut sender_of(&dev), 0..3));
    let stats = assert_conserved(&dev);
    assert_eq!((stats.sent, stats.dropped.get(DropReason::PktTooBig)), (0, 3));
    assert_eq!(stats.queues[0].counters.dropped, 3);
}

/// The flow's packets use the txq of CPU and map, and stay there while one of them is in flight.
#[test]
fn a_new_map_is_followed_when_nothing_can_be_overtaken() {
    let wires = Wires::new(2, Some(8));
    let dev = builder(&wires).xps(one_txq(0)).build().unwrap();
    let mut sender = dev.sender_on("s", 1);
    let mut send = |cookie| sender.xmit_batch(&mut packets(&mut sender_of(&dev), cookie..cookie + 1));
    let _ = send(0);
    dev.steering().set_xps(Some(one_txq(1))).unwrap();
    let _ = send(1);
    assert_eq!(
        (wires.at(0).sent(), wires.at(1).sent()),
        (vec![0, 1], vec![]),
        "packet 0 is still in the device"
    );
    // From then on the sender checks again every 64 calls.
    for cookie in 2..66 {
        wires.at(0).complete(2);
        dev.worker(0).poll();
        let _ = send(cookie);
    }
    let moved = wires.at(1).sent();
    assert!(!moved.is_empty());
    assert_eq!([wires.at(0).sent(), moved].concat(), (0..66).collect::<Vec<_>>());
    wires.at(0).complete(2);
    wires.at(1).complete(8);
    dev.worker(0).poll();
    assert_conserved(&dev);
}

/// A device that is dropped with packets on its ring returns them first.
#[test]
fn a_device_that_goes_returns_the_packets_it_keeps() {
    let wires = Wires::new(1, Some(8));
    let dev = builder(&wires).qdisc("pfifo").build().unwrap();
    let pool = dev.pool().clone();
    let mut sender = dev.sender("s");
    let _ = sender.xmit_batch(&mut packets(&mut sender_of(&dev), 0..20));
    drop((sender, dev));
    assert_eq!(pool.in_use().values().sum::<usize>(), 8, "what the wire keeps is not the device's to return");
    wires.at(0).complete(8);
    wires.at(0).forget();
    assert_eq!(pool.in_use(), Default::default());
}

/// One qdisc over several txqs: a packet for a stopped txq holds up those behind it, and nothing is lost or reordered.
#[test]
fn a_qdisc_may_serve_several_txqs() {
    disciplines(|discipline| {
        let wires = Wires::new(2, Some(4));
        let dev = builder(&wires).qdisc("pfifo").discipline(discipline).build().unwrap();
        let (mut sender, mut worker) = (dev.sender("s"), dev.worker(0));
        for cookie in 0..20 {
            let mut packet = sender.alloc(60).unwrap();
            packet.set_cookie(cookie);
            // The upper half of the hashes belongs to txq 1.
            packet.set_hash(if cookie % 3 == 0 { 1 } else { u32::MAX });
            let _ = sender.xmit(packet);
        }
        assert!(dev.stats().queued > 0);
        while !dev.is_idle() {
            wires.at(0).complete(1);
            wires.at(1).complete(1);
            worker.poll();
        }
        assert_eq!(wires.at(0).sent(), (0..20).filter(|c| c % 3 == 0).collect::<Vec<_>>());
        assert_eq!(wires.at(1).sent(), (0..20).filter(|c| c % 3 != 0).collect::<Vec<_>>());
        assert_conserved(&dev);
    });
}

#[test]
fn shutdown_purges_what_is_queued_and_drops_what_comes_after() {
    disciplines(|discipline| {
        let wires = Wires::new(1, Some(2));
        let mut dev = builder(&wires).qdisc("pfifo").discipline(discipline).build().unwrap();
        let mut sender = dev.sender("s");
        let _ = sender.xmit_batch(&mut packets(&mut sender_of(&dev), 0..10));
        dev.shutdown().unwrap();
        assert_eq!(sender.xmit_batch(&mut packets(&mut sender_of(&dev), 10..13)), Verdict::Drop);
        wires.at(0).complete(2);
        dev.worker(0).poll();
        let stats = assert_conserved(&dev);
        assert_eq!((stats.accepted, stats.sent), (13, 2));
        assert_eq!(stats.dropped.get(DropReason::QueuePurge), 8);
        assert_eq!(stats.dropped.get(DropReason::QdiscDrop), 3);
    });
}

/// A driver that panics loses the packet that it was at and nothing else; the queue continues with the others.
#[test]
fn a_panic_in_the_driver_is_not_the_end_of_the_queue() {
    disciplines(|discipline| {
        let wires = Wires::new(1, None);
        let dev = builder(&wires).qdisc("pfifo").discipline(discipline).build().unwrap();
        wires.at(0).panic = true;
        let mut victim = dev.sender("victim");
        let mut batch = packets(&mut victim, 0..3);
        let died = std::thread::scope(|s| s.spawn(move || victim.xmit_batch(&mut batch)).join());
        assert!(died.is_err());
        wires.at(0).panic = false;
        let mut sender = dev.sender("s");
        let _ = sender.xmit_batch(&mut packets(&mut sender_of(&dev), 3..6));
        assert_eq!(wires.at(0).sent(), [1, 2, 3, 4, 5]);
        let stats = assert_conserved(&dev);
        assert_eq!((stats.sent, stats.dropped.get(DropReason::NotSpecified)), (5, 1));
    });
}

#[test]
fn latency_is_measured_from_xmit_to_the_driver_and_to_completion() {
    let wires = Wires::new(1, Some(64));
    let dev = builder(&wires).sampling(Sampling::All).build().unwrap();
    let mut sender = dev.sender("s");
    let _ = sender.xmit_batch(&mut packets(&mut sender_of(&dev), 0..5));
    std::thread::sleep(std::time::Duration::from_millis(2));
    wires.at(0).complete(5);
    dev.worker(0).poll();
    let txq::netdev::Latencies { to_driver, to_completion, .. } = dev.latency();
    assert_eq!((to_driver.count(), to_completion.count()), (5, 5));
    assert!(to_completion.quantile(0.5).unwrap() >= std::time::Duration::from_millis(2));
    assert!(to_driver.quantile(0.5).unwrap() < to_completion.quantile(0.5).unwrap());
    assert_conserved(&dev);
}

/// mq's text is tc's: the children from the last txq to the first, counters summed at the root.
#[test]
fn mq_is_shown_with_its_children() {
    let wires = Wires::new(2, None);
    let dev = builder(&wires).qdisc("handle 1: mq").child(1, "handle 20: pfifo limit 7").build().unwrap();
    let mut sender = dev.sender("s");
    let _ = sender.xmit_batch(&mut packets(&mut sender_of(&dev), 0..3));
    let text = txq::tc::show_text(&dev.qdiscs(Default::default()), false);
    assert_eq!(
        text,
        "qdisc mq 1: dev wires root \n\
         qdisc pfifo 20: dev wires parent 1:2 limit 7p\n\
         qdisc pfifo_fast 0: dev wires parent 1:1 bands 3 priomap 1 2 2 2 1 2 0 0 1 1 1 1 1 1 1 1\n"
    );
    dev.tc("qdisc change parent 1:2 pfifo limit 9").unwrap();
    assert!(txq::tc::show_text(&dev.qdiscs(Default::default()), false).contains("limit 9p"));
    assert_eq!(dev.qdiscs(Default::default())[0].stats.packets, 3);
    assert_conserved(&dev);
}

#[test]
fn impossible_devices_are_refused_by_name() {
    let error =
        |f: fn(Builder) -> Builder| f(builder(&Wires::new(2, None))).build().err().unwrap().to_string();
    assert_eq!(error(|b| b.txqs(0)), "device \"wires\" has 2 txqs, not 0: use 1 to 2");
    assert_eq!(error(|b| b.txqs(3)), "device \"wires\" has 2 txqs, not 3: use 1 to 2");
    assert!(error(|b| b.qdisc("pfifo limit x")).starts_with("qdisc \"pfifo limit x\": pfifo: Illegal value"));
    assert!(error(|b| b.default_qdisc("mq")).contains("mq's children must be qdiscs that hold packets"));
    assert!(error(|b| b.child(2, "pfifo")).contains("txqs 0 to 1"));
    assert!(error(|b| b.qdisc("pfifo").child(0, "pfifo")).contains("only mq"));
    assert!(error(|b| b.workers(0)).contains("use at least 1"));
    assert!(error(|b| b.txqs(1).xps(one_txq(0))).contains("make it for 1"));
}

/// Packets that are due while the device is full wait for the device: the worker does not return a time in the past, which
/// would make it spin.
#[test]
fn a_full_device_is_not_asked_again_and_again() {
    disciplines(|discipline| {
        for (txqs, qdisc) in [(1, "netem delay 1ms"), (2, "netem delay 1ms"), (1, "fq horizon 1s")] {
            let wires = Wires::new(txqs, Some(1));
            // The device announces no completion.
            wires
                .0
                .iter()
                .for_each(|wire| wire.lock().unwrap().next = Some(txq::Instant::from_nanos(u64::MAX)));
            let dev =
                builder(&wires).qdisc(qdisc).discipline(discipline).watchdog_timeo(None).build().unwrap();
            let mut sender = dev.sender("s");
            let mut worker = dev.worker(0);
            let start = sender.now();
            let mut batch = packets(&mut sender, 0..3);
            batch.for_each_mut(|packet| packet.set_departure(start + std::time::Duration::from_millis(1)));
            let _ = sender.xmit_batch(&mut batch);
            while wires.0.iter().all(|wire| wire.lock().unwrap().sent().is_empty()) {
                worker.poll();
            }
            std::thread::sleep(std::time::Duration::from_millis(3));
            worker.poll();
            assert_eq!(worker.poll(), Some(txq::Instant::from_nanos(u64::MAX)), "{qdisc} over {txqs} txqs");
            for _ in 0..3 {
                wires.0.iter().for_each(|wire| wire.lock().unwrap().complete(1));
                poll_after_wait(&mut worker);
            }
            drop(sender);
            assert_eq!(assert_conserved(&dev).sent, 3);
        }
    });
}
