//! `send().await`: a device's only sender loses no packet for want of room, whatever the limits of the qdisc count.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::task::{Context, Wake, Waker};
use std::thread;
use std::time::Duration;

use crate::device::{Wires, assert_conserved, pool};
use crate::waiting::block_on;
use txq::drop::DropReason;
use txq::packet::{Packet, PacketList};
use txq::qdisc::{Budget, Cx, Fifo, Qdisc, Shortcuts, Verdict};
use txq::stats::QdiscStats;
use txq::{Discipline, Flow, NetDev, Sender, WaitError};

/// The trees: a root, and commands. Limits hold a few packets of 60 to 240 bytes, and each packet belongs to one of four
/// classes by its priority, or of ten flows.
const TREES: &[(&str, &[&str])] = &[
    ("pfifo limit 1", &[]),
    ("pfifo limit 3", &[]),
    ("pfifo limit 64", &[]),
    ("bfifo limit 500", &[]),
    ("bfifo limit 2000", &[]),
    ("pfifo_fast", &[]),
    ("tbf rate 200mbit burst 2000 limit 600", &[]),
    ("tbf rate 200mbit burst 2000 limit 6000", &[]),
    ("stab linklayer atm overhead 4 mtu 256 tbf rate 200mbit burst 2000 limit 900", &[]),
    ("estimator 250ms 1s bfifo limit 700", &[]),
    ("sfq limit 8", &[]),
    ("sfq limit 100 depth 3", &[]),
    ("sfq limit 100 flows 4", &[]),
    ("fq limit 5", &[]),
    ("fq flow_limit 2 maxrate 1gbit", &[]),
    ("fq_codel limit 4 target 1s", &[]),
    ("fq_codel memory_limit 900 target 1s", &[]),
    ("fq_pie memory_limit 900 target 1s", &[]),
    ("codel limit 3 target 1s", &[]),
    ("pie limit 3 target 1s", &[]),
    ("skbprio limit 3", &[]),
    ("netem limit 5 delay 100us", &[]),
    ("cake memlimit 900 rtt 10s", &[]),
    ("dualpi2 limit 4 target 1s", &[]),
    (
        "handle 1: prio bands 4",
        &[
            "qdisc add parent 1:1 bfifo limit 400",
            "qdisc add parent 1:2 handle 20: tbf rate 100mbit burst 2000 limit 500",
            "qdisc add parent 1:3 pfifo limit 2",
            "qdisc add parent 1:4 sfq limit 3",
        ],
    ),
    (
        "handle 1: prio bands 4",
        &[
            "qdisc add parent 1:1 bfifo limit 400",
            "qdisc add parent 1:2 bfifo limit 400",
            "filter add parent 1: matchall classid 1:2",
        ],
    ),
    (
        "handle 1: ets bands 4 strict 1 quanta 500 500 500",
        &[
            "qdisc add parent 1:1 bfifo limit 400",
            "qdisc add parent 1:2 bfifo limit 300",
            "qdisc add parent 1:3 bfifo limit 1000",
            "qdisc add parent 1:4 bfifo limit 400",
        ],
    ),
    (
        "handle 1: drr",
        &[
            "class add parent 1: classid 1:1 drr quantum 200",
            "class add parent 1: classid 1:2 drr quantum 200",
            "class add parent 1: classid 1:3 drr quantum 200",
            "class add parent 1: classid 1:4 drr quantum 200",
            "qdisc add parent 1:1 bfifo limit 400",
            "qdisc add parent 1:2 bfifo limit 500",
            "qdisc add parent 1:3 bfifo limit 600",
            "qdisc add parent 1:4 bfifo limit 700",
            "filter add parent 1: protocol all matchall classid 1:3",
        ],
    ),
    (
        "handle 1: htb default 4 direct_qlen 2",
        &[
            "class add parent 1: classid 1:9 htb rate 400mbit burst 2000 cburst 2000",
            "class add parent 1:9 classid 1:1 htb rate 100mbit ceil 400mbit burst 2000 cburst 2000",
            "class add parent 1:9 classid 1:2 htb rate 100mbit ceil 400mbit burst 2000 cburst 2000",
            "class add parent 1:9 classid 1:4 htb rate 100mbit ceil 400mbit burst 2000 cburst 2000",
            "qdisc add parent 1:1 bfifo limit 400",
            "qdisc add parent 1:2 handle 20: tbf rate 100mbit burst 2000 limit 500",
            "qdisc add parent 1:4 handle 40: prio",
            "qdisc add parent 40:1 bfifo limit 300",
            "qdisc add parent 40:2 bfifo limit 300",
            "qdisc add parent 40:3 bfifo limit 300",
        ],
    ),
    ("handle 1: htb direct_qlen 2", &[]),
    (
        "handle 1: hfsc default 4",
        &[
            "class add parent 1: classid 1:1 hfsc ls rate 100mbit",
            "class add parent 1: classid 1:2 hfsc ls rate 100mbit",
            "class add parent 1: classid 1:3 hfsc ls rate 100mbit",
            "class add parent 1: classid 1:4 hfsc ls rate 100mbit",
            "qdisc add parent 1:1 bfifo limit 400",
            "qdisc add parent 1:2 bfifo limit 500",
            "qdisc add parent 1:3 pfifo limit 2",
            "qdisc add parent 1:4 bfifo limit 700",
        ],
    ),
    ("noqueue", &[]),
];

