//! Which txq a packet uses, and when it may use another: rx queues, traffic classes, txqs in use, flows.

use std::io;
use std::time::Duration;

use crate::device::{Wires, assert_conserved, pool};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use txq::cpumask::CpuMask;
use txq::driver::{DeviceInfo, Driver, DriverQueue};
use txq::netdev::Builder;
use txq::packet::PacketList;
use txq::tc::Style;
use txq::topology::Topology;
use txq::xps::{TrafficClasses, XpsError, XpsMap};
use txq::{Discipline, Flow, NetDev, Sender};

fn builder(wires: &Wires) -> Builder {
    NetDev::builder(wires.clone()).pool_config(pool()).bql(None)
}

fn packet(sender: &mut Sender, cookie: u64) -> txq::packet::Packet {
    let mut packet = sender.alloc(60).unwrap();
    packet.data_mut().fill(0);
    packet.set_cookie(cookie);
    packet
}

fn masks(lists: &[&str]) -> Vec<CpuMask> {
    lists.iter().map(|list| CpuMask::parse_list(list, 64).unwrap()).collect()
}

/// Returns a map in which every one of the first 4 CPUs uses only `txq`.
fn all_to(txq: usize, txqs: usize) -> XpsMap {
    let mut lists = vec![""; txqs];
    lists[txq] = "0-3";
    XpsMap::from_masks(&masks(&lists), txqs, 4).unwrap()
}

/// Completes all packets in the wires, until the device is idle.
fn complete_all(dev: &NetDev, wires: &Wires) {
    let mut worker = dev.worker(0);
    while !dev.is_idle() {
        (0..wires.0.len()).for_each(|txq| wires.at(txq).complete(usize::MAX));
        worker.poll();
    }
}

/// The rx queue has precedence over the CPU, the CPU over the hash; without a map the rx queue replaces the hash.
#[test]
fn the_rx_queue_goes_first() {
    let wires = Wires::new(4, None);
    let rxqs = XpsMap::from_rxq_masks(&masks(&["", "", "", "1"]), 4, 2).unwrap();
    let dev = builder(&wires).xps(all_to(1, 4)).xps_rxqs(rxqs).build().unwrap();
    let mut sender = dev.sender_on("s", 0);
    let mut send = |cookie, rx_queue: Option<u16>| {
        let mut packet = packet(&mut sender, cookie);
        rx_queue.into_iter().for_each(|rx_queue| packet.set_rx_queue(rx_queue));
        assert_eq!((packet.rx_queue(), packet.txq()), (rx_queue, 0));
        let _ = sender.xmit(packet);
    };
    send(0, Some(1));
    send(1, None);
    send(2, Some(0));
    send(3, Some(9));
    assert_eq!((wires.at(3).sent(), wires.at(1).sent()), (vec![0], vec![1, 2, 3]));
    dev.steering().set_xps(None).unwrap();
    dev.steering().set_xps_rxqs(None).unwrap();
    for rx_queue in [0, 2, 5] {
        send(10 + u64::from(rx_queue), Some(rx_queue));
    }
    assert_eq!((wires.at(0).sent(), wires.at(2).sent()), (vec![10], vec![12]));
    assert_eq!(wires.at(1).sent(), [1, 2, 3, 15]);
    assert_conserved(&dev);
}

