//! Packets with segments: whole into a device that cuts them, cut for one that does not.

use std::io;

use crate::device::Wires;
use txq::driver::{DeviceInfo, Driver, DriverQueue, Link};
use txq::packet::Packet;
use txq::pool::{Backing, PoolConfig};
use txq::{Instant, NetDev, Sender};

const SIZE: usize = 100;
/// IPv4 and UDP.
const HEADERS: usize = 28;

/// [`Wires`] that takes packets with segments, or does not.
struct Tunnel(Wires, bool);

impl Driver for Tunnel {
    fn info(&self) -> DeviceInfo {
        self.0.info().link(Link::Ip).gso(self.1)
    }

    fn open(&mut self, txq: u16) -> io::Result<DriverQueue> {
        self.0.open(txq)
    }
}

fn device(wires: &Wires, gso: bool, buffers: u32) -> NetDev {
    let pool = PoolConfig { buffers, backing: Backing::Heap, ..PoolConfig::default() };
    NetDev::builder(Tunnel(wires.clone(), gso)).pool_config(pool).qdisc("pfifo").bql(None).build().unwrap()
}

/// Returns a UDP packet of `segs` segments.
fn packet(sender: &mut Sender, segs: u16) -> Packet {
    let len = HEADERS + SIZE * usize::from(segs);
    let mut packet = sender.alloc(len).unwrap();
    let data = packet.data_mut();
    data[..HEADERS].fill(0);
    data[..20].copy_from_slice(&[0x45, 0, 0, 0, 0, 9, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    data[22..24].copy_from_slice(&[0, 53]);
    data[26] = 1;
    data[HEADERS..].iter_mut().enumerate().for_each(|(at, byte)| *byte = at as u8);
    packet.set_gso(SIZE as u16, segs);
    packet.set_cookie(5);
    packet
}

/// Returns the sum of 16-bit words in one's complement.
fn sum(bytes: &[u8], start: u32) -> u16 {
    let words = bytes.chunks(2).map(|word| u32::from(word[0]) << 8 | u32::from(*word.get(1).unwrap_or(&0)));
    let sum = words.fold(start, |sum, word| sum + word);
    let sum = (sum >> 16) + (sum & 0xffff);
    ((sum >> 16) + (sum & 0xffff)) as u16
}

#[test]
fn a_device_that_cannot_cut_gets_segments() {
    let wires = Wires::new(1, Some(256));
    let dev = device(&wires, false, 512);
    let mut sender = dev.sender("one");
    let whole = packet(&mut sender, 7);
    let _ = sender.xmit(whole);
    let stats = dev.audit().unwrap();
    assert_eq!((stats.accepted, stats.created, wires.at(0).sent()), (7, 0, vec![5; 7]));
    for (number, frame) in wires.at(0).kept().iter().enumerate() {
        assert_eq!((frame.len(), frame[3], frame[5]), (HEADERS + SIZE, 128, 9 + number as u8));
        assert_eq!(sum(&frame[..20], 0), 0xffff, "the checksum of the IP header");
        assert_eq!(sum(&frame[12..], 17 + 108), 0xffff, "the checksum of UDP, with the pseudo header");
        let expected: Vec<u8> = (0..SIZE).map(|at| (number * SIZE + at) as u8).collect();
        assert_eq!(frame[HEADERS..], expected);
    }
    #[cfg(debug_assertions)]
    assert_eq!(dev.pool().in_use(), [("one".to_owned(), 7)].into(), "all are the sender's");
}

#[test]
fn a_device_that_cuts_gets_it_whole() {
    let wires = Wires::new(1, Some(256));
    let dev = device(&wires, true, 512);
    let mut sender = dev.sender("one");
    let whole = packet(&mut sender, 7);
    let _ = sender.xmit(whole);
    assert_eq!((dev.stats().accepted, wires.at(0).sent()), (1, vec![5]));
}

/// Without buffers for the segments, the driver gets the packet whole, and drops what is too long for it.
#[test]
fn without_buffers_it_stays_whole() {
    let wires = Wires::new(1, Some(256));
    wires.at(0).longest = Some(HEADERS + SIZE);
    let dev = device(&wires, false, 512);
    let mut sender = dev.sender("one");
    sender.set_limit(4);
    let whole = packet(&mut sender, 7);
    let _ = sender.xmit(whole);
    let stats = dev.audit().unwrap();
    assert_eq!((stats.accepted, stats.dropped.total(), stats.sent), (1, 1, 0));
    let small = packet(&mut sender, 4);
    let _ = sender.xmit(small);
    assert_eq!((dev.stats().accepted, wires.at(0).sent()), (5, vec![5; 4]), "the limit allows four");
}

/// [`Wires`] that computes checksums, or does not.
struct Computes(Wires, bool);

impl Driver for Computes {
    fn info(&self) -> DeviceInfo {
        self.0.info().link(Link::Ip).checksum(self.1)
    }

    fn open(&mut self, txq: u16) -> io::Result<DriverQueue> {
        self.0.open(txq)
    }
}

/// A checksum that is left to the device is the sum of the pseudo header, of each segment too; for another device it is computed.
#[test]
fn checksums_are_left_to_a_device_that_computes_them() {
    for computes in [true, false] {
        let wires = Wires::new(1, Some(256));
        let pool = PoolConfig { buffers: 64, backing: Backing::Heap, ..PoolConfig::default() };
        let builder = NetDev::builder(Computes(wires.clone(), computes)).pool_config(pool);
        let dev = builder.qdisc("pfifo").bql(None).build().unwrap();
        let mut sender = dev.sender("one");
        for segs in [1, 3] {
            let mut packet = packet(&mut sender, segs);
            packet.set_hash(9);
            packet.set_departure(u64::MAX);
            assert!(sender.fill_checksum(&mut packet));
            let has = (packet.is_checksum_partial(), packet.departure(), packet.hash());
            assert_eq!(has, (computes, Instant::from_nanos(u64::MAX >> 2), 9));
            packet.set_departure(7);
            assert_eq!(
                (packet.is_checksum_partial(), packet.departure()),
                (computes, Instant::from_nanos(7))
            );
            let _ = sender.xmit(packet);
        }
        let mut other = sender.packet(&[0x45; 60]).unwrap();
        assert!(!sender.fill_checksum(&mut other) && !other.is_checksum_partial());
        assert_eq!(other.data(), [0x45; 60]);
        drop(other);
        let frames = wires.at(0).kept();
        assert_eq!(frames.len(), 4);
        for frame in frames {
            let (pseudo, is) = (sum(&frame[12..20], 17 + 108), u16::from_be_bytes([frame[26], frame[27]]));
            assert_eq!(is == pseudo, computes, "{is:x}");
            assert_eq!(sum(&frame[12..], 17 + 108) == 0xffff, !computes);
        }
        dev.audit().unwrap();
    }
}
