//! What every device must do.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use txq::NetDev;
use txq::driver::{DeviceInfo, Driver, DriverQueue, Link, Status, Transmit, TxCx};
use txq::drop::DropReason;
use txq::netdev::{Builder, Completions};
use txq::packet::PacketList;
use txq::pool::{Backing, Pool, PoolConfig};
use txq_device::Faults;
use txq_device::faults::Rates;

use crate::traffic::{HEADERS, length, numbers, packet, send, settle};
use crate::wire::{LONG, Opened, Wire};

/// The packets of a case, fewer than any queue of it holds.
const PACKETS: u32 = 600;
/// A qdisc that drops nothing of a case.
const ROOMY: &str = "pfifo limit 100000";

/// Returns a builder for the device with everything else as it is by default, but for room in front of the queue for a whole
/// case: its owner may be without a CPU for long.
fn builder((driver, pool): Opened) -> Builder {
    let builder = NetDev::builder(driver).max_burst(100_000);
    match pool {
        Some(pool) => builder.pool(pool),
        None => builder,
    }
}

fn device(wire: &mut dyn Wire, txqs: u16) -> NetDev {
    builder(wire.open(txqs)).txqs(txqs).default_qdisc(ROOMY).xps(None).start().unwrap()
}

/// Ends the device, and checks that exactly these packets have arrived, each flow in order.
#[track_caller]
fn arrived(wire: &mut dyn Wire, mut dev: NetDev, senders: u8, packets: u32) {
    let stats = settle(&dev);
    let all = u64::from(senders) * u64::from(packets);
    assert_eq!((stats.sent, stats.dropped.total()), (all, 0), "{stats:?}");
    dev.shutdown().unwrap();
    let link = wire.link();
    if let Some(found) = wire.arrived(all as usize) {
        let expected = (0..senders).map(|id| (id, (0..packets).collect())).collect();
        assert_eq!(numbers(link, &found), expected);
    }
    if let Some(counted) = wire.counted() {
        assert_eq!(counted, all, "the interface's own counter");
    }
}

/// Sends from `senders` threads at the same time.
fn crowd(dev: &NetDev, link: Link, senders: u8, packets: u32, batch: usize) {
    std::thread::scope(|scope| {
        for id in 0..senders {
            let mut sender = dev.sender(&format!("s{id}"));
            scope.spawn(move || send(&mut sender, link, id, 0..packets, batch));
        }
    });
}

pub(crate) fn every_packet_arrives_byte_for_byte(wire: &mut dyn Wire) {
    let (link, dev) = (wire.link(), device(wire, 1));
    crowd(&dev, link, 1, PACKETS, 1);
    arrived(wire, dev, 1, PACKETS);
}

pub(crate) fn batches_may_have_any_size(wire: &mut dyn Wire) {
    let (link, dev) = (wire.link(), device(wire, 1));
    let mut sender = dev.sender("s0");
    let mut from = 0;
    for batch in [1, 2, 31, 32, 33, 64, 65, 128, 200] {
        send(&mut sender, link, 0, from..from + batch, batch as usize);
        from += batch;
    }
    drop(sender);
    arrived(wire, dev, 1, from);
}

pub(crate) fn each_flow_of_many_senders_keeps_its_order(wire: &mut dyn Wire) {
    let (link, dev) = (wire.link(), device(wire, 1));
    crowd(&dev, link, 4, PACKETS, 8);
    arrived(wire, dev, 4, PACKETS);
}

fn with_txqs(wire: &mut dyn Wire, txqs: u16) {
    let (link, dev) = (wire.link(), device(wire, txqs));
    crowd(&dev, link, 4, PACKETS, 8);
    arrived(wire, dev, 4, PACKETS);
}

pub(crate) fn two_txqs_send(wire: &mut dyn Wire) {
    with_txqs(wire, 2);
}

pub(crate) fn eight_txqs_send(wire: &mut dyn Wire) {
    with_txqs(wire, 8);
}

pub(crate) fn every_discipline_feeds_it(wire: &mut dyn Wire) {
    let link = wire.link();
    for (round, discipline) in (0..).zip(txq::Discipline::ALL) {
        let dev = builder(wire.open(1)).discipline(*discipline).qdisc(ROOMY).start().unwrap();
        let mut sender = dev.sender("s0");
        send(&mut sender, link, round, 0..100, 8);
        drop(sender);
        assert_eq!(settle(&dev).sent, 100, "{discipline}");
    }
}

