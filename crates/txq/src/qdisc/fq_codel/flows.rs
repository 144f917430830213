//! The queues of all flows, and the two lists that say whose turn it is (RFC 8290, section 4).
//!
//! A queue with packets is on one of the lists, linked by indices. One that has become empty is still on it, until its turn
//! comes: else a flow could come back as a new one at once and starve the old. When no queue has packets there is nobody
//! to starve, and the lists become empty, too, as in the kernel once it finds nothing more to send.

use crate::arch::{Arch, Nanos};
use crate::packet::{Packet, PacketList};
use crate::qdisc::codel::law::{self, Counts, Goal, Law};

/// The end of a list.
const NONE: u32 = u32::MAX;

/// Flows among which the one with the most bytes is looked for at a time.
const BLOCK: usize = 64;

struct Flow<A: Arch> {
    queue: PacketList<A>,
    law: Law,
    /// Bytes that it may send before it is the next one's turn.
    deficit: i32,
    /// The flow behind it on its list.
    next: u32,
    listed: bool,
}

/// A first-in first-out list of flows.
struct List {
    head: u32,
    tail: u32,
    len: u32,
}

impl List {
    const EMPTY: Self = Self { head: NONE, tail: NONE, len: 0 };

    #[inline]
    fn push<A: Arch>(&mut self, flows: &mut [Flow<A>], index: u32) {
        match self.tail {
            NONE => self.head = index,
            tail => flows[tail as usize].next = index,
        }
        flows[index as usize].next = NONE;
        self.tail = index;
        self.len += 1;
    }

    #[inline]
    fn pop<A: Arch>(&mut self, flows: &[Flow<A>]) {
        self.head = flows[self.head as usize].next;
        if self.head == NONE {
            self.tail = NONE;
        }
        self.len -= 1;
    }
}

/// All flows.
pub(super) struct Flows<A: Arch> {
    flows: Box<[Flow<A>]>,
    /// The bytes of each queue once more, side by side, to find the most of them fast.
    backlogs: Box<[u32]>,
    /// For each block of those: no queue of it has more.
    tops: Box<[u32]>,
    new: List,
    old: List,
    len: usize,
    bytes: u64,
    pub(super) new_flow_count: u32,
}

/// One flow's queue while the law is applied to it.
struct Head<'a, A: Arch, D> {
    queue: &'a mut PacketList<A>,
    backlog: &'a mut u32,
    len: &'a mut usize,
    bytes: &'a mut u64,
    drop: D,
}

/// A queue's bytes as `backlogs` has them.
#[inline]
fn backlog<A: Arch>(queue: &PacketList<A>) -> u32 {
    u32::try_from(queue.bytes()).unwrap_or(u32::MAX)
}

impl<A: Arch, D: FnMut(Packet<A>)> law::Queue<A> for Head<'_, A, D> {
    #[inline]
    fn pop(&mut self) -> Option<Packet<A>> {
        let packet = self.queue.pop_front()?;
        *self.backlog = backlog(self.queue);
        *self.len -= 1;
        *self.bytes -= packet.len() as u64;
        Some(packet)
    }

    /// Of all flows, as in the kernel: it is the link that shall not run dry.
    #[inline]
    fn bytes(&self) -> u64 {
        *self.bytes
    }

    fn drop(&mut self, packet: Packet<A>) {
        (self.drop)(packet);
    }
}

impl<A: Arch> Flows<A> {
    /// So many, 1 at least.
    pub(super) fn new(count: u32) -> Self {
        let flow =
            || Flow { queue: PacketList::new(), law: Law::default(), deficit: 0, next: NONE, listed: false };
        Self {
            flows: (0..count).map(|_| flow()).collect(),
            backlogs: vec![0; count as usize].into(),
            tops: vec![0; (count as usize).div_ceil(BLOCK)].into(),
            new: List::EMPTY,
            old: List::EMPTY,
            len: 0,
            bytes: 0,
            new_flow_count: 0,
        }
    }

    pub(super) fn count(&self) -> usize {
        self.flows.len()
    }

