//! Generated packets: IP and UDP with correct lengths and checksums, behind an Ethernet header where the device has one.
//!
//! A flow is a header; the payload is zeros, which do not change a checksum. Addresses are from the documentation's and
//! the private ranges, so that no host answers if a frame reaches a network. A UDP device sends to the address in the header,
//! so there it is the device's.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use etherparse::{IpHeaders, Ipv4Header, Ipv6Header, PacketBuilder};
use txq::driver::Link;

/// The number of flows with the same source address, each with a source port from 1024 on.
const PORTS: u32 = 60_000;

/// What a device's packets are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// Ethernet frames or IP packets.
    Link(Link),
    /// IP packets that a UDP socket sends to this address.
    Udp(SocketAddr),
}

impl Target {
    /// Returns what the packets begin with.
    pub(crate) fn link(self) -> Link {
        match self {
            Target::Link(link) => link,
            Target::Udp(_) => Link::Ip,
        }
    }
}

/// What all packets of a sender have in common.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Common {
    pub(crate) target: Target,
    /// The destination; `None` for the device's, or one of the documentation.
    pub(crate) to: Option<SocketAddr>,
    /// The DSCP (RFC 2474).
    pub(crate) dscp: u8,
}

impl Common {
    fn to(&self) -> SocketAddr {
        match (self.target, self.to) {
            (_, Some(to)) | (Target::Udp(to), None) => to,
            (Target::Link(_), None) => SocketAddr::from(([192, 0, 2, 1], 9)),
        }
    }

    fn link(&self) -> Link {
        self.target.link()
    }
}

/// Returns the headers for packets of `len` bytes of one flow of one thread. A shorter `len` than that of the headers counts
/// as theirs.
pub(crate) fn header(common: &Common, thread: u16, flow: u32, len: usize) -> Vec<u8> {
    let [high, low] = thread.to_be_bytes();
    let port = 1024 + (flow % PORTS) as u16;
    // A socket chooses its source address; there the source port only distinguishes flows.
    let is_socket = matches!(common.target, Target::Udp(_));
    let source = if is_socket { [0; 4] } else { [10, high, low, 1 + (flow / PORTS) as u8] };
    let (ip, ip_len) = match common.to().ip() {
        IpAddr::V4(to) => {
            let mut ip =
                Ipv4Header { time_to_live: 64, source, destination: to.octets(), ..Default::default() };
            ip.dscp = common.dscp.try_into().unwrap_or_default();
            (IpHeaders::Ipv4(ip, Default::default()), 20)
        }
        IpAddr::V6(to) => {
            let mut own =
                if is_socket { [0; 16] } else { Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 0).octets() };
            own[12..].copy_from_slice(&source);
            let ip = Ipv6Header {
                traffic_class: common.dscp << 2,
                hop_limit: 64,
                source: own,
                destination: to.octets(),
                ..Default::default()
            };
            (IpHeaders::Ipv6(ip, Default::default()), 40)
        }
    };
    let headers = common.link().header_len() as usize + ip_len + 8;
    let payload = vec![0; len.saturating_sub(headers)];
    let mut packet = Vec::with_capacity(headers + payload.len());
    let written = match common.link() {
        Link::Ethernet => PacketBuilder::ethernet2([2, 0, 0, 0, high, low], [2, 0, 0, 0, 255, 255])
            .ip(ip)
            .udp(port, common.to().port())
            .write(&mut packet, &payload),
        _ => PacketBuilder::ip(ip).udp(port, common.to().port()).write(&mut packet, &payload),
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

    const ETHERNET: Common = Common { target: Target::Link(Link::Ethernet), to: None, dscp: 0 };

    #[test]
    fn frames_are_whole() {
        for len in [42, 60, 1514, 9014] {
            let mut frame = header(&ETHERNET, 3, 70_000, len);
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
        let flows = [0, 1, 59_999, 60_000, 999_999];
        let headers: HashSet<_> =
            (0..3).flat_map(|thread| flows.map(|flow| header(&ETHERNET, thread, flow, 60))).collect();
        assert_eq!(headers.len(), 15);
    }

    #[test]
    fn a_udp_device_gets_its_own_address() {
        for to in ["192.0.2.7:4789", "[2001:db8::7]:4789"] {
            let to: SocketAddr = to.parse().unwrap();
            let udp = Common { target: Target::Udp(to), to: None, dscp: 46 };
            let mut packet = header(&udp, 0, 5, 200);
            packet.resize(200, 0);
            let found = Link::Ip.dissect(&packet);
            assert_eq!((found.keys.src_port, found.keys.dst_port, found.tos), (1029, 4789, 46 << 2));
            let sliced = SlicedPacket::from_ip(&packet).unwrap();
            let Some(TransportSlice::Udp(udp)) = sliced.transport else { panic!("no UDP in {packet:?}") };
            assert_eq!(usize::from(udp.length()), 200 - usize::from(found.transport_offset));
        }
    }

    #[test]
    fn a_sender_may_have_a_destination() {
        for to in ["198.51.100.7:53", "[2001:db8::7]:53"] {
            let to: SocketAddr = to.parse().unwrap();
            let mut frame = header(&Common { to: Some(to), ..ETHERNET }, 1, 2, 300);
            frame.resize(300, 0);
            let sliced = SlicedPacket::from_ethernet(&frame).unwrap();
            let ip = sliced.net.unwrap();
            let destination = match &ip {
                etherparse::NetSlice::Ipv4(ip) => IpAddr::V4(ip.header().destination_addr()),
                etherparse::NetSlice::Ipv6(ip) => IpAddr::V6(ip.header().destination_addr()),
                other => panic!("{other:?}"),
            };
            assert_eq!((destination, Link::Ethernet.dissect(&frame).keys.dst_port), (to.ip(), 53));
        }
    }
}
