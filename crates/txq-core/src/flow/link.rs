//! What a device's packets begin with.

use std::fmt;

use super::{Dissected, dissect, dissect_ip, dissect_ip_outer, dissect_outer};

/// What a device's packets begin with (kernel: `dev->type`; pcap: the link type).
///
/// A packet carries the link that it was made for ([`Packet::link`](crate::packet::Packet::link)), so that hashes, filters
/// and qdiscs find its headers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Link {
    /// An Ethernet header (`ARPHRD_ETHER`, `LINKTYPE_ETHERNET`).
    #[default]
    Ethernet,
    /// An IPv4 or IPv6 header (`ARPHRD_NONE`, `LINKTYPE_RAW`).
    Ip,
}

impl Link {
    /// Returns the length of the link-layer header in bytes, without VLAN tags (`dev->hard_header_len`).
    pub fn header_len(self) -> u32 {
        match self {
            Self::Ethernet => 14,
            Self::Ip => 0,
        }
    }

    /// Finds the headers and the flow of a packet that begins with them.
    #[inline]
    pub fn dissect(self, packet: &[u8]) -> Dissected {
        match self {
            Self::Ethernet => dissect(packet),
            Self::Ip => dissect_ip(packet),
        }
    }

    /// As [`dissect`](Link::dissect), but the keys are those of the outer packet if it is a tunnel.
    pub fn dissect_outer(self, packet: &[u8]) -> Dissected {
        match self {
            Self::Ethernet => dissect_outer(packet),
            Self::Ip => dissect_ip_outer(packet),
        }
    }
}

impl fmt::Display for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ethernet => "ethernet",
            Self::Ip => "ip",
        })
    }
}
