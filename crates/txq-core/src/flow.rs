//! Which flow a frame belongs to.
//!
//! Steering, fair queueing and load spreading treat packets of one flow alike. [`dissect`] finds the headers of a frame,
//! [`FlowKeys`] holds the fields that distinguish flows, and [`FlowHasher`] hashes them to 32 bits (kernel:
//! `skb_flow_dissect`, `struct flow_keys`, `skb_get_hash`).
//!
//! A header counts only if it is complete. The first header that is cut or malformed is ignored, and so is everything behind
//! it. Beside its ethertype and the ids of its first two VLAN tags, a frame has these keys:
//!
//! | frame | keys |
//! |---|---|
//! | shorter than an Ethernet header; neither IPv4 nor IPv6 on a link without one | nothing: all such frames are one flow |
//! | IPv4, IPv6 with TCP, UDP, UDP-Lite, SCTP, DCCP | addresses, protocol, ports |
//! | with ICMP or ICMPv6 echo | addresses, protocol, the identifier in place of both ports |
//! | with IP in IP, GRE or PPTP, with IP or Ethernet and IP inside | those of the innermost IP packet |
//! | with ESP | addresses, protocol, the SPI in place of the ports |
//! | with other GRE, other ICMP or anything else | outer addresses, protocol |
//! | with ports or identifier cut off | addresses, protocol |
//! | first or later fragment of IPv4 | addresses, protocol |
//! | first or later fragment of IPv6 | addresses, 44 as the protocol: only the first fragment holds the real one |
//! | more than 8 IPv6 extension and authentication headers | addresses, protocol number of the ninth |
//! | a session of PPPoE with IP inside | those of the innermost IP packet |
//! | ARP, MPLS, other PPPoE, more than 8 VLAN tags, an unknown ethertype, a cut or malformed IP header | MAC addresses |
//! | an 802.3 length instead of an ethertype | MAC addresses, and 4 as the ethertype: lengths vary within a flow |
//!
//! The keys leave out lengths (frames may be padded or carry several segments), VLAN priority, TOS and the IPv6 flow label
//! on purpose: each may change within a flow, which would reorder it. A frame tagged with VLAN 0 belongs to the flow of the
//! same frame without a tag (802.1Q priority tags).
//!
//! Packets of a [`Link`] without Ethernet headers (TUN, UDP sockets) begin with their IP header. They have the keys that the
//! same packet has in an Ethernet frame without tags.

#![forbid(unsafe_code)]

use etherparse::{
    EtherType, Ethernet2HeaderSlice, IpAuthHeaderSlice, IpNumber, Ipv4HeaderSlice, Ipv6FragmentHeaderSlice,
    Ipv6HeaderSlice, Ipv6RawExtHeaderSlice, SingleVlanHeaderSlice, ether_type, ip_number,
};

mod hash;
#[doc(hidden)]
pub mod layout;
mod link;
mod tunnel;

pub use hash::{FlowHasher, flow_hash, hash_to_txq, public_hash, reciprocal_scale};
pub use link::Link;

/// The ethertype that stands for frames with an 802.3 length (kernel: `ETH_P_802_2`).
pub const ETHERTYPE_802_2: u16 = 4;

/// The most VLAN tags that are followed. The keys have the ids of the first two.
const MAX_TAGS: usize = 8;

/// Values below this in the place of the ethertype are 802.3 lengths.
const FIRST_ETHERTYPE: u16 = 0x600;

/// Maximum number of headers followed between the IP header and the transport header: all that RFC 8200 section 4.1 expects,
/// and two more. The bound limits the cost of a frame that consists of such headers.
const MAX_EXTENSIONS: usize = 8;

const UDP_LITE: IpNumber = IpNumber(136);
const DCCP: IpNumber = IpNumber(33);

/// The ends of a flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Hosts {
    /// Not known: the frame is shorter than its Ethernet header.
    #[default]
    Unknown,
    /// Ethernet addresses of a frame whose payload is not IP, or not understood.
    Mac {
        /// The sender.
        src: [u8; 6],
        /// The receiver.
        dst: [u8; 6],
    },
    /// IPv4 addresses, in network order.
    Ipv4 {
        /// The sender.
        src: [u8; 4],
        /// The receiver.
        dst: [u8; 4],
    },
    /// IPv6 addresses, in network order.
    Ipv6 {
        /// The sender.
        src: [u8; 16],
        /// The receiver.
        dst: [u8; 16],
    },
}

/// The fields that distinguish flows (kernel: `struct flow_keys`). The table of this [module](self) lists the fields of each
/// kind of frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct FlowKeys {
    /// The ends.
    pub hosts: Hosts,
    /// The source port, 0 if there is none.
    pub src_port: u16,
    /// The destination port, 0 if there is none.
    pub dst_port: u16,
    /// The ethertype behind the VLAN tags.
    pub ethertype: u16,
    /// VLAN ids, the outer first; 0 if there is no tag.
    pub vlan: [u16; 2],
    /// The IP protocol, 0 if the frame is not IP.
    pub ip_proto: u8,
}

