//! Cuts a GSO packet into its segments (`skb_gso_segment`), for a qdisc that must not send it whole (cake with `split-gso`,
//! tbf where it is longer than the bucket) and for a device that cannot cut it.
//!
//! Each segment is a packet with the headers of the whole one. Lengths, IPv4 ids, sequence numbers, flags and checksums are
//! set for each (RFC 9293, RFC 768); where the device computes the checksum of the whole packet, it computes those of the segments. The last segment is the packet itself, and the others are new packets, in a qdisc
//! copies (`copying.rs`). So the credit of the sender and the count of the flow return when all segments have left. A packet
//! stays whole if it is neither TCP nor UDP in IP, if it is a fragment, or if there are no buffers for its segments.

use std::ops::Range;

use txq_core::arch::Arch;
use txq_core::flow::Dissected;
use txq_core::flow::layout::Layout;
use txq_core::packet::{Packet, PacketList};

use crate::generic::qdisc::{Cx, Verdict};

/// Sets the headers of segment `number`, whose payload begins `before` bytes behind the start of the whole payload.
fn finish<A: Arch>(layout: &Layout, packet: &mut Packet<A>, number: usize, before: usize, is_last: bool) {
    let partial = packet.is_checksum_partial();
    let segment = packet.data_mut();
    let payload = segment.len() - layout.payload;
    layout.set_segment(&mut segment[..layout.payload], payload, number, before, is_last);
    if partial {
        layout.set_partial_checksum(segment);
    } else {
        layout.set_checksum(segment);
    }
}

/// Returns the segments of a GSO packet in order, or the packet itself if it has no segments or cannot be cut.
pub(super) fn segment<A: Arch>(packet: Packet<A>, cx: &mut Cx<'_, A>) -> PacketList<A> {
    cut(packet, |packet, head, parts| cx.parts(packet, head, parts))
}

/// Cuts a GSO packet, and passes each segment to `enqueue`. Returns the verdict on all of them.
pub(super) fn enqueue_segments<A: Arch>(
    packet: Packet<A>,
    cx: &mut Cx<'_, A>,
    mut enqueue: impl FnMut(Packet<A>, &mut Cx<'_, A>) -> Verdict,
) -> Verdict {
    let mut segments = segment(packet, cx);
    let (all, mut queued) = (segments.len(), 0);
    while let Some(segment) = segments.pop_front() {
        queued += usize::from(enqueue(segment, cx) != Verdict::Drop);
    }
    match queued {
        0 => Verdict::Drop,
        n if n == all => Verdict::Success,
        _ => Verdict::Congested,
    }
}

/// Returns the segments of a GSO packet in order, or the packet itself if it has no segments or cannot be cut. `copy` copies
/// the packet once for each range: its first bytes, as many as the second argument says, and the range behind them. It
/// returns `None` if there are not buffers for all.
#[doc(hidden)]
#[inline(never)]
pub fn cut<A: Arch>(
    mut packet: Packet<A>,
    copy: impl FnOnce(&Packet<A>, usize, &mut dyn Iterator<Item = Range<usize>>) -> Option<PacketList<A>>,
) -> PacketList<A> {
    let mut segments = PacketList::new();
    let (size, segs) = (usize::from(packet.gso().0), packet.segs());
    let layout = if segs > 1 && size > 0 { Layout::of(packet.data(), &packet.dissect()) } else { None };
    if let Some(layout) = layout {
        let (len, head) = (packet.own_len(), layout.payload);
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
                finish(&layout, segment, number, number * size, number + 1 == count);
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
    let (headers, payload) = bytes.split_at(layout.payload);
    let size = usize::from(size.max(1));
    let count = payload.len().div_ceil(size);
    let mut segments = PacketList::new();
    for (number, part) in payload.chunks(size).enumerate() {
        let mut segment = fill(headers, part)?;
        finish(&layout, &mut segment, number, number * size, number + 1 == count);
        segments.push_back(segment);
    }
    Some(segments)
}

#[cfg(test)]
mod tests;
