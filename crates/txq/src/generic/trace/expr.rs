//! Expressions that match packets, in a part of the language of pcap-filter(7).
//!
//! | words | the packet |
//! |---|---|
//! | `ip`, `ip6`, `arp`, `tcp`, `udp`, `sctp`, `icmp`, `icmp6` | is of this protocol |
//! | `proto N` | is of this IP protocol |
//! | `[src \| dst] host ADDRESS` | comes from or goes to this address |
//! | `[src \| dst] net ADDRESS/BITS` | comes from or goes to this network |
//! | `[src \| dst] port N`, `[src \| dst] portrange N-N` | comes from or goes to this TCP, UDP or SCTP port |
//! | `vlan`, `vlan ID` | has a VLAN tag, with this id |
//! | `less N`, `greater N` | has at most, or at least, this length |
//!
//! `not`, `and`, `or` and parentheses combine them; `!`, `&&` and `||` are the same. A protocol may stand in front of ports:
//! `udp dst port 53`.

mod parse;

use std::net::IpAddr;
use std::ops::RangeInclusive;

use txq_core::flow::{Dissected, Hosts};

pub use parse::ExprError;

/// An expression that matches packets: a part of the language of pcap-filter(7).
///
/// ```
/// use txq::trace::Expr;
///
/// let expr: Expr = "udp and (dst port 53 or net 10.0.0.0/8) and not host 192.0.2.1".parse()?;
/// # Ok::<(), txq::trace::ExprError>(())
/// ```
///
/// The words: `ip`, `ip6`, `arp`, `tcp`, `udp`, `sctp`, `icmp`, `icmp6`, `proto N`, `[src|dst] host ADDRESS`,
/// `[src|dst] net ADDRESS/BITS`, `[src|dst] port N`, `[src|dst] portrange N-N`, `vlan [ID]`, `less N`, `greater N`; `not`,
/// `and`, `or` and parentheses. A protocol may stand in front of ports: `udp dst port 53`. Fragments but the first have no
/// ports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expr(Node);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Node {
    All(Vec<Node>),
    Any(Vec<Node>),
    Not(Box<Node>),
    /// The ethertype behind VLAN tags.
    Ethertype(u16),
    Proto(u8),
    /// A network; a host is one of all bits.
    Net(Direction, IpAddr, u8),
    Port(Direction, RangeInclusive<u16>),
    /// A VLAN tag; with an id, or any.
    Vlan(Option<u16>),
    Length(RangeInclusive<usize>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    Src,
    Dst,
    Either,
}

impl Direction {
    fn test<T>(self, (src, dst): (T, T), f: impl Fn(T) -> bool) -> bool {
        match self {
            Direction::Src => f(src),
            Direction::Dst => f(dst),
            Direction::Either => f(src) || f(dst),
        }
    }
}

impl Expr {
    /// Returns whether a packet with these headers and of this length matches.
    pub fn matches(&self, found: &Dissected, len: usize) -> bool {
        self.0.matches(found, len)
    }
}

impl Node {
    fn matches(&self, found: &Dissected, len: usize) -> bool {
        match self {
            Node::All(nodes) => nodes.iter().all(|node| node.matches(found, len)),
            Node::Any(nodes) => nodes.iter().any(|node| node.matches(found, len)),
            Node::Not(node) => !node.matches(found, len),
            Node::Ethertype(ethertype) => found.ethertype == *ethertype,
            Node::Proto(proto) => is_ip(found) && found.ip_proto == *proto,
            Node::Net(side, net, bits) => {
                hosts(found).is_some_and(|hosts| side.test(hosts, |host| is_in(host, *net, *bits)))
            }
            Node::Port(side, range) => {
                ports(found).is_some_and(|ports| side.test(ports, |port| range.contains(&port)))
            }
            // A tag of VLAN 0 has an id of 0, as a frame without a tag has.
            Node::Vlan(None) => found.keys.vlan != [0, 0],
            Node::Vlan(Some(id)) => found.keys.vlan.contains(id),
            Node::Length(range) => range.contains(&len),
        }
    }
}

fn is_ip(found: &Dissected) -> bool {
    matches!(found.keys.hosts, Hosts::Ipv4 { .. } | Hosts::Ipv6 { .. })
}

/// Returns the source and destination address.
fn hosts(found: &Dissected) -> Option<(IpAddr, IpAddr)> {
    match found.keys.hosts {
        Hosts::Ipv4 { src, dst } => Some((src.into(), dst.into())),
        Hosts::Ipv6 { src, dst } => Some((src.into(), dst.into())),
        _ => None,
    }
}

/// Returns the source and destination port; not the identifier of an echo, which is in their place.
fn ports(found: &Dissected) -> Option<(u16, u16)> {
    const WITH_PORTS: [u8; 5] = [6, 17, 33, 132, 136];
    let has = is_ip(found) && WITH_PORTS.contains(&found.keys.ip_proto);
    let ports = (found.keys.src_port, found.keys.dst_port);
    (has && ports != (0, 0)).then_some(ports)
}

fn is_in(host: IpAddr, net: IpAddr, bits: u8) -> bool {
    let same = |host: u128, net: u128, width: u8| {
        // A shift by the whole width is none: a network of 0 bits has all hosts.
        let shift = u32::from(width - bits.min(width));
        host.checked_shr(shift).unwrap_or(0) == net.checked_shr(shift).unwrap_or(0)
    };
    match (host, net) {
        (IpAddr::V4(host), IpAddr::V4(net)) => same(host.to_bits().into(), net.to_bits().into(), 32),
        (IpAddr::V6(host), IpAddr::V6(net)) => same(host.to_bits(), net.to_bits(), 128),
        _ => false,
    }
}

#[cfg(test)]
mod tests;
