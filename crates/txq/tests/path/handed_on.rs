//! Packets that a driver hands on to a second device: each device's sums hold, and buffers, credit and flows come back when the
//! second device is done with them, whatever either driver does meanwhile.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;
use std::time::Duration;

use crate::device::home::assert_home;
use crate::device::{Wires, assert_conserved, pool};
use txq::driver::{Clock, Complete, DeviceInfo, Driver, DriverQueue, NoCompletions, Status, Transmit, TxCx};
use txq::drop::DropReason;
use txq::packet::{Packet, PacketList};
use txq::qdisc::Verdict;
use txq::{Flow, Instant, NetDev, Room, Sender};

/// What the first device's driver does with a packet, decided for each by `choose`.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Deed {
    HandOn,
    /// Hands on the packet and all behind it, as a list.
    HandOnAll,
    Send,
    Drop,
    Refuse,
    Keep,
    /// Hands on a packet of the second device's, too.
    Invent,
    /// Hands the packet on, and panics.
    Panic,
}

/// The first device: its driver hands packets on to a second one.
struct Tunnel {
    wire: Option<Sender>,
    choose: fn(u64) -> Deed,
    ring: Option<u32>,
}

impl Driver for Tunnel {
    fn info(&self) -> DeviceInfo {
        DeviceInfo::new("tunnel")
    }

    fn open(&mut self, _: u16) -> io::Result<DriverQueue> {
        let kept = std::sync::Arc::default();
        let half = Half { wire: self.wire.take().unwrap(), choose: self.choose, kept, calls: 0 };
        let done = Kept(half.kept.clone());
        Ok(match self.ring {
            Some(ring) => DriverQueue::new(half, done).ring(ring),
            None => DriverQueue::new(half, NoCompletions),
        })
    }
}

struct Half {
    wire: Sender,
    choose: fn(u64) -> Deed,
    kept: std::sync::Arc<std::sync::Mutex<PacketList>>,
    calls: u64,
}

struct Kept(std::sync::Arc<std::sync::Mutex<PacketList>>);

impl Complete for Kept {
    fn poll(&mut self, budget: usize, done: &mut PacketList, _: &mut Clock) -> Option<Instant> {
        self.0.lock().unwrap().move_front(budget, done);
        None
    }
}

impl Half {
    /// Grows the packet in place, as encryption does.
    fn grow(packet: &mut Packet) {
        packet.put(16).expect("tail room").fill(1);
    }
}

impl Transmit for Half {
    fn start_xmit(&mut self, batch: &mut PacketList, cx: &mut TxCx<'_>) -> Status {
        while let Some(packet) = batch.pop_front() {
            self.calls += 1;
            match (self.choose)(self.calls) {
                Deed::HandOn => {
                    let mut packet = cx.hand_on(packet);
                    Self::grow(&mut packet);
                    let _ = self.wire.xmit(packet);
                }
                Deed::HandOnAll => {
                    batch.push_front(packet);
                    cx.hand_on_all(batch);
                    batch.for_each_mut(Self::grow);
                    let _ = self.wire.xmit_batch(batch);
                }
                Deed::Send => cx.sent(packet),
                Deed::Drop => cx.drop(packet, DropReason::PktTooBig),
                Deed::Refuse => {
                    batch.push_front(packet);
                    return Status::Busy { retry: Some(Duration::from_micros(1)) };
                }
                Deed::Keep => self.kept.lock().unwrap().push_back(packet),
                Deed::Invent => {
                    let own = self.wire.alloc(60).unwrap();
                    for packet in [packet, own] {
                        let packet = cx.hand_on(packet);
                        let _ = self.wire.xmit(packet);
                    }
                }
                Deed::Panic => {
                    let packet = cx.hand_on(packet);
                    let _ = self.wire.xmit(packet);
                    panic!("the driver panics, as the test wants");
                }
            }
        }
        Status::Ok
    }
}

/// Returns the first device on top of the second.
fn tunnel(wire: &NetDev, choose: fn(u64) -> Deed, ring: Option<u32>, qdisc: &str) -> NetDev {
    let pool = txq::pool::PoolConfig { tailroom: 16, ..pool() };
    NetDev::builder(Tunnel { wire: Some(wire.sender("tunnel")), choose, ring })
        .pool_config(pool)
        .qdisc(qdisc)
        .start()
        .unwrap()
}

fn wire_of(wires: &Wires) -> NetDev {
    let builder = NetDev::builder(wires.clone()).pool_config(pool());
    builder.qdisc("pfifo limit 20").bql(None).start().unwrap()
}