/// A priority's class has its own txqs, whatever the hash and the rx queue, and its own part of the map.
#[test]
fn a_class_keeps_to_its_txqs() {
    let wires = Wires::new(6, None);
    let text = "handle 1: mqprio num_tc 2 map 0 0 0 0 0 0 0 0 1 1 1 1 1 1 1 1 queues 2@0 3@3 hw 0";
    let dev = builder(&wires).qdisc(text).child(4, "handle 7: pfifo limit 9").build().unwrap();
    let mut sender = dev.sender_on("s", 0);
    let mut cookie = 0;
    let mut send = |priority, hash, rx_queue: Option<u16>| {
        cookie += 1;
        let mut packet = packet(&mut sender, cookie);
        packet.set_priority(priority);
        packet.set_hash(hash);
        rx_queue.into_iter().for_each(|rx_queue| packet.set_rx_queue(rx_queue));
        let _ = sender.xmit(packet);
        (0..6).find(|&txq| wires.at(txq).sent().last() == Some(&cookie)).unwrap()
    };
    assert_eq!([1, u32::MAX].map(|hash| send(0, hash, None)), [0, 1]);
    assert_eq!([1, 1 << 31, u32::MAX].map(|hash| send(8, hash, None)), [3, 4, 5]);
    assert_eq!(send(31, 1, None), 3, "priorities count modulo 16");
    // An rx queue at or above the class's offset is reduced by it, then folded into the class.
    assert_eq!([0, 2, 3, 5, 7].map(|rxq| send(8, 1, Some(rxq))), [3, 5, 3, 5, 4]);
    let map =
        all_to(1, 6).with_mask(5, &masks(&["0"])[0]).unwrap().in_classes(&dev.steering().classes()).unwrap();
    assert_eq!(map.txqs_of(0, 0).collect::<Vec<_>>(), [1]);
    assert_eq!(dev.steering().set_xps(Some(all_to(1, 6))), Err(XpsError::OtherClasses));
    dev.steering().set_xps(Some(map)).unwrap();
    assert_eq!([send(0, 1, None), send(8, 1, None)], [1, 5]);
    let shown = dev.qdiscs(Style::default());
    assert_eq!(shown[0].kind, "mqprio");
    assert_eq!(shown[0].stats.packets, 13, "the sum of the children");
    assert_eq!((shown[2].kind.as_str(), shown[2].parent.to_string()), ("pfifo", "1:5".into()));
    // A change of classes removes the maps.
    dev.steering().set_classes(&TrafficClasses::default()).unwrap();
    dev.steering().with_xps(|map| assert!(map.is_none()));
    assert_eq!(send(0, u32::MAX, None), 5, "no classes: all txqs");
    assert_conserved(&dev);
}

/// X5: with fewer txqs in use no sender uses the others any more, packets queued there leave, maps and classes that named
/// them are removed, and their default qdiscs are not shown.
#[test]
fn fewer_txqs_in_use() {
    let wires = Wires::new(4, Some(4));
    let dev =
        builder(&wires).qdisc("handle 1: mq").child(3, "handle 9: pfifo").xps(all_to(3, 4)).build().unwrap();
    let (mut sender, mut other) = (dev.sender_on("s", 0), dev.sender_on("alloc", 0));
    let mut flow = Flow::new();
    let batch: PacketList = (0..6).map(|cookie| packet(&mut other, cookie)).collect();
    let mut batch = batch;
    let _ = sender.xmit_batch(&mut batch);
    let _ = sender.xmit_on(&mut flow, packet(&mut other, 100));
    assert_eq!((wires.at(3).sent(), dev.stats().queued, flow.txq()), (vec![0, 1, 2, 3], 3, Some(3)));
    for (txqs, message) in [(0, "not 0: use 1 to 4"), (5, "not 5: use 1 to 4")] {
        assert!(dev.steering().set_txqs(txqs).unwrap_err().to_string().ends_with(message));
    }
    dev.steering().set_txqs(2).unwrap();
    assert_eq!(dev.steering().txqs(), 2);
    dev.steering().with_xps(|map| assert!(map.is_none(), "nothing is left of the map"));
    let shown: Vec<_> = dev.qdiscs(Style::default()).iter().map(|q| q.parent.to_string()).collect();
    assert_eq!(shown, ["root", "1:4", "1:2", "1:1"], "a child with a handle stays");
    // The flow moves at once, the sender when it overtakes no packet.
    let _ = sender.xmit_on(&mut flow, packet(&mut other, 101));
    assert!(flow.txq().unwrap() < 2);
    let _ = sender.xmit(packet(&mut other, 6));
    assert!(wires.at(0).sent().len() + wires.at(1).sent().len() == 1, "only the flow's");
    complete_all(&dev, &wires);
    assert_eq!(wires.at(3).sent(), [0, 1, 2, 3, 4, 5, 100, 6]);
    for cookie in 200..300 {
        let _ = sender.xmit(packet(&mut other, cookie));
        complete_all(&dev, &wires);
    }
    let late = wires.at(3).sent().iter().filter(|c| **c >= 264).count();
    assert_eq!(late, 0, "within 64 calls the sender has followed");
    dev.steering().set_txqs(4).unwrap();
    assert_eq!(dev.qdiscs(Style::default()).len(), 5);
    assert_conserved(&dev);
}

