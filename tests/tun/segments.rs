//! Packets with segments to the kernel.

use std::net::UdpSocket;
use std::time::Duration;

use txq::drop::DropReason;
use txq::{NetDev, Sender};
use txq_device::Tun;

use crate::support::netns::Netns;
use crate::support::process::wait_until;
use crate::support::receiver::Receiver;
use crate::wire::{Parsed, TCP, UDP, byte_at, frame, packet, parse, word};
use crate::{PATIENCE, builder, long_buffers, namespace, open};

/// Sends a packet that has `segs` segments. Its transport checksum is garbage.
fn send_cut(sender: &mut Sender, mut bytes: Vec<u8>, checksum_at: usize, size: u16, segs: u16) {
    bytes[checksum_at..checksum_at + 2].copy_from_slice(&[0xde, 0xad]);
    let mut packet = sender.packet(&bytes).unwrap();
    packet.set_gso(size, segs);
    let _ = sender.xmit(packet);
}

/// Checks the segments of a packet: each has `size` bytes of payload but for the last one, and together they are the whole.
#[track_caller]
fn assert_segments(segments: &[Parsed], proto: u8, size: usize, payload: usize) {
    assert_eq!(segments.len(), payload.div_ceil(size));
    for (number, segment) in segments.iter().enumerate() {
        let at = number * size;
        let expected: Vec<u8> = (at..payload.min(at + size)).map(byte_at).collect();
        assert!(segment.payload == expected, "segment {number} of {} bytes", segment.payload.len());
        if proto == TCP {
            assert_eq!(segment.sequence, 1000 + at as u32);
            // PSH and FIN are only in the last one.
            assert_eq!(segment.flags, if number + 1 == segments.len() { 0x19 } else { 0x10 });
        }
    }
}

/// A TAP bridged to a veth without offloads: the kernel cuts the packets before they leave, and they arrive as on a wire.
#[test]
fn the_kernel_cuts_packets_of_tcp_and_udp() {
    let Some(near) = namespace("the_kernel_cuts_packets_of_tcp_and_udp") else { return };
    let far = Netns::new();
    near.connect("v0", &far, "v1", 1);
    near.ip("link add br0 type bridge mcast_snooping 0");
    let tap = open(Tun::create_tap("t0"), &near);
    for interface in ["v0", "t0"] {
        near.ip(&format!("link set {interface} master br0"));
    }
    near.ip("link set br0 up");
    let forwarding = || near.ip("-d link show dev t0").contains("state forwarding");
    assert!(wait_until(PATIENCE, forwarding));
    let dev = builder(tap).pool_config(long_buffers(64)).start().unwrap();
    let mut sender = dev.sender("s");
    let addresses = [("10.0.0.2:7", "10.0.0.9:9"), ("[fd00::2]:7", "[fd00::1]:9")];
    for (proto, size, payload) in [
        (TCP, 1440, 64_000),
        (TCP, 1000, 2001),
        (TCP, 536, 536),
        (TCP, 536, 537),
        (UDP, 1200, 63_000),
        (UDP, 100, 12_800),
        // More than the kernel cuts.
        (UDP, 100, 12_801),
        (UDP, 10, 5000),
        (UDP, 1, 2),
    ] {
        for (from, to) in addresses {
            let receiver = Receiver::start(&far, "v1");
            let bytes = packet(proto, from, to, payload);
            let head = if from.starts_with('[') { 54 } else { 34 };
            let checksum_at = head + if proto == TCP { 16 } else { 6 };
            let segs = payload.div_ceil(size.into()) as u16;
            send_cut(&mut sender, frame(&bytes, [2, 0, 0, 0, 0, 1]), checksum_at, size, segs.max(2));
            assert!(dev.drain(PATIENCE));
            let what = format!("{proto} {size} {payload} {from}");
            assert!(wait_until(PATIENCE, || receiver.count() >= segs.into()), "{what}: {}", receiver.count());
            let frames = receiver.finish();
            let segments: Vec<Parsed> = frames.iter().map(|frame| parse(&frame[14..])).collect();
            assert_segments(&segments, proto, size.into(), payload);
            if proto == UDP && !from.starts_with('[') {
                assert!(
                    segments.windows(2).all(|pair| pair[1].sequence == pair[0].sequence + 1),
                    "{what}: ids"
                );
            }
        }
    }
    assert_eq!(dev.audit().unwrap().dropped.total(), 0);
}