/// Opens a device on `wires` with a tree.
fn device(wires: &Wires, discipline: Discipline, (root, commands): (&str, &[&str])) -> NetDev {
    let dev = NetDev::builder(wires.clone())
        .pool_config(pool())
        .tx_queue_len(3)
        .discipline(discipline)
        .bql(None)
        .start()
        .unwrap();
    dev.tc(&format!("qdisc replace root {root}")).unwrap();
    commands.iter().for_each(|command| drop(dev.tc(command).unwrap_or_else(|e| panic!("{command}: {e}"))));
    dev
}

/// Completes packets, and makes the driver refuse some, until `over`.
fn drive(wires: &Wires, over: &Arc<AtomicBool>, refuses: bool) -> thread::JoinHandle<()> {
    let (wires, over) = (wires.clone(), over.clone());
    thread::spawn(move || {
        let mut turn = 0;
        while !over.load(Relaxed) {
            for txq in 0..wires.0.len() {
                let mut wire = wires.at(txq);
                wire.complete(2);
                turn += 1;
                if refuses && turn % 5 == 0 {
                    wire.refuses = turn % 3;
                }
            }
            thread::yield_now();
        }
    })
}

/// Returns packet `number`: its length, class and flow follow from the number.
fn fill(packet: &mut Packet, number: usize) {
    let class = number % 7 % 4 + 1;
    packet.set_priority(if number.is_multiple_of(11) { 0 } else { 0x1_0000 | class as u32 });
    packet.set_hash(1 + number as u32 % 10);
    packet.data_mut().fill(0);
}

fn len(number: usize) -> usize {
    60 + number * 37 % 180
}

async fn send_all(sender: &mut Sender, packets: usize) {
    for number in 0..packets {
        let mut packet = sender.buffer(len(number)).await.unwrap();
        fill(&mut packet, number);
        // The counters say what is lost.
        let _ = sender.send(packet).await.unwrap();
    }
}

/// Sends packets in lists, which are longer than some queues.
async fn send_lists(sender: &mut Sender, packets: usize) {
    let mut number = 0;
    while number < packets {
        let mut list = PacketList::new();
        for _ in 0..packets.min(number % 23 + 1) {
            let Ok(mut packet) = sender.alloc(len(number)) else { break };
            fill(&mut packet, number);
            list.push_back(packet);
            number += 1;
        }
        if list.is_empty() {
            sender.credit().await.unwrap();
            drop(sender.buffer(60).await.unwrap());
        }
        let _ = sender.send_batch(&mut list).await.unwrap();
        assert!(list.is_empty());
    }
}