/// The result of [`dissect`]: where the headers of a packet are, and its flow. In a tunnel, only the keys are those of the inner packet.
/// Offsets count bytes from the start of the frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dissected {
    /// The offset of the network header: behind the Ethernet header and its VLAN tags. 0 if the Ethernet header is
    /// cut, and on a link without Ethernet headers.
    pub network_offset: u16,
    /// The offset of the transport header, or of the payload of an unknown protocol; either may be cut. 0 if it is not known
    /// or not in this frame, as in a later fragment.
    pub transport_offset: u16,
    /// The ethertype behind the VLAN tags, [`ETHERTYPE_802_2`] for 802.3 lengths, 0 if the Ethernet header is cut. Without an
    /// Ethernet header it is that of the IP version, 0 for others.
    pub ethertype: u16,
    /// The protocol at `transport_offset` or, where that is 0, the last one named; 0 if the frame is not IP.
    pub ip_proto: u8,
    /// The IPv4 TOS byte or IPv6 traffic class, DSCP << 2 | ECN (RFC 2474, RFC 3168); 0 if the frame is not IP.
    pub tos: u8,
    /// The keys of its flow.
    pub keys: FlowKeys,
}

/// Finds the headers and the flow of an Ethernet frame (kernel: `skb_flow_dissect`). Accepts any bytes and never fails: the
/// table of this [module](self) lists the keys of each kind of frame.
pub fn dissect(frame: &[u8]) -> Dissected {
    let mut found = dissect_outer(frame);
    tunnel::follow(frame, &mut found);
    found
}

/// As [`dissect`], but the keys are those of the outer packet if it is a tunnel: for what shows or compares the packet itself.
pub fn dissect_outer(frame: &[u8]) -> Dissected {
    let mut found = Dissected::default();
    ethernet(frame, &mut found);
    found
}

/// Finds the headers and the flow of a packet that begins with its IP header. Accepts any bytes, as [`dissect`] does.
pub fn dissect_ip(packet: &[u8]) -> Dissected {
    let mut found = dissect_ip_outer(packet);
    tunnel::follow(packet, &mut found);
    found
}

/// As [`dissect_ip`], but the keys are those of the outer packet if it is a tunnel.
pub fn dissect_ip_outer(packet: &[u8]) -> Dissected {
    let mut found = Dissected::default();
    match packet.first().map(|first| first >> 4) {
        Some(4) => {
            found.ethertype = ether_type::IPV4.0;
            ipv4(packet, &mut found);
        }
        Some(6) => {
            found.ethertype = ether_type::IPV6.0;
            ipv6(packet, &mut found);
        }
        _ => {}
    }
    found.keys.ethertype = found.ethertype;
    found
}

fn ethernet(frame: &[u8], found: &mut Dissected) {
    let Ok(ethernet) = Ethernet2HeaderSlice::from_slice(frame) else { return };
    found.keys.hosts = Hosts::Mac { src: ethernet.source(), dst: ethernet.destination() };
    let mut ethertype = ethernet.ether_type();
    let mut rest = &frame[ethernet.slice().len()..];
    for at in 0..MAX_TAGS {
        if !is_vlan(ethertype) {
            break;
        }
        let Ok(tag) = SingleVlanHeaderSlice::from_slice(rest) else { break };
        if let Some(id) = found.keys.vlan.get_mut(at) {
            *id = tag.vlan_identifier().value();
        }
        ethertype = tag.ether_type();
        rest = &rest[tag.slice().len()..];
    }
    found.ethertype = if ethertype.0 < FIRST_ETHERTYPE { ETHERTYPE_802_2 } else { ethertype.0 };
    found.keys.ethertype = found.ethertype;
    found.network_offset = (frame.len() - rest.len()) as u16;
    match ethertype {
        ether_type::IPV4 => ipv4(rest, found),
        ether_type::IPV6 => ipv6(rest, found),
        _ => {}
    }
}

fn is_vlan(ethertype: EtherType) -> bool {
    matches!(
        ethertype,
        ether_type::VLAN_TAGGED_FRAME | ether_type::PROVIDER_BRIDGING | ether_type::VLAN_DOUBLE_TAGGED_FRAME
    )
}

fn ipv4(packet: &[u8], found: &mut Dissected) {
    let Ok(ip) = Ipv4HeaderSlice::from_slice(packet) else { return };
    found.tos = ip.slice()[1];
    found.keys.hosts = Hosts::Ipv4 { src: ip.source(), dst: ip.destination() };
    let fragment = match (ip.is_fragmenting_payload(), ip.fragments_offset().value()) {
        (false, _) => Fragment::No,
        (true, 0) => Fragment::First,
        (true, _) => Fragment::Later,
    };
    let payload = Payload { proto: ip.protocol(), packet, offset: ip.slice().len(), fragment };
    payload.finish(ip.protocol(), found);
}

