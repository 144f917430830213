//! The virtio-net header in front of a packet (`struct virtio_net_hdr`, virtio 1.2 section 5.1.6): which checksum is missing,
//! and how a packet is cut into segments. AF_PACKET and TUN use it in the byte order of the machine.

use txq::flow::Dissected;
use txq::packet::Packet;
use txq_core::arch::Arch;

/// The header's length in bytes.
pub(crate) const LEN: usize = 10;

/// A checksum is to be computed from `csum_start` on (`VIRTIO_NET_HDR_F_NEEDS_CSUM`).
pub(crate) const NEEDS_CSUM: u8 = 1;
/// Kinds of segments (`VIRTIO_NET_HDR_GSO_*`).
pub(crate) const GSO_NONE: u8 = 0;
pub(crate) const GSO_TCPV4: u8 = 1;
pub(crate) const GSO_TCPV6: u8 = 4;
pub(crate) const GSO_UDP_L4: u8 = 5;
/// The TCP segments use ECN (`VIRTIO_NET_HDR_GSO_ECN`).
pub(crate) const GSO_ECN: u8 = 0x80;

const TCP: u8 = 6;
const UDP: u8 = 17;
/// TCP's flag that only the first segment keeps (RFC 3168).
const CWR: u8 = 0x80;
const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;

/// A virtio-net header.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Vnet {
    pub(crate) flags: u8,
    pub(crate) gso_type: u8,
    /// Length of all headers in bytes; a hint.
    pub(crate) hdr_len: u16,
    /// Bytes of payload in a segment.
    pub(crate) gso_size: u16,
    /// Where the bytes begin that the checksum covers.
    pub(crate) csum_start: u16,
    /// Where the checksum lies behind `csum_start`.
    pub(crate) csum_offset: u16,
}

impl Vnet {
    pub(crate) fn from_bytes(bytes: [u8; LEN]) -> Self {
        let [flags, gso_type, a, b, c, d, e, f, g, h] = bytes;
        Self {
            flags,
            gso_type,
            hdr_len: u16::from_ne_bytes([a, b]),
            gso_size: u16::from_ne_bytes([c, d]),
            csum_start: u16::from_ne_bytes([e, f]),
            csum_offset: u16::from_ne_bytes([g, h]),
        }
    }

    pub(crate) fn to_bytes(self) -> [u8; LEN] {
        let [a, b] = self.hdr_len.to_ne_bytes();
        let [c, d] = self.gso_size.to_ne_bytes();
        let [e, f] = self.csum_start.to_ne_bytes();
        let [g, h] = self.csum_offset.to_ne_bytes();
        [self.flags, self.gso_type, a, b, c, d, e, f, g, h]
    }

    /// Returns the bytes of payload per segment, if the packet has segments.
    pub(crate) fn gso_size(&self) -> Option<u16> {
        (self.gso_type & !GSO_ECN != GSO_NONE && self.gso_size > 0).then_some(self.gso_size)
    }

    /// Returns the header for sending a packet. `None` if the packet has segments and is neither TCP nor UDP.
    pub(crate) fn of<A: Arch>(packet: &Packet<A>) -> Option<Self> {
        let (gso_size, segs) = packet.gso();
        if segs <= 1 {
            return Some(Self::default());
        }
        let found = packet.dissect();
        let transport = usize::from(found.transport_offset);
        let (gso_type, csum_offset, header) = match (found.ip_proto, found.ethertype) {
            _ if transport == 0 || found.keys.src_port == 0 && found.keys.dst_port == 0 => return None,
            (TCP, IPV4 | IPV6) => {
                let header = usize::from(*packet.data().get(transport + 12)? >> 4) * 4;
                let ecn = if packet.data().get(transport + 13)? & CWR != 0 { GSO_ECN } else { 0 };
                (if found.ethertype == IPV4 { GSO_TCPV4 } else { GSO_TCPV6 } | ecn, 16, header)
            }
            (UDP, IPV4 | IPV6) => (GSO_UDP_L4, 6, 8),
            _ => return None,
        };
        let (hdr_len, csum_start) = ((transport + header) as u16, transport as u16);
        Some(Self { flags: NEEDS_CSUM, gso_type, hdr_len, gso_size, csum_start, csum_offset })
    }

    /// Writes the sum of the pseudo header into the checksum field of a packet with segments, which is what the kernel adds
    /// the rest to. Returns the packet's header, as [`of`](Vnet::of) does.
    pub(crate) fn prepare<A: Arch>(packet: &mut Packet<A>) -> Option<Self> {
        let vnet = Self::of(packet)?;
        if vnet.flags & NEEDS_CSUM != 0 {
            let transport = usize::from(vnet.csum_start);
            let field = transport + usize::from(vnet.csum_offset);
            let (hash, offsets) = (packet.hash(), packet.protocol_offsets());
            let sum = fold(pseudo(packet.data(), &packet.dissect(), packet.len() - transport)?);
            packet.data_mut().get_mut(field..field + 2)?.copy_from_slice(&sum.to_be_bytes());
            packet.set_hash(hash);
            if let Some((network, transport, ethertype)) = offsets {
                packet.set_protocol_offsets(network, transport, ethertype);
            }
        }
        Some(vnet)
    }

