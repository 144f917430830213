//! Changes of a device while it sends: qdiscs exchanged, reset and deleted, the device taken down and up, queues resized,
//! drivers replaced.

use crate::device::{Wires, assert_conserved, pool};
use txq::drop::DropReason;
use txq::netdev::Builder;
use txq::packet::PacketList;
use txq::qdisc::Verdict;
use txq::{Discipline, NetDev, Sender};

fn builder(wires: &Wires) -> Builder {
    NetDev::builder(wires.clone()).bql(None).pool_config(pool())
}

fn disciplines(test: impl Fn(Discipline)) {
    Discipline::ALL.iter().copied().for_each(test);
}

/// Sends packets with these cookies, of one flow that belongs to txq `txq` of two.
fn send(sender: &mut Sender, txq: u32, priority: u32, cookies: std::ops::Range<u64>) -> Verdict {
    let mut batch: PacketList = cookies
        .map(|cookie| {
            let mut packet = sender.alloc(60).unwrap();
            packet.set_cookie(cookie);
            packet.set_priority(priority);
            packet.set_hash(if txq == 0 { 1 } else { u32::MAX });
            packet
        })
        .collect();
    sender.xmit_batch(&mut batch)
}

fn shown(dev: &NetDev) -> String {
    txq::tc::show_text(&dev.qdiscs(Default::default()), false)
}

/// Runs the device until it has sent all packets, and its rings are empty.
fn finish(dev: &NetDev, wires: &Wires) {
    let mut worker = dev.worker(0);
    for _ in 0..10_000 {
        (0..usize::from(dev.steering().txqs())).for_each(|txq| wires.at(txq).complete(usize::MAX));
        worker.poll();
        if dev.is_idle() {
            return;
        }
    }
    panic!("it does not drain: {:?}", dev.stats());
}

/// A qdisc replaces another: the old one's packets are dropped, the new one's counters begin at 0, and the device's counters
/// continue.
#[test]
fn a_replaced_qdisc_is_purged_and_the_device_counts_on() {
    disciplines(|discipline| {
        let wires = Wires::new(1, Some(4));
        let dev = builder(&wires).qdisc("pfifo").discipline(discipline).build().unwrap();
        let mut sender = dev.sender("s");
        let _ = send(&mut sender, 0, 0, 0..10);
        dev.tc("qdisc replace root handle 7: bfifo limit 9000").unwrap();
        let text = shown(&dev);
        assert!(text.starts_with("qdisc bfifo 7: dev wires root refcnt 2 limit 9000b"), "{text}");
        let new = dev.qdiscs(Default::default())[0].stats;
        assert_eq!((new.packets, new.qlen, new.requeues), (0, 0, 0));
        let _ = send(&mut sender, 0, 0, 10..13);
        finish(&dev, &wires);
        assert_eq!(wires.at(0).sent(), [0, 1, 2, 3, 10, 11, 12], "{discipline}");
        assert_eq!(dev.qdiscs(Default::default())[0].stats.packets, 3);
        let stats = assert_conserved(&dev);
        assert_eq!((stats.accepted, stats.sent, stats.dropped.get(DropReason::QueuePurge)), (13, 7, 6));
    });
}

/// A replacement of the same kind and handle: only parameters change, and nothing is dropped.
#[test]
fn a_replacement_of_the_same_kind_is_a_change() {
    let wires = Wires::new(1, Some(4));
    let dev = builder(&wires).qdisc("pfifo").build().unwrap();
    let mut sender = dev.sender("s");
    let _ = send(&mut sender, 0, 0, 0..10);
    dev.tc("qdisc replace root pfifo limit 7").unwrap();
    assert!(shown(&dev).contains("pfifo 8001:") && shown(&dev).contains("limit 7p"), "{}", shown(&dev));
    finish(&dev, &wires);
    assert_eq!(assert_conserved(&dev).sent, 10);
}