pub(crate) fn every_qdisc_feeds_it(wire: &mut dyn Wire) {
    let link = wire.link();
    let shaped = "tbf rate 1gbit burst 100k limit 1000000";
    for qdisc in ["noqueue", "pfifo_fast", "fq", "fq_codel", "cake bandwidth 1gbit", shaped] {
        let dev = builder(wire.open(1)).qdisc(qdisc).start().unwrap();
        let mut sender = dev.sender("s0");
        send(&mut sender, link, 0, 0..60, 8);
        drop(sender);
        let stats = settle(&dev);
        assert_eq!((stats.sent, stats.dropped.total()), (60, 0), "{qdisc}: {stats:?}");
    }
}

pub(crate) fn completions_may_go_to_the_worker_or_to_queues(wire: &mut dyn Wire) {
    let link = wire.link();
    for completions in [Completions::Inline, Completions::Worker, Completions::PerQueue] {
        let dev = builder(wire.open(2))
            .txqs(2)
            .default_qdisc(ROOMY)
            .completions(completions)
            .xps(None)
            .start()
            .unwrap();
        crowd(&dev, link, 2, 200, 8);
        assert_eq!(settle(&dev).sent, 400, "{completions:?}");
    }
}

pub(crate) fn short_packets_do_no_harm(wire: &mut dyn Wire) {
    let (link, dev) = (wire.link(), device(wire, 1));
    let mut sender = dev.sender("s0");
    for len in [0, 1, 13, 14, 15, 19, 20, 27, 28] {
        let bytes = packet(link, 0, 0, 100);
        let short = sender.packet(&bytes[..len]).unwrap();
        let _ = sender.xmit(short);
    }
    send(&mut sender, link, 0, 0..20, 4);
    drop(sender);
    let stats = settle(&dev);
    assert_eq!(stats.sent + stats.dropped.total(), 29, "{stats:?}");
    assert!(stats.sent >= 20, "{stats:?}");
    drop(dev);
    if let Some(found) = wire.arrived(20) {
        assert_eq!(numbers(link, &found).get(&0), Some(&(0..20).collect()));
    }
}

pub(crate) fn a_packet_that_is_too_long_is_dropped_alone(wire: &mut dyn Wire) {
    if !wire.has_mtu() {
        return;
    }
    let (link, dev) = (wire.link(), device(wire, 1));
    let longest = (dev.info().mtu + link.header_len()) as usize;
    let mut sender = dev.sender("s0");
    if longest >= dev.pool().room() {
        return;
    }
    let mut batch = PacketList::new();
    send(&mut sender, link, 0, 0..10, 4);
    let mut long = sender.alloc(longest + 1).unwrap();
    long.data_mut().fill(0);
    let head = packet(link, 1, 0, longest + 1 - HEADERS - link.header_len() as usize);
    long.data_mut()[..head.len()].copy_from_slice(&head);
    batch.push_back(long);
    let _ = sender.xmit_batch(&mut batch);
    send(&mut sender, link, 0, 10..20, 4);
    drop(sender);
    let stats = settle(&dev);
    assert_eq!((stats.sent, stats.dropped.get(DropReason::PktTooBig)), (20, 1), "{stats:?}");
    drop(dev);
    if let Some(found) = wire.arrived(20) {
        assert_eq!(numbers(link, &found), [(0, (0..20).collect())].into());
    }
}

/// A packet with segments leaves as segments, or whole where the other end may see it whole; no byte is missing.
pub(crate) fn packets_with_segments_arrive(wire: &mut dyn Wire) {
    const SIZE: usize = 300;
    let (link, dev) = (wire.link(), device(wire, 1));
    let mut sender = dev.sender("s0");
    let whole = packet(link, 0, 7, 4 * SIZE);
    let mut first = sender.packet(&whole).unwrap();
    first.set_gso(SIZE as u16, 4);
    let _ = sender.xmit(first);
    drop(sender);
    let stats = settle(&dev);
    assert_eq!((stats.dropped.total(), stats.sent), (0, stats.accepted), "{stats:?}");
    drop(dev);
    if let Some(found) = wire.arrived(1) {
        let headers = link.header_len() as usize + HEADERS;
        let ours = |packet: &&Vec<u8>| {
            packet.len() > headers && packet[headers - 6..headers - 4] == whole[headers - 6..headers - 4]
        };
        let payload: Vec<u8> =
            found.iter().filter(ours).flat_map(|packet| packet[headers..].to_vec()).collect();
        assert_eq!(payload, whole[headers..], "{} packets", found.len());
    }
}