fn ipv6(packet: &[u8], found: &mut Dissected) {
    let Ok(ip) = Ipv6HeaderSlice::from_slice(packet) else { return };
    found.tos = ip.traffic_class();
    found.keys.hosts = Hosts::Ipv6 { src: ip.source(), dst: ip.destination() };
    let payload =
        Payload { proto: ip.next_header(), packet, offset: ip.slice().len(), fragment: Fragment::No };
    payload.finish(ip_number::IPV6_FRAG, found);
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Fragment {
    No,
    First,
    Later,
}

/// The payload of an IP header.
struct Payload<'a> {
    proto: IpNumber,
    packet: &'a [u8],
    /// The offset of `proto` in `packet`.
    offset: usize,
    fragment: Fragment,
}

impl Payload<'_> {
    /// Follows the headers to the transport header. All fragments of a datagram are keyed by `fragment_proto`, because only
    /// the first one contains what follows the IP header.
    fn finish(mut self, fragment_proto: IpNumber, found: &mut Dissected) {
        let whole = self.skip_extensions();
        found.ip_proto = self.proto.0;
        found.keys.ip_proto = self.proto.0;
        if whole && self.fragment != Fragment::Later {
            found.transport_offset = found.network_offset + self.offset as u16;
        }
        if self.fragment != Fragment::No {
            found.keys.ip_proto = fragment_proto.0;
        } else if whole {
            (found.keys.src_port, found.keys.dst_port) = ports(self.proto, &self.packet[self.offset..]);
        }
    }

    /// Moves to the transport header; returns whether it was reached.
    fn skip_extensions(&mut self) -> bool {
        for _ in 0..MAX_EXTENSIONS {
            // The payload of a later fragment begins in the middle of the datagram.
            if self.fragment == Fragment::Later || !is_extension(self.proto) {
                return true;
            }
            let Some((next, len)) = self.extension() else { return false };
            self.proto = next;
            self.offset += len;
        }
        !is_extension(self.proto)
    }

    /// Returns the protocol behind the extension header at `offset`, and the length of that header; `None` if it is cut.
    fn extension(&mut self) -> Option<(IpNumber, usize)> {
        let rest = &self.packet[self.offset..];
        match self.proto {
            ip_number::IPV6_FRAG => {
                let header = Ipv6FragmentHeaderSlice::from_slice(rest).ok()?;
                if header.fragment_offset().value() != 0 {
                    self.fragment = Fragment::Later;
                } else if header.more_fragments() {
                    self.fragment = Fragment::First;
                }
                Some((header.next_header(), header.slice().len()))
            }
            ip_number::AUTH => {
                let header = IpAuthHeaderSlice::from_slice(rest).ok()?;
                Some((header.next_header(), header.slice().len()))
            }
            _ => {
                let header = Ipv6RawExtHeaderSlice::from_slice(rest).ok()?;
                Some((header.next_header(), header.slice().len()))
            }
        }
    }
}

/// Returns whether `proto` is a header that names the next one. IPv4 knows only the authentication header, but no other IPv4
/// protocol uses the numbers of the others.
fn is_extension(proto: IpNumber) -> bool {
    matches!(
        proto,
        ip_number::IPV6_HOP_BY_HOP
            | ip_number::IPV6_ROUTE
            | ip_number::IPV6_FRAG
            | ip_number::IPV6_DEST_OPTIONS
            | ip_number::AUTH
    )
}

/// Returns the source and destination port of `transport`; zeros if it has none or they are cut off.
fn ports(proto: IpNumber, transport: &[u8]) -> (u16, u16) {
    match (proto, transport) {
        (
            ip_number::TCP | ip_number::UDP | ip_number::SCTP | UDP_LITE | DCCP,
            [src0, src1, dst0, dst1, ..],
        ) => (u16::from_be_bytes([*src0, *src1]), u16::from_be_bytes([*dst0, *dst1])),
        // The SPI is that of one direction (RFC 4303).
        (ip_number::ENCAP_SEC, [spi0, spi1, spi2, spi3, ..]) => {
            (u16::from_be_bytes([*spi0, *spi1]), u16::from_be_bytes([*spi2, *spi3]))
        }
        // Echo reply and request. The identifier takes the place of both ports, so that a symmetric hash finds one flow.
        (ip_number::ICMP, [0 | 8, _, _, _, id0, id1, ..])
        | (ip_number::IPV6_ICMP, [128 | 129, _, _, _, id0, id1, ..]) => {
            let id = u16::from_be_bytes([*id0, *id1]);
            (id, id)
        }
        _ => (0, 0),
    }
}

#[cfg(test)]
mod tests;