/// One child of mq is exchanged, and the other is unaffected.
#[test]
fn a_child_is_replaced_and_deleted_alone() {
    disciplines(|discipline| {
        let wires = Wires::new(2, Some(4));
        let dev = builder(&wires).qdisc("handle 1: mq").discipline(discipline).build().unwrap();
        let mut sender = dev.sender("s");
        let _ = (send(&mut sender, 0, 0, 0..10), send(&mut sender, 1, 0, 100..110));
        dev.tc("qdisc replace parent 1:2 handle 20: pfifo limit 5").unwrap();
        assert!(shown(&dev).contains("qdisc pfifo 20: dev wires parent 1:2 limit 5p"), "{}", shown(&dev));
        dev.tc("qdisc del parent 1:2").unwrap();
        assert!(shown(&dev).contains("qdisc pfifo_fast 0: dev wires parent 1:2 "), "{}", shown(&dev));
        finish(&dev, &wires);
        assert_eq!(wires.at(0).sent(), (0..10).collect::<Vec<_>>(), "{discipline}");
        assert_eq!(wires.at(1).sent(), [100, 101, 102, 103]);
        assert_conserved(&dev);
    });
}

/// From one queue for all to one for each txq, to none, and back: each flow stays in order, and late packets in a queue that
/// is no longer in force are relayed.
#[test]
fn the_number_of_queues_changes() {
    disciplines(|discipline| {
        let wires = Wires::new(2, None);
        let dev = builder(&wires).qdisc("pfifo").discipline(discipline).build().unwrap();
        let mut sender = dev.sender("s");
        let mut cookie = 0;
        for (text, kinds) in [
            ("root handle 1: mq", "qdisc mq 1: dev wires root \nqdisc pfifo_fast 0: dev wires parent 1:2 "),
            ("root noqueue", "qdisc noqueue 0: dev wires root refcnt 2"),
            ("root pfifo_fast", "qdisc pfifo_fast 8002: dev wires root refcnt 3 "),
            ("root handle 1: mq", "qdisc mq 1: "),
            ("root bfifo", "qdisc bfifo 8003: "),
        ] {
            for txq in 0..2 {
                let _ = send(&mut sender, txq, 0, cookie..cookie + 5);
                cookie += 5;
            }
            dev.tc(&format!("qdisc replace {text}")).unwrap();
            assert!(shown(&dev).starts_with(kinds), "{text}: {}", shown(&dev));
        }
        dev.tc("qdisc del root").unwrap();
        assert!(shown(&dev).starts_with("qdisc mq 0: dev wires root"), "{}", shown(&dev));
        let _ = send(&mut sender, 1, 0, cookie..cookie + 5);
        finish(&dev, &wires);
        for txq in 0..2 {
            let sent = wires.at(txq).sent();
            assert!(sent.is_sorted(), "{discipline}: {sent:?}");
        }
        assert_eq!(assert_conserved(&dev).sent, 55, "nothing was queued that could be purged");
    });
}

/// Impossible changes return tc's error texts; the device stays as it was.
#[test]
fn impossible_changes_are_refused_in_tcs_words() {
    let wires = Wires::new(2, None);
    let dev = builder(&wires).qdisc("handle 1: mq").build().unwrap();
    let before = shown(&dev);
    let failed = |done: Result<Vec<String>, txq::tc::ParseError>| done.unwrap_err().message().to_owned();
    let cases = [
        (failed(dev.tc("qdisc add root handle 2: pfifo")), "Error: NLM_F_REPLACE needed to override."),
        (failed(dev.tc("qdisc add root handle 1: mq")), "Error: Exclusivity flag on, cannot modify."),
        (failed(dev.tc("qdisc add root pfifo")), "Error: Exclusivity flag on, cannot modify."),
        (
            failed(dev.tc("qdisc replace root handle 1: pfifo")),
            "Error: Invalid qdisc name: must match existing qdisc.",
        ),
        (failed(dev.tc("qdisc change root pfifo")), "Error: Invalid qdisc name: must match existing qdisc."),
        (failed(dev.tc("qdisc replace parent 1:1 mq")), "RTNETLINK answers: Operation not supported"),
        (failed(dev.tc("qdisc replace parent 1:3 pfifo")), "Error: Specified class not found."),
        (failed(dev.tc("qdisc replace parent 9:1 pfifo")), "Error: Failed to find specified qdisc."),
        (failed(dev.tc("qdisc del parent 1:1")), "Error: Cannot delete qdisc with handle of zero."),
        (failed(dev.tc("qdisc replace root nosuch")), "Error: Specified qdisc kind is unknown."),
        (failed(dev.tc("qdisc replace dev eth9 root pfifo")), "Cannot find device \"eth9\""),
    ];
    for (is, shall_be) in cases {
        assert_eq!(is, shall_be);
    }
    assert_eq!(shown(&dev), before);
    dev.tc("qdisc change root mq").unwrap();
    dev.tc("qdisc add parent 1:1 pfifo").unwrap();
    assert!(shown(&dev).contains("qdisc pfifo 8001: dev wires parent 1:1"), "{}", shown(&dev));
    let dev = builder(&wires).qdisc("noqueue").build().unwrap();
    assert_eq!(failed(dev.tc("qdisc del root")), "Error: Cannot delete qdisc with handle of zero.");
    dev.tc("qdisc add root pfifo").unwrap();
}

