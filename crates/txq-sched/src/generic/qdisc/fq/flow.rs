//! One flow: its packets, in the order of their departure times.
//!
//! An enqueue or a dequeue reads and writes one cache line of a flow.

use std::collections::VecDeque;

use txq_core::arch::{Arch, Nanos};
use txq_core::packet::{Packet, PacketQueue};

use crate::generic::qdisc::wheel::Ticket;

/// No flow.
pub(super) const NIL: u32 = u32::MAX;

/// The state of a flow, and its list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FlowState {
    /// Not in use.
    Free,
    /// Without packets, on the table's list of idle flows. It keeps its credit and its next time for a while.
    Idle,
    /// On its band's list of new flows.
    New,
    /// On its band's list of old flows.
    Old,
    /// On the wheel, until its first packet's time.
    Throttled,
}

/// Packets in the order of their departure times, each with its time.
pub(super) type Late<A> = VecDeque<(Nanos, Packet<A>)>;

/// A flow: one cache line.
#[repr(C, align(64))]
pub(super) struct Flow<A: Arch> {
    /// Packets in the order of their departure times, and of their arrival where the times are equal. The table keeps the
    /// packets that arrived after a packet with a later time ([`is_late`](Flow::is_late)).
    pub(super) queue: PacketQueue<A>,
    /// While `queue` is not empty: the departure time of its last packet. While the flow is idle: when it became idle.
    pub(super) time: Nanos,
    /// Bytes that the flow may send before its turn is over.
    pub(super) credit: i64,
    /// Time from which the flow's rate allows its next packet; 0 if no rate has set it.
    pub(super) next_time: Nanos,
    /// The lower 32 bits of the flow's key.
    key: u32,
    /// The number of packets, with the late ones.
    pub(super) len: u32,
    /// Neighbours on the list of idle flows. For an unused flow, `next` is the next unused one.
    pub(super) next: u32,
    pub(super) prev: u32,
    /// The flow's place on the wheel, while it is throttled.
    pub(super) ticket: Option<Ticket>,
    pub(super) place: FlowState,
    /// The band of the flow's last packet. The flow goes to this band's lists.
    pub(super) band: u8,
    /// Bit 32 of the flow's key, the highest one that a key has.
    upper: bool,
    /// Whether the table keeps late packets of the flow ([`Table::late`](super::table::Table)).
    pub(super) is_late: bool,
}

/// One more field would cost one more cache line for each packet.
#[cfg(target_pointer_width = "64")]
const _: () = assert!(size_of::<Flow<txq_core::arch::Native>>() == 64);

impl<A: Arch> Flow<A> {
    pub(super) fn unused() -> Self {
        Self {
            queue: PacketQueue::new(),
            time: 0,
            credit: 0,
            next_time: 0,
            key: 0,
            len: 0,
            next: NIL,
            prev: NIL,
            ticket: None,
            place: FlowState::Free,
            band: 0,
            upper: false,
            is_late: false,
        }
    }

    #[inline]
    pub(super) fn key(&self) -> u64 {
        u64::from(self.upper) << 32 | u64::from(self.key)
    }

    pub(super) fn set_key(&mut self, key: u64) {
        (self.key, self.upper) = (key as u32, key >> 32 != 0);
    }

    /// Returns whether the flow is in use and has this key.
    #[inline]
    pub(super) fn is_of(&self, key: u64) -> bool {
        self.key() == key && self.place != FlowState::Free
    }

    /// Appends a packet, unless a queued one has a later departure time; then returns the packet.
    #[inline]
    pub(super) fn append(&mut self, packet: Packet<A>) -> Option<Packet<A>> {
        let at = packet.departure();
        if if self.queue.is_empty() { self.is_late } else { at < self.time } {
            return Some(packet);
        }
        self.time = at;
        self.len += 1;
        self.queue.push_back(packet);
        None
    }
}
