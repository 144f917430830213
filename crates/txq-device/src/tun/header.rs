//! The virtio-net header between a packet and the kernel (virtio 1.2, section 5.1.6), in its form of 10 bytes: the
//! form that the kernel gives every new interface. The form of 12 bytes only adds a count of buffers, which a tun never uses.
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 1 | flags: the checksum is partial (1) |
//! | 1 | 1 | kind of segmentation: TCP over IPv4 (1), TCP over IPv6 (4), UDP (5); 0x80: the first segment keeps CWR |
//! | 2 | 2 | length of all headers |
//! | 4 | 2 | payload of a segment |
//! | 6 | 2 | offset of the first byte that the checksum covers: the transport header |
//! | 8 | 2 | offset of the checksum in the transport header |
//!
//! A partial checksum covers the pseudo-header only; the field contains the sum, not its complement.

use txq_core::flow::{self, Dissected};

use super::Kind;

/// Length of the header.
pub(super) const LEN: usize = 10;
/// A header that says nothing: the packet is complete.
pub(super) const COMPLETE: [u8; LEN] = [0; LEN];

const NEEDS_CSUM: u8 = 1;
const GSO_TCPV4: u8 = 1;
const GSO_TCPV6: u8 = 4;
const GSO_UDP_L4: u8 = 5;
const GSO_ECN: u8 = 0x80;

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
        (payload <= packet.len()).then_some(Self { is_ipv4, is_tcp, network, transport, payload })
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
    /// pseudo-header.
    pub(super) fn partial(&self, packet: &[u8], len: usize) -> [u8; 2] {
        let addresses = if self.is_ipv4 { 12..20 } else { 8..40 };
        let proto = if self.is_tcp { TCP } else { UDP };
        let [a, b, c, d] = (len as u32).to_be_bytes();
        fold(sum(&packet[self.network..][addresses]) + sum(&[0, proto, a, b, c, d]))
    }

    /// Returns the header of a packet that the kernel cuts into segments of `size` bytes of payload, or completes without
    /// cutting if `size` is 0.
    pub(super) fn header(&self, packet: &[u8], size: u16) -> [u8; LEN] {
        let kind = match (self.is_tcp, self.is_ipv4) {
            _ if size == 0 => 0,
            (true, v4) => {
                let ecn = if packet[self.transport + 13] & CWR != 0 { GSO_ECN } else { 0 };
                ecn | if v4 { GSO_TCPV4 } else { GSO_TCPV6 }
            }
            (false, _) => GSO_UDP_L4,
        };
        let mut header = [NEEDS_CSUM, kind, 0, 0, 0, 0, 0, 0, 0, 0];
        let fields = [self.payload as u16, size, self.transport as u16, self.checksum() as u16];
        for (at, field) in header[2..].chunks_mut(2).zip(fields) {
            at.copy_from_slice(&field.to_le_bytes());
        }
        header
    }
}

/// A packet whose header contradicts it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Malformed;

/// Completes a received packet according to its header: writes a partial checksum, unless the packet has segments. Returns
/// the payload of a segment and the number of segments if the packet has more than one.
pub(super) fn complete(
    header: &[u8; LEN],
    packet: &mut [u8],
    kind: Kind,
) -> Result<Option<(u16, u16)>, Malformed> {
    // What nearly all packets have, unless the program asked for more.
    if header[..2] == [0, 0] {
        return Ok(None);
    }
    let field = |at: usize| u16::from_le_bytes([header[at], header[at + 1]]);
    let is_partial = header[0] & NEEDS_CSUM != 0;
    let start = usize::from(field(6));
    let is_tcp = match header[1] & !GSO_ECN {
        0 => None,
        GSO_TCPV4 | GSO_TCPV6 => Some(true),
        GSO_UDP_L4 => Some(false),
        _ => return Err(Malformed),
    };
    if let Some(is_tcp) = is_tcp {
        // The kernel's length of the headers is that of its first buffer, which may contain more.
        let payload = if is_partial {
            start + transport_header(packet, start, is_tcp).ok_or(Malformed)?
        } else {
            Layout::of(packet, kind).filter(|found| found.is_tcp == is_tcp).ok_or(Malformed)?.payload
        };
        let (len, size) = (packet.len().checked_sub(payload).ok_or(Malformed)?, field(4));
        if size == 0 {
            return Err(Malformed);
        }
        let segs = u16::try_from(len.div_ceil(size.into())).map_err(|_| Malformed)?;
        if segs > 1 {
            return Ok(Some((size, segs)));
        }
    }
    if is_partial {
        let at = start + usize::from(field(8));
        if at + 2 > packet.len() {
            return Err(Malformed);
        }
        let sum = u16::from_ne_bytes(fold(sum(&packet[start..])));
        // A sum of 0 would say that there is no checksum (RFC 768).
        let checksum = if sum == 0xffff { sum } else { !sum };
        packet[at..at + 2].copy_from_slice(&checksum.to_ne_bytes());
    }
    Ok(None)
}

/// Returns the length of the transport header at `at`; `None` if it is cut or malformed.
fn transport_header(packet: &[u8], at: usize, is_tcp: bool) -> Option<usize> {
    let len = if is_tcp { usize::from(*packet.get(at + 12)? >> 4) * 4 } else { 8 };
    (len >= if is_tcp { 20 } else { 8 } && at + len <= packet.len()).then_some(len)
}

fn word(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes([*bytes.get(at)?, *bytes.get(at + 1)?]))
}

/// Returns the sum of the 16-bit words, each in the machine's order; 0 stands for an absent last byte. The order of the
/// bytes in memory is that of the network if the folded sum is stored in the machine's order (RFC 1071, section 2).
pub(super) fn sum(bytes: &[u8]) -> u64 {
    let mut words = bytes.chunks_exact(4);
    let mut total: u64 =
        words.by_ref().map(|word| u64::from(u32::from_ne_bytes(word.try_into().expect("4 bytes")))).sum();
    let rest = words.remainder();
    if !rest.is_empty() {
        let mut last = [0; 4];
        last[..rest.len()].copy_from_slice(rest);
        total += u64::from(u32::from_ne_bytes(last));
    }
    total
}

/// Folds a sum into 16 bits, in one's complement arithmetic; returns them as they are stored.
pub(super) fn fold(mut sum: u64) -> [u8; 2] {
    while sum > 0xffff {
        sum = (sum >> 16) + (sum & 0xffff);
    }
    (sum as u16).to_ne_bytes()
}

#[cfg(test)]
mod tests;
