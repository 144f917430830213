//! What the virtio-net header between a packet and the kernel says: of a packet that is sent, how the kernel cuts it; of a
//! packet that was received, what the kernel left to do.

use txq_core::flow::{self, Dissected};

use super::Kind;
use crate::vnet::{self, GSO_ECN, GSO_NONE, GSO_TCPV4, GSO_TCPV6, GSO_UDP_L4, NEEDS_CSUM, Vnet, fold};

/// The header of a packet that is complete.
pub(super) const COMPLETE: [u8; vnet::LEN] = [0; vnet::LEN];

const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;
const TCP: u8 = 6;
const UDP: u8 = 17;
/// The flag CWR of a TCP header.
const CWR: u8 = 0x80;

/// The headers of a packet that can be cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Layout {
    /// IPv4, not IPv6.
    pub(super) is_ipv4: bool,
    /// TCP, not UDP.
    pub(super) is_tcp: bool,
    /// Offset of the IP header.
    pub(super) network: usize,
    /// Offset of the transport header.
    pub(super) transport: usize,
    /// Offset of the payload.
    pub(super) payload: usize,
    /// Sum of the pseudo-header without the length.
    pseudo: u64,
}

impl Layout {
    /// Returns the layout of a packet; `None` if it is neither TCP nor UDP in IP, or if it is a fragment.
    pub(super) fn of(packet: &[u8], kind: Kind) -> Option<Self> {
        let found = match kind {
            Kind::Tun => flow::dissect_ip(packet),
            Kind::Tap => flow::dissect(packet),
        };
        let Dissected { network_offset, transport_offset, .. } = found;
        let (network, transport) = (usize::from(network_offset), usize::from(transport_offset));
        let is_ipv4 = match found.ethertype {
            IPV4 => true,
            IPV6 => false,
            _ => return None,
        };
        // The keys of a fragment of IPv6 have another protocol.
        let is_tcp = match found.keys.ip_proto {
            TCP => true,
            UDP => false,
            _ => return None,
        };
        let fragment = is_ipv4 && word(packet, network + 6)? & 0x3fff != 0;
        if transport <= network || fragment {
            return None;
        }
        let payload = transport + transport_header(packet, transport, is_tcp)?;
        let pseudo = vnet::pseudo(packet, &found, 0)?;
        (payload <= packet.len()).then_some(Self { is_ipv4, is_tcp, network, transport, payload, pseudo })
    }

    /// Returns the offset of the checksum in the transport header.
    fn checksum(&self) -> usize {
        if self.is_tcp { 16 } else { 6 }
    }

    /// Returns the offset of the checksum in the packet.
    pub(super) fn checksum_at(&self) -> usize {
        self.transport + self.checksum()
    }

    /// Returns the checksum field of a packet whose transport header and payload are `len` bytes: the sum of the
    /// pseudo-header, which the kernel completes.
    pub(super) fn partial(&self, len: usize) -> [u8; 2] {
        fold(self.pseudo + len as u64).to_be_bytes()
    }

    /// Returns the header of a packet that the kernel cuts into segments of `size` bytes of payload, or completes without
    /// cutting if `size` is 0.
    pub(super) fn header(&self, packet: &[u8], size: u16) -> [u8; vnet::LEN] {
        let kind = match (self.is_tcp, self.is_ipv4) {
            _ if size == 0 => GSO_NONE,
            (true, v4) => {
                let ecn = if packet[self.transport + 13] & CWR != 0 { GSO_ECN } else { 0 };
                ecn | if v4 { GSO_TCPV4 } else { GSO_TCPV6 }
            }
            (false, _) => GSO_UDP_L4,
        };
        let vnet = Vnet {
            flags: NEEDS_CSUM,
            gso_type: kind,
            hdr_len: self.payload as u16,
            gso_size: size,
            csum_start: self.transport as u16,
            csum_offset: self.checksum() as u16,
        };
        vnet.to_bytes()
    }
}

/// A packet whose header contradicts it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Malformed;

/// Completes a received packet according to its header: writes a partial checksum, unless the packet has segments. Returns
/// the payload of a segment and the number of segments if the packet has more than one.
pub(super) fn complete(
    header: [u8; vnet::LEN],
    packet: &mut [u8],
    kind: Kind,
) -> Result<Option<(u16, u16)>, Malformed> {
    // Nearly all packets, unless the program asked for more.
    if header[..2] == [0, 0] {
        return Ok(None);
    }
    let vnet = Vnet::from_bytes(header);
    let is_tcp = match vnet.gso_type & !GSO_ECN {
        GSO_NONE => None,
        GSO_TCPV4 | GSO_TCPV6 => Some(true),
        GSO_UDP_L4 => Some(false),
        _ => return Err(Malformed),
    };
    if let Some(is_tcp) = is_tcp {
        // The kernel's length of the headers is that of its first buffer, which may contain more.
        let payload = if vnet.flags & NEEDS_CSUM != 0 {
            let start = usize::from(vnet.csum_start);
            start + transport_header(packet, start, is_tcp).ok_or(Malformed)?
        } else {
            Layout::of(packet, kind).filter(|found| found.is_tcp == is_tcp).ok_or(Malformed)?.payload
        };
        let size = vnet.gso_size().ok_or(Malformed)?;
        let segs = (packet.len() - payload).div_ceil(size.into());
        if segs > 1 {
            return Ok(Some((size, u16::try_from(segs).map_err(|_| Malformed)?)));
        }
    }
    if vnet.complete(packet) { Ok(None) } else { Err(Malformed) }
}

/// Returns the length of the transport header at `at`; `None` if it is cut or malformed.
fn transport_header(packet: &[u8], at: usize, is_tcp: bool) -> Option<usize> {
    let len = if is_tcp { usize::from(*packet.get(at + 12)? >> 4) * 4 } else { 8 };
    (len >= if is_tcp { 20 } else { 8 } && at + len <= packet.len()).then_some(len)
}

fn word(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes([*bytes.get(at)?, *bytes.get(at + 1)?]))
}

#[cfg(test)]
mod tests;