/// The kernel's UDP receives datagrams, also where the packet stays whole on its way to the socket.
#[test]
fn a_socket_receives_the_datagrams_of_one_packet() {
    let Some(netns) = namespace("a_socket_receives_the_datagrams_of_one_packet") else { return };
    let tun = open(Tun::create("t0"), &netns);
    netns.ip("addr add 10.0.0.1/24 dev t0");
    let socket = netns.call(|| UdpSocket::bind("10.0.0.1:9").unwrap());
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let dev = builder(tun).pool_config(long_buffers(64)).start().unwrap();
    let mut sender = dev.sender("s");
    for (size, payload) in [(1472, 60_000), (100, 20_000), (500, 501)] {
        let segs = payload_segs(payload, size);
        send_cut(&mut sender, packet(UDP, "10.0.0.2:7", "10.0.0.1:9", payload), 26, size, segs);
        let mut buffer = [0; 2000];
        for number in 0..segs {
            let (len, from) =
                socket.recv_from(&mut buffer).unwrap_or_else(|error| panic!("{number} of {size}: {error}"));
            let at = usize::from(number) * usize::from(size);
            let expected: Vec<u8> = (at..payload.min(at + usize::from(size))).map(byte_at).collect();
            assert_eq!((&buffer[..len], from.to_string()), (&expected[..], "10.0.0.2:7".to_owned()));
        }
    }
    socket.set_nonblocking(true).unwrap();
    assert!(socket.recv(&mut [0; 10]).is_err());
}

fn payload_segs(payload: usize, size: u16) -> u16 {
    payload.div_ceil(size.into()) as u16
}

#[test]
fn packets_that_cannot_be_cut_are_dropped() {
    let Some(netns) = namespace("packets_that_cannot_be_cut_are_dropped") else { return };
    let dev = builder(open(Tun::create("t0"), &netns)).pool_config(long_buffers(64)).start().unwrap();
    let mut sender = dev.sender("s");
    let tcp = packet(TCP, "10.0.0.2:7", "10.0.0.1:9", 4000);
    let (mut fragment, mut cut, mut icmp, mut header) = (tcp.clone(), tcp.clone(), tcp.clone(), tcp.clone());
    fragment[6] = 0x20;
    cut.truncate(38);
    icmp[9] = 1;
    header[32] = 4 << 4;
    for (bytes, size) in
        [(fragment, 1000), (cut, 10), (icmp, 1000), (header, 1000), (tcp.clone(), 0), (tcp.clone(), 1461)]
    {
        let mut packet = sender.packet(&bytes).unwrap();
        packet.set_gso(size, 4);
        let _ = sender.xmit(packet);
    }
    assert!(dev.drain(PATIENCE));
    let stats = dev.audit().unwrap();
    assert_eq!((stats.sent, stats.dropped.get(DropReason::PktTooBig)), (0, 6), "{stats:?}");
}

/// Without the virtio-net header the sender cuts; the interface receives each segment.
#[test]
fn without_a_header_the_sender_cuts() {
    let Some(netns) = namespace("without_a_header_the_sender_cuts") else { return };
    let tun = open(Tun::create("t0").vnet_header(false), &netns);
    let receiver = Receiver::start(&netns, "t0");
    let dev: NetDev = builder(tun).pool_config(long_buffers(64)).start().unwrap();
    assert!(!dev.info().gso);
    let mut sender = dev.sender("s");
    send_cut(&mut sender, packet(TCP, "10.0.0.2:7", "10.0.0.1:9", 6000), 36, 1000, 6);
    assert_eq!(crate::settle(&dev, &netns).sent, 6);
    assert!(wait_until(Duration::from_secs(5), || receiver.count() >= 6));
    let packets = receiver.finish();
    assert!(packets.iter().all(|packet| word(packet, 2) == 1040));
    assert_segments(&packets.iter().map(|packet| parse(packet)).collect::<Vec<_>>(), TCP, 1000, 6000);
}
