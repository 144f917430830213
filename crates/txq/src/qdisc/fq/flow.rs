//! One flow: its packets, in the order of their departure times.

use std::collections::VecDeque;

use crate::arch::{Arch, Nanos};
use crate::packet::{Packet, PacketList};
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

pub(super) struct Flow<A: Arch> {
    pub(super) key: u64,
    pub(super) place: Place,
    /// The band of its last packet, whose lists it is on.
    pub(super) band: u8,
    /// Neighbours on the list that it is on.
    pub(super) next: u32,
    pub(super) prev: u32,
    /// The next flow of the same bucket.
    pub(super) chain: u32,
    /// Its place on the wheel, while it is throttled.
    pub(super) ticket: Option<Ticket>,
    /// Bytes that it may send before its turn is over.
    pub(super) credit: i64,
    /// Its next packet may leave from then on, by its rate; 0 if that was never set.
    pub(super) next_time: Nanos,
    /// When it became idle, or until when it is throttled.
    pub(super) time: Nanos,
    pub(super) queue: Queue<A>,
}

impl<A: Arch> Flow<A> {
    pub(super) fn unused() -> Self {
        Self {
            key: 0,
            place: Place::Free,
            band: 0,
            next: NIL,
            prev: NIL,
            chain: NIL,
            ticket: None,
            credit: 0,
            next_time: 0,
            time: 0,
            queue: Queue { list: PacketList::new(), late: None },
        }
    }

    /// When its first packet may leave.
    #[inline]
    pub(super) fn due(&self) -> Option<Nanos> {
        self.queue.front_time().map(|at| at.max(self.next_time))
    }
}

/// Packets by their departure times.
type Late<A> = VecDeque<(Nanos, Packet<A>)>;

/// Packets by departure time, and those of one time in the order of their arrival.
pub(super) struct Queue<A: Arch> {
    list: PacketList<A>,
    /// Those that came too late to be appended. Boxed, because few flows ever have one.
    late: Option<Box<Late<A>>>,
}

impl<A: Arch> Queue<A> {
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.list.len() + self.late.as_ref().map_or(0, |late| late.len())
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Anything of the queue's own memory.
    #[inline]
    pub(super) fn touch(&self) -> u64 {
        self.list.bytes()
    }

    /// The time of the last packet in order, 0 if there is none.
    #[inline]
    pub(super) fn back_time(&self) -> Nanos {
        self.list.back().map_or(0, Packet::departure)
    }

    #[inline]
    pub(super) fn push(&mut self, packet: Packet<A>) {
        let at = packet.departure();
        let append = match self.list.back() {
            Some(last) => at >= last.departure(),
            None => self.is_empty(),
        };
        if append {
            self.list.push_back(packet);
        } else {
            self.push_late(at, packet);
        }
    }

    /// A flow has few packets, and a shift of some is cheaper than a tree. Never before one of the same time.
    #[cold]
    fn push_late(&mut self, at: Nanos, packet: Packet<A>) {
        let late = self.late.get_or_insert_default();
        let index = late.partition_point(|(time, _)| *time <= at);
        late.insert(index, (at, packet));
    }

    #[inline]
    fn late_time(&self) -> Option<Nanos> {
        self.late.as_ref()?.front().map(|(at, _)| *at)
    }

    #[inline]
    pub(super) fn front_time(&self) -> Option<Nanos> {
        let first = self.list.front().map(Packet::departure);
        match self.late_time() {
            None => first,
            Some(late) => Some(first.map_or(late, |first| first.min(late))),
        }
    }

    #[inline]
    pub(super) fn pop_front(&mut self) -> Option<Packet<A>> {
        if let Some(late) = self.late_time()
            // Of one time, what is on the list came first: a late packet is before the list's end.
            && self.list.front().is_none_or(|first| late < first.departure())
        {
            return self.late.as_mut()?.pop_front().map(|(_, packet)| packet);
        }
        self.list.pop_front()
    }

    /// Takes the first packet of which `which` holds. Costs as much as there are packets, unless it is the first.
    pub(super) fn take(&mut self, mut which: impl FnMut(&Packet<A>) -> bool) -> Option<Packet<A>> {
        let (mut kept, mut taken) = (PacketList::new(), None);
        while let Some(packet) = self.pop_front() {
            if taken.is_none() && which(&packet) {
                taken = Some(packet);
                if kept.is_empty() {
                    return taken;
                }
            } else {
                kept.push_back(packet);
            }
        }
        self.list = kept;
        taken
    }

    /// The packets, in no particular order.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Packet<A>> {
        self.list.iter().chain(self.late.iter().flat_map(|late| late.iter().map(|(_, packet)| packet)))
    }

    /// Gives memory back that only late packets need.
    pub(super) fn shrink(&mut self) {
        self.late = None;
    }
}
