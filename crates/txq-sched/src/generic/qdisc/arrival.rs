//! Whether a packet would find room: what a sender that must not lose packets asks before it hands one in.
//!
//! The question changes nothing: a qdisc with classes classifies the packet as it does where the packet arrives, but
//! counts no hit and runs no action. So the answer holds until other packets arrive.

use txq_core::arch::Arch;
use txq_core::clock::Clock;
use txq_core::flow::layout::Layout;
use txq_core::packet::Packet;

/// A packet that may arrive, for [`Qdisc::room_for`](super::Qdisc::room_for).
pub struct Arrival<'p, A: Arch> {
    pub(crate) packet: &'p Packet<A>,
    pub(crate) clock: &'p mut Clock<A>,
    /// The packet's length as the qdisc counts it.
    len: u64,
    /// Packets into which the qdisc cuts it.
    parts: usize,
    ahead: Load,
    back: Load,
}

/// A number of packets, and their bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Load {
    /// Packets.
    pub packets: usize,
    /// Bytes.
    pub bytes: u64,
}

impl Load {
    /// Adds a packet.
    pub fn add<A: Arch>(&mut self, packet: &Packet<A>) {
        self.packets += 1;
        self.bytes += packet.len() as u64;
    }
}

/// There is no room, because of the packets that wait where the packet would wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Full {
    /// Packets that wait there. 0: the packet does not even fit into the empty queue, so no wait helps.
    pub queued: usize,
}

impl<'p, A: Arch> Arrival<'p, A> {
    /// Returns the arrival of `packet` behind others that arrive before: `ahead`, which may go to the same queue. `back` are
    /// packets in the driver, which may come back to the qdisc.
    pub fn new(packet: &'p Packet<A>, ahead: Load, back: Load, clock: &'p mut Clock<A>) -> Self {
        Self { packet, clock, len: packet.len() as u64, parts: 1, ahead, back }
    }

    /// Returns how many packets arrive, this one and those before it.
    pub(crate) fn packets(&self) -> usize {
        self.ahead.packets.saturating_add(self.parts)
    }

    /// Returns the bytes of all that arrive.
    pub(crate) fn bytes(&self) -> u64 {
        self.ahead.bytes.saturating_add(self.len)
    }

    /// Returns whether other packets arrive before this one.
    pub(super) fn is_behind(&self) -> bool {
        self.ahead.packets > 0
    }

    /// Adds the packets in the driver to those that arrive, for a kind that takes packets back.
    pub(crate) fn and_back(self) -> Self {
        let Load { packets, bytes } = self.back;
        let ahead = Load {
            packets: self.ahead.packets.saturating_add(packets),
            bytes: self.ahead.bytes.saturating_add(bytes),
        };
        Self { ahead, back: Load::default(), ..self }
    }

    /// Sets the length that the qdisc counts.
    pub(super) fn of_len(self, len: u64) -> Self {
        Self { len, ..self }
    }

    /// Returns the arrival of the packet's segments, where the qdisc cuts a packet that has any: each has the headers.
    pub(super) fn cut(self) -> Self {
        let segs = self.packet.segs() as usize;
        if segs <= 1 {
            return self;
        }
        let head = Layout::of(self.packet.data(), &self.packet.dissect()).map_or(0, |layout| layout.payload);
        Self { len: self.len + (segs as u64 - 1) * head as u64, parts: segs, ..self }
    }

    /// Returns `Ok` if all that arrive are within `limit` packets, of which `queued` wait.
    pub(super) fn within(&self, queued: usize, limit: usize) -> Result<(), Full> {
        self.if_room(queued.saturating_add(self.packets()) <= limit, queued)
    }

    /// Returns `Ok` if there is room, where `queued` packets wait.
    pub(super) fn if_room(&self, has_room: bool, queued: usize) -> Result<(), Full> {
        if has_room { Ok(()) } else { Err(Full { queued }) }
    }
}

#[cfg(test)]
mod tests;
