use proptest::prelude::*;
use txq::pool::{Backing, Pool, PoolConfig};

use super::*;

/// IPv4 and UDP with a right checksum, behind an Ethernet header.
fn udp() -> Vec<u8> {
    let mut frame = vec![0; 12];
    frame.extend([8, 0, 0x45, 0, 0, 33, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    frame.extend([0, 7, 0, 9, 0, 13, 0, 0, 1, 2, 3, 4, 5]);
    frame
}

/// The sum over the pseudo header and the packet, which a right checksum makes 0xffff.
fn total(frame: &[u8]) -> u16 {
    fold(sum(&frame[26..34]) + 17 + 13 + sum(&frame[34..]))
}

#[test]
fn a_checksum_left_to_the_card_is_computed() {
    let mut frame = udp();
    let seed = fold(sum(&frame[26..34]) + 17 + 13);
    frame[40..42].copy_from_slice(&seed.to_be_bytes());
    let vnet = Vnet { flags: NEEDS_CSUM, csum_start: 34, csum_offset: 6, ..Vnet::default() };
    assert_eq!(Vnet::from_bytes(vnet.to_bytes()), vnet);
    assert_eq!(vnet.complete(&mut frame, Link::Ethernet), Ok(None));
    assert_eq!(total(&frame), 0xffff);
    for (csum_start, csum_offset) in [(46, 0), (45, 2), (100, 6), (34, 60_000), (u16::MAX, u16::MAX)] {
        let wrong = Vnet { csum_start, csum_offset, ..vnet };
        assert_eq!(wrong.complete(&mut frame, Link::Ethernet), Err(Malformed));
    }
    assert_eq!(Vnet::default().complete(&mut frame, Link::Ethernet), Ok(None));
}

#[test]
fn segments_get_the_sum_of_the_pseudo_header() {
    let config = PoolConfig { buffers: 32, backing: Backing::Heap, ..PoolConfig::default() };
    let mut cache = Pool::new(&config).unwrap().cache("test", 0);
    let mut packet = cache.alloc(udp().len()).unwrap();
    packet.data_mut().copy_from_slice(&udp());
    assert_eq!(Vnet::of(&packet), Some(Vnet::default()));
    packet.set_gso(2, 3);
    assert!(Vnet::prepare(&mut packet));
    let vnet = Vnet::of(&packet).unwrap();
    let expected = Vnet {
        flags: NEEDS_CSUM,
        gso_type: GSO_UDP_L4,
        hdr_len: 42,
        gso_size: 2,
        csum_start: 34,
        csum_offset: 6,
    };
    assert_eq!((vnet, vnet.gso_size()), (expected, Some(2)));
    assert_eq!(vnet.write_checksum(packet.data_mut()), Ok(()));
    assert_eq!(total(packet.data()), 0xffff);
    packet.data_mut()[23] = 1;
    assert!(!Vnet::prepare(&mut packet), "ICMP has no segments");
    assert_eq!(Vnet::of(&packet), None);
}

/// An IPv4 packet of TCP with 100 bytes of payload.
fn tcp() -> Vec<u8> {
    let mut packet = vec![0x45, 0, 0, 140, 1, 2, 0, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
    packet.extend([0, 7, 0, 9, 0, 0, 0, 1, 0, 0, 0, 1, 5 << 4, 0x10, 1, 0, 0, 0, 0, 0]);
    packet.extend(0..100);
    packet
}

fn layout(packet: &[u8]) -> Layout {
    Layout::of(packet, &Link::Ip.dissect(packet)).unwrap()
}

/// Returns a header in the byte order of the machine.
fn bytes(fields: [u16; 4], kind: u8) -> [u8; LEN] {
    [&[1, kind], fields.map(u16::to_ne_bytes).as_flattened()].concat().try_into().unwrap()
}

#[test]
fn the_fields_are_where_virtio_has_them() {
    let mut packet = tcp();
    let found = layout(&packet);
    assert_eq!((found.network, found.transport, found.payload), (0, 20, 40));
    assert_eq!(Vnet::new(&found, &packet, 1000).to_bytes(), bytes([40, 1000, 20, 16], 1));
    assert_eq!(Vnet::new(&found, &packet, 0).to_bytes(), bytes([40, 0, 20, 16], 0));
    packet[33] |= CWR;
    assert_eq!(Vnet::new(&layout(&packet), &packet, 1).to_bytes()[1], 0x81);
    packet[9] = 17;
    assert_eq!(Vnet::new(&layout(&packet), &packet, 1).to_bytes(), bytes([28, 1, 20, 6], 5));
    let frame = [&[0; 12][..], &[8, 0], &packet].concat();
    let found = Layout::of(&frame, &Link::Ethernet.dissect(&frame)).unwrap();
    assert_eq!(Vnet::new(&found, &frame, 1).to_bytes(), bytes([42, 1, 34, 6], 5));
}

#[test]
fn a_partial_checksum_is_completed() {
    let mut packet = tcp();
    let found = layout(&packet);
    let partial = partial(&found, &packet, 100);
    packet[36..38].copy_from_slice(&partial);
    let header = Vnet::new(&found, &packet, 0).to_bytes();
    assert_eq!(Vnet::from_bytes(header).complete(&mut packet, Link::Ip), Ok(None));
    // The sum over the pseudo-header and all that follows is complete.
    assert_eq!(fold(sum(&packet[20..]) + u64::from(u16::from_be_bytes(partial))), 0xffff);
}

/// A checksum of 0 would mean that there is none.
#[test]
fn a_checksum_of_zero_is_stored_as_ones() {
    let header = [NEEDS_CSUM, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let mut packet = [0xff, 0xff, 0, 0];
    assert_eq!(Vnet::from_bytes(header).complete(&mut packet, Link::Ip), Ok(None));
    assert_eq!(packet[..2], [0xff, 0xff]);
}

#[test]
fn segments_are_counted_by_the_payload() {
    let mut packet = tcp();
    let header = |kind: u8, size: u16, flags: u8| {
        let mut header = bytes([0xffff, size, 20, 16], kind);
        header[0] = flags;
        header
    };
    for (size, segs) in [(10, 10), (33, 4), (99, 2)] {
        for flags in [0, NEEDS_CSUM] {
            let before = packet.clone();
            let done =
                Vnet::from_bytes(header(GSO_TCPV4 | GSO_ECN, size, flags)).complete(&mut packet, Link::Ip);
            assert_eq!((done, &packet), (Ok(Some((size, segs))), &before));
        }
    }
    // One segment is a packet like any other.
    assert_eq!(
        Vnet::from_bytes(header(GSO_TCPV4, 100, NEEDS_CSUM)).complete(&mut packet, Link::Ip),
        Ok(None)
    );
    let mut malformed =
        |header| assert_eq!(Vnet::from_bytes(header).complete(&mut packet, Link::Ip), Err(Malformed));
    malformed(header(GSO_TCPV4, 0, NEEDS_CSUM));
    // UFO, which the kernel does not offer, and a kind that virtio does not know.
    malformed(header(3, 10, NEEDS_CSUM));
    malformed(header(77, 10, 0));
    // The packet is no UDP, and has no header at 200.
    malformed(header(GSO_UDP_L4, 10, 0));
    malformed(bytes([0, 10, 200, 16], GSO_TCPV4));
    malformed(bytes([0, 0, 200, 16], GSO_NONE));
    malformed(bytes([0, 0, 139, 0], GSO_NONE));
}

proptest! {
    /// No header and no packet makes it panic.
    #[test]
    fn any_header_is_accepted_or_malformed(
        mut header: [u8; LEN],
        mut packet in proptest::collection::vec(any::<u8>(), 0..120),
        is_tap: bool,
    ) {
        header[0] &= 1;
        header[1] &= 7;
        // Offsets below 256, on a machine of either byte order.
        for at in [6, 8] {
            let offset = u16::from_ne_bytes([header[at], header[at + 1]]) % 256;
            header[at..at + 2].copy_from_slice(&offset.to_ne_bytes());
        }
        let _ = Vnet::from_bytes(header).complete(&mut packet, if is_tap { Link::Ethernet } else { Link::Ip });
    }
}