/// Packets that are in the driver when the queue is reset, and come back, are not queued again (T14). The reset happens
/// while the driver has the packets. (An owner of combine or lockless keeps the queue meanwhile, and the reset waits for it.)
#[test]
fn a_reset_resurrects_nothing() {
    let keeps = |discipline| matches!(discipline, Discipline::Combine | Discipline::Lockless);
    for &discipline in Discipline::ALL.iter().filter(|&&discipline| !keeps(discipline)) {
        let wires = Wires::new(1, None);
        let dev = builder(&wires).qdisc("pfifo").discipline(discipline).build().unwrap();
        let mut sender = dev.sender("s");
        let (entered, inside) = std::sync::mpsc::channel();
        let (leave, may_leave) = std::sync::mpsc::channel::<()>();
        wires.at(0).refuse_after(entered, may_leave);
        std::thread::scope(|scope| {
            scope.spawn(|| send(&mut sender, 0, 0, 0..5));
            inside.recv().unwrap();
            dev.reset_qdisc("root").unwrap();
            leave.send(()).unwrap();
        });
        let mut worker = dev.worker(0);
        worker.poll();
        let stats = assert_conserved(&dev);
        assert_eq!(
            (stats.sent, stats.dropped.get(DropReason::QueuePurge)),
            (0, 5),
            "{discipline}: packets came back after the reset"
        );
    }
}

/// Down: queued packets are dropped, new ones refused. Up: all is as before, and a lone packet bypasses the queue again.
#[test]
fn a_device_goes_down_and_comes_up() {
    disciplines(|discipline| {
        for root in ["pfifo_fast", "noqueue", "mq"] {
            let wires = Wires::new(2, Some(4));
            let dev = builder(&wires).qdisc(root).discipline(discipline).build().unwrap();
            let mut sender = dev.sender("s");
            let _ = send(&mut sender, 0, 0, 0..10);
            dev.deactivate();
            assert!(!dev.is_active());
            assert_eq!(dev.stats().queued, 0);
            assert_eq!(send(&mut sender, 0, 0, 10..12), Verdict::Congested, "{discipline} {root}");
            wires.at(0).complete(4);
            dev.worker(0).poll();
            dev.activate();
            assert_eq!(send(&mut sender, 0, 0, 12..13), Verdict::Success);
            assert_eq!(wires.at(0).sent(), [0, 1, 2, 3, 12], "{discipline} {root}: at once, and nothing old");
            finish(&dev, &wires);
            let stats = assert_conserved(&dev);
            assert_eq!((stats.sent, stats.dropped.get(DropReason::QdiscDrop)), (5, 2));
        }
    });
}

