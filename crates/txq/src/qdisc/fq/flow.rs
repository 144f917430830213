//! One flow: its packets, in the order of their departure times.
//!
//! All that an enqueue or a dequeue needs of a flow is in one cache line.

use std::collections::VecDeque;

use crate::arch::{Arch, Nanos};
use crate::packet::{Packet, PacketQueue};
use crate::qdisc::wheel::Ticket;

/// No flow.
pub(super) const NIL: u32 = u32::MAX;

/// Where a flow is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// Not in use.
    Free,
    /// It has no packets, and is remembered for a while.
    Idle,
    /// On its band's list of flows that were idle until just now.
    New,
    /// On its band's other list.
    Old,
    /// On the wheel: its first packet's time has not come.
    Throttled,
}

/// Packets by their departure times.
pub(super) type Late<A> = VecDeque<(Nanos, Packet<A>)>;

#[repr(C, align(64))]
pub(super) struct Flow<A: Arch> {
    /// Packets by departure time, and those of one time in the order of their arrival. Those that came too late to be appended
    /// are kept by the table ([`is_late`](Flow::is_late)).
    pub(super) queue: PacketQueue<A>,
    /// The departure time of the last packet of `queue`, while that is not empty; while the flow is idle, since when it is.
    pub(super) time: Nanos,
    /// Bytes that it may send before its turn is over.
    pub(super) credit: i64,
    /// Its next packet may leave from then on, by its rate; 0 if that was never set.
    pub(super) next_time: Nanos,
    /// The lower half of its key.
    key: u32,
    /// Packets, late ones among them.
    pub(super) len: u32,
    /// Neighbours on the list of idle flows. Of an unused flow, `next` is another unused one.
    pub(super) next: u32,
    pub(super) prev: u32,
    /// Its place on the wheel, while it is throttled.
    pub(super) ticket: Option<Ticket>,
    pub(super) place: Place,
    /// The band of its last packet, whose lists it is on.
    pub(super) band: u8,
    /// The upper half of its key, which is a bit.
    upper: bool,
    /// The table keeps packets of it that came late.
    pub(super) is_late: bool,
}

/// A field more is a line more for every packet.
#[cfg(target_pointer_width = "64")]
const _: () = assert!(size_of::<Flow<crate::arch::Native>>() == 64);

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
            place: Place::Free,
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

    /// Whether it is the flow of a key.
    #[inline]
    pub(super) fn is_of(&self, key: u64) -> bool {
        self.key() == key && self.place != Place::Free
    }

    /// Appends a packet, if none that is here leaves after it. Otherwise it gives the packet back.
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
