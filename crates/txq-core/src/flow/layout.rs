//! The layout of a packet that can be cut into segments, and what its headers say of each segment (RFC 9293, RFC 768).

use super::Dissected;

const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;
const TCP: u8 = 6;
const UDP: u8 = 17;
const FIN: u8 = 0x01;
const PSH: u8 = 0x08;
/// The flag that only the first segment keeps (RFC 3168).
pub const CWR: u8 = 0x80;

/// Where the headers and the payload begin in a packet of TCP or UDP in IP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    /// IPv4, not IPv6.
    pub is_ipv4: bool,
    /// TCP, not UDP.
    pub is_tcp: bool,
    /// Offset of the IP header.
    pub network: usize,
    /// Offset of the transport header.
    pub transport: usize,
    /// Offset of the payload.
    pub payload: usize,
}

impl Layout {
    /// Returns the layout of a packet; `None` if it is neither TCP nor UDP in IP, if it is a fragment, or if its headers are cut.
    pub fn of(packet: &[u8], found: &Dissected) -> Option<Self> {
        let (network, transport) = (usize::from(found.network_offset), usize::from(found.transport_offset));
        let is_ipv4 = match found.ethertype {
            IPV4 => true,
            IPV6 => false,
            _ => return None,
        };
        // The keys of a fragment of IPv6 have another protocol, as have those of a tunnel.
        let is_tcp = match found.ip_proto {
            proto if proto != found.keys.ip_proto => return None,
            TCP => true,
            UDP => false,
            _ => return None,
        };
        let fragment = is_ipv4
            && u16::from_be_bytes([*packet.get(network + 6)?, *packet.get(network + 7)?]) & 0x3fff != 0;
        if transport <= network || fragment {
            return None;
        }
        let payload = transport + transport_len(packet, transport, is_tcp)?;
        Some(Self { is_ipv4, is_tcp, network, transport, payload })
    }

    /// Returns the offset of the checksum in the transport header.
    pub fn checksum_offset(&self) -> usize {
        if self.is_tcp { 16 } else { 6 }
    }

    /// Returns the offset of the checksum in the packet.
    pub fn checksum_at(&self) -> usize {
        self.transport + self.checksum_offset()
    }

    /// Returns the sum of the pseudo header of a packet with these headers and `payload` bytes of payload (RFC 8200, section
    /// 8.1).
    pub fn pseudo(&self, headers: &[u8], payload: usize) -> u64 {
        let ip = &headers[self.network..];
        let addresses = if self.is_ipv4 { sum(&ip[12..20]) } else { sum(&ip[8..40]) };
        let proto = if self.is_tcp { TCP } else { UDP };
        addresses + u64::from(proto) + (self.payload - self.transport + payload) as u64
    }

    /// Makes `headers`, which are those of the whole packet, the headers of segment `number` with `payload` bytes of payload,
    /// which begins `before` bytes behind the start of the whole payload. The transport checksum is left as it is.
    pub fn set_segment(
        &self,
        headers: &mut [u8],
        payload: usize,
        number: usize,
        before: usize,
        is_last: bool,
    ) {
        let len = self.payload - self.network + payload;
        let ip = &mut headers[self.network..];
        if self.is_ipv4 {
            put(ip, 2, len);
            let id = u16::from_be_bytes([ip[4], ip[5]]).wrapping_add(number as u16);
            put(ip, 4, id.into());
            put(ip, 10, 0);
            let end = usize::from(ip[0] & 15) * 4;
            let checksum = !fold(sum(&ip[..end]));
            put(ip, 10, checksum.into());
        } else {
            // Extension headers count as payload.
            put(ip, 4, len - 40);
        }
        let transport = &mut headers[self.transport..];
        if self.is_tcp {
            let first = u32::from_be_bytes([transport[4], transport[5], transport[6], transport[7]]);
            transport[4..8].copy_from_slice(&first.wrapping_add(before as u32).to_be_bytes());
            transport[13] &= !(if is_last { 0 } else { FIN | PSH } | if number == 0 { 0 } else { CWR });
        } else {
            put(transport, 4, self.payload - self.transport + payload);
        }
    }

    /// Writes the sum of the pseudo header into the checksum field, to which the device adds the rest of the packet.
    pub fn set_partial_checksum(&self, packet: &mut [u8]) {
        let sum = fold(self.pseudo(packet, packet.len() - self.payload));
        put(packet, self.checksum_at(), sum.into());
    }

    /// Computes the transport checksum of a packet. A UDP packet in IPv4 without one stays without one.
    pub fn set_checksum(&self, packet: &mut [u8]) {
        let at = self.checksum_at();
        if !self.is_tcp && self.is_ipv4 && packet[at..at + 2] == [0, 0] {
            return;
        }
        put(packet, at, 0);
        let pseudo = self.pseudo(packet, packet.len() - self.payload);
        let checksum = !fold(pseudo + sum(&packet[self.transport..]));
        put(packet, at, if checksum == 0 && !self.is_tcp { 0xffff } else { checksum.into() });
    }
}

/// Returns the length of the TCP or UDP header at `at`; `None` if it is cut or malformed.
pub fn transport_len(packet: &[u8], at: usize, is_tcp: bool) -> Option<usize> {
    let len = if is_tcp { usize::from(*packet.get(at + 12)? >> 4) * 4 } else { 8 };
    (len >= if is_tcp { 20 } else { 8 } && at + len <= packet.len()).then_some(len)
}

/// Writes 16 bits at an offset, in network order.
fn put(bytes: &mut [u8], at: usize, value: usize) {
    bytes[at..at + 2].copy_from_slice(&(value as u16).to_be_bytes());
}

/// Returns the sum of the 16-bit words; an odd last byte is filled up with 0 (RFC 1071).
pub fn sum(bytes: &[u8]) -> u64 {
    let mut words = bytes.chunks_exact(2);
    let sum: u64 = words.by_ref().map(|word| u64::from(u16::from_be_bytes([word[0], word[1]]))).sum();
    sum + words.remainder().first().map_or(0, |&byte| u64::from(byte) << 8)
}

/// Folds a sum into 16 bits, in one's complement arithmetic.
pub fn fold(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum >> 16) + (sum & 0xffff);
    }
    sum as u16
}
