use super::*;
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

#[test]
fn the_fields_are_where_virtio_has_them() {
    let mut packet = tcp();
    let found = layout(&packet);
    assert_eq!((found.network, found.transport, found.payload), (0, 20, 40));
    assert_eq!(found.header(&packet, 1000), [1, 1, 40, 0, 0xe8, 3, 20, 0, 16, 0]);
    assert_eq!(found.header(&packet, 0), [1, 0, 40, 0, 0, 0, 20, 0, 16, 0]);
    packet[33] |= CWR;
    assert_eq!(layout(&packet).header(&packet, 1)[1], 0x81);
    packet[9] = 17;
    assert_eq!(layout(&packet).header(&packet, 1), [1, 5, 28, 0, 1, 0, 20, 0, 6, 0]);
    let frame = [&[0; 12][..], &[8, 0], &packet].concat();
    let found = Layout::of(&frame, Kind::Tap).unwrap();
    assert_eq!(found.header(&frame, 1), [1, 5, 42, 0, 1, 0, 34, 0, 6, 0]);
}

#[test]
fn a_partial_checksum_is_completed() {
    let mut packet = tcp();
    let found = layout(&packet);
    let partial = found.partial(&packet, 120);
    packet[36..38].copy_from_slice(&partial);
    let header = found.header(&packet, 0);
    assert_eq!(complete(&header, &mut packet, Kind::Tun), Ok(None));
    // The sum over the pseudo-header and all that follows is complete.
    assert_eq!(fold(sum(&packet[20..]) + u64::from(u16::from_ne_bytes(partial))), [0xff, 0xff]);
}

/// A checksum of 0 would mean that there is none.
#[test]
fn a_checksum_of_zero_is_stored_as_ones() {
    let header = [NEEDS_CSUM, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let mut packet = [0xff, 0xff, 0, 0];
    assert_eq!(complete(&header, &mut packet, Kind::Tun), Ok(None));
    assert_eq!(packet[..2], [0xff, 0xff]);
}

#[test]
fn segments_are_counted_by_the_payload() {
    let mut packet = tcp();
    let header = |kind: u8, size: u8, flags: u8| [flags, kind, 0xff, 0xff, size, 0, 20, 0, 16, 0];
    for (size, segs) in [(10, 10), (33, 4), (99, 2)] {
        for flags in [0, NEEDS_CSUM] {
            let before = packet.clone();
            let done = complete(&header(GSO_TCPV4 | GSO_ECN, size, flags), &mut packet, Kind::Tun);
            assert_eq!((done, &packet), (Ok(Some((size.into(), segs))), &before));
        }
    }
    // One segment is a packet like any other.
    assert_eq!(complete(&header(GSO_TCPV4, 100, NEEDS_CSUM), &mut packet, Kind::Tun), Ok(None));
    let mut malformed = |header| assert_eq!(complete(&header, &mut packet, Kind::Tun), Err(Malformed));
    malformed(header(GSO_TCPV4, 0, NEEDS_CSUM));
    // UFO, which the kernel does not offer, and a kind that virtio does not know.
    malformed(header(3, 10, NEEDS_CSUM));
    malformed(header(77, 10, 0));
    // The packet is no UDP, and has no header at 200.
    malformed(header(GSO_UDP_L4, 10, 0));
    malformed([NEEDS_CSUM, GSO_TCPV4, 0, 0, 10, 0, 200, 0, 16, 0]);
    malformed([NEEDS_CSUM, 0, 0, 0, 0, 0, 200, 0, 16, 0]);
    malformed([NEEDS_CSUM, 0, 0, 0, 0, 0, 139, 0, 0, 0]);
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
        header[7] = 0;
        header[9] = 0;
        let _ = complete(&header, &mut packet, if is_tap { Kind::Tap } else { Kind::Tun });
    }

    /// The sum is that of 16-bit words in network order (RFC 1071).
    #[test]
    fn sums_are_those_of_words(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let word = |word: &[u8]| u64::from(word[0]) << 8 | u64::from(*word.get(1).unwrap_or(&0));
        let mut expected: u64 = bytes.chunks(2).map(word).sum();
        while expected > 0xffff {
            expected = (expected >> 16) + (expected & 0xffff);
        }
        prop_assert_eq!(u16::from_be_bytes(fold(sum(&bytes))), expected as u16);
    }
}
