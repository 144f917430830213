//! The virtio-net header between a packet and the kernel (`struct virtio_net_hdr`, virtio 1.2 section 5.1.6): of a packet that
//! is sent, how the kernel cuts it; of a packet that was received, what the kernel left to do. AF_PACKET and TUN use it in the
//! byte order of the machine.

use txq::driver::Link;
use txq::flow::layout::{CWR, Layout, fold, sum, transport_len};
use txq::packet::Packet;

/// The header's length in bytes.
pub(crate) const LEN: usize = 10;

/// A checksum is to be computed from `csum_start` on (`VIRTIO_NET_HDR_F_NEEDS_CSUM`).
const NEEDS_CSUM: u8 = 1;
/// Kinds of segments (`VIRTIO_NET_HDR_GSO_*`).
const GSO_NONE: u8 = 0;
const GSO_TCPV4: u8 = 1;
const GSO_TCPV6: u8 = 4;
const GSO_UDP_L4: u8 = 5;
/// The TCP segments use ECN (`VIRTIO_NET_HDR_GSO_ECN`).
const GSO_ECN: u8 = 0x80;

/// A virtio-net header. The default is that of a packet that is complete.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Vnet {
    flags: u8,
    gso_type: u8,
    /// Length of all headers in bytes; a hint.
    hdr_len: u16,
    /// Bytes of payload in a segment.
    gso_size: u16,
    /// Where the bytes begin that the checksum covers.
    csum_start: u16,
    /// Where the checksum lies behind `csum_start`.
    csum_offset: u16,
}

/// A packet whose header contradicts it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Malformed;

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

    /// Returns the header of a packet that the kernel cuts into segments of `size` bytes of payload, or completes without
    /// cutting if `size` is 0.
    pub(crate) fn new(layout: &Layout, packet: &[u8], size: u16) -> Self {
        let gso_type = match (layout.is_tcp, layout.is_ipv4) {
            _ if size == 0 => GSO_NONE,
            (true, v4) => {
                let ecn = if packet[layout.transport + 13] & CWR != 0 { GSO_ECN } else { 0 };
                ecn | if v4 { GSO_TCPV4 } else { GSO_TCPV6 }
            }
            (false, _) => GSO_UDP_L4,
        };
        Self {
            flags: NEEDS_CSUM,
            gso_type,
            hdr_len: layout.payload as u16,
            gso_size: size,
            csum_start: layout.transport as u16,
            csum_offset: layout.checksum_offset() as u16,
        }
    }

    /// Returns the header for sending a packet; `None` if it has segments and cannot be cut.
    pub(crate) fn of(packet: &Packet) -> Option<Self> {
        match packet.gso() {
            (_, ..=1) if !packet.is_checksum_partial() => Some(Self::default()),
            (_, ..=1) => {
                let layout = Layout::of(packet.data(), &packet.dissect());
                Some(layout.map_or(Self::default(), |layout| Self::new(&layout, packet.data(), 0)))
            }
            (0, _) => None,
            (size, _) => {
                let layout = Layout::of(packet.data(), &packet.dissect())?;
                Some(Self::new(&layout, packet.data(), size))
            }
        }
    }

    /// Writes the sum of the pseudo header into the checksum field of a packet with segments, which is what the kernel adds
    /// the rest to. Returns whether the packet can be cut.
    pub(crate) fn prepare(packet: &mut Packet) -> bool {
        let layout = Layout::of(packet.data(), &packet.dissect());
        let Some(layout) = layout.filter(|_| packet.gso().0 > 0) else { return false };
        let (hash, offsets) = (packet.hash(), packet.protocol_offsets());
        let sum = partial(&layout, packet.data(), packet.len() - layout.payload);
        packet.data_mut()[layout.checksum_at()..][..2].copy_from_slice(&sum);
        packet.set_hash(hash);
        if let Some((network, transport, ethertype)) = offsets {
            packet.set_protocol_offsets(network, transport, ethertype);
        }
        true
    }

    /// Returns the bytes of payload per segment, if the packet has segments.
    pub(crate) fn gso_size(&self) -> Option<u16> {
        (self.gso_type & !GSO_ECN != GSO_NONE && self.gso_size > 0).then_some(self.gso_size)
    }

    /// Does for a received packet what the kernel left to do: writes the checksum that is missing, unless the packet has
    /// segments. Returns the payload of a segment and the number of segments if the packet has more than one.
    pub(crate) fn complete(&self, packet: &mut [u8], link: Link) -> Result<Option<(u16, u16)>, Malformed> {
        // Nearly all packets.
        if (self.flags, self.gso_type) == (0, GSO_NONE) {
            return Ok(None);
        }
        let is_tcp = match self.gso_type & !GSO_ECN {
            GSO_NONE => None,
            GSO_TCPV4 | GSO_TCPV6 => Some(true),
            GSO_UDP_L4 => Some(false),
            _ => return Err(Malformed),
        };
        if let Some(is_tcp) = is_tcp {
            // The kernel's length of the headers is that of its first buffer, which may contain more.
            let payload = if self.flags & NEEDS_CSUM != 0 {
                let start = usize::from(self.csum_start);
                start + transport_len(packet, start, is_tcp).ok_or(Malformed)?
            } else {
                let layout = Layout::of(packet, &link.dissect(packet));
                layout.filter(|layout| layout.is_tcp == is_tcp).ok_or(Malformed)?.payload
            };
            let size = self.gso_size().ok_or(Malformed)?;
            let segs = (packet.len() - payload).div_ceil(size.into());
            if segs > 1 {
                return Ok(Some((size, u16::try_from(segs).map_err(|_| Malformed)?)));
            }
        }
        self.write_checksum(packet).map(|()| None)
    }

    fn write_checksum(&self, packet: &mut [u8]) -> Result<(), Malformed> {
        if self.flags & NEEDS_CSUM == 0 {
            return Ok(());
        }
        let (start, offset) = (usize::from(self.csum_start), usize::from(self.csum_offset));
        let covered =
            packet.get_mut(start..).filter(|covered| offset + 2 <= covered.len()).ok_or(Malformed)?;
        // The field holds the sum of the pseudo header.
        let checksum = !fold(sum(covered));
        let checksum = if checksum == 0 { 0xffff } else { checksum };
        covered[offset..offset + 2].copy_from_slice(&checksum.to_be_bytes());
        Ok(())
    }
}

/// Returns the checksum field of a packet with these headers and `payload` bytes of payload that the kernel completes: the sum
/// of the pseudo header.
pub(crate) fn partial(layout: &Layout, headers: &[u8], payload: usize) -> [u8; 2] {
    fold(layout.pseudo(headers, payload)).to_be_bytes()
}

#[cfg(test)]
mod tests;
