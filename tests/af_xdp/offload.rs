//! What AF_XDP leaves to the kernel or the card, on a veth pair in copy mode: checksums and departure times.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::support::netns::Netns;
use crate::support::process::wait_until;
use crate::support::receiver::Receiver;
use crate::support::skip::{note_missing, require, require_af_xdp, require_root, require_tools};
use etherparse::{NetSlice, PacketBuilder, SlicedPacket, TransportSlice};
use txq::NetDev;
use txq::pool::{Pool, PoolConfig};
use txq_device::af_xdp::Offloads;
use txq_device::{AfXdp, AfXdpConfig};

const WITHIN: Duration = Duration::from_secs(20);

/// A veth pair whose ends leave no checksum to the other, tx0 here and rx0 there.
struct Bench {
    near: Netns,
    far: Netns,
}

impl Bench {
    /// Returns `None` if the machine cannot run the test.
    fn new(test: &str) -> Option<Self> {
        if !(require_root(test) && require_tools(test, &["ip", "tc"]) && require_af_xdp(test)) {
            return None;
        }
        let (near, far) = (Netns::new(), Netns::new());
        near.connect("tx0", &far, "rx0", 1);
        Some(Self { near, far })
    }

    /// Starts the device; returns it with what it leaves to the kernel.
    fn start(&self, config: AfXdpConfig, pool: &PoolConfig, qdisc: &str) -> (NetDev, Offloads) {
        let pool = Pool::new(pool).unwrap();
        let of = pool.clone();
        let device = self.near.call(move || config.open(&of).unwrap());
        let offloads = device.offloads();
        (NetDev::builder(device).pool(pool).qdisc(qdisc).start().unwrap(), offloads)
    }
}

/// Returns a frame of each kind that has a checksum, with a payload of `len` bytes.
fn frames(len: usize) -> Vec<Vec<u8>> {
    let payload: Vec<u8> = (0..len).map(|n| (n * 7 + n / 256) as u8).collect();
    let eth = || PacketBuilder::ethernet2([2, 0, 0, 0, 0, 1], [0xff; 6]);
    let tagged = || eth().single_vlan(5.try_into().unwrap());
    let (v4, v6) = (([10, 0, 0, 1], [10, 0, 0, 2]), ([3; 16], [4; 16]));
    let write = |builder: etherparse::PacketBuilderStep<etherparse::UdpHeader>| {
        let mut frame = Vec::new();
        builder.write(&mut frame, &payload).unwrap();
        frame
    };
    let write_tcp = |builder: etherparse::PacketBuilderStep<etherparse::TcpHeader>| {
        let mut frame = Vec::new();
        builder.write(&mut frame, &payload).unwrap();
        frame
    };
    vec![
        write(eth().ipv4(v4.0, v4.1, 64).udp(5, 6)),
        write(tagged().ipv6(v6.0, v6.1, 64).udp(5, 6)),
        write_tcp(tagged().ipv4(v4.0, v4.1, 64).tcp(5, 6, 7, 8)),
        write_tcp(eth().ipv6(v6.0, v6.1, 64).tcp(5, 6, 7, 8)),
    ]
}

/// Returns the frame without its checksum, and the offset of the field.
fn without_checksum(frame: &[u8]) -> (Vec<u8>, usize) {
    let sliced = SlicedPacket::from_ethernet(frame).unwrap();
    let (transport, offset) = match sliced.transport.unwrap() {
        TransportSlice::Udp(udp) => (udp.slice().as_ptr(), 6),
        TransportSlice::Tcp(tcp) => (tcp.slice().as_ptr(), 16),
        _ => unreachable!("UDP or TCP"),
    };
    let at = transport.addr() - frame.as_ptr().addr() + offset;
    let mut bytes = frame.to_vec();
    bytes[at..at + 2].copy_from_slice(&[0xba, 0xad]);
    (bytes, at)
}

/// Returns a frame without its tag, which the kernel takes off where it receives.
fn untagged(frame: &[u8]) -> Vec<u8> {
    if frame[12..14] == [0x81, 0] { [&frame[..12], &frame[16..]].concat() } else { frame.to_vec() }
}

