//! Senders that wait for room: their return values, when they continue, and that nothing keeps them asleep.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::task::{Poll, Wake, Waker};
use std::thread;
use std::time::Duration;

use crate::device::{Wires, assert_conserved, pool};
use txq::drop::DropReason;
use txq::netdev::Builder;
use txq::packet::{Packet, PacketList};
use txq::qdisc::{Budget, Cx, Qdisc, Shortcuts, Verdict};
use txq::stats::QdiscStats;
use txq::{Discipline, Instant, NetDev, Room, Sender};

/// Number of packets that the device keeps.
const RING: u32 = 4;

fn builder(wires: &Wires, qdisc: &str) -> Builder {
    NetDev::builder(wires.clone()).pool_config(pool()).qdisc(qdisc).bql(None)
}

fn send(sender: &mut Sender, n: usize) -> Verdict {
    let mut batch = PacketList::new();
    (0..n).for_each(|_| batch.push_back(sender.alloc(60).unwrap()));
    sender.xmit_batch(&mut batch)
}

/// Sends single packets while there is room; returns how many.
fn fill(sender: &mut Sender) -> usize {
    let mut sent = 0;
    while sender.wait_room(Some(Instant::ZERO)) == Room::Free {
        let _ = send(sender, 1);
        sent += 1;
    }
    sent
}

/// Fills the ring of a device with threads, then its queue: a worker whose ring has room would empty a queue that was full.
fn fill_for_good(dev: &NetDev, wires: &Wires) {
    let mut sender = dev.sender("first");
    let _ = send(&mut sender, RING as usize);
    while wires.at(0).kept().len() < RING as usize {
        thread::yield_now();
    }
    while dev.qdiscs(Default::default())[0].stats.qlen < 6 {
        fill(&mut sender);
        thread::yield_now();
    }
}

/// Waits for at most a millisecond.
fn wait_a_bit(sender: &mut Sender) -> Room {
    sender.wait_room(Some(sender.now() + Duration::from_millis(1)))
}

#[test]
fn a_sender_learns_how_many_packets_a_call_has_dropped() {
    for &discipline in Discipline::ALL {
        let wires = Wires::new(1, Some(RING));
        let dev = builder(&wires, "pfifo limit 8").discipline(discipline).build().unwrap();
        let mut sender = dev.sender("s");
        let mut dropped = 0;
        let mut lost = |sender: &mut Sender, n| {
            let verdict = send(sender, n);
            let before = std::mem::replace(&mut dropped, sender.dropped());
            (verdict, dropped - before)
        };
        assert_eq!(lost(&mut sender, 20), (Verdict::Congested, 12), "{discipline}");
        assert_eq!(lost(&mut sender, 4), (Verdict::Success, 0), "{discipline}");
        assert_eq!(lost(&mut sender, 3), (Verdict::Drop, 3), "{discipline}");
    }
}

#[test]
fn a_sender_is_held_from_three_quarters_to_half_of_the_limit() {
    for &discipline in Discipline::ALL {
        let wires = Wires::new(1, Some(RING));
        let dev = builder(&wires, "pfifo limit 8").discipline(discipline).build().unwrap();
        let (mut sender, mut other) = (dev.sender("s"), dev.sender("other"));
        assert_eq!(fill(&mut sender), 4 + 6, "{discipline}: the ring, and three quarters of the limit");
        assert_eq!(
            other.wait_room(Some(Instant::ZERO)),
            Room::Full,
            "{discipline}: the queue is full for all"
        );
        wires.at(0).complete(1);
        assert_eq!(wait_a_bit(&mut sender), Room::Full, "{discipline}: five are left");
        wires.at(0).complete(1);
        assert_eq!(sender.wait_room(None), Room::Free, "{discipline}: four are left");
        assert_eq!(other.wait_room(Some(Instant::ZERO)), Room::Free, "{discipline}");
        assert_eq!((sender.dropped(), other.dropped()), (0, 0), "{discipline}");
    }
}

#[test]
fn a_queue_without_a_limit_in_packets_holds_those_whose_packets_it_has_dropped() {
    let wires = Wires::new(1, Some(RING));
    let dev = builder(&wires, "bfifo limit 600").build().unwrap();
    let (mut sender, mut other) = (dev.sender("s"), dev.sender("other"));
    assert_eq!((fill(&mut sender), sender.dropped()), (4 + 10 + 1, 1));
    assert_eq!(other.wait_room(Some(Instant::ZERO)), Room::Free, "it has lost nothing");
    wires.at(0).complete(4);
    assert_eq!(wait_a_bit(&mut sender), Room::Full, "six of ten are left");
    wires.at(0).complete(1);
    assert_eq!(sender.wait_room(None), Room::Free);
}

