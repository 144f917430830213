use super::*;
use crate::vnet::{LEN, sum};
use proptest::prelude::*;

/// An IPv4 packet of TCP with 100 bytes of payload.
fn tcp() -> Vec<u8> {
    let mut packet = vec![0x45, 0, 0, 140, 1, 2, 0, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
    packet.extend([0, 7, 0, 9, 0, 0, 0, 1, 0, 0, 0, 1, 5 << 4, 0x10, 1, 0, 0, 0, 0, 0]);
    packet.extend(0..100);
    packet
}

fn layout(packet: &[u8]) -> Layout {
    Layout::of(packet, Kind::Tun).unwrap()
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
    assert_eq!(found.header(&packet, 1000), bytes([40, 1000, 20, 16], 1));
    assert_eq!(found.header(&packet, 0), bytes([40, 0, 20, 16], 0));
    packet[33] |= CWR;
    assert_eq!(layout(&packet).header(&packet, 1)[1], 0x81);
    packet[9] = 17;
    assert_eq!(layout(&packet).header(&packet, 1), bytes([28, 1, 20, 6], 5));
    let frame = [&[0; 12][..], &[8, 0], &packet].concat();
    let found = Layout::of(&frame, Kind::Tap).unwrap();
    assert_eq!(found.header(&frame, 1), bytes([42, 1, 34, 6], 5));
}

#[test]
fn a_partial_checksum_is_completed() {
    let mut packet = tcp();
    let found = layout(&packet);
    let partial = found.partial(120);
    packet[36..38].copy_from_slice(&partial);
    let header = found.header(&packet, 0);
    assert_eq!(complete(header, &mut packet, Kind::Tun), Ok(None));
    // The sum over the pseudo-header and all that follows is complete.
    assert_eq!(fold(sum(&packet[20..]) + u64::from(u16::from_be_bytes(partial))), 0xffff);
}

/// A checksum of 0 would mean that there is none.
#[test]
fn a_checksum_of_zero_is_stored_as_ones() {
    let header = [NEEDS_CSUM, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let mut packet = [0xff, 0xff, 0, 0];
    assert_eq!(complete(header, &mut packet, Kind::Tun), Ok(None));
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
            let done = complete(header(GSO_TCPV4 | GSO_ECN, size, flags), &mut packet, Kind::Tun);
            assert_eq!((done, &packet), (Ok(Some((size, segs))), &before));
        }
    }
    // One segment is a packet like any other.
    assert_eq!(complete(header(GSO_TCPV4, 100, NEEDS_CSUM), &mut packet, Kind::Tun), Ok(None));
    let mut malformed = |header| assert_eq!(complete(header, &mut packet, Kind::Tun), Err(Malformed));
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
        let _ = complete(header, &mut packet, if is_tap { Kind::Tap } else { Kind::Tun });
    }
}