/// A stopped txq with a backlog gives its worker nothing to do, until the wake (T11).
#[test]
fn a_stopped_txq_keeps_nobody_busy() {
    disciplines(|discipline| {
        let wires = Wires::new(1, Some(8));
        wires.at(0).next = Some(txq::Instant::from_nanos(u64::MAX - 1));
        let dev = builder(&wires).qdisc("pfifo").discipline(discipline).watchdog_timeo(None).build().unwrap();
        let (mut sender, mut worker) = (dev.sender("s"), dev.worker(0));
        let _ = send(&mut sender, 0, 0, 0..20);
        worker.poll();
        let calls = wires.at(0).batches.len();
        for cookie in 20..30 {
            let _ = send(&mut sender, 0, 0, cookie..cookie + 1);
            assert_eq!(
                worker.poll(),
                Some(txq::Instant::from_nanos(u64::MAX - 1)),
                "{discipline}: nothing to do until the device is done"
            );
        }
        assert_eq!(wires.at(0).batches.len(), calls, "{discipline}: the driver was called in vain");
        drop(worker);
        finish(&dev, &wires);
        assert_eq!(wires.at(0).sent(), (0..30).collect::<Vec<_>>());
        assert_conserved(&dev);
    });
}

/// pfifo_fast drops its surplus, the newest packets of each band, and keeps the order; pfifo keeps its limit (T41).
#[test]
fn a_queue_gets_shorter_under_load() {
    disciplines(|discipline| {
        let wires = Wires::new(1, Some(4));
        let dev = builder(&wires).qdisc("pfifo_fast").discipline(discipline).build().unwrap();
        let mut sender = dev.sender("s");
        let _ = send(&mut sender, 0, 0, 0..4);
        // Priority 6 is band 0, and 2 is band 2.
        let _ = (send(&mut sender, 0, 2, 100..110), send(&mut sender, 0, 6, 200..203));
        dev.set_tx_queue_len(5);
        assert_eq!((dev.tx_queue_len(), dev.stats().dropped.total()), (5, 5));
        assert_eq!(send(&mut sender, 0, 2, 110..111), Verdict::Drop);
        finish(&dev, &wires);
        assert_eq!(wires.at(0).sent(), [0, 1, 2, 3, 200, 201, 202, 100, 101, 102, 103, 104], "{discipline}");
        assert_conserved(&dev);
        dev.tc("qdisc replace root pfifo limit 50").unwrap();
        dev.set_tx_queue_len(1);
        assert!(shown(&dev).contains("limit 50p"));
    });
}

/// A default pfifo_fast of length 0 is impossible, so the device has no queue; one named by the user gives the device the
/// default length (T40).
#[test]
fn a_length_of_zero() {
    for txqs in [1, 2] {
        let wires = Wires::new(txqs, None);
        let dev = builder(&wires).tx_queue_len(0).build().unwrap();
        assert!(shown(&dev).starts_with("qdisc noqueue 0: dev wires root refcnt 2"), "{}", shown(&dev));
        dev.tc("qdisc add root pfifo_fast").unwrap();
        assert_eq!(dev.tx_queue_len(), 1000);
        dev.set_tx_queue_len(0);
        dev.tc("qdisc del root").unwrap();
        assert!(shown(&dev).starts_with("qdisc noqueue 0:"));
        dev.tc("qdisc add root pfifo").unwrap();
        assert!(shown(&dev).contains("limit 1000p"));
    }
}

/// mq's counters are the sums of its children's, whatever kinds they are and however packets enter them (T42).
#[test]
fn mqs_counters_are_its_childrens() {
    disciplines(|discipline| {
        let wires = Wires::new(2, Some(4));
        let dev = builder(&wires).qdisc("handle 1: mq").discipline(discipline);
        let dev = dev.child(1, "pfifo limit 3").tx_queue_len(2).build().unwrap();
        let mut sender = dev.sender("s");
        let _ = (send(&mut sender, 0, 2, 0..10), send(&mut sender, 1, 2, 100..110));
        let _ = (send(&mut sender, 0, 2, 10..12), send(&mut sender, 1, 2, 110..112));
        let list = dev.qdiscs(Default::default());
        let sum = list[1].stats + list[2].stats;
        assert_eq!(list[0].stats, sum, "{discipline}");
        let stats = dev.stats();
        assert_eq!((sum.packets, sum.qlen), (stats.sent, stats.queued), "{discipline}");
        assert_eq!(sum.drops + sum.packets + sum.qlen, 24, "{discipline}: {list:?}");
        finish(&dev, &wires);
        assert_conserved(&dev);
    });
}