/// Drops for want of room. htb's direct queue and fq_codel call theirs otherwise, and no tree here drops by a law.
fn assert_lossless(dev: &NetDev, sender: &Sender, what: &str) {
    assert!(dev.drain(Duration::from_secs(60)), "{what}: packets do not leave");
    let dropped = dev.stats().dropped;
    assert_eq!((dropped.total(), sender.dropped()), (0, 0), "{what}: {dropped:?}");
}

#[test]
fn the_only_sender_of_a_device_loses_nothing_below_any_limit() {
    for (at, &tree) in TREES.iter().enumerate() {
        // Each tree below combine, and below one of the others.
        for discipline in [Discipline::Combine, [Discipline::Lockless, Discipline::Spinlock][at % 2]] {
            // noqueue drops what the driver refuses: there is no queue to put it back.
            let wires = Wires::new(1, Some(4));
            let dev = device(&wires, discipline, tree);
            let over = Arc::new(AtomicBool::new(false));
            let wire = drive(&wires, &over, tree.0 != "noqueue");
            let mut sender = dev.sender("only");
            block_on(send_all(&mut sender, 50));
            let what = format!("{discipline}, {}", tree.0);
            assert_lossless(&dev, &sender, &what);
            block_on(send_lists(&mut sender, 60));
            assert_lossless(&dev, &sender, &format!("lists, {what}"));
            over.store(true, Relaxed);
            wire.join().unwrap();
            drop(sender);
            assert_conserved(&dev);
        }
    }
}

/// Each txq has a queue of its own, and the flow decides.
#[test]
fn each_packet_waits_for_the_queue_of_its_own_txq() {
    let wires = Wires::new(3, Some(2));
    let dev = NetDev::builder(wires.clone())
        .pool_config(pool())
        .qdisc("mq")
        .default_qdisc("bfifo limit 400")
        .xps(None)
        .bql(None)
        .start()
        .unwrap();
    let over = Arc::new(AtomicBool::new(false));
    let wire = drive(&wires, &over, true);
    let mut sender = dev.sender("only");
    block_on(async {
        send_all(&mut sender, 200).await;
        send_lists(&mut sender, 200).await;
        let mut flows: Vec<_> = (0..5).map(|_| Flow::new()).collect();
        for number in 0..200 {
            let mut packet = sender.buffer(len(number)).await.unwrap();
            fill(&mut packet, number);
            let verdict = sender.send_on(&mut flows[number % 5], packet).await.unwrap();
            assert_eq!(verdict, Verdict::Success, "packet {number}");
        }
    });
    assert_lossless(&dev, &sender, "mq");
    over.store(true, Relaxed);
    wire.join().unwrap();
}

#[test]
fn tasks_on_tokio_each_lose_nothing_on_a_device_of_their_own() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
    let over = Arc::new(AtomicBool::new(false));
    let devices: Vec<_> = (0..4)
        .map(|_| {
            let wires = Wires::new(1, Some(4));
            let dev = device(&wires, Discipline::Combine, ("tbf rate 200mbit burst 2000 limit 600", &[]));
            (dev, drive(&wires, &over, true))
        })
        .collect();
    runtime.block_on(async {
        let tasks: Vec<_> = devices
            .iter()
            .map(|(dev, _)| {
                let mut sender = dev.sender("task");
                tokio::spawn(async move {
                    send_all(&mut sender, 200).await;
                    sender
                })
            })
            .collect();
        for (task, (dev, _)) in tasks.into_iter().zip(&devices) {
            assert_lossless(dev, &task.await.unwrap(), "tokio");
        }
    });
    over.store(true, Relaxed);
    devices.into_iter().for_each(|(_, wire)| wire.join().unwrap());
}