/// One qdisc over txqs of which some are no longer in use: packets queued for them leave, in order.
#[test]
fn a_shared_qdisc_and_fewer_txqs() {
    for &discipline in Discipline::ALL {
        let wires = Wires::new(2, Some(2));
        let dev = builder(&wires).qdisc("pfifo").discipline(discipline).build().unwrap();
        let mut sender = dev.sender("s");
        let mut send = |cookie| {
            let mut packet = packet(&mut sender, cookie);
            packet.set_hash(u32::MAX);
            let _ = sender.xmit(packet);
        };
        (0..6).for_each(&mut send);
        dev.steering().set_txqs(1).unwrap();
        assert_eq!(dev.qdiscs(Style::default())[0].refcnt, 3, "it stands for all that were built");
        complete_all(&dev, &wires);
        (6..80).for_each(|cookie| {
            send(cookie);
            complete_all(&dev, &wires);
        });
        let (first, second) = (wires.at(0).sent(), wires.at(1).sent());
        assert_eq!([second.as_slice(), &first].concat(), (0..80).collect::<Vec<_>>());
        assert!(second.len() < 80 && second.len() >= 6);
        assert_conserved(&dev);
    }
}

/// T23, X3: a flow keeps its txq while a packet of it is in the device, though another txq would be right, and changes with
/// the first packet that overtakes none. Other flows of the same sender are not held up.
#[test]
fn a_flow_moves_when_none_of_its_packets_is_on_its_way() {
    let wires = Wires::new(2, Some(256));
    let dev = builder(&wires).xps(all_to(0, 2)).txq_reselection(Duration::ZERO).build().unwrap();
    let (mut sender, mut other) = (dev.sender_on("s", 0), dev.sender_on("alloc", 0));
    let (mut busy, mut calm) = (Flow::new(), Flow::new());
    let _ = sender.xmit_on(&mut busy, packet(&mut other, 0));
    let _ = sender.xmit_on(&mut calm, packet(&mut other, 100));
    dev.steering().set_xps(Some(all_to(1, 2))).unwrap();
    // The sender checks its txq twice.
    for cookie in 1..150 {
        let _ = sender.xmit_on(&mut busy, packet(&mut other, cookie));
        assert_eq!(busy.txq(), Some(0));
    }
    assert_eq!((busy.outstanding(), calm.outstanding()), (150, 1));
    // The first two packets are complete; one of them is the calm flow's only one.
    wires.at(0).complete(2);
    dev.worker(0).poll();
    assert_eq!((busy.outstanding(), calm.outstanding()), (149, 0));
    let _ = sender.xmit_on(&mut calm, packet(&mut other, 101));
    let _ = sender.xmit_on(&mut busy, packet(&mut other, 150));
    assert_eq!((busy.txq(), calm.txq()), (Some(0), Some(1)));
    complete_all(&dev, &wires);
    let _ = sender.xmit_on(&mut busy, packet(&mut other, 151));
    assert_eq!((busy.txq(), busy.outstanding()), (Some(1), 1));
    complete_all(&dev, &wires);
    assert_conserved(&dev);
}

/// T22: a flow and a sender that always have packets in the device move when the reselection interval has passed (1 ms), and
/// not before (an hour) or never (0).
#[test]
fn who_is_never_idle_moves_after_the_interval() {
    for (ms, moves) in [(1, true), (3_600_000, false), (0, false)] {
        let wires = Wires::new(2, Some(1024));
        let dev =
            builder(&wires).xps(all_to(0, 2)).txq_reselection(Duration::from_millis(ms)).build().unwrap();
        let (mut sender, mut other) = (dev.sender_on("s", 0), dev.sender_on("alloc", 0));
        let mut flow = Flow::new();
        let mut sent = 0;
        let mut send = |flow: &mut Flow| {
            let _ = sender.xmit_on(flow, packet(&mut other, sent));
            let _ = sender.xmit(packet(&mut other, 1_000_000 + sent));
            sent += 1;
        };
        send(&mut flow);
        dev.steering().set_xps(Some(all_to(1, 2))).unwrap();
        // The sender notices that it should move..
        (0..64).for_each(|_| send(&mut flow));
        let early = flow.txq();
        std::thread::sleep(Duration::from_millis(5));
        // .. and reads the time again.
        (0..64).for_each(|_| send(&mut flow));
        if !moves {
            assert_eq!(early, Some(0));
        }
        assert_eq!(flow.txq(), Some(u16::from(moves)), "{ms} ms");
        let plain = wires.at(1).sent().iter().filter(|cookie| **cookie >= 1_000_000).count();
        assert_eq!(plain > 0, moves, "{ms} ms");
        complete_all(&dev, &wires);
        assert_conserved(&dev);
    }
}