fn packet(sender: &mut Sender) -> Packet {
    loop {
        if let Ok(packet) = sender.packet(&[0; 60]) {
            return packet;
        }
        thread::yield_now();
    }
}

/// Completes the second device's packets until both devices are idle.
fn drain(dev: &NetDev, wire: &NetDev, wires: &Wires) {
    while !(dev.is_idle() && wire.is_idle()) {
        wires.at(0).complete(1);
        thread::yield_now();
    }
}

/// Two threads send through both devices, whose drivers refuse, drop, keep and panic at times.
#[test]
fn the_sums_of_both_devices_hold_under_faults() {
    fn faulty(n: u64) -> Deed {
        match n * 7 % 23 {
            0..=2 => Deed::Refuse,
            3 => Deed::Drop,
            4 => Deed::Send,
            5..=7 => Deed::HandOnAll,
            _ => Deed::HandOn,
        }
    }
    fn faulty_with_ring(n: u64) -> Deed {
        if n.is_multiple_of(5) { Deed::Keep } else { faulty(n) }
    }
    for (choose, ring) in [(faulty as fn(u64) -> Deed, None), (faulty_with_ring, Some(8))] {
        for qdisc in ["pfifo limit 1000", "prio", "noqueue"] {
            let wires = Wires::new(1, Some(8));
            let wire = wire_of(&wires);
            let dev = tunnel(&wire, choose, ring, qdisc);
            thread::scope(|threads| {
                for _ in 0..2 {
                    let mut sender = dev.sender("s");
                    let wires = &wires;
                    threads.spawn(move || {
                        for n in 0..300 {
                            let packet = packet(&mut sender);
                            let _ = sender.xmit(packet);
                            if n % 3 == 0 {
                                let mut wire = wires.at(0);
                                wire.complete(2);
                                wire.refuses = n % 2;
                            }
                        }
                    });
                }
            });
            drain(&dev, &wire, &wires);
            let (first, second) = (dev.audit().unwrap(), wire.audit().unwrap());
            let what = format!("{qdisc}, ring {ring:?}");
            assert_eq!(first.accepted, 600, "{what}");
            assert_eq!(first.accepted, first.sent + first.dropped.total(), "{what}");
            assert_eq!(first.handed_on, second.accepted, "{what}");
            assert!(first.handed_on > 0 && first.handed_on < first.sent, "{what}");
            assert_eq!(second.accepted, second.sent + second.dropped.total(), "{what}");
            // The first device counts what it was given, and the second what it was handed.
            assert_eq!(first.bytes_sent, first.sent * 60, "{what}");
            assert_eq!(second.bytes_sent, second.sent * 76, "{what}");
            for queue in first.queues.iter().chain(&second.queues) {
                assert_eq!((queue.counters.driver_bugs, queue.counters.invented), (0, 0), "{what}");
            }
            assert_home(&dev);
            assert_home(&wire);
        }
    }
}

#[test]
fn buffers_credit_and_flows_come_back_when_the_second_device_is_done() {
    let wires = Wires::new(1, Some(8));
    let wire = wire_of(&wires);
    let dev = tunnel(&wire, |_| Deed::HandOn, None, "pfifo");
    let (mut sender, mut flow) = (dev.sender("s"), Flow::new());
    sender.set_limit(2);
    for _ in 0..2 {
        let packet = sender.packet(&[0; 60]).unwrap();
        assert_eq!(sender.xmit_on(&mut flow, packet), Verdict::Success);
    }
    assert!(dev.drain(Duration::from_secs(60)), "the first device is done with them");
    assert_eq!((dev.stats().handed_on, wire.stats().accepted), (2, 2));
    assert!(sender.alloc(60).is_err(), "the second device has not sent them");
    assert_eq!(flow.outstanding(), 2);
    assert_eq!(wires.at(0).kept().iter().map(Vec::len).collect::<Vec<_>>(), [76, 76], "without a copy");
    drain(&dev, &wire, &wires);
    assert!(sender.wait_credit(None));
    assert_eq!(flow.outstanding(), 0);
    drop(sender);
    assert_conserved(&dev);
}

