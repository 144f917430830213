use txq::flow::{Hosts, dissect_ip};

use super::*;

const PAYLOADS: [usize; 6] = [0, 1, 2, 7, 1200, 65_000];

fn built(from: &str, to: &str, tos: u8, len: usize) -> (Datagram, Vec<u8>) {
    let datagram = Datagram::new(to.parse().unwrap()).from(from.parse().unwrap()).tos(tos);
    let mut bytes: Vec<u8> = (0..datagram.header_len() + len).map(|n| n as u8).collect();
    datagram.write(&mut bytes).unwrap();
    (datagram, bytes)
}

/// Returns the sum of the 16-bit words in one's complement (RFC 1071).
fn sum<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> u16 {
    let bytes: Vec<u8> = parts.into_iter().flatten().copied().collect();
    let word = |word: &[u8]| u32::from(word[0]) << 8 | u32::from(*word.get(1).unwrap_or(&0));
    let mut sum: u32 = bytes.chunks(2).map(word).sum();
    while sum > 0xffff {
        sum = (sum >> 16) + (sum & 0xffff);
    }
    sum as u16
}

#[test]
fn headers_that_are_written_are_read() {
    for (from, to) in [("192.0.2.1:5", "198.51.100.2:65535"), ("[2001:db8::1]:1", "[2001:db8::2]:2")] {
        for (tos, len) in [0, 1, 0xb8, 0xff].into_iter().flat_map(|tos| PAYLOADS.map(|len| (tos, len))) {
            let (datagram, mut bytes) = built(from, to, tos, len);
            bytes.extend([0; 6]); // what pads a short frame
            let (read, payload) = Datagram::parse(&bytes).unwrap();
            assert_eq!(read, datagram);
            assert_eq!((read.source(), read.destination()), (from.parse().unwrap(), to.parse().unwrap()));
            assert_eq!(read.traffic_class(), tos);
            let sent = &bytes[datagram.header_len()..][..len];
            assert_eq!(payload, sent);
        }
    }
}

#[test]
fn checksums_are_right() {
    for len in PAYLOADS {
        let (_, v4) = built("192.0.2.1:5", "198.51.100.2:6", 3, len);
        assert_eq!(sum([&v4[..20]]), 0xffff);
        let (ip, _) = Ipv4Header::from_slice(&v4).unwrap();
        assert_eq!((ip.header_checksum, ip.dont_fragment), (ip.calc_header_checksum(), true));
        assert_eq!(v4[26..28], [0, 0], "no UDP checksum");
        assert_eq!(usize::from(u16::from_be_bytes([v4[2], v4[3]])), v4.len());
        let (_, v6) = built("[2001:db8::1]:1", "[2001:db8::2]:2", 3, len);
        assert_ne!(v6[46..48], [0, 0]);
        let length = ((v6.len() - 40) as u32).to_be_bytes();
        assert_eq!(sum([&v6[8..40], &length, &[0, 0, 0, 17], &v6[40..]]), 0xffff, "{len}");
    }
}

#[test]
fn mapped_addresses_are_ipv4() {
    let datagram = Datagram::new("[::ffff:192.0.2.1]:7".parse().unwrap());
    assert_eq!(datagram.destination(), "192.0.2.1:7".parse().unwrap());
    assert_eq!(datagram.header_len(), 28);
    assert_eq!(datagram.source(), "0.0.0.0:0".parse().unwrap());
    // A source of the other family cannot stand in the header.
    assert_eq!(datagram.from("[2001:db8::1]:9".parse().unwrap()).source(), "0.0.0.0:9".parse().unwrap());
}