/// A packet that is longer than the limit finds no room in the empty queue either: it is lost, and nobody waits for ever.
#[test]
fn a_packet_that_no_wait_helps_is_dropped_at_once() {
    let wires = Wires::new(1, Some(1));
    let dev = device(&wires, Discipline::Combine, ("bfifo limit 100", &[]));
    let mut sender = dev.sender("only");
    let mut send = |len| {
        let packet = sender.alloc(len).unwrap();
        block_on(sender.send(packet)).unwrap()
    };
    assert_eq!(send(60), Verdict::Success, "bypasses the queue");
    assert_eq!(send(60), Verdict::Success, "waits for the ring");
    wires.at(0).complete(1);
    assert!(dev.txqs_drained(&wires));
    assert_eq!(send(200), Verdict::Drop);
}

trait Drained {
    fn txqs_drained(&self, wires: &Wires) -> bool;
}

impl Drained for NetDev {
    /// Completes packets until the device is idle.
    fn txqs_drained(&self, wires: &Wires) -> bool {
        while !self.is_idle() {
            wires.at(0).complete(1);
            thread::yield_now();
        }
        true
    }
}

/// Counts wakes.
#[derive(Default)]
struct Told(AtomicUsize);

impl Wake for Told {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Relaxed);
    }
}

/// A full class holds only the senders of its own packets.
#[test]
fn a_packet_does_not_wait_for_the_room_of_another_class() {
    let wires = Wires::new(1, Some(1));
    let dev = NetDev::builder(wires.clone()).pool_config(pool()).bql(None).build().unwrap();
    dev.tc("qdisc replace root handle 1: prio").unwrap();
    dev.tc("qdisc add parent 1:1 bfifo limit 200").unwrap();
    dev.tc("qdisc add parent 1:2 bfifo limit 200").unwrap();
    let (mut sender, mut other, mut worker) = (dev.sender("s"), dev.sender("other"), dev.worker(0));
    let packet = |sender: &mut Sender, class: u32| {
        let mut packet = sender.alloc(100).unwrap();
        packet.set_priority(0x1_0000 | class);
        packet
    };
    // One is in the ring, two are in the class.
    for _ in 0..3 {
        let packet = packet(&mut sender, 1);
        assert_eq!(block_on(sender.send(packet)).unwrap(), Verdict::Success);
    }
    let told = Arc::new(Told::default());
    let waker = Waker::from(told.clone());
    let mut cx = Context::from_waker(&waker);
    let third = packet(&mut sender, 1);
    let mut waits = Box::pin(sender.send(third));
    assert!(waits.as_mut().poll(&mut cx).is_pending());
    for _ in 0..2 {
        let packet = packet(&mut other, 2);
        assert_eq!(block_on(other.send(packet)).unwrap(), Verdict::Success, "its class is empty");
    }
    assert!(waits.as_mut().poll(&mut cx).is_pending());
    let before = told.0.load(Relaxed);
    wires.at(0).complete(1);
    worker.poll();
    assert!(told.0.load(Relaxed) > before, "a packet of class 1 has left");
    assert!(waits.as_mut().poll(&mut cx).is_ready());
    drop(waits);
    assert_eq!(dev.stats().dropped.total(), 0);
    drain(&dev, &wires);
}

fn drain(dev: &NetDev, wires: &Wires) {
    let mut worker = dev.worker(0);
    while !dev.is_idle() {
        wires.at(0).complete(1);
        worker.poll();
    }
}

