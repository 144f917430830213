//! The queues of all flows, and the lists of new and of old flows that order their turns (RFC 8290, section 4).
//!
//! A queue with packets is on one of the lists, which are linked by indices. A queue that became empty stays on its list
//! until its turn. Otherwise a flow could come back as a new one at once, and starve the old ones. When no queue has
//! packets, no flow can be starved, and the lists are emptied as well. The kernel does so when it finds no more packets to
//! send.
//!
//! The queues take memory from the first packet on: many leaves of a large tree never have one. A leaf that stays idle gives it back
//! (`idle.rs`).
//!
//! Shared by fq_codel and fq_pie, whose laws decide about each queue's packets.

use txq_core::arch::Arch;
use txq_core::packet::{Packet, PacketList};

use crate::generic::qdisc::codel::law;

/// Bytes of a limit on memory that a packet takes beyond its length.
pub(super) const DESCRIPTOR: u64 = 128;

/// The end of a list.
const NONE: u32 = u32::MAX;

/// The number of flows in a block, which the search for the flow with the most bytes scans at once.
const FLOWS_PER_BLOCK: usize = 64;

struct Flow<A: Arch, L> {
    queue: PacketList<A>,
    law: L,
    /// Bytes that the flow may send before its turn is over.
    deficit: i32,
    /// The flow behind it on its list, or [`NONE`].
    next: u32,
    /// Whether the flow is on a list.
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

    /// Appends a flow, which is on no list.
    #[inline]
    fn push<A: Arch, L>(&mut self, flows: &mut [Flow<A, L>], index: u32) {
        match self.tail {
            NONE => self.head = index,
            tail => flows[tail as usize].next = index,
        }
        flows[index as usize].next = NONE;
        self.tail = index;
        self.len += 1;
    }

    /// Takes the first flow off the list, which is not empty.
    #[inline]
    fn pop<A: Arch, L>(&mut self, flows: &[Flow<A, L>]) {
        self.head = flows[self.head as usize].next;
        if self.head == NONE {
            self.tail = NONE;
        }
        self.len -= 1;
    }
}

/// All flows, each with the state of a law.
pub(super) struct Flows<A: Arch, L> {
    /// The number of flows.
    count: u32,
    /// The flows, or none before the first packet; so the sizes.
    flows: Box<[Flow<A, L>]>,
    /// The bytes of each queue once more, side by side, for a fast search. Behind them an upper bound of those in each block. In one
    /// piece with these: an allocator keeps a short piece aside when it is freed, and cannot join those around it.
    sizes: Box<[u32]>,
    /// Flows that were empty before. They go first.
    new: List,
    old: List,
    /// Packets of all flows, and their bytes.
    len: usize,
    bytes: u64,
    /// The number of times that a flow became a new one.
    pub(super) new_flow_count: u32,
}

/// One flow's queue, as the law uses it. Keeps the counts of all flows exact.
pub(super) struct Head<'a, A: Arch, D> {
    queue: &'a mut PacketList<A>,
    backlog: &'a mut u32,
    len: &'a mut usize,
    bytes: &'a mut u64,
    drop: D,
}

/// Returns a queue's bytes as `backlogs` holds them.
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

    /// Returns the bytes of all flows, as in the kernel: the law must keep the link busy, not each queue.
    #[inline]
    fn bytes(&self) -> u64 {
        *self.bytes
    }

    fn drop(&mut self, packet: Packet<A>) {
        (self.drop)(packet);
    }
}

impl<A: Arch, D> Head<'_, A, D> {
    /// Returns the bytes of this flow alone.
    pub(super) fn own_bytes(&self) -> u64 {
        self.queue.bytes()
    }
}

impl<A: Arch, L: Default> Flows<A, L> {
    /// Creates `count` flows; `count` is at least 1.
    pub(super) fn new(count: u32) -> Self {
        Self {
            count,
            flows: Box::default(),
            sizes: Box::default(),
            new: List::EMPTY,
            old: List::EMPTY,
            len: 0,
            bytes: 0,
            new_flow_count: 0,
        }
    }

    /// Allocates the flows.
    #[cold]
    fn allocate(&mut self) {
        let flow =
            || Flow { queue: PacketList::new(), law: L::default(), deficit: 0, next: NONE, listed: false };
        self.flows = (0..self.count).map(|_| flow()).collect();
        self.sizes = vec![0; self.count() + self.count().div_ceil(FLOWS_PER_BLOCK)].into();
    }

    /// Returns the number of flows.
    pub(super) fn count(&self) -> usize {
        self.count as usize
    }