#[test]
fn headers_that_make_no_sense_are_told_apart() {
    use DropReason::{HdrTrunc, UnhandledProto};
    let reason = |bytes: &[u8]| Datagram::parse(bytes).unwrap_err();
    for (from, to) in [("192.0.2.1:5", "198.51.100.2:6"), ("[2001:db8::1]:1", "[2001:db8::2]:2")] {
        let (datagram, bytes) = built(from, to, 0, 10);
        for len in 0..bytes.len() {
            assert_eq!(reason(&bytes[..len]), HdrTrunc, "{len}");
        }
        let with = |at: usize, value: u8| {
            let mut bytes = bytes.clone();
            bytes[at] = value;
            reason(&bytes)
        };
        let (proto, udp) = (if datagram.header_len() == 28 { 9 } else { 6 }, datagram.header_len() - 8);
        assert_eq!(with(proto, 6), UnhandledProto, "TCP");
        assert_eq!(with(0, 0x10), UnhandledProto, "neither IPv4 nor IPv6");
        assert_eq!(with(udp + 5, 7), HdrTrunc, "shorter than a UDP header");
        assert_eq!(with(udp + 5, 19), HdrTrunc, "longer than the packet");
        if proto == 9 {
            assert_eq!(with(0, 0x44), HdrTrunc, "a header of 16 bytes");
            assert_eq!(with(6, 0x20), UnhandledProto, "a first fragment");
            assert_eq!(with(7, 1), UnhandledProto, "a later fragment");
        }
    }
}

#[test]
fn lengths_that_ip_cannot_carry_are_refused() {
    let v4 = Datagram::new("192.0.2.1:5".parse().unwrap());
    assert_eq!(v4.write(&mut vec![0; 65_535]), Some(()));
    assert_eq!(v4.write(&mut vec![0; 65_536]), None);
    assert_eq!(v4.write(&mut [0; 27]), None);
    let v6 = Datagram::new("[2001:db8::1]:5".parse().unwrap());
    assert_eq!(v6.write(&mut vec![0; 65_575]), Some(()));
    assert_eq!(v6.write(&mut vec![0; 65_576]), None);
    assert_eq!(v6.write(&mut [0; 47]), None);
}

/// The fast way to read a header accepts only what the other accepts, with the same result.
#[test]
fn alike_headers_are_read_as_all_others() {
    for (from, to) in [("192.0.2.1:5", "198.51.100.2:6"), ("[2001:db8::1]:1", "[2001:db8::2]:2")] {
        let (_, first) = built(from, to, 4, 10);
        for len in PAYLOADS {
            let (datagram, second) = built(from, to, 4, len);
            assert_eq!(Datagram::parse_alike(&second, &first), Some(&second[datagram.header_len()..]));
        }
        let (datagram, bytes) = built(from, to, 4, 10);
        for at in 0..datagram.header_len() {
            for value in [0, 1, 5, 0x40, 0x46, 0x61, 0xff] {
                let mut changed = bytes.clone();
                changed[at] = value;
                if let Some(payload) = Datagram::parse_alike(&changed, &first) {
                    assert_eq!(Datagram::parse(&changed), Ok((datagram, payload)), "byte {at} is {value}");
                }
            }
        }
        for len in 0..bytes.len() {
            assert_eq!(Datagram::parse_alike(&bytes[..len], &first), None);
            let alike = Datagram::parse_alike(&bytes, &first[..len.min(datagram.header_len() - 1)]);
            assert_eq!(alike, None);
        }
    }
}

#[test]
fn headers_that_are_written_are_dissected() {
    for (from, to, port) in
        [("192.0.2.1:7", "198.51.100.9:53", 53), ("[2001:db8::1]:7", "[2001:db8::9]:443", 443)]
    {
        let (datagram, bytes) = built(from, to, 0xb9, 5);
        let found = dissect_ip(&bytes);
        assert_eq!(
            (found.tos, found.keys.src_port, found.keys.dst_port, found.ip_proto),
            (0xb9, 7, port, 17)
        );
        assert!(!matches!(found.keys.hosts, Hosts::Unknown | Hosts::Mac { .. }));
        assert!(Datagram::parse(&bytes[..20]).is_err());
        assert_eq!(datagram.source().port(), 7);
    }
    assert!(Datagram::parse(&[]).is_err());
    assert!(Datagram::parse(&[0xff; 64]).is_err());
}
