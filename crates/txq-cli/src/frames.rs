//! Generated packets: IP and UDP with correct lengths and checksums, behind an Ethernet header where the device has one.
//!
//! A flow is a header; the payload is zeros, which do not change a checksum. Addresses are from the documentation's and
//! the private ranges, so that no host answers if a frame reaches a network. A UDP device sends to the address in the header,
//! so there it is the device's.

use std::net::SocketAddr;

use etherparse::PacketBuilder;
use txq::driver::Link;

/// The number of flows with the same source address, each with a source port from 1024 on.
const PORTS: u32 = 60_000;

/// What a device's packets are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// Ethernet frames or IP packets, to an address of the documentation.
    Link(Link),
    /// IP packets that a UDP socket sends to this address.
    Udp(SocketAddr),
}

impl Target {
    /// Returns the length of all headers, in bytes: the least that a packet may have.
    fn headers(self) -> usize {
        match self {
            Self::Link(link) => link.header_len() as usize + 28,
            Self::Udp(SocketAddr::V4(_)) => 28,
            Self::Udp(SocketAddr::V6(_)) => 48,
        }
    }
}

/// Returns the headers for packets of `len` bytes of one flow of one thread. A shorter `len` than that of the headers counts
/// as theirs.
pub(crate) fn header(target: Target, thread: u16, flow: u32, len: usize) -> Vec<u8> {
    let [high, low] = thread.to_be_bytes();
    let source = [10, high, low, 1 + (flow / PORTS) as u8];
    let port = 1024 + (flow % PORTS) as u16;
    let headers = target.headers();
    let payload = vec![0; len.saturating_sub(headers)];
    let mut packet = Vec::with_capacity(headers + payload.len());
    let documentation = ([192, 0, 2, 1], 9);
    let written = match target {
        Target::Link(Link::Ethernet) => {
            let ethernet = PacketBuilder::ethernet2([2, 0, 0, 0, high, low], [2, 0, 0, 0, 255, 255]);
            let (to, at) = documentation;
            ethernet.ipv4(source, to, 64).udp(port, at).write(&mut packet, &payload)
        }
        Target::Link(_) => {
            let (to, at) = documentation;
            PacketBuilder::ipv4(source, to, 64).udp(port, at).write(&mut packet, &payload)
        }
        // The socket chooses the source address; the source port only distinguishes flows.
        Target::Udp(SocketAddr::V4(to)) => PacketBuilder::ipv4([0; 4], to.ip().octets(), 64)
            .udp(port, to.port())
            .write(&mut packet, &payload),
        Target::Udp(SocketAddr::V6(to)) => PacketBuilder::ipv6([0; 16], to.ip().octets(), 64)
            .udp(port, to.port())
            .write(&mut packet, &payload),
    };
    written.expect("a Vec takes every packet that fits a device");
    packet.truncate(headers);
    packet
}

#[cfg(test)]
mod tests {
    use super::*;
    use etherparse::{SlicedPacket, TransportSlice};
    use std::collections::HashSet;

    #[test]
    fn frames_are_whole() {
        for len in [42, 60, 1514, 9014] {
            let mut frame = header(Target::Link(Link::Ethernet), 3, 70_000, len);
            frame.resize(len, 0);
            let sliced = SlicedPacket::from_ethernet(&frame).unwrap();
            let Some(TransportSlice::Udp(udp)) = sliced.transport else { panic!("no UDP in {frame:?}") };
            assert_eq!(usize::from(udp.length()), len - 34);
            let etherparse::NetSlice::Ipv4(ip) = sliced.net.unwrap() else { panic!("no IPv4 in {frame:?}") };
            let header = ip.header();
            assert_eq!(header.header_checksum(), header.to_header().calc_header_checksum());
            let checksum = udp.to_header().calc_checksum_ipv4(&header.to_header(), udp.payload());
            assert_eq!(checksum.unwrap(), udp.checksum());
        }
    }

    #[test]
    fn flows_and_threads_differ() {
        let ethernet = Target::Link(Link::Ethernet);
        let flows = [0, 1, 59_999, 60_000, 999_999];
        let headers: HashSet<_> =
            (0..3).flat_map(|thread| flows.map(|flow| header(ethernet, thread, flow, 60))).collect();
        assert_eq!(headers.len(), 15);
    }

    #[test]
    fn a_udp_device_gets_its_own_address() {
        for to in ["192.0.2.7:4789", "[2001:db8::7]:4789"] {
            let to: SocketAddr = to.parse().unwrap();
            let mut packet = header(Target::Udp(to), 0, 5, 200);
            packet.resize(200, 0);
            let found = Link::Ip.dissect(&packet);
            assert_eq!((found.keys.src_port, found.keys.dst_port), (1029, 4789));
            let sliced = SlicedPacket::from_ip(&packet).unwrap();
            let Some(TransportSlice::Udp(udp)) = sliced.transport else { panic!("no UDP in {packet:?}") };
            assert_eq!(usize::from(udp.length()), 200 - usize::from(found.transport_offset));
        }
    }
}
