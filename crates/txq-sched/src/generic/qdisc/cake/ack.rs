//! The ACK filter ("Piece of CAKE", section III D) drops acknowledgements that a later one makes needless, for links with a
//! slow uplink.
//!
//! It drops a packet that holds only an acknowledgement, if a later one of its connection acknowledges more. A duplicate
//! stays, because it reports a loss. A packet stays as well if it carries SACK blocks, flags other than those of the later
//! one, or an unknown option. `ack-filter` leaves the latest two acknowledgements, `ack-filter-aggressive` the latest.

use txq_core::arch::Arch;
use txq_core::flow::FlowKeys;
use txq_core::packet::{Packet, PacketList};

/// The number of packets, from the head of the queue, that the filter reads for each arrival.
const ACK_SCAN: usize = 64;

const TCP: u8 = 6;
/// Flags that a pure acknowledgement may have beside ACK: ECE and CWR.
const ECN_FLAGS: u8 = 0xc0;
const ACK: u8 = 0x10;

/// The fields of an acknowledgement that decide whether it is needless.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Ack {
    keys: FlowKeys,
    tos: u8,
    flags: u8,
    number: u32,
    /// The TCP timestamp, if there is one.
    time: Option<u32>,
    has_sack: bool,
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

/// Reads a packet; returns `None` unless it holds only an acknowledgement.
fn read<A: Arch>(packet: &Packet<A>) -> Option<Ack> {
    let data = packet.data();
    let found = packet.dissect();
    let (network, transport) = (usize::from(found.network_offset), usize::from(found.transport_offset));
    if found.ip_proto != TCP || transport == 0 || found.keys.src_port == 0 {
        return None;
    }
    let end = match found.ethertype {
        0x0800 => {
            network + usize::from(u16::from_be_bytes([*data.get(network + 2)?, *data.get(network + 3)?]))
        }
        _ => {
            network + 40 + usize::from(u16::from_be_bytes([*data.get(network + 4)?, *data.get(network + 5)?]))
        }
    };
    let header = data.get(transport..)?;
    let length = usize::from(*header.get(12)? >> 4) * 4;
    let flags = header[13..].first().copied()?;
    // A frame may be padded: the IP length gives the end.
    if flags & !ECN_FLAGS != ACK || length < 20 || transport + length != end {
        return None;
    }
    let (mut time, mut has_sack) = (None, false);
    let mut options = header.get(20..length)?;
    while let [kind, rest @ ..] = options {
        options = match (kind, rest) {
            (0, _) => break,
            (1, _) => rest,
            (8, [10, ..]) => {
                time = Some(word(rest, 1)?);
                rest.get(9..)?
            }
            (5, [size, ..]) if *size >= 2 => {
                has_sack = true;
                rest.get(usize::from(*size) - 1..)?
            }
            _ => return None,
        };
    }
    Some(Ack { keys: found.keys, tos: found.tos, flags, number: word(header, 8)?, time, has_sack })
}

impl Ack {
    /// Returns whether a later acknowledgement makes this one needless.
    fn is_needless(&self, later: &Self) -> bool {
        let grows = |old: u32, new: u32| new.wrapping_sub(old) as i32;
        let time_goes_on = match (self.time, later.time) {
            (Some(old), Some(new)) => grows(old, new) >= 0,
            (old, new) => old == new,
        };
        self.keys == later.keys
            && self.tos == later.tos
            && self.flags == later.flags
            && !self.has_sack
            && time_goes_on
            && grows(self.number, later.number) > 0
    }
}

/// Takes and returns the first packet of the queue that the last one makes needless, if there are `keep` more such packets.
pub(super) fn filter<A: Arch>(queue: &mut PacketList<A>, keep: usize) -> Option<Packet<A>> {
    let last = read(queue.back()?)?;
    let before = queue.iter().take(queue.len() - 1).take(ACK_SCAN).enumerate();
    let mut needless =
        before.filter(|(_, packet)| read(packet).is_some_and(|ack| ack.is_needless(&last))).map(|(at, _)| at);
    let at = needless.next()?;
    if needless.take(keep).count() < keep {
        return None;
    }
    let mut head = PacketList::new();
    queue.move_front(at, &mut head);
    let mut packet = queue.pop_front()?;
    head.append(queue);
    std::mem::swap(queue, &mut head);
    packet.take_queued();
    Some(packet)
}