/// The question counts no hit of a filter, runs no policer, and counts no packet without a class.
#[test]
fn a_question_changes_nothing() {
    let wires = Wires::new(1, Some(1));
    let dev = NetDev::builder(wires.clone()).pool_config(pool()).bql(None).build().unwrap();
    dev.tc("qdisc replace root handle 1: prio").unwrap();
    for band in 1..4 {
        dev.tc(&format!("qdisc add parent 1:{band} bfifo limit 100")).unwrap();
    }
    // Burst enough for three packets, and nearly no rate.
    dev.tc("filter add parent 1: matchall action police rate 8bit burst 310 drop classid 1:1").unwrap();
    let mut sender = dev.sender("s");
    for _ in 0..2 {
        let packet = sender.alloc(100).unwrap();
        assert_eq!(block_on(sender.send(packet)).unwrap(), Verdict::Success);
    }
    let (mut cx, packet) = (Context::from_waker(Waker::noop()), sender.alloc(100).unwrap());
    let mut waits = Box::pin(sender.send(packet));
    for _ in 0..10 {
        assert!(waits.as_mut().poll(&mut cx).is_pending());
    }
    wires.at(0).complete(1);
    dev.worker(0).poll();
    assert!(waits.as_mut().poll(&mut cx).is_ready());
    drop(waits);
    assert_eq!(dev.stats().dropped.total(), 0, "the policer has let three pass");
    let shown = txq::filter::filters_text(&dev.filters(None, Default::default()), true);
    assert!(shown.contains("rule hit 3"), "{shown}");
    drain(&dev, &wires);
}

/// A qdisc of the program's own that counts bytes.
#[derive(Default)]
struct Bytes(Fifo);

impl Qdisc for Bytes {
    fn kind(&self) -> &'static str {
        "bytes"
    }

    fn enqueue(&mut self, packet: Packet, cx: &mut Cx<'_>) -> Verdict {
        match self.has_room(&packet, 1, packet.len() as u64) {
            true => self.0.push(packet),
            false => self.0.refuse(packet, cx),
        }
    }

    fn dequeue_batch(&mut self, mut budget: Budget, out: &mut PacketList, _: &mut Cx<'_>) {
        self.0.pop(&mut budget, out);
    }

    fn reset(&mut self, cx: &mut Cx<'_>) {
        self.0.purge(cx);
    }

    fn qlen(&self) -> usize {
        self.0.len()
    }

    fn stats(&self) -> QdiscStats {
        self.0.stats()
    }
}

impl Shortcuts for Bytes {
    fn has_room(&self, _: &Packet, _: usize, bytes: u64) -> bool {
        self.0.bytes() + bytes <= 500
    }
}

#[test]
fn a_qdisc_of_the_programs_own_says_whether_it_has_room() {
    let wires = Wires::new(1, Some(2));
    let dev = NetDev::builder(wires.clone())
        .pool_config(pool())
        .custom_qdisc(Bytes::default())
        .bql(None)
        .start()
        .unwrap();
    let over = Arc::new(AtomicBool::new(false));
    let wire = drive(&wires, &over, true);
    let mut sender = dev.sender("only");
    block_on(send_all(&mut sender, 200));
    block_on(send_lists(&mut sender, 200));
    assert_lossless(&dev, &sender, "bytes");
    over.store(true, Relaxed);
    wire.join().unwrap();
}

/// A device that goes down gives the packet back, and keeps what is left of a list.
#[test]
fn a_device_that_goes_down_gives_packets_back() {
    let wires = Wires::new(1, Some(1));
    let dev = device(&wires, Discipline::Combine, ("bfifo limit 100", &[]));
    let mut sender = dev.sender("s");
    let mut list = PacketList::new();
    list.extend((0..4).map(|_| sender.alloc(60).unwrap()));
    let mut cx = Context::from_waker(Waker::noop());
    let mut waits = Box::pin(sender.send_batch(&mut list));
    assert!(waits.as_mut().poll(&mut cx).is_pending());
    dev.deactivate();
    let ended = block_on(waits);
    assert!(matches!(ended, Err(WaitError::Down { .. })), "{ended:?}");
    assert_eq!(list.len(), 2, "one was in the ring and one in the queue");
    let packet = list.pop_front().unwrap();
    let refused = block_on(sender.send(packet)).unwrap_err();
    assert_eq!(refused.packet.len(), 60);
    assert_eq!(dev.stats().dropped.get(DropReason::QdiscOverlimit), 0);
    wires.at(0).complete(usize::MAX);
}