/// The second device drops: its counters have the drops, and the sender that allocated the packets learns of them.
#[test]
fn what_the_second_device_drops_is_lost_there() {
    let wires = Wires::new(1, Some(1));
    let wire = wire_of(&wires);
    let dev = tunnel(&wire, |_| Deed::HandOn, None, "pfifo");
    let mut sender = dev.sender("s");
    for _ in 0..40 {
        let packet = packet(&mut sender);
        let _ = sender.xmit(packet);
    }
    assert!(dev.drain(Duration::from_secs(60)));
    wire.deactivate();
    let (first, second) = (dev.audit().unwrap(), wire.audit().unwrap());
    assert_eq!((first.sent, first.handed_on, first.dropped.total()), (40, 40, 0));
    assert_eq!((second.accepted, second.queued), (40, 0));
    assert!(second.dropped.total() >= 38, "one is in the ring, one may be complete");
    wires.at(0).complete(usize::MAX);
    drain(&dev, &wire, &wires);
    assert_eq!(sender.dropped(), second.dropped.total());
    drop(sender);
    assert_conserved(&dev);
}

#[test]
fn a_driver_that_hands_on_what_it_was_not_given_harms_no_sum() {
    let wires = Wires::new(1, Some(64));
    let wire = wire_of(&wires);
    let dev = tunnel(&wire, |_| Deed::Invent, None, "pfifo");
    let mut sender = dev.sender("s");
    for _ in 0..5 {
        let packet = packet(&mut sender);
        let _ = sender.xmit(packet);
    }
    drain(&dev, &wire, &wires);
    let stats = dev.audit().unwrap();
    assert_eq!((stats.accepted, stats.sent, stats.handed_on), (5, 5, 5));
    assert_eq!(stats.queues[0].counters.invented, 5);
    assert_eq!(wire.audit().unwrap().sent, 10);
    drop(sender);
    assert_home(&dev);
    assert_home(&wire);
}

#[test]
fn a_panic_behind_a_hand_over_loses_nothing_twice() {
    let wires = Wires::new(1, Some(64));
    let wire = wire_of(&wires);
    let choose = |n| if n == 3 { Deed::Panic } else { Deed::HandOn };
    let dev = tunnel(&wire, choose, None, "pfifo");
    let mut sender = dev.sender("s");
    for _ in 0..6 {
        let packet = packet(&mut sender);
        let _ = catch_unwind(AssertUnwindSafe(|| sender.xmit(packet)));
    }
    drain(&dev, &wire, &wires);
    let stats = dev.audit().unwrap();
    assert_eq!((stats.accepted, stats.queued), (6, 0));
    assert_eq!(stats.sent + stats.dropped.total(), 6);
    assert_eq!(wire.audit().unwrap().sent, 6, "the second device has them all");
    drop(sender);
    assert_home(&dev);
    assert_home(&wire);
}

/// A driver may check for room before it changes a packet: the packet waits in the first device's qdisc.
#[test]
fn a_driver_finds_out_whether_the_second_device_has_room() {
    let wires = Wires::new(1, Some(1));
    let wire = NetDev::builder(wires.clone()).pool_config(pool()).qdisc("pfifo limit 4").start().unwrap();
    let mut sender = wire.sender("s");
    while sender.wait_room(Some(Instant::ZERO)) != Room::Full {
        let packet = packet(&mut sender);
        let _ = sender.xmit(packet);
    }
    struct Careful(Option<Sender>);
    struct CarefulHalf(Sender);
    impl Driver for Careful {
        fn info(&self) -> DeviceInfo {
            DeviceInfo::new("careful")
        }
        fn open(&mut self, _: u16) -> io::Result<DriverQueue> {
            Ok(DriverQueue::new(CarefulHalf(self.0.take().unwrap()), NoCompletions))
        }
    }
    impl Transmit for CarefulHalf {
        fn start_xmit(&mut self, batch: &mut PacketList, cx: &mut TxCx<'_>) -> Status {
            while let Some(packet) = batch.pop_front() {
                if self.0.wait_room(Some(Instant::ZERO)) == Room::Full {
                    batch.push_front(packet);
                    return Status::Busy { retry: Some(Duration::from_micros(100)) };
                }
                let packet = cx.hand_on(packet);
                let _ = self.0.xmit(packet);
            }
            Status::Ok
        }
    }
    let dev = NetDev::builder(Careful(Some(wire.sender("tunnel"))))
        .pool_config(pool())
        .qdisc("pfifo limit 1000")
        .start()
        .unwrap();
    let mut sender = dev.sender("s");
    for _ in 0..20 {
        let packet = packet(&mut sender);
        assert_eq!(sender.xmit(packet), Verdict::Success);
    }
    drain(&dev, &wire, &wires);
    assert_eq!((dev.stats().handed_on, wire.stats().dropped.total()), (20, 0));
}
