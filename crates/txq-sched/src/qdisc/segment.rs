//! Cuts a GSO packet into its segments (`skb_gso_segment`), for a qdisc that must not send it whole (cake with `split-gso`,
//! tbf where it is longer than the bucket) and for a device that cannot cut it.
//!
//! Each segment is a packet with the headers of the whole one. Lengths, IPv4 ids, sequence numbers, flags and checksums are
//! set for each (RFC 9293, RFC 768). The last segment is the packet itself, and the others are new packets, in a qdisc
//! copies (`copying.rs`). So the credit of the sender and the count of the flow return when all segments have left. A packet
//! stays whole if it is neither TCP nor UDP in IP, if it is a fragment, or if there are no buffers for its segments.

use std::ops::Range;

use txq_core::arch::Arch;
use txq_core::flow::Dissected;
use txq_core::packet::{Packet, PacketList};

use crate::qdisc::Cx;

const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;
const TCP: u8 = 6;
const UDP: u8 = 17;
const FIN: u8 = 0x01;
const PSH: u8 = 0x08;
const CWR: u8 = 0x80;

/// Where the headers and the payload begin in a packet that can be cut.
struct Layout {
    /// IPv4, not IPv6.
    is_ipv4: bool,
    /// TCP, not UDP.
    is_tcp: bool,
    network: usize,
    transport: usize,
    /// Where the payload begins.
    head: usize,
}

impl Layout {
    /// Returns the layout of a packet, or `None` if it cannot be cut.
    fn of(frame: &[u8], found: &Dissected) -> Option<Self> {
        let (network, transport) = (usize::from(found.network_offset), usize::from(found.transport_offset));
        let is_ipv4 = match found.ethertype {
            IPV4 => true,
            IPV6 => false,
            _ => return None,
        };
        let is_tcp = match found.keys.ip_proto {
            TCP => true,
            UDP => false,
            _ => return None,
        };
        let fragment =
            is_ipv4 && u16::from_be_bytes([*frame.get(network + 6)?, *frame.get(network + 7)?]) & 0x3fff != 0;
        if transport <= network || fragment {
            return None;
        }
        let header = if is_tcp { usize::from(*frame.get(transport + 12)? >> 4) * 4 } else { 8 };
        let head = transport + header;
        let whole = header >= if is_tcp { 20 } else { 8 } && head <= frame.len();
        whole.then_some(Self { is_ipv4, is_tcp, network, transport, head })
    }

    /// Sets the headers of segment `number`, whose payload begins `before` bytes behind the start of the whole payload.
    fn finish(&self, frame: &mut [u8], number: usize, before: usize, is_last: bool) {
        let len = frame.len();
        let ip = &mut frame[self.network..];
        if self.is_ipv4 {
            put(ip, 2, len - self.network);
            let id = u16::from_be_bytes([ip[4], ip[5]]).wrapping_add(number as u16);
            put(ip, 4, id.into());
            put(ip, 10, 0);
            let header = usize::from(ip[0] & 15) * 4;
            let sum = !fold(sum(&ip[..header]));
            put(ip, 10, sum.into());
        } else {
            put(ip, 4, len - self.network - 40);
        }
        let addresses = if self.is_ipv4 { sum(&ip[12..20]) } else { sum(&ip[8..40]) };
        let proto = if self.is_tcp { TCP } else { UDP };
        let pseudo = addresses + u64::from(proto) + (len - self.transport) as u64;
        let segment = &mut frame[self.transport..];
        if self.is_tcp {
            let first = u32::from_be_bytes([segment[4], segment[5], segment[6], segment[7]]);
            segment[4..8].copy_from_slice(&first.wrapping_add(before as u32).to_be_bytes());
            segment[13] &= !(if is_last { 0 } else { FIN | PSH } | if number == 0 { 0 } else { CWR });
            put(segment, 16, 0);
            let sum = !fold(pseudo + sum(segment));
            put(segment, 16, sum.into());
        } else {
            put(segment, 4, segment.len());
            // In IPv4, a UDP packet without a checksum stays without one.
            if !self.is_ipv4 || segment[6..8] != [0, 0] {
                put(segment, 6, 0);
                let sum = !fold(pseudo + sum(segment));
                put(segment, 6, if sum == 0 { 0xffff } else { sum.into() });
            }
        }
    }
}