/// A sender whose choice is as old as the interval makes another one as soon as CPU or map change.
#[test]
fn an_old_choice_ends_at_once() {
    let wires = Wires::new(2, Some(1024));
    let dev = builder(&wires).xps(all_to(0, 2)).txq_reselection(Duration::from_millis(2)).build().unwrap();
    let (mut sender, mut other) = (dev.sender_on("s", 0), dev.sender_on("alloc", 0));
    let mut send = |cookie| sender.xmit(packet(&mut other, cookie));
    (0..64).for_each(|cookie| _ = send(cookie));
    std::thread::sleep(Duration::from_millis(4));
    (64..128).for_each(|cookie| _ = send(cookie));
    assert!(wires.at(1).sent().is_empty(), "the choice is right");
    dev.steering().set_xps(Some(all_to(1, 2))).unwrap();
    _ = send(128);
    assert_eq!(wires.at(1).sent(), [128]);
    complete_all(&dev, &wires);
    assert_conserved(&dev);
}

/// A thread that uses a sender of another thread sends its first packet through the txq of its own CPU.
#[test]
fn the_thread_that_sends_chooses() {
    let cpus = sched_getaffinity(None).unwrap();
    let cpus: Vec<usize> = (0..64).filter(|&cpu| cpus.is_set(cpu)).take(2).collect();
    let &[here, there] = &cpus[..] else { return eprintln!("SKIP: one CPU") };
    let on = |cpu: usize| {
        let mut set = CpuSet::new();
        set.set(cpu);
        sched_setaffinity(None, &set).unwrap();
    };
    let mut lists = ["", "", "", ""].map(str::to_owned);
    (lists[1], lists[2]) = (here.to_string(), there.to_string());
    let map = XpsMap::from_masks(&masks(&lists.each_ref().map(String::as_str)), 4, 64).unwrap();
    let wires = Wires::new(4, None);
    let dev = builder(&wires).xps(map).build().unwrap();
    std::thread::scope(|scope| {
        let made = scope.spawn(|| {
            on(here);
            dev.sender("made here, used there")
        });
        let mut sender = made.join().unwrap();
        scope.spawn(move || {
            on(there);
            let packet = packet(&mut sender, 7);
            let _ = sender.xmit(packet);
        });
    });
    assert_eq!([1, 2].map(|txq| wires.at(txq).sent()), [vec![], vec![7]]);
    assert_conserved(&dev);
}

/// A device that is started has a map, unless its program or its driver does without one.
#[test]
fn a_started_device_has_a_map() {
    // The map of the CPUs that this program may use, which are all on most machines.
    let allowed = sched_getaffinity(None).unwrap();
    let all = |topology: &Topology| topology.online().iter().all(|cpu| allowed.is_set(cpu));
    let Some(topology) = Topology::read("/sys").ok().filter(all) else {
        return eprintln!("SKIP: not all CPUs");
    };
    let auto = Some(XpsMap::auto(&topology, 4).unwrap());
    let map = |builder: Builder| builder.start().unwrap().steering().with_xps(|map| map.cloned());
    let start = || builder(&Wires::new(4, None));
    assert_eq!(map(start()), auto);
    assert_eq!(map(start().xps(all_to(1, 4))), Some(all_to(1, 4)));
    assert_eq!(map(start().xps(None)), None);
    assert_eq!(start().build().unwrap().steering().with_xps(|map| map.cloned()), None, "not started");
    assert_eq!(map(start().txqs(1)), None, "one txq");
    let rxqs = XpsMap::from_rxq_masks(&masks(&["", "", "", "1"]), 4, 2).unwrap();
    assert_eq!(map(start().xps_rxqs(rxqs)), None, "the rx queue chooses");
    // The map would use txq 0, which belongs to no class.
    let classes = "mqprio num_tc 1 map 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 queues 2@2 hw 0";
    assert_eq!(map(start().qdisc(classes)), None);
    assert_eq!(map(NetDev::builder(ByFlow(Wires::new(4, None))).pool_config(pool())), None);
}

/// A driver whose flows must keep their txqs.
struct ByFlow(Wires);

impl Driver for ByFlow {
    fn info(&self) -> DeviceInfo {
        self.0.info().by_flow(true)
    }

    fn open(&mut self, txq: u16) -> io::Result<DriverQueue> {
        self.0.open(txq)
    }
}

