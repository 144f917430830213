//! Headers inside of headers: the flow of a packet in a tunnel is the flow of the innermost packet (kernel: `__skb_flow_dissect`, which
//! follows the same encapsulations).
//!
//! Only the keys are those of the inner packet. The offsets, the protocol and the TOS stay those of the outer one, which a checksum, a
//! mark or a filter concerns. A packet inside that is cut, malformed or not IP changes nothing.

use etherparse::{ether_type, ip_number};

use super::{Dissected, FlowKeys, Hosts, ethernet, ipv4, ipv6};

/// The most encapsulations that are followed. The bound limits the cost of a frame that consists of them.
const MAX_ENCAPSULATIONS: usize = 8;

const PPPOE: u16 = 0x8864;
/// Protocols of PPP (RFC 1332, RFC 5072).
const PPP_IPV4: u16 = 0x0021;
const PPP_IPV6: u16 = 0x0057;
/// Payloads of GRE: an Ethernet frame (RFC 1701), and PPP (RFC 2637).
const GRE_ETHERNET: u16 = 0x6558;
const GRE_PPP: u16 = 0x880b;

/// The packet that a header carries.
enum Inner<'a> {
    Ethernet(&'a [u8]),
    Ipv4(&'a [u8]),
    Ipv6(&'a [u8]),
}

/// Replaces the keys of a packet, whose own headers are in `found`, by those of the innermost packet that it carries.
pub(super) fn follow(packet: &[u8], found: &mut Dissected) {
    let (mut outer, mut layer) = (packet, *found);
    for _ in 0..MAX_ENCAPSULATIONS {
        let Some(inner) = carried(outer, &layer) else { return };
        layer = Dissected::default();
        match inner {
            Inner::Ethernet(frame) => {
                ethernet(frame, &mut layer);
                outer = frame;
            }
            Inner::Ipv4(packet) => {
                layer.ethertype = ether_type::IPV4.0;
                ipv4(packet, &mut layer);
                outer = packet;
            }
            Inner::Ipv6(packet) => {
                layer.ethertype = ether_type::IPV6.0;
                ipv6(packet, &mut layer);
                outer = packet;
            }
        }
        match layer.keys.hosts {
            Hosts::Ipv4 { .. } | Hosts::Ipv6 { .. } => {}
            Hosts::Mac { .. } | Hosts::Unknown => return,
        }
        let FlowKeys { ethertype, vlan, .. } = found.keys;
        found.keys = FlowKeys { ethertype, vlan, ..layer.keys };
    }
}

/// Returns the packet that a packet carries; `None` if it carries none, or is a fragment.
fn carried<'a>(packet: &'a [u8], found: &Dissected) -> Option<Inner<'a>> {
    let network = packet.get(usize::from(found.network_offset)..)?;
    if found.ethertype == PPPOE {
        // Version and type, code, session, length, and the protocol of PPP (RFC 2516).
        let [0x11, 0, _, _, _, _, high, low, rest @ ..] = network else { return None };
        return ppp(u16::from_be_bytes([*high, *low]), rest);
    }
    let is_fragment = match found.keys.hosts {
        Hosts::Ipv4 { .. } => u16::from_be_bytes([*network.get(6)?, *network.get(7)?]) & 0x3fff != 0,
        _ => found.keys.ip_proto == ip_number::IPV6_FRAG.0,
    };
    if found.transport_offset == 0 || is_fragment {
        return None;
    }
    let payload = packet.get(usize::from(found.transport_offset)..)?;
    match found.ip_proto {
        proto if proto == ip_number::IPV4.0 => Some(Inner::Ipv4(payload)),
        proto if proto == ip_number::IPV6.0 => Some(Inner::Ipv6(payload)),
        proto if proto == ip_number::GRE.0 => gre(payload),
        _ => None,
    }
}

fn ppp(proto: u16, packet: &[u8]) -> Option<Inner<'_>> {
    match proto {
        PPP_IPV4 => Some(Inner::Ipv4(packet)),
        PPP_IPV6 => Some(Inner::Ipv6(packet)),
        _ => None,
    }
}

/// Returns the packet behind a GRE header: of version 0 without routing (RFC 2784, RFC 2890), or of version 1 (RFC 2637).
fn gre(header: &[u8]) -> Option<Inner<'_>> {
    let [high, low, proto0, proto1, ..] = *header else { return None };
    let (flags, proto) = (u16::from_be_bytes([high, low]), u16::from_be_bytes([proto0, proto1]));
    const CHECKSUM: u16 = 0x8000;
    const ROUTING: u16 = 0x4000;
    const KEY: u16 = 0x2000;
    const SEQUENCE: u16 = 0x1000;
    const ACK: u16 = 0x0080;
    const VERSION: u16 = 0x0007;
    let fields = |of: &[u16]| 4 + 4 * of.iter().filter(|&&flag| flags & flag != 0).count();
    match flags & VERSION {
        0 if flags & ROUTING == 0 => {
            let packet = header.get(fields(&[CHECKSUM, KEY, SEQUENCE])..)?;
            match proto {
                GRE_ETHERNET => Some(Inner::Ethernet(packet)),
                proto if proto == ether_type::IPV4.0 => Some(Inner::Ipv4(packet)),
                proto if proto == ether_type::IPV6.0 => Some(Inner::Ipv6(packet)),
                _ => None,
            }
        }
        1 if flags & KEY != 0 && proto == GRE_PPP => {
            // PPP begins with its address and its control byte.
            let [_, _, high, low, rest @ ..] = header.get(fields(&[KEY, SEQUENCE, ACK])..)? else {
                return None;
            };
            ppp(u16::from_be_bytes([*high, *low]), rest)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests;
