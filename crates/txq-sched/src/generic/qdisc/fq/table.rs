//! The table of flows, and the late packets that few of them have.
//!
//! Flows are stored in chunks that never move. A hash table of cache lines finds them (`fq/index.rs`). Idle flows are on a
//! list in the order in which they became idle, so the oldest is found at once.

use std::collections::HashMap;

use txq_core::arch::{Arch, Nanos, fetch_to_write};
use txq_core::packet::{Packet, PacketQueue};

use crate::generic::qdisc::fq::chunks::Chunks;
use crate::generic::qdisc::fq::flow::{Flow, FlowState, Late, NIL};
use crate::generic::qdisc::fq::index::Index;

/// How long an idle flow is kept, with its credit and the time of its next packet (`FQ_GC_AGE`).
const GC_AGE: Nanos = 3_000_000_000;

/// The flows.
pub(super) struct Table<A: Arch> {
    flows: Chunks<Flow<A>>,
    /// The first unused flow, which links to the others by `next`; or [`NIL`].
    free: u32,
    index: Index,
    /// Late packets, by flow: those that arrived after a packet of their flow with a later time. Few flows have any.
    late: HashMap<u32, Late<A>>,
    /// Flows in use.
    pub(super) len: usize,
    /// The first and the last idle flow, or [`NIL`].
    idle: (u32, u32),
    /// Flows forgotten so far.
    pub(super) gc: u64,
}

impl<A: Arch> Table<A> {
    pub(super) fn new() -> Self {
        Self {
            flows: Chunks::new(),
            free: NIL,
            index: Index::new(),
            late: HashMap::new(),
            len: 0,
            idle: (NIL, NIL),
            gc: 0,
        }
    }

    #[inline]
    pub(super) fn flow(&self, id: u32) -> &Flow<A> {
        &self.flows[id as usize]
    }

    #[inline]
    pub(super) fn flow_mut(&mut self, id: u32) -> &mut Flow<A> {
        &mut self.flows[id as usize]
    }

    /// Returns the flow of a key. Tries `guess` first, which may be [`NIL`].
    #[inline]
    pub(super) fn find(&self, key: u64, guess: u32) -> Option<u32> {
        let is_it = |id: u32| self.flow(id).is_of(key);
        // A guess may be older than the last `clear`, which gave back the memory of the flows.
        if (guess as usize) < self.flows.len() && is_it(guess) {
            return Some(guess);
        }
        self.index.find(key, is_it)
    }

    /// Prefetches the bucket of a key.
    #[inline]
    pub(super) fn fetch_bucket(&self, key: u64) {
        self.index.fetch(key);
    }

    /// Prefetches the probable flow of a key, and returns it; [`NIL`] if there is none.
    #[inline]
    pub(super) fn fetch_flow_of(&self, key: u64) -> u32 {
        let guess = self.index.guess(key);
        if guess != NIL {
            self.fetch_flow(guess);
        }
        guess
    }

    #[inline]
    pub(super) fn fetch_flow(&self, id: u32) {
        fetch_to_write(self.flow(id));
    }

    /// Creates a flow, idle since `now`, and returns it. An empty table gets room for `buckets` flows.
    pub(super) fn create(&mut self, key: u64, credit: i64, buckets: usize, now: Nanos) -> u32 {
        if self.free == NIL {
            let first = self.flows.len() as u32;
            self.flows.grow(Flow::unused);
            for id in (first..self.flows.len() as u32).rev() {
                self.flow_mut(id).next = self.free;
                self.free = id;
            }
        }
        let id = self.free;
        self.len += 1;
        let flow = self.flow_mut(id);
        let free = flow.next;
        flow.set_key(key);
        (flow.credit, flow.next_time) = (credit, 0);
        self.free = free;
        let flows = &self.flows;
        self.index.insert(key, id, buckets, |id| flows[id as usize].key());
        self.set_idle(id, now);
        id
    }

    /// Forgets up to `most` flows that have been idle for longer than [`GC_AGE`].
    pub(super) fn collect(&mut self, now: Nanos, most: usize) {
        for _ in 0..most {
            let id = self.idle.0;
            if id == NIL || now.saturating_sub(self.flow(id).time) <= GC_AGE {
                return;
            }
            self.unset_idle(id);
            self.forget(id);
            self.gc += 1;
        }
    }

    /// Makes an idle flow unused. Gives back all memory with the last flow.
    fn forget(&mut self, id: u32) {
        let free = self.free;
        let flow = self.flow_mut(id);
        (flow.place, flow.next) = (FlowState::Free, free);
        let key = flow.key();
        self.index.remove(key, id);
        self.free = id;
        self.len -= 1;
        if self.len == 0 {
            self.clear();
        }
    }

    /// Forgets all flows, and gives back all memory.
    pub(super) fn clear(&mut self) {
        *self = Self { gc: self.gc, ..Self::new() };
    }