/// Writes 16 bits at an offset, in network order.
fn put(bytes: &mut [u8], at: usize, value: usize) {
    bytes[at..at + 2].copy_from_slice(&(value as u16).to_be_bytes());
}

/// Returns the sum of the 16-bit words; an odd last byte is filled up with 0 (RFC 1071).
fn sum(bytes: &[u8]) -> u64 {
    let word = |word: &[u8]| u64::from(word[0]) << 8 | u64::from(*word.get(1).unwrap_or(&0));
    bytes.chunks(2).map(word).sum()
}

/// Folds a sum into 16 bits, in one's complement arithmetic.
fn fold(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum >> 16) + (sum & 0xffff);
    }
    sum as u16
}

/// Returns the segments of a GSO packet in order, or the packet itself if it has no segments or cannot be cut.
pub(super) fn segment<A: Arch>(packet: Packet<A>, cx: &mut Cx<'_, A>) -> PacketList<A> {
    cut(packet, |packet, head, parts| cx.parts(packet, head, parts))
}

/// Returns the segments of a GSO packet in order, or the packet itself if it has no segments or cannot be cut. `copy` copies
/// the packet once for each range: its first bytes, as many as the second argument says, and the range behind them. It
/// returns `None` if there are not buffers for all.
#[doc(hidden)]
pub fn cut<A: Arch>(
    mut packet: Packet<A>,
    copy: impl FnOnce(&Packet<A>, usize, &mut dyn Iterator<Item = Range<usize>>) -> Option<PacketList<A>>,
) -> PacketList<A> {
    let mut segments = PacketList::new();
    let (size, segs) = (usize::from(packet.gso().0), packet.segs());
    let layout = if segs > 1 && size > 0 { Layout::of(packet.data(), &packet.dissect()) } else { None };
    if let Some(layout) = layout {
        let (len, head) = (packet.len(), layout.head);
        let last = head + (len - head).saturating_sub(1) / size * size;
        let mut parts = (head..last).step_by(size).map(|at| at..at + size);
        let (hash, offsets) = (packet.hash(), packet.protocol_offsets());
        if let Some(list) = copy(&packet, head, &mut parts).filter(|list| !list.is_empty()) {
            segments = list;
            packet.data_mut().copy_within(last.., head);
            packet.truncate(head + len - last);
            segments.push_back(packet);
            let (mut number, count) = (0, segments.len());
            segments.for_each_mut(|segment| {
                layout.finish(segment.data_mut(), number, number * size, number + 1 == count);
                segment.set_gso(0, 1);
                segment.set_hash(hash);
                if let Some((network, transport, ethertype)) = offsets {
                    segment.set_protocol_offsets(network, transport, ethertype);
                }
                number += 1;
            });
            return segments;
        }
    }
    segments.push_back(packet);
    segments
}

/// Cuts the bytes of a packet, which need not lie in a buffer, into segments of `size` bytes of payload. `fill` makes a packet
/// of the headers and a part of the payload. Returns `None` if the packet cannot be cut, or `fill` returns `None`.
#[doc(hidden)]
pub fn cut_bytes<A: Arch>(
    bytes: &[u8],
    found: &Dissected,
    size: u16,
    mut fill: impl FnMut(&[u8], &[u8]) -> Option<Packet<A>>,
) -> Option<PacketList<A>> {
    let layout = Layout::of(bytes, found)?;
    let (headers, payload) = bytes.split_at(layout.head);
    let size = usize::from(size.max(1));
    let count = payload.len().div_ceil(size);
    let mut segments = PacketList::new();
    for (number, part) in payload.chunks(size).enumerate() {
        let mut segment = fill(headers, part)?;
        layout.finish(segment.data_mut(), number, number * size, number + 1 == count);
        segments.push_back(segment);
    }
    Some(segments)
}

#[cfg(test)]
mod tests;