    /// Returns the number of packets of all flows.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Returns the number of bytes of all flows.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn bytes_of(&self, flow: usize) -> u64 {
        self.flows[flow].queue.bytes()
    }

    /// Returns the bytes that all packets take of a limit on memory.
    pub(super) fn memory(&self) -> u64 {
        self.memory_with(0, 0)
    }

    /// As [`memory`](Flows::memory), with so many packets and bytes more.
    pub(super) fn memory_with(&self, packets: usize, bytes: u64) -> u64 {
        self.bytes + bytes + (self.len + packets) as u64 * DESCRIPTOR
    }

    /// Returns the state of a flow's law, and the flow's bytes.
    pub(super) fn law_of(&mut self, index: usize) -> (&mut L, u64) {
        if index >= self.flows.len() {
            self.allocate();
        }
        let flow = &mut self.flows[index];
        (&mut flow.law, flow.queue.bytes())
    }

    /// Returns the lengths of the lists of new and of old flows.
    pub(super) fn list_lens(&self) -> (u32, u32) {
        (self.new.len, self.old.len)
    }

    /// Returns the flow of a hash.
    #[inline]
    pub(super) fn of_hash(&self, hash: u32) -> usize {
        ((u64::from(hash) * u64::from(self.count)) >> 32) as usize
    }

    /// Appends a packet to its flow. A flow that is on no list becomes a new one.
    #[inline]
    pub(super) fn push(&mut self, index: usize, packet: Packet<A>, quantum: u32) {
        self.len += 1;
        self.bytes += packet.len() as u64;
        if index >= self.flows.len() {
            self.allocate();
        }
        let flow = &mut self.flows[index];
        flow.queue.push_back(packet);
        let backlog = backlog(&flow.queue);
        self.sizes[index] = backlog;
        let top = &mut self.sizes[self.count as usize + index / FLOWS_PER_BLOCK];
        *top = backlog.max(*top);
        if !flow.listed {
            flow.listed = true;
            flow.deficit = quantum as i32;
            self.new.push(&mut self.flows, index as u32);
            self.new_flow_count = self.new_flow_count.wrapping_add(1);
        }
    }

    /// Takes and returns a flow's first packet.
    pub(super) fn pop(&mut self, index: usize) -> Option<Packet<A>> {
        let (mut head, _) = self.head(index, |_| {});
        law::Queue::pop(&mut head)
    }

    /// Returns a flow's queue and its law.
    #[inline]
    fn head<D: FnMut(Packet<A>)>(&mut self, index: usize, drop: D) -> (Head<'_, A, D>, &mut L) {
        let Flow { queue, law, .. } = &mut self.flows[index];
        let backlog = &mut self.sizes[index];
        (Head { queue, backlog, len: &mut self.len, bytes: &mut self.bytes, drop }, law)
    }

    /// Dequeues the next packet: the one that `take` takes from the head of the next flow's queue, as the flow's law says. The
    /// head gives the packets that the law drops to `drop`.
    #[inline]
    pub(super) fn dequeue<D: FnMut(Packet<A>)>(
        &mut self,
        quantum: u32,
        mut drop: D,
        mut take: impl FnMut(&mut Head<'_, A, &mut D>, &mut L) -> Option<Packet<A>>,
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
            if let Some(packet) = take(&mut head, law) {
                let deficit = &mut self.flows[flow].deficit;
                *deficit = deficit.saturating_sub_unsigned(packet.len() as u32);
                return Some(packet);
            }
            self.leave(is_new);
            // An empty new flow becomes old, so that a flow that sends a packet now and then does not starve the old ones.
            if is_new && self.old.len > 0 {
                self.old.push(&mut self.flows, index);
            } else {
                self.flows[flow].listed = false;
            }
        }
    }

    /// Takes all flows off their lists, when none has packets. The next flow to send is a new one.
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

    /// Takes the first flow off the list of new flows, or off that of old ones.
    #[inline]
    fn leave(&mut self, is_new: bool) {
        match is_new {
            true => self.new.pop(&self.flows),
            false => self.old.pop(&self.flows),
        }
    }

    /// Returns the flow with the most bytes; `flow` if no other has more.
    ///
    /// Scans the block with the highest bound and sets the bound to the exact maximum, until a bound was exact. Only a push
    /// raises a bound, and a scan makes it exact, so each push pays for at most one scan.
    pub(super) fn fattest(&mut self, flow: usize) -> usize {
        let (backlogs, tops) = self.sizes.split_at_mut(self.flows.len());
        loop {
            let (block, &may) = tops.iter().enumerate().max_by_key(|&(_, &top)| top).unwrap_or((0, &0));
            if may <= backlogs.get(flow).copied().unwrap_or(0) {
                return flow;
            }
            let start = block * FLOWS_PER_BLOCK;
            let end = (start + FLOWS_PER_BLOCK).min(backlogs.len());
            let backlogs = &backlogs[start..end];
            // Without branches, so that the compiler compares several values at a time.
            let most = backlogs.iter().fold(0, |most, &bytes| most.max(bytes));
            tops[block] = most;
            if most == may {
                return start + backlogs.iter().position(|&bytes| bytes == most).unwrap_or_default();
            }
        }
    }

    /// Returns a flow that has packets, if there is one.
    pub(super) fn any(&self) -> Option<usize> {
        self.flows.iter().position(|flow| !flow.queue.is_empty())
    }

    /// Frees the flows' memory if there are no packets and `remembers` returns false for the law of each flow. Returns whether no
    /// memory is left.
    pub(super) fn shrink(&mut self, remembers: impl Fn(&L) -> bool) -> bool {
        let may = self.len == 0 && !self.flows.iter().any(|flow| remembers(&flow.law));
        if may {
            self.clear(drop);
        }
        may
    }

    /// Gives all packets to `take`, forgets all flows and frees their memory.
    pub(super) fn clear(&mut self, mut take: impl FnMut(Packet<A>)) {
        for flow in &mut self.flows {
            while let Some(packet) = flow.queue.pop_front() {
                take(packet);
            }
        }
        (self.flows, self.sizes) = Default::default();
        (self.new, self.old) = (List::EMPTY, List::EMPTY);
        (self.len, self.bytes) = (0, 0);
    }
}