/// A sender of many connections goes on when the packet of one of them was dropped, but not when the queue is full.
#[test]
fn a_sender_that_disregards_its_drops_waits_for_limits_in_packets_alone() {
    for (qdisc, after) in [("bfifo limit 600", Room::Free), ("pfifo limit 8", Room::Full)] {
        let wires = Wires::new(1, Some(RING));
        let dev = builder(&wires, qdisc).build().unwrap();
        let mut sender = dev.sender("s");
        while sender.dropped() == 0 {
            let _ = send(&mut sender, 1);
        }
        assert_eq!(sender.wait_room(Some(Instant::ZERO)), Room::Full);
        sender.disregard_drops();
        assert_eq!(sender.wait_room(Some(Instant::ZERO)), after, "{qdisc}");
    }
}

#[test]
fn without_a_qdisc_the_ring_is_the_queue() {
    let wires = Wires::new(1, Some(RING));
    let dev = builder(&wires, "noqueue").build().unwrap();
    let mut sender = dev.sender("s");
    assert_eq!((fill(&mut sender), sender.dropped()), (4 + 1, 1));
    wires.at(0).complete(4);
    dev.worker(0).poll();
    assert_eq!(sender.wait_room(Some(Instant::ZERO)), Room::Free);
}

#[derive(Default)]
struct Told(AtomicUsize);

impl Wake for Told {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Relaxed);
    }
}

#[test]
fn an_event_loop_is_told_once() {
    let wires = Wires::new(1, Some(RING));
    let dev = builder(&wires, "pfifo limit 8").build().unwrap();
    let (mut sender, mut worker) = (dev.sender("s"), dev.worker(0));
    let told = Arc::new(Told::default());
    let waker = Waker::from(told.clone());
    assert_eq!(sender.poll_room(&waker), Poll::Ready(Room::Free));
    fill(&mut sender);
    assert_eq!(sender.poll_room(&waker), Poll::Pending);
    assert_eq!(sender.poll_room(&waker), Poll::Pending, "the second replaces the first");
    wires.at(0).complete(1);
    worker.poll();
    assert_eq!(told.0.load(Relaxed), 0, "five are left");
    wires.at(0).complete(3);
    worker.poll();
    assert_eq!(told.0.load(Relaxed), 1);
    assert_eq!(sender.poll_room(&waker), Poll::Ready(Room::Free));
    // A sender that is gone is not woken.
    fill(&mut sender);
    assert_eq!(sender.poll_room(&waker), Poll::Pending);
    drop(sender);
    wires.at(0).complete(4);
    worker.poll();
    assert_eq!((told.0.load(Relaxed), Arc::strong_count(&told)), (1, 2), "a waker is left");
}

