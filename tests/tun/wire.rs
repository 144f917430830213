//! IP packets of TCP and UDP, built and checked by rules of their own.

use std::net::{IpAddr, SocketAddr};

pub(crate) const TCP: u8 = 6;
pub(crate) const UDP: u8 = 17;

/// Returns an IP packet with complete checksums; each byte of the payload tells its offset.
pub(crate) fn packet(proto: u8, from: &str, to: &str, payload: usize) -> Vec<u8> {
    let payload: Vec<u8> = (0..payload).map(byte_at).collect();
    packet_of(proto, from.parse().unwrap(), to.parse().unwrap(), &payload)
}

/// Returns the byte at an offset of a payload.
pub(crate) fn byte_at(offset: usize) -> u8 {
    (offset % 251) as u8
}

pub(crate) fn packet_of(proto: u8, from: SocketAddr, to: SocketAddr, payload: &[u8]) -> Vec<u8> {
    let mut transport = [from.port().to_be_bytes(), to.port().to_be_bytes()].concat();
    if proto == TCP {
        // Sequence number 1000, an acknowledgement, and the flags PSH and ACK; FIN comes with the last segment.
        transport.extend([0, 0, 3, 232, 0, 0, 0, 1, 5 << 4, 0x19, 1, 0, 0, 0, 0, 0]);
    } else {
        transport.extend((8 + payload.len() as u16).to_be_bytes());
        transport.extend([0, 0]);
    }
    transport.extend(payload);
    let mut packet = header(proto, from.ip(), to.ip(), transport.len());
    let at = if proto == TCP { 16 } else { 6 };
    let checksum = match !sum(&[pseudo(&packet, transport.len()), transport.clone()].concat()) {
        0 if proto == UDP => 0xffff,
        checksum => checksum,
    };
    transport[at..at + 2].copy_from_slice(&checksum.to_be_bytes());
    packet.extend(transport);
    packet
}

fn header(proto: u8, from: IpAddr, to: IpAddr, len: usize) -> Vec<u8> {
    match (from, to) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            let total = (20 + len as u16).to_be_bytes();
            let mut header = vec![0x45, 0, total[0], total[1], 1, 2, 0x40, 0, 64, proto, 0, 0];
            header.extend([from.octets(), to.octets()].concat());
            let checksum = !sum(&header);
            header[10..12].copy_from_slice(&checksum.to_be_bytes());
            header
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            let len = (len as u16).to_be_bytes();
            let mut header = vec![0x60, 0, 0, 0, len[0], len[1], proto, 64];
            header.extend([from.octets(), to.octets()].concat());
            header
        }
        _ => panic!("two versions of IP"),
    }
}

/// A packet of TCP or UDP, taken apart.
pub(crate) struct Parsed {
    pub(crate) source: u16,
    /// Of TCP; of IPv4 the identification for UDP.
    pub(crate) sequence: u32,
    pub(crate) flags: u8,
    pub(crate) payload: Vec<u8>,
}

/// Takes an IP packet apart; all its lengths and checksums must be right.
#[track_caller]
pub(crate) fn parse(packet: &[u8]) -> Parsed {
    let is_v4 = packet[0] >> 4 == 4;
    let (head, len, proto) = if is_v4 {
        assert_eq!(sum(&packet[..20]), 0xffff, "checksum of the header");
        (20, usize::from(word(packet, 2)) - 20, packet[9])
    } else {
        (40, word(packet, 4).into(), packet[6])
    };
    let transport = &packet[head..];
    assert_eq!(transport.len(), len, "length of the packet");
    assert_eq!(sum(&[pseudo(packet, len), transport.to_vec()].concat()), 0xffff, "checksum of the transport");
    let (sequence, flags, at) = match proto {
        TCP => {
            let sequence = u32::from(word(transport, 4)) << 16 | u32::from(word(transport, 6));
            (sequence, transport[13], usize::from(transport[12] >> 4) * 4)
        }
        UDP => {
            assert_eq!(usize::from(word(transport, 4)), len, "length of the datagram");
            (if is_v4 { word(packet, 4).into() } else { 0 }, 0, 8)
        }
        other => panic!("protocol {other}"),
    };
    Parsed { source: word(transport, 0), sequence, flags, payload: transport[at..].to_vec() }
}

fn pseudo(packet: &[u8], len: usize) -> Vec<u8> {
    let (addresses, proto) =
        if packet[0] >> 4 == 4 { (&packet[12..20], packet[9]) } else { (&packet[8..40], packet[6]) };
    [addresses, &(len as u32).to_be_bytes(), &[0, 0, 0, proto]].concat()
}

pub(crate) fn word(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

/// Returns the sum of 16-bit words in one's complement arithmetic (RFC 1071).
pub(crate) fn sum(bytes: &[u8]) -> u16 {
    let word = |word: &[u8]| u32::from(word[0]) << 8 | u32::from(*word.get(1).unwrap_or(&0));
    bytes.chunks(2).map(word).fold(0, |sum, word| {
        let sum = sum + word;
        (sum & 0xffff) + (sum >> 16)
    }) as u16
}

/// Puts an Ethernet header in front of an IP packet.
pub(crate) fn frame(packet: &[u8], to: [u8; 6]) -> Vec<u8> {
    let ethertype = if packet[0] >> 4 == 4 { [8, 0] } else { [0x86, 0xdd] };
    [&to, &[2, 0, 0, 0, 0, 9][..], &ethertype, packet].concat()
}
