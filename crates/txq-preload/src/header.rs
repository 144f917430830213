//! The headers of a waiting datagram: an IPv4 or IPv6 header and a UDP header, so that qdiscs and filters see what they see in
//! the kernel. The driver reads them back: a qdisc may have marked congestion.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

const UDP: usize = 8;
const V4: usize = 20 + UDP;
const V6: usize = 40 + UDP;
/// Protocol number of UDP.
const PROTO: u8 = 17;
/// Hops, as Linux's default.
const TTL: u8 = 64;

/// The addresses and the type of service of a datagram. Both addresses are of one family, mapped ones are IPv4.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) from: SocketAddr,
    pub(crate) to: SocketAddr,
    /// TOS byte or traffic class.
    pub(crate) tos: u8,
}

impl Header {
    /// Returns the length of the headers, in bytes.
    pub(crate) fn len(&self) -> usize {
        if self.to.is_ipv4() { V4 } else { V6 }
    }

    /// Returns the longest payload, in bytes.
    pub(crate) fn longest(&self) -> usize {
        if self.to.is_ipv4() { 65_535 - V4 } else { 65_535 - UDP }
    }

    /// Writes the headers to the first bytes of `packet`; the rest of it is the payload. The checksums are 0: the kernel
    /// computes those of the datagram that leaves.
    pub(crate) fn write(&self, packet: &mut [u8]) {
        let whole = packet.len();
        let udp = |at: usize, bytes: &mut [u8]| {
            bytes[at..at + 2].copy_from_slice(&self.from.port().to_be_bytes());
            bytes[at + 2..at + 4].copy_from_slice(&self.to.port().to_be_bytes());
            bytes[at + 4..at + 6].copy_from_slice(&((whole - at) as u16).to_be_bytes());
            bytes[at + 6..at + 8].fill(0);
        };
        match (self.from.ip(), self.to.ip()) {
            (IpAddr::V6(from), IpAddr::V6(to)) => {
                packet[..8].copy_from_slice(&[0x60 | self.tos >> 4, self.tos << 4, 0, 0, 0, 0, PROTO, TTL]);
                packet[4..6].copy_from_slice(&((whole - 40) as u16).to_be_bytes());
                packet[8..24].copy_from_slice(&from.octets());
                packet[24..40].copy_from_slice(&to.octets());
                udp(40, packet);
            }
            (from, to) => {
                let octets = |ip| if let IpAddr::V4(ip) = ip { Ipv4Addr::octets(&ip) } else { [0; 4] };
                packet[..12].copy_from_slice(&[0x45, self.tos, 0, 0, 0, 0, 0x40, 0, TTL, PROTO, 0, 0]);
                packet[2..4].copy_from_slice(&(whole as u16).to_be_bytes());
                packet[12..16].copy_from_slice(&octets(from));
                packet[16..20].copy_from_slice(&octets(to));
                udp(20, packet);
            }
        }
    }

    /// Returns the headers and the payload of a packet; `None` if a qdisc has made something else of it.
    pub(crate) fn read(packet: &[u8]) -> Option<(Self, &[u8])> {
        let port = |at: usize| u16::from_be_bytes([packet[at], packet[at + 1]]);
        match packet.first()? >> 4 {
            4 => {
                let (head, payload) = packet.split_first_chunk::<V4>()?;
                let ip = |at: usize| Ipv4Addr::from([head[at], head[at + 1], head[at + 2], head[at + 3]]);
                let from = SocketAddr::new(ip(12).into(), port(20));
                let to = SocketAddr::new(ip(16).into(), port(22));
                Some((Self { from, to, tos: head[1] }, payload))
            }
            6 => {
                let (head, payload) = packet.split_first_chunk::<V6>()?;
                let ip = |at: usize| head[at..at + 16].first_chunk::<16>().map(|ip| Ipv6Addr::from(*ip));
                let from = SocketAddr::new(ip(8)?.into(), port(40));
                let to = SocketAddr::new(ip(24)?.into(), port(42));
                Some((Self { from, to, tos: head[0] << 4 | head[1] >> 4 }, payload))
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use txq::flow::{Hosts, dissect_ip};

    #[test]
    fn headers_that_are_written_are_read_and_dissected() {
        for (from, to) in [("192.0.2.1:7", "198.51.100.9:53"), ("[2001:db8::1]:7", "[2001:db8::9]:443")] {
            let header = Header { from: from.parse().unwrap(), to: to.parse().unwrap(), tos: 0xb9 };
            let mut packet = vec![7; header.len() + 5];
            header.write(&mut packet);
            assert_eq!(Header::read(&packet), Some((header, &[7; 5][..])));
            let found = dissect_ip(&packet);
            assert_eq!((found.tos, found.keys.src_port, found.keys.dst_port), (0xb9, 7, header.to.port()));
            assert_eq!(found.ip_proto, 17);
            assert!(!matches!(found.keys.hosts, Hosts::Unknown | Hosts::Mac { .. }));
            assert_eq!(Header::read(&packet[..20]), None);
        }
        assert_eq!(Header::read(&[]), None);
        assert_eq!(Header::read(&[0xff; 64]), None);
    }
}