/// Returns the checksum that a frame should have, by another library's arithmetic, and the one that it has.
fn checksums(frame: &[u8]) -> (u16, u16) {
    let sliced = SlicedPacket::from_ethernet(frame).unwrap();
    match (sliced.net.unwrap(), sliced.transport.unwrap()) {
        (NetSlice::Ipv4(ip), TransportSlice::Udp(udp)) => {
            let header = udp.to_header();
            (header.calc_checksum_ipv4(&ip.header().to_header(), udp.payload()).unwrap(), header.checksum)
        }
        (NetSlice::Ipv6(ip), TransportSlice::Udp(udp)) => {
            let header = udp.to_header();
            (header.calc_checksum_ipv6(&ip.header().to_header(), udp.payload()).unwrap(), header.checksum)
        }
        (NetSlice::Ipv4(ip), TransportSlice::Tcp(tcp)) => {
            let header = tcp.to_header();
            (header.calc_checksum_ipv4(&ip.header().to_header(), tcp.payload()).unwrap(), header.checksum)
        }
        (NetSlice::Ipv6(ip), TransportSlice::Tcp(tcp)) => {
            let header = tcp.to_header();
            (header.calc_checksum_ipv6(&ip.header().to_header(), tcp.payload()).unwrap(), header.checksum)
        }
        _ => unreachable!("the test's own frames"),
    }
}

/// Sends frames without checksum through a device of this pool; checks that they arrive with the right one. `prepare` changes the
/// free space in front of a packet. Returns whether the device left them to the kernel.
fn arrive(bench: &Bench, pool: &PoolConfig, prepare: impl Fn(&mut txq::packet::Packet)) -> bool {
    let receiver = Receiver::start(&bench.far, "rx0");
    let (dev, offloads) = bench.start(AfXdpConfig::new("tx0", 1), pool, "pfifo");
    assert_eq!(dev.info().checksum, offloads.checksum);
    let mut sender = dev.sender("s");
    let expected: Vec<Vec<u8>> = [0, 1, 18, 700, 1401].into_iter().flat_map(frames).collect();
    for frame in &expected {
        let mut packet = sender.packet(&without_checksum(frame).0).unwrap();
        prepare(&mut packet);
        assert!(sender.fill_checksum(&mut packet));
        assert_eq!(packet.is_checksum_partial(), offloads.checksum);
        let _ = sender.xmit(packet);
    }
    // A checksum that the program has written is left alone.
    let wrong = without_checksum(&expected[0]).0;
    let packet = sender.packet(&wrong).unwrap();
    let _ = sender.xmit(packet);
    assert!(dev.drain(WITHIN), "{:?}", dev.stats());
    let stats = dev.audit().unwrap();
    assert_eq!((stats.sent, stats.dropped.total()), (expected.len() as u64 + 1, 0), "{stats:?}");
    assert!(wait_until(WITHIN, || receiver.count() > expected.len() as u64), "{} came", receiver.count());
    let found = receiver.finish();
    for (found, frame) in found.iter().zip(&expected) {
        assert_eq!(*found, untagged(frame), "should be {:x?}", checksums(found));
    }
    assert_eq!(found.last(), Some(&wrong));
    drop(sender);
    let pool = dev.pool().clone();
    drop(dev);
    assert_eq!(pool.in_use(), BTreeMap::new());
    offloads.checksum
}

/// Returns false, and says so, on a kernel that knows no metadata.
fn offloads(test: &str, yes: bool) -> bool {
    require(test, yes, "needs a kernel that takes metadata of frames (Linux 6.11): XDP_UMEM_REG says EINVAL")
}

#[test]
fn a_checksum_left_to_the_kernel_is_right() {
    let test = "a_checksum_left_to_the_kernel_is_right";
    let Some(bench) = Bench::new(test) else { return };
    let _ = offloads(test, arrive(&bench, &AfXdp::pool_config(256), |_| {}));
}

