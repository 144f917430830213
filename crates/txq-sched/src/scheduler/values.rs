//! The program's values of queued packets, by the numbers that packets carry as cookies.

use txq_core::packet::Packet;

const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;

/// A queued packet's value.
struct Entry<T> {
    value: T,
    /// The TOS or traffic class that the packet's header had.
    tos: u8,
}

/// The values. A number is in use from [`insert`](Values::insert) to [`remove`](Values::remove).
pub(super) struct Values<T> {
    entries: Vec<Option<Entry<T>>>,
    free: Vec<u32>,
}

impl<T> Values<T> {
    pub(super) fn new() -> Self {
        Self { entries: Vec::new(), free: Vec::new() }
    }

    /// Keeps a packet's value, and stores its number in the packet.
    pub(super) fn insert(&mut self, value: T, packet: &mut Packet) {
        let entry = Entry { value, tos: tos(packet).unwrap_or(0) };
        let number = match self.free.pop() {
            Some(number) => {
                self.entries[number as usize] = Some(entry);
                number
            }
            None => {
                self.entries.push(Some(entry));
                self.entries.len() as u32 - 1
            }
        };
        packet.set_cookie(number.into());
    }

    /// Returns a packet's value, and its TOS if a qdisc has changed that.
    pub(super) fn remove(&mut self, packet: &Packet) -> Option<(T, Option<u8>)> {
        let number = number(packet);
        let Entry { value, tos: before } = self.entries.get_mut(number)?.take()?;
        self.free.push(number as u32);
        Some((value, tos(packet).filter(|&now| now != before)))
    }

    /// Returns a packet's value.
    pub(super) fn get(&self, packet: &Packet) -> Option<&T> {
        let entry = self.entries.get(number(packet))?;
        entry.as_ref().map(|entry| &entry.value)
    }
}

/// Returns the number of a packet's value: the low half of its cookie (`qdisc/damage.rs` has the other half).
fn number(packet: &Packet) -> usize {
    packet.cookie() as u32 as usize
}

/// Finds the protocol headers of a packet that has a header, and stores where they are.
pub(super) fn find_headers(packet: &mut Packet) {
    let found = packet.dissect();
    packet.set_protocol_offsets(found.network_offset, found.transport_offset, found.ethertype);
}

/// Returns the TOS or traffic class in a packet's header; `None` if it has none.
fn tos(packet: &Packet) -> Option<u8> {
    let (network, _, ethertype) = packet.protocol_offsets()?;
    match (ethertype, packet.data().get(network.into()..)?) {
        (IPV4, [_, tos, ..]) => Some(*tos),
        (IPV6, [high, low, ..]) => Some(high << 4 | low >> 4),
        _ => None,
    }
}