    /// Packets of all flows.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Bytes of all flows.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn bytes_of(&self, flow: usize) -> u64 {
        self.flows[flow].queue.bytes()
    }

    pub(super) fn law_of(&mut self, flow: usize) -> &mut Law {
        &mut self.flows[flow].law
    }

    /// Flows on the list of new ones, and on that of old ones.
    pub(super) fn list_lens(&self) -> (u32, u32) {
        (self.new.len, self.old.len)
    }

    /// The flow that packets of that hash are in.
    #[inline]
    pub(super) fn of_hash(&self, hash: u32) -> usize {
        ((u64::from(hash) * self.flows.len() as u64) >> 32) as usize
    }

    /// Appends a packet to its flow, which is a new one if it is on no list.
    #[inline]
    pub(super) fn push(&mut self, index: usize, packet: Packet<A>, quantum: u32) {
        self.len += 1;
        self.bytes += packet.len() as u64;
        let flow = &mut self.flows[index];
        flow.queue.push_back(packet);
        let backlog = backlog(&flow.queue);
        self.backlogs[index] = backlog;
        let top = &mut self.tops[index / BLOCK];
        *top = backlog.max(*top);
        if !flow.listed {
            flow.listed = true;
            flow.deficit = quantum as i32;
            self.new.push(&mut self.flows, index as u32);
            self.new_flow_count = self.new_flow_count.wrapping_add(1);
        }
    }

    /// Takes a flow's first packet.
    pub(super) fn pop(&mut self, index: usize) -> Option<Packet<A>> {
        let (mut head, _) = self.head(index, |_| {});
        law::Queue::pop(&mut head)
    }

    #[inline]
    fn head<D: FnMut(Packet<A>)>(&mut self, index: usize, drop: D) -> (Head<'_, A, D>, &mut Law) {
        let Flow { queue, law, .. } = &mut self.flows[index];
        let backlog = &mut self.backlogs[index];
        (Head { queue, backlog, len: &mut self.len, bytes: &mut self.bytes, drop }, law)
    }

    /// The packet whose turn it is.
    #[inline]
    pub(super) fn dequeue(
        &mut self,
        quantum: u32,
        goal: &Goal,
        now: Nanos,
        counts: &mut Counts,
        mut drop: impl FnMut(Packet<A>),
    ) -> Option<Packet<A>> {
        loop {
            let (index, is_new) = match (self.new.head, self.old.head) {
                (NONE, NONE) => return None,
                (NONE, old) => (old, false),
                (new, _) => (new, true),
            };
            let flow = index as usize;
            if self.flows[flow].deficit <= 0 {
                self.flows[flow].deficit += quantum as i32;
                self.leave(is_new);
                self.old.push(&mut self.flows, index);
                continue;
            }
            let (mut head, law) = self.head(flow, &mut drop);
            if let Some(packet) = law.dequeue(&mut head, goal, now, counts) {
                let deficit = &mut self.flows[flow].deficit;
                *deficit = deficit.saturating_sub_unsigned(packet.len() as u32);
                return Some(packet);
            }
            self.leave(is_new);
            // From new to old, so that a flow that sends a packet now and then lets the old ones have theirs.
            if is_new && self.old.len > 0 {
                self.old.push(&mut self.flows, index);
            } else {
                self.flows[flow].listed = false;
            }
        }
    }

    /// Takes all flows off their lists, when none has packets: whoever sends next is a new one.
    #[inline]
    pub(super) fn retire(&mut self) {
        debug_assert_eq!(self.len, 0);
        for list in [&mut self.new, &mut self.old] {
            while list.head != NONE {
                self.flows[list.head as usize].listed = false;
                list.pop(&self.flows);
            }
        }
    }

    /// Takes the first flow off its list.
    #[inline]
    fn leave(&mut self, is_new: bool) {
        match is_new {
            true => self.new.pop(&self.flows),
            false => self.old.pop(&self.flows),
        }
    }

    /// The flow with the most bytes; `flow` if none has more.
    ///
    /// The block that may have it is looked through, and then again the next, until one holds what it promises. A
    /// promise is made by a push, and looking makes it true: a push pays for one look at most.
    pub(super) fn fattest(&mut self, flow: usize) -> usize {
        loop {
            let (block, &may) = self.tops.iter().enumerate().max_by_key(|&(_, &top)| top).unwrap_or((0, &0));
            if may <= self.backlogs[flow] {
                return flow;
            }
            let start = block * BLOCK;
            let end = (start + BLOCK).min(self.backlogs.len());
            let backlogs = &self.backlogs[start..end];
            // Without a branch for each, so that the compiler compares several at a time.
            let most = backlogs.iter().fold(0, |most, &bytes| most.max(bytes));
            self.tops[block] = most;
            if most == may {
                return start + backlogs.iter().position(|&bytes| bytes == most).unwrap_or_default();
            }
        }
    }

    /// A flow that has packets.
    pub(super) fn any(&self) -> Option<usize> {
        self.flows.iter().position(|flow| !flow.queue.is_empty())
    }

    /// Gives all packets to `take` and forgets all flows.
    pub(super) fn clear(&mut self, mut take: impl FnMut(Packet<A>)) {
        for flow in &mut self.flows {
            while let Some(packet) = flow.queue.pop_front() {
                take(packet);
            }
            (flow.law, flow.listed) = (Law::default(), false);
        }
        self.backlogs.fill(0);
        self.tops.fill(0);
        (self.new, self.old) = (List::EMPTY, List::EMPTY);
        (self.len, self.bytes) = (0, 0);
    }
}