    /// Makes a flow idle. The flow has no packets and is on no list.
    #[inline]
    pub(super) fn set_idle(&mut self, id: u32, now: Nanos) {
        let (_, last) = self.idle;
        let flow = self.flow_mut(id);
        (flow.place, flow.time) = (FlowState::Idle, now);
        (flow.prev, flow.next) = (last, NIL);
        match last {
            NIL => self.idle.0 = id,
            _ => self.flow_mut(last).next = id,
        }
        self.idle.1 = id;
    }

    /// Takes a flow off the list of idle flows.
    #[inline]
    pub(super) fn unset_idle(&mut self, id: u32) {
        let Flow { prev, next, .. } = *self.flow(id);
        match prev {
            NIL => self.idle.0 = next,
            _ => self.flow_mut(prev).next = next,
        }
        match next {
            NIL => self.idle.1 = prev,
            _ => self.flow_mut(next).prev = prev,
        }
    }

    /// Queues a packet in its flow.
    #[inline]
    pub(super) fn push(&mut self, id: u32, packet: Packet<A>) {
        if let Some(packet) = self.flow_mut(id).append(packet) {
            self.push_late(id, packet);
        }
    }

    /// Inserts a late packet, behind those of the same time. A flow has few packets, so shifting some is cheaper than a
    /// tree.
    #[cold]
    fn push_late(&mut self, id: u32, packet: Packet<A>) {
        let (at, late) = (packet.departure(), self.late.entry(id).or_default());
        let index = late.partition_point(|(time, _)| *time <= at);
        late.insert(index, (at, packet));
        let flow = self.flow_mut(id);
        flow.len += 1;
        flow.is_late = true;
    }

    /// Returns when the first packet of a flow may leave; `None` if the flow has no packet.
    #[inline]
    pub(super) fn due(&self, id: u32) -> Option<Nanos> {
        let flow = self.flow(id);
        let first = flow.queue.front().map(Packet::departure);
        let first = if flow.is_late { self.front_time_of_late(id, first) } else { first };
        first.map(|at| at.max(flow.next_time))
    }

    #[cold]
    fn front_time_of_late(&self, id: u32, first: Option<Nanos>) -> Option<Nanos> {
        let late = self.late.get(&id).and_then(|late| late.front()).map(|(at, _)| *at);
        first.into_iter().chain(late).min()
    }

    /// Takes and returns the first packet of a flow.
    #[inline]
    pub(super) fn pop_front(&mut self, id: u32) -> Option<Packet<A>> {
        let flow = self.flow_mut(id);
        if flow.is_late {
            return self.pop_front_with_late(id);
        }
        let packet = flow.queue.pop_front()?;
        flow.len -= 1;
        Some(packet)
    }

    #[cold]
    fn pop_front_with_late(&mut self, id: u32) -> Option<Packet<A>> {
        let flow = &mut self.flows[id as usize];
        flow.len -= 1;
        let late = self.late.get_mut(&id)?;
        // Of packets with one time, those in the flow's queue arrived first: when the late one arrived, the queue's last
        // packet had a later time.
        let is_first = |&(at, _): &(Nanos, _)| flow.queue.front().is_none_or(|first| at < first.departure());
        if !late.front().is_some_and(is_first) {
            return flow.queue.pop_front();
        }
        let packet = late.pop_front().map(|(_, packet)| packet);
        if late.is_empty() {
            flow.is_late = false;
            self.late.remove(&id);
        }
        packet
    }

    /// Takes and returns the first packet of a flow for which `which` is true. Moves all packets of the flow, unless it is
    /// the first.
    pub(super) fn take(&mut self, id: u32, mut which: impl FnMut(&Packet<A>) -> bool) -> Option<Packet<A>> {
        let (mut kept, mut taken) = (PacketQueue::new(), None);
        let (mut len, mut time) = (0, self.flow(id).time);
        while let Some(packet) = self.pop_front(id) {
            if taken.is_none() && which(&packet) {
                taken = Some(packet);
                if len == 0 {
                    return taken;
                }
            } else {
                (len, time) = (len + 1, packet.departure());
                kept.push_back(packet);
            }
        }
        let flow = self.flow_mut(id);
        (flow.queue, flow.len, flow.time) = (kept, len, time);
        taken
    }

    /// Returns the packets of a flow, in no particular order.
    pub(super) fn packets(&self, id: u32) -> impl Iterator<Item = &Packet<A>> {
        let late = self.late.get(&id).into_iter().flatten().map(|(_, packet)| packet);
        self.flow(id).queue.iter().chain(late)
    }

    /// Returns all flows, with unused ones.
    pub(super) fn flows_mut(&mut self) -> impl Iterator<Item = &mut Flow<A>> {
        self.flows.iter_mut()
    }

    /// Returns the flows that have packets, in no particular order.
    pub(super) fn backlogged(&self) -> impl Iterator<Item = u32> {
        self.flows.iter().zip(0..).filter(|(flow, _)| flow.len > 0).map(|(_, id)| id)
    }
}