/// The device computes a checksum that the sender has left to it, or the sender has computed it.
pub(crate) fn checksums_are_filled_in(wire: &mut dyn Wire) {
    let (link, dev) = (wire.link(), device(wire, 1));
    let mut sender = dev.sender("s0");
    // The checksum of UDP.
    let at = link.header_len() as usize + HEADERS - 2;
    for number in 0..20 {
        let mut bytes = packet(link, 0, number, length(number));
        bytes[at..at + 2].copy_from_slice(&[0xba, 0xad]);
        let mut packet = sender.packet(&bytes).unwrap();
        packet.set_link(link);
        assert!(sender.fill_checksum(&mut packet));
        assert_eq!(packet.is_checksum_partial(), dev.info().checksum);
        let _ = sender.xmit(packet);
    }
    drop(sender);
    let stats = settle(&dev);
    assert_eq!((stats.sent, stats.dropped.total()), (20, 0), "{stats:?}");
    drop(dev);
    if let Some(found) = wire.arrived(20) {
        assert_eq!(numbers(link, &found), [(0, (0..20).collect())].into());
        for bytes in found {
            let (right, partial) = checksums(&bytes[link.header_len() as usize..]);
            let is = u16::from_be_bytes([bytes[at], bytes[at + 1]]);
            assert!(wire.accepts(is, right, partial), "{is:x}, not {right:x}: {bytes:x?}");
        }
    }
}

/// Returns the checksum of a UDP packet in IPv4, and the sum of its pseudo header.
fn checksums(ip: &[u8]) -> (u16, u16) {
    let sum = |bytes: &[u8]| {
        let words =
            bytes.chunks(2).map(|word| u32::from(word[0]) << 8 | u32::from(*word.get(1).unwrap_or(&0)));
        words.sum::<u32>()
    };
    let fold = |sum: u32| {
        let sum = (sum >> 16) + (sum & 0xffff);
        ((sum >> 16) + (sum & 0xffff)) as u16
    };
    let pseudo = sum(&ip[12..20]) + 17 + (ip.len() as u32 - 20);
    let all = !fold(pseudo + sum(&ip[20..26]) + sum(&ip[28..]));
    (if all == 0 { 0xffff } else { all }, fold(pseudo))
}

pub(crate) fn a_small_limit_is_enough(wire: &mut dyn Wire) {
    let (link, dev) = (wire.link(), device(wire, 1));
    let mut sender = dev.sender("s0");
    sender.set_limit(3);
    send(&mut sender, link, 0, 0..PACKETS, 3);
    drop(sender);
    arrived(wire, dev, 1, PACKETS);
}

/// Packets that come from elsewhere, as from a device that receives.
pub(crate) fn packets_of_another_pool_are_sent(wire: &mut dyn Wire) {
    let (link, dev) = (wire.link(), device(wire, 1));
    let config = PoolConfig { buffers: 64, backing: Backing::Heap, ..PoolConfig::default() };
    let other = Pool::new(&config).unwrap();
    let mut cache = other.cache("other", 0);
    cache.set_link(link);
    let mut sender = dev.sender("s0");
    for number in 0..200 {
        let bytes = packet(link, 0, number, length(number));
        let mut packet = loop {
            match cache.alloc(bytes.len()) {
                Ok(packet) => break packet,
                Err(_) => std::thread::yield_now(),
            }
        };
        packet.data_mut().copy_from_slice(&bytes);
        let _ = sender.xmit(packet);
    }
    drop(sender);
    arrived(wire, dev, 1, 200);
    assert_eq!(other.in_use(), Default::default());
}

/// Refuses from time to time, as a full device does.
pub(crate) fn what_is_refused_is_sent_later(wire: &mut dyn Wire) {
    let (driver, pool) = wire.open(1);
    let refusing = Faults::new(driver, 7, Rates { busy: 0.3, ..Rates::default() });
    let dev = builder((Box::new(refusing), pool)).qdisc(ROOMY).start().unwrap();
    crowd(&dev, wire.link(), 2, PACKETS, 8);
    assert!(settle(&dev).requeues > 0);
    arrived(wire, dev, 2, PACKETS);
}

/// Panics in one call, before the device has seen its packets.
pub(crate) fn a_panic_in_its_driver_harms_only_the_packets_of_the_call(wire: &mut dyn Wire) {
    let (driver, pool) = wire.open(1);
    let calls = Arc::new(AtomicU32::new(0));
    let panics = Panics { driver, calls: calls.clone() };
    let dev = builder((Box::new(panics), pool)).qdisc(ROOMY).start().unwrap();
    let link = wire.link();
    for id in 0..4 {
        let mut sender = dev.sender(&format!("s{id}"));
        // The panic may reach the sender that made the call, or the worker.
        let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            send(&mut sender, link, id, 0..100, 8);
        }));
    }
    let stats = settle(&dev);
    assert!(calls.load(Ordering::Relaxed) > 3 && stats.sent > 0, "{stats:?}");
    assert!(stats.dropped.get(DropReason::NotSpecified) > 0, "{stats:?}");
}

struct Panics {
    driver: Box<dyn Driver>,
    calls: Arc<AtomicU32>,
}