/// A pool whose buffers have no space in front of the frames: the sender computes the checksums.
#[test]
fn without_space_for_metadata_the_sender_computes_checksums() {
    let Some(bench) = Bench::new("without_space_for_metadata_the_sender_computes_checksums") else { return };
    let pool = PoolConfig { headroom: 16, ..AfXdp::pool_config(256) };
    assert!(!arrive(&bench, &pool, |_| {}));
}

/// A packet that has used up the space in front goes out by a copy.
#[test]
fn a_packet_without_headroom_is_sent_by_a_copy() {
    let test = "a_packet_without_headroom_is_sent_by_a_copy";
    let Some(bench) = Bench::new(test) else { return };
    let to_front = |packet: &mut txq::packet::Packet| {
        let (headroom, len) = (packet.headroom(), packet.len());
        packet.push(headroom).unwrap();
        packet.data_mut().copy_within(headroom.., 0);
        packet.truncate(len);
    };
    let _ = offloads(test, arrive(&bench, &AfXdp::pool_config(256), to_front));
}

/// The sender cuts a packet with segments, and leaves the checksum of each to the kernel.
#[test]
fn segments_get_their_checksums_from_the_kernel() {
    let test = "segments_get_their_checksums_from_the_kernel";
    let Some(bench) = Bench::new(test) else { return };
    let receiver = Receiver::start(&bench.far, "rx0");
    let (dev, offloaded) = bench.start(AfXdpConfig::new("tx0", 1), &AfXdp::pool_config(256), "pfifo");
    if !offloads(test, offloaded.checksum) {
        return;
    }
    let mut sender = dev.sender("s");
    let mut sent = 0;
    for frame in frames(1700) {
        let mut packet = sender.packet(&without_checksum(&frame).0).unwrap();
        assert!(sender.fill_checksum(&mut packet));
        packet.set_gso(500, 4);
        let _ = sender.xmit(packet);
        sent += 4;
    }
    assert!(dev.drain(WITHIN));
    assert_eq!(dev.audit().unwrap().sent, sent);
    assert!(wait_until(WITHIN, || receiver.count() >= sent));
    let found = receiver.finish();
    assert_eq!(found.len() as u64, sent);
    for frame in &found {
        let (right, is) = checksums(frame);
        assert_eq!(is, right, "{frame:x?}");
    }
}

/// Departure times hold with a card that keeps frames until then, and with the others, such as a veth. In copy mode nothing in the kernel
/// could keep them: the frames pass by its qdisc.
#[test]
fn departure_times_hold_though_the_card_keeps_no_frames() {
    const LATE: Duration = Duration::from_millis(30);
    let test = "departure_times_hold_though_the_card_keeps_no_frames";
    let Some(bench) = Bench::new(test) else { return };
    let config = AfXdpConfig { horizon: Duration::from_millis(100), ..AfXdpConfig::new("tx0", 1) };
    let (dev, offloads) = bench.start(config, &AfXdp::pool_config(256), "fq");
    if !offloads.launch_time {
        let why = "needs a card that keeps frames: the kernel's netdev family reports no tx-launch-time-fifo for a veth";
        note_missing(&format!("{test}, by the card"), why);
    }
    bench.near.tc("qdisc replace dev tx0 root pfifo");
    let mut sender = dev.sender("s");
    let mut packet = sender.packet(&frames(100)[0]).unwrap();
    let from = dev.age();
    packet.set_departure(sender.now() + LATE);
    let _ = sender.xmit(packet);
    assert!(dev.drain(WITHIN));
    assert_eq!(dev.audit().unwrap().sent, 1);
    assert!(offloads.launch_time || dev.age() - from >= LATE, "it left {:?} after", dev.age() - from);
    assert_eq!(bench.near.root_qdisc("tx0")["packets"].as_u64(), Some(0), "the kernel's qdisc saw none");
    // fq hands nothing down early to a device that does not keep it.
    let early = dev.tc("qdisc change fq offload_horizon 50ms");
    assert_eq!(early.is_ok(), offloads.launch_time, "{early:?}");
}