/// X4: with reselection on, a flow that is never idle changes its txq at most once per interval, however often another one
/// would be right.
#[test]
fn reselection_is_bounded() {
    let wires = Wires::new(2, Some(4096));
    let dev = builder(&wires).xps(all_to(0, 2)).txq_reselection(Duration::from_millis(2)).build().unwrap();
    let (mut sender, mut other) = (dev.sender_on("s", 0), dev.sender_on("alloc", 0));
    let mut flow = Flow::new();
    let begin = std::time::Instant::now();
    let (mut changes, mut before) = (0, None);
    for cookie in 0..2000 {
        let right = 1 - usize::from(flow.txq().unwrap_or(1));
        dev.steering().set_xps(Some(all_to(right, 2))).unwrap();
        let _ = sender.xmit_on(&mut flow, packet(&mut other, cookie));
        changes += u128::from(before.is_some_and(|txq| Some(txq) != flow.txq()));
        before = flow.txq();
    }
    let most = begin.elapsed().as_millis() / 2 + 1;
    assert!(changes <= most, "{changes} changes, {most} would do");
    complete_all(&dev, &wires);
    assert_conserved(&dev);
}

/// A flow may be dropped while its packets are in flight, and a flow that moves to another device starts afresh there.
#[test]
fn a_flow_may_end_before_its_packets() {
    let wires = [Wires::new(2, Some(8)), Wires::new(2, Some(8))];
    let devs = wires.each_ref().map(|w| builder(w).xps(all_to(1, 2)).build().unwrap());
    let mut senders = devs.each_ref().map(|dev| dev.sender_on("s", 0));
    let mut flow = Flow::default();
    for sender in &mut senders {
        let one = packet(sender, 1);
        let _ = sender.xmit_on(&mut flow, one);
    }
    assert_eq!((flow.outstanding(), flow.txq()), (2, Some(1)));
    assert_eq!(format!("{flow:?}"), "Flow { txq: Some(1), outstanding: 2, .. }");
    drop(flow);
    for (dev, wires) in devs.iter().zip(&wires) {
        complete_all(dev, wires);
        assert_conserved(dev);
    }
}

/// A packet that is dropped, or never sent, is not outstanding.
#[test]
fn a_dropped_packet_is_not_outstanding() {
    let wires = Wires::new(1, Some(1));
    let mut dev = builder(&wires).qdisc("pfifo limit 1").build().unwrap();
    let mut sender = dev.sender("s");
    let mut flow = Flow::new();
    for cookie in 0..3 {
        let one = packet(&mut sender, cookie);
        let _ = sender.xmit_on(&mut flow, one);
    }
    assert_eq!(flow.outstanding(), 2, "one in the device, one queued, one dropped");
    dev.shutdown().unwrap();
    assert_eq!(flow.outstanding(), 1, "the queue is purged");
    wires.at(0).complete(1);
    dev.worker(0).poll();
    assert_eq!(flow.outstanding(), 0);
    assert_conserved(&dev);
}

/// Below multiq a txq without room holds up its own packets alone. Below prio it holds up all packets behind the first for it.
#[test]
fn packets_pass_a_stopped_txq_below_multiq() {
    for (qdisc, passes) in [("handle 1: multiq", true), ("handle 1: prio", false)] {
        for &discipline in Discipline::ALL {
            let wires = Wires::new(2, Some(2));
            let rxqs = XpsMap::from_rxq_masks(&masks(&["0", "1"]), 2, 2).unwrap();
            let dev = builder(&wires).xps_rxqs(rxqs).qdisc(qdisc).discipline(discipline).build().unwrap();
            let (mut sender, mut worker) = (dev.sender("s"), dev.worker(0));
            for cookie in 0..12 {
                let mut packet = packet(&mut sender, cookie);
                packet.set_rx_queue(u16::from(cookie >= 6));
                let _ = sender.xmit(packet);
            }
            for _ in 0..4 {
                wires.at(1).complete(usize::MAX);
                worker.poll();
            }
            assert_eq!(wires.at(0).sent(), [0, 1], "{qdisc} {discipline}");
            let passed = if passes { (6..12).collect() } else { vec![] };
            assert_eq!(wires.at(1).sent(), passed, "{qdisc} {discipline}");
            drop((sender, worker));
            complete_all(&dev, &wires);
            assert_eq!(wires.at(0).sent(), [0, 1, 2, 3, 4, 5], "{qdisc} {discipline}");
            assert_eq!(wires.at(1).sent(), [6, 7, 8, 9, 10, 11], "{qdisc} {discipline}");
            assert_conserved(&dev);
        }
    }
}