impl Driver for Panics {
    fn info(&self) -> DeviceInfo {
        self.driver.info()
    }

    fn open(&mut self, txq: u16) -> std::io::Result<DriverQueue> {
        let queue = self.driver.open(txq)?;
        Ok(queue.map_transmit(|tx| PanicsOnce(tx, self.calls.clone())))
    }
}

struct PanicsOnce(Box<dyn Transmit>, Arc<AtomicU32>);

impl Transmit for PanicsOnce {
    fn start_xmit(&mut self, batch: &mut PacketList, cx: &mut TxCx<'_>) -> Status {
        assert!(self.1.fetch_add(1, Ordering::Relaxed) != 3, "the driver panics, as the test wants");
        self.0.start_xmit(batch, cx)
    }

    fn finish(&mut self) -> std::io::Result<()> {
        self.0.finish()
    }
}

/// The buffers return, whatever the device still holds.
pub(crate) fn dropped_in_flight_it_returns_every_buffer(wire: &mut dyn Wire) {
    let (link, dev) = (wire.link(), device(wire, 2));
    let pool = dev.pool().clone();
    crowd(&dev, link, 2, PACKETS, 32);
    drop(dev);
    assert_eq!(pool.in_use(), Default::default());
}

pub(crate) fn it_opens_again(wire: &mut dyn Wire) {
    let link = wire.link();
    for _ in 0..3 {
        let mut dev = device(wire, 2);
        crowd(&dev, link, 1, 50, 8);
        assert_eq!(settle(&dev).sent, 50);
        dev.shutdown().unwrap();
    }
}

/// Two programs on one interface.
pub(crate) fn two_drivers_may_be_open(wire: &mut dyn Wire) {
    if !wire.is_shared() {
        return;
    }
    let link = wire.link();
    let devs = [device(wire, 1), device(wire, 1)];
    for (id, dev) in (0..).zip(&devs) {
        let mut sender = dev.sender("s");
        send(&mut sender, link, id, 0..100, 8);
    }
    devs.iter().for_each(|dev| assert_eq!(settle(dev).sent, 100));
    drop(devs);
    if let Some(found) = wire.arrived(200) {
        assert_eq!(numbers(link, &found), [0, 1].map(|id| (id, (0..100).collect())).into());
    }
}

pub(crate) fn departure_times_are_kept(wire: &mut dyn Wire) {
    const LATE: Duration = Duration::from_millis(30);
    let link = wire.link();
    let dev = builder(wire.open(1)).qdisc("fq").start().unwrap();
    let mut sender = dev.sender("s0");
    let mut late = sender.packet(&packet(link, 0, 0, 100)).unwrap();
    let from = dev.age();
    late.set_departure(sender.now() + LATE);
    let _ = sender.xmit(late);
    drop(sender);
    settle(&dev);
    assert!(dev.age() - from >= LATE, "it left {:?} after", dev.age() - from);
}

/// Nothing is lost while the link is down, or all of it is counted.
pub(crate) fn a_link_may_go_down_and_come_back(wire: &mut dyn Wire) {
    let (link, dev) = (wire.link(), device(wire, 1));
    let mut sender = dev.sender("s0");
    send(&mut sender, link, 0, 0..50, 8);
    settle_all_but(&dev, &mut sender);
    if !wire.set_up(false) {
        return;
    }
    send(&mut sender, link, 0, 50..100, 8);
    std::thread::sleep(Duration::from_millis(30));
    assert!(wire.set_up(true));
    assert!(dev.drain(LONG), "{:?}", dev.stats());
    send(&mut sender, link, 0, 100..150, 8);
    drop(sender);
    let stats = settle(&dev);
    assert_eq!(stats.sent + stats.dropped.total(), 150, "{stats:?}");
    assert!(stats.sent >= 100, "{stats:?}");
}

/// Waits until everything handed in has left.
fn settle_all_but(dev: &NetDev, _: &mut txq::Sender) {
    assert!(dev.drain(LONG), "{:?}", dev.stats());
}

/// The device is gone for good: its packets are dropped, it says so, and nothing hangs.
pub(crate) fn a_device_that_is_removed_says_so(wire: &mut dyn Wire) {
    let (link, mut dev) = (wire.link(), device(wire, 2));
    let mut sender = dev.sender("s0");
    send(&mut sender, link, 0, 0..50, 8);
    assert!(dev.drain(LONG), "{:?}", dev.stats());
    if !wire.remove() {
        return;
    }
    send(&mut sender, link, 0, 50..100, 8);
    drop(sender);
    let stats = settle(&dev);
    assert_eq!((stats.sent, stats.dropped.total()), (50, 50), "{stats:?}");
    assert!(dev.shutdown().is_err(), "it must say that it is gone");
}