/// Another driver, with a smaller ring, replaces the full old one: the txq continues at once, and no buffer is lost.
/// A txq that is not in use while the driver is replaced has the new one when it is used again.
#[test]
fn a_driver_is_replaced_on_txqs_out_of_use() {
    let (old, new) = (Wires::new(2, Some(8)), Wires::new(2, Some(8)));
    let dev = builder(&old).qdisc("mq").build().unwrap();
    dev.steering().set_txqs(1).unwrap();
    let too_few = dev.replace_driver(Wires::new(1, Some(8))).unwrap_err().to_string();
    assert!(too_few.contains("needs at least 2"), "{too_few}");
    dev.replace_driver(new.clone()).unwrap();
    dev.steering().set_txqs(2).unwrap();
    let mut sender = dev.sender("s");
    let _ = send(&mut sender, 1, 0, 0..3);
    finish(&dev, &new);
    assert_eq!((old.at(1).sent().len(), new.at(1).sent()), (0, vec![0, 1, 2]));
    assert_conserved(&dev);
}

#[test]
fn a_driver_is_replaced() {
    disciplines(|discipline| {
        let (old, new) = (Wires::new(1, Some(8)), Wires::new(1, Some(2)));
        let dev = builder(&old).qdisc("pfifo").discipline(discipline).build().unwrap();
        let mut sender = dev.sender("s");
        let _ = send(&mut sender, 0, 0, 0..20);
        dev.worker(0).poll();
        assert!(dev.stats().queues[0].stopped);
        old.at(0).complete(3);
        dev.replace_driver(new.clone()).unwrap();
        assert_eq!(dev.stats().in_flight, 0);
        finish(&dev, &new);
        assert_eq!(old.at(0).sent(), (0..8).collect::<Vec<_>>(), "{discipline}");
        assert_eq!(new.at(0).sent(), (8..20).collect::<Vec<_>>(), "{discipline}");
        assert!(new.at(0).batches.iter().all(|batch| batch.len() <= 2));
        // The test holds the packets of the old wire, which no driver could.
        old.at(0).complete(8);
        old.at(0).forget();
        assert_eq!(assert_conserved(&dev).sent, 20);
        let too_few = dev.replace_driver(Wires::new(0, None)).unwrap_err().to_string();
        assert!(
            too_few.contains("has 0 txqs and an MTU of 1500: device \"wires\" needs at least 1"),
            "{too_few}"
        );
    });
}

/// A weak handle reaches the device while the device is in service, and keeps neither the device nor its driver alive.
#[test]
fn a_weak_handle_ends_with_its_device() {
    let wires = Wires::new(1, Some(4));
    let mut dev = builder(&wires).qdisc("pfifo").build().unwrap();
    let other = builder(&Wires::new(1, Some(4))).build().unwrap();
    let (weak, again) = (dev.downgrade(), dev.downgrade().clone());
    assert!(weak.is_same(&again) && !weak.is_same(&other.downgrade()));
    let mut sender = dev.sender("s");
    let access = weak.upgrade().unwrap();
    access.tc("qdisc replace root pfifo limit 7").unwrap();
    drop(access);
    // The end of the access has not shut the device down.
    assert!(shown(&dev).contains("limit 7p"), "{}", shown(&dev));
    assert_eq!(send(&mut sender, 0, 0, 0..1), Verdict::Success);
    finish(&dev, &wires);
    let access = weak.upgrade().unwrap();
    dev.shutdown().unwrap();
    assert!(weak.upgrade().is_none());
    // An access that began before the shutdown is still safe to use.
    assert!(shown(&access).starts_with("qdisc"));
    drop((access, dev));
    assert!(weak.upgrade().is_none());
    assert_eq!(format!("{:?}", other.downgrade()), "WeakNetDev(\"wires\")");
}

/// The recording of contention is switched on and off while the device is used.
#[test]
fn a_device_says_whether_it_records_contention() {
    let wires = Wires::new(1, Some(4));
    let dev = builder(&wires).build().unwrap();
    assert!(!dev.is_recording_contention());
    dev.set_contention(true);
    assert!(dev.is_recording_contention());
    dev.set_contention(false);
    assert!(!dev.is_recording_contention() && dev.contention().is_some());
}
