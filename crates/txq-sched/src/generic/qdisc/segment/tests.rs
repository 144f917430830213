//! Segments, parsed and summed up by other code than that which made them.

use etherparse::{NetSlice, PacketBuilder, SlicedPacket, TransportSlice};

use super::*;
use crate::generic::qdisc::testing::Virtual;

fn cut(bench: &mut Virtual, frame: &[u8], size: u16) -> Vec<Vec<u8>> {
    let mut packet = bench.packet(frame.len(), 5);
    packet.data_mut().copy_from_slice(frame);
    packet.set_hash(77);
    packet.set_mark(3);
    packet.set_gso(size, (frame.len() as u16).div_ceil(size.max(1)));
    let segments = bench.with(|_, cx| segment(packet, cx));
    let cookie = segments.front().unwrap().cookie();
    if segments.len() > 1 {
        for packet in segments.iter() {
            assert_eq!(
                (packet.cookie(), packet.hash(), packet.priority(), packet.mark()),
                (cookie, 77, 5, 3)
            );
            assert_eq!((packet.gso(), packet.segs()), ((0, 1), 1));
        }
        assert_eq!(segments.segs(), segments.len() as u64);
    }
    segments.iter().map(|packet| packet.data().to_vec()).collect()
}

fn payload() -> Vec<u8> {
    (0..2501u32).map(|n| (n * 7 + n / 256) as u8).collect()
}

fn tcp(builder: etherparse::PacketBuilderStep<etherparse::IpHeaders>) -> Vec<u8> {
    let mut frame = Vec::new();
    let builder = builder.tcp(80, 90, u32::MAX - 1500, 512).ack(9).fin().psh().cwr();
    let builder = builder.options(&[etherparse::TcpOptionElement::Timestamp(1, 2)]).unwrap();
    builder.write(&mut frame, &payload()).unwrap();
    frame
}

/// Lengths, ids, sequence numbers, flags and checksums are right, and no payload is missing.
#[test]
fn segments_are_right() {
    let mut bench = Virtual::with_room("pfifo", 64, 3000);
    let mut udp6 = Vec::new();
    let builder = PacketBuilder::ethernet2([1; 6], [2; 6])
        .single_vlan(7.try_into().unwrap())
        .ipv6([3; 16], [4; 16], 64);
    builder.udp(5, 6).write(&mut udp6, &payload()).unwrap();
    let mut udp4 = Vec::new();
    PacketBuilder::ethernet2([1; 6], [2; 6])
        .ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64)
        .udp(5, 6)
        .write(&mut udp4, &payload())
        .unwrap();
    let eth = || PacketBuilder::ethernet2([1; 6], [2; 6]);
    for frame in
        [tcp(eth().ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64)), tcp(eth().ipv6([3; 16], [4; 16], 64)), udp6, udp4]
    {
        let segments = cut(&mut bench, &frame, 1000);
        assert_eq!(segments.len(), 3);
        let (mut all, mut id): (Vec<u8>, _) = (Vec::new(), None);
        for (number, segment) in segments.iter().enumerate() {
            let parsed = SlicedPacket::from_ethernet(segment).unwrap();
            let transport = parsed.transport.unwrap();
            match parsed.net.unwrap() {
                NetSlice::Ipv4(ip) => {
                    assert_eq!(ip.header().header_checksum(), ip.header().to_header().calc_header_checksum());
                    let expected = id.map_or(ip.header().identification(), |id: u16| id.wrapping_add(1));
                    assert_eq!(ip.header().identification(), expected);
                    id = Some(expected);
                    match &transport {
                        TransportSlice::Tcp(tcp) => {
                            let sum =
                                tcp.to_header().calc_checksum_ipv4(&ip.header().to_header(), tcp.payload());
                            assert_eq!(tcp.checksum(), sum.unwrap());
                        }
                        TransportSlice::Udp(udp) => {
                            let sum =
                                udp.to_header().calc_checksum_ipv4(&ip.header().to_header(), udp.payload());
                            assert_eq!(udp.checksum(), sum.unwrap());
                        }
                        other => panic!("{other:?}"),
                    }
                }
                NetSlice::Ipv6(ip) => match &transport {
                    TransportSlice::Tcp(tcp) => {
                        let sum = tcp.to_header().calc_checksum_ipv6(&ip.header().to_header(), tcp.payload());
                        assert_eq!(tcp.checksum(), sum.unwrap());
                    }
                    TransportSlice::Udp(udp) => {
                        let sum = udp.to_header().calc_checksum_ipv6(&ip.header().to_header(), udp.payload());
                        assert_eq!(udp.checksum(), sum.unwrap());
                    }
                    other => panic!("{other:?}"),
                },
                other => panic!("{other:?}"),
            }
            match transport {
                TransportSlice::Tcp(tcp) => {
                    assert_eq!(tcp.sequence_number(), (u32::MAX - 1500).wrapping_add(number as u32 * 1000));
                    let (first, last) = (number == 0, number == 2);
                    assert_eq!((tcp.fin(), tcp.psh(), tcp.cwr(), tcp.ack()), (last, last, first, true));
                    all.extend(tcp.payload());
                }
                TransportSlice::Udp(udp) => all.extend(udp.payload()),
                _ => {}
            }
        }
        assert_eq!(all, payload());
    }
    assert_eq!(bench.created, 8);
}

#[test]
fn what_cannot_be_cut_stays_whole() {
    let mut bench = Virtual::with_room("pfifo", 3, 3000);
    let frame = tcp(PacketBuilder::ethernet2([1; 6], [2; 6]).ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64));
    assert_eq!(cut(&mut bench, &frame, 1000).len(), 3);
    // There are no buffers for six.
    assert_eq!(cut(&mut bench, &frame, 500), std::slice::from_ref(&frame));
    assert_eq!(cut(&mut bench, &frame, 2600), std::slice::from_ref(&frame));
    assert_eq!(cut(&mut bench, &frame, 0), std::slice::from_ref(&frame));
    let mut fragment = frame.clone();
    fragment[20] |= 0x20;
    let mut icmp = frame.clone();
    icmp[23] = 1;
    let mut long = frame.clone();
    long[46] = 0xf0;
    let short = frame[..60].to_vec();
    let arp = [&frame[..12], &[8, 6], &frame[14..]].concat();
    for frame in [fragment, icmp, arp, short, vec![0; 3]] {
        assert_eq!(cut(&mut bench, &frame, 1000), std::slice::from_ref(&frame));
    }
    // Options that are not there are payload.
    assert_eq!(cut(&mut bench, &long, 1500).len(), 2);
    assert_eq!(bench.created, 3);
}

proptest::proptest! {
    /// Any bytes, with any claim about them.
    #[test]
    fn any_frame_is_cut_or_not(mut tail in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..200), size in 0u16..90, v6: bool, udp: bool) {
        let mut bench = Virtual::new("pfifo");
        let mut frame = vec![2; 12];
        frame.extend(if v6 { [0x86, 0xdd, 0x60, 0] } else { [8, 0, 0x45, 0] });
        frame.append(&mut tail);
        if let Some(proto) = frame.get_mut(if v6 { 20 } else { 23 }) {
            *proto = if udp { 17 } else { 6 };
        }
        if !v6 && frame.len() > 21 {
            (frame[20], frame[21]) = (0, 0);
        }
        let segments = cut(&mut bench, &frame, size);
        assert_eq!(bench.created as usize, segments.len() - 1);
        assert!(segments.len() == 1 || segments.iter().all(|s| s.len() <= frame.len()));
    }
}