    /// Computes the checksum that the kernel left to the card, if it did. Returns false if the header points outside the
    /// packet.
    pub(crate) fn complete(&self, bytes: &mut [u8]) -> bool {
        if self.flags & NEEDS_CSUM == 0 {
            return true;
        }
        let (start, offset) = (usize::from(self.csum_start), usize::from(self.csum_offset));
        let Some(covered) = bytes.get_mut(start..).filter(|covered| offset + 2 <= covered.len()) else {
            return false;
        };
        // The field holds the sum of the pseudo header.
        let sum = !fold(sum(covered));
        let sum = if sum == 0 { 0xffff } else { sum };
        covered[offset..offset + 2].copy_from_slice(&sum.to_be_bytes());
        true
    }
}

/// Returns the sum of the pseudo header for `len` bytes from the transport header on (RFC 9293, RFC 8200 section 8.1).
pub(crate) fn pseudo(data: &[u8], found: &Dissected, len: usize) -> Option<u64> {
    let network = usize::from(found.network_offset);
    let addresses = match found.ethertype {
        IPV4 => data.get(network + 12..network + 20)?,
        _ => data.get(network + 8..network + 40)?,
    };
    Some(sum(addresses) + u64::from(found.ip_proto) + len as u64)
}

/// Returns the sum of the 16-bit words; an odd last byte is filled up with 0 (RFC 1071).
pub(crate) fn sum(bytes: &[u8]) -> u64 {
    let mut words = bytes.chunks_exact(2);
    let sum: u64 = words.by_ref().map(|word| u64::from(u16::from_be_bytes([word[0], word[1]]))).sum();
    sum + words.remainder().first().map_or(0, |&byte| u64::from(byte) << 8)
}

/// Folds a sum into 16 bits, in one's complement arithmetic.
pub(crate) fn fold(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum >> 16) + (sum & 0xffff);
    }
    sum as u16
}

#[cfg(test)]
mod tests {
    use txq::pool::{Backing, Pool, PoolConfig};

    use super::*;

    /// IPv4 and UDP with a right checksum, behind an Ethernet header.
    fn udp() -> Vec<u8> {
        let mut frame = vec![0; 12];
        frame.extend([8, 0, 0x45, 0, 0, 33, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        frame.extend([0, 7, 0, 9, 0, 13, 0, 0, 1, 2, 3, 4, 5]);
        frame
    }

    /// The sum over the pseudo header and the packet, which a right checksum makes 0xffff.
    fn total(frame: &[u8]) -> u16 {
        fold(sum(&frame[26..34]) + 17 + 13 + sum(&frame[34..]))
    }

    #[test]
    fn a_checksum_left_to_the_card_is_computed() {
        let mut frame = udp();
        let seed = fold(sum(&frame[26..34]) + 17 + 13);
        frame[40..42].copy_from_slice(&seed.to_be_bytes());
        let vnet = Vnet { flags: NEEDS_CSUM, csum_start: 34, csum_offset: 6, ..Vnet::default() };
        assert_eq!(Vnet::from_bytes(vnet.to_bytes()), vnet);
        assert!(vnet.complete(&mut frame));
        assert_eq!(total(&frame), 0xffff);
        for (csum_start, csum_offset) in [(46, 0), (45, 2), (100, 6), (34, 60_000), (u16::MAX, u16::MAX)] {
            assert!(!Vnet { csum_start, csum_offset, ..vnet }.complete(&mut frame));
        }
        assert!(Vnet::default().complete(&mut frame));
    }

    #[test]
    fn segments_get_the_sum_of_the_pseudo_header() {
        let config = PoolConfig { buffers: 32, backing: Backing::Heap, ..PoolConfig::default() };
        let mut cache = Pool::<txq_core::arch::Native>::new(&config).unwrap().cache("test", 0);
        let mut packet = cache.alloc(udp().len()).unwrap();
        packet.data_mut().copy_from_slice(&udp());
        assert_eq!(Vnet::prepare(&mut packet), Some(Vnet::default()));
        packet.set_gso(2, 3);
        let vnet = Vnet::prepare(&mut packet).unwrap();
        let expected = Vnet {
            flags: NEEDS_CSUM,
            gso_type: GSO_UDP_L4,
            hdr_len: 42,
            gso_size: 2,
            csum_start: 34,
            csum_offset: 6,
        };
        assert_eq!((vnet, vnet.gso_size()), (expected, Some(2)));
        assert!(vnet.complete(packet.data_mut()));
        assert_eq!(total(packet.data()), 0xffff);
        packet.data_mut()[23] = 1;
        assert_eq!(Vnet::prepare(&mut packet), None, "ICMP has no segments");
    }
}