/// A change that ends a wait although nothing was sent, and the wait's result.
type Change = (&'static str, fn(&mut NetDev), Room);

#[test]
fn whatever_becomes_of_the_queue_wakes_its_senders() {
    let changes: [Change; 6] = [
        ("change", |dev| drop(dev.tc("qdisc change pfifo limit 100").unwrap()), Room::Free),
        ("replace", |dev| drop(dev.tc("qdisc replace root bfifo").unwrap()), Room::Free),
        ("delete", |dev| drop(dev.tc("qdisc del root").unwrap()), Room::Free),
        ("reset", |dev| dev.reset_qdisc("root").unwrap(), Room::Free),
        ("deactivate", |dev| dev.deactivate(), Room::Down),
        ("shutdown", |dev| dev.shutdown().unwrap(), Room::Gone),
    ];
    for (name, change, room) in changes {
        let wires = Wires::new(1, Some(RING));
        let mut dev = builder(&wires, "pfifo limit 8").start().unwrap();
        dev.tc("qdisc replace root handle 1: pfifo limit 8").unwrap();
        fill_for_good(&dev, &wires);
        let waiters: Vec<_> = (0..4)
            .map(|_| {
                let mut sender = dev.sender("waiter");
                thread::spawn(move || {
                    // Bounded waits end without a wake on a machine that is slow enough.
                    loop {
                        match sender.wait_room(None) {
                            Room::Full => {}
                            room => return room,
                        }
                    }
                })
            })
            .collect();
        change(&mut dev);
        for waiter in waiters {
            assert_eq!(waiter.join().unwrap(), room, "{name}");
        }
        if room == Room::Down {
            dev.activate();
            assert_eq!(dev.sender("later").wait_room(Some(Instant::ZERO)), Room::Free);
        }
        wires.at(0).complete(usize::MAX);
    }
}

/// Sends `packets` from each of `senders` threads, each of which waits for room before each packet, while the device
/// completes its packets. Returns how many were dropped.
fn crowd(discipline: Discipline, senders: usize, packets: usize) -> u64 {
    let wires = Wires::new(1, Some(64));
    let dev = builder(&wires, "pfifo limit 1000").discipline(discipline).start().unwrap();
    let over = AtomicBool::new(false);
    let dropped = thread::scope(|threads| {
        let wire = wires.0[0].clone();
        let over = &over;
        threads.spawn(move || {
            while !over.load(Relaxed) {
                wire.lock().unwrap().complete(64);
                thread::yield_now();
            }
        });
        let senders: Vec<_> = (0..senders)
            .map(|_| {
                let mut sender = dev.sender("s");
                threads.spawn(move || {
                    let mut left = packets;
                    while left > 0 {
                        if sender.wait_room(None) == Room::Free
                            && let Ok(packet) = sender.alloc(60)
                        {
                            let _ = sender.xmit(packet);
                            left -= 1;
                        }
                    }
                    sender
                })
            })
            .collect();
        let senders: Vec<_> = senders.into_iter().map(|sender| sender.join().unwrap()).collect();
        assert!(dev.drain(Duration::from_secs(60)), "{discipline}: packets do not leave");
        over.store(true, Relaxed);
        senders.iter().map(Sender::dropped).sum()
    });
    let stats = assert_conserved(&dev);
    assert_eq!(stats.sent + dropped, (senders * packets) as u64, "{discipline}");
    assert_eq!(stats.dropped.total(), dropped, "{discipline}: senders know of all drops");
    dropped
}

/// Whichever thread owns the queue, the list in front of it and the last quarter of the limit hold the packets of one
/// sender.
#[test]
fn one_sender_that_waits_loses_nothing() {
    for discipline in [Discipline::Combine, Discipline::Llist, Discipline::Busylock, Discipline::Spinlock] {
        assert_eq!(crowd(discipline, 1, 3000), 0, "{discipline}");
    }
}

#[test]
fn senders_that_wait_all_come_to_their_end() {
    for &discipline in Discipline::ALL {
        crowd(discipline, 8, 400);
    }
}

#[test]
fn a_driver_that_panics_keeps_nobody_asleep() {
    let wires = Wires::new(1, Some(RING));
    let dev = builder(&wires, "pfifo limit 8").start().unwrap();
    fill_for_good(&dev, &wires);
    let waiters: Vec<_> = (0..3)
        .map(|_| {
            let mut sender = dev.sender("waiter");
            thread::spawn(move || {
                // A sender that runs the queue may meet the panic, as in xmit.
                while catch_unwind(AssertUnwindSafe(|| sender.wait_room(None))).ok() != Some(Room::Free) {}
            })
        })
        .collect();
    wires.at(0).panic = true;
    wires.at(0).complete(2);
    let panicked = || dev.worker_restarts() > 0 || dev.stats().dropped.get(DropReason::NotSpecified) > 0;
    while !panicked() {
        thread::yield_now();
    }
    wires.at(0).panic = false;
    while waiters.iter().any(|waiter| !waiter.is_finished()) {
        wires.at(0).complete(1);
        thread::yield_now();
    }
    waiters.into_iter().for_each(|waiter| waiter.join().unwrap());
    while !dev.is_idle() {
        wires.at(0).complete(1);
        thread::yield_now();
    }
    assert_conserved(&dev);
}

/// A qdisc that reports to be full, whatever it holds, and returns nothing.
struct Liar;

impl Qdisc for Liar {
    fn kind(&self) -> &'static str {
        "liar"
    }

    fn enqueue(&mut self, packet: Packet, cx: &mut Cx<'_>) -> Verdict {
        cx.drop(packet, DropReason::QdiscOverlimit);
        Verdict::Drop
    }

    fn dequeue_batch(&mut self, _: Budget, _: &mut PacketList, _: &mut Cx<'_>) {}

    fn reset(&mut self, _: &mut Cx<'_>) {}

    fn qlen(&self) -> usize {
        usize::MAX
    }

    fn stats(&self) -> QdiscStats {
        QdiscStats::default()
    }
}

impl Shortcuts for Liar {
    fn limit(&self) -> Option<usize> {
        Some(1)
    }
}

#[test]
fn a_qdisc_that_lies_about_its_backlog_holds_a_sender_for_a_bounded_time() {
    let wires = Wires::new(1, None);
    let dev = NetDev::builder(wires).pool_config(pool()).custom_qdisc(Liar).start().unwrap();
    let mut sender = dev.sender("s");
    assert_eq!(send(&mut sender, 1), Verdict::Drop);
    let began = sender.now();
    assert_eq!(sender.wait_room(None), Room::Full);
    assert!(sender.now() - began >= <Sender>::LONGEST_WAIT, "it did not sleep");
    assert_eq!(sender.poll_room(Waker::noop()), Poll::Pending);
    dev.tc("qdisc replace root pfifo").unwrap();
    assert_eq!(sender.wait_room(None), Room::Free, "the liar is gone");
}
