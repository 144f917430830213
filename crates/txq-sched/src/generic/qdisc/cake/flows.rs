//! One tin: its flows, and the order of their turns (DRR++, "Piece of CAKE", section IV).
//!
//! A flow that had no packets is sparse, and goes before all flows that had. A flow that sent a quantum is bulk, and bulk
//! flows take turns by rounds of deficit round robin. A host's flows share one quantum: each flow gains the quantum divided
//! by the larger number of bulk flows of its two hosts.
//!
//! With a thousand flows of one host each gains a byte or two in a round, and a packet would need a thousand rounds that
//! visit each flow. So the rounds are a calendar (`cake/rounds.rs`): a flow that spent its turn moves to the round in which
//! its deficit is positive again, and a search for the next set bit skips the rounds without flows.
//!
//! A tin's tables take memory from its first packet on: an idle cake has none, and most tins of a busy one get no packet.

mod stats;

use txq_core::arch::{Arch, Nanos};
use txq_core::drop::DropReason;
use txq_core::packet::{Packet, PacketList};

use crate::generic::qdisc::cake::cobalt::{self, Blue};
use crate::generic::qdisc::cake::counters::TinStats;
use crate::generic::qdisc::cake::hash::{self, Keys, QUEUES, SlotState, Way};
use crate::generic::qdisc::cake::rounds::{Linked, List, NONE, ROUNDS, Rounds};
use crate::generic::qdisc::cake::shaper::{Fine, Link};
use crate::generic::qdisc::cake::tins::Share;
use crate::generic::qdisc::codel::law::{Counts, Law};
use crate::generic::qdisc::random::Rng;

pub(super) use stats::FlowStats;

/// Fraction bits of a deficit: a deficit counts 2^-16 byte.
const DEFICIT_FRACTION: u32 = 16;

/// The most bytes charged for a packet. Only a packet that claims thousands of segments has more.
pub(super) const MAX_CHARGE: u64 = 1 << 20;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// On no list, without packets.
    Idle,
    /// Had no packets before, and has not spent its first quantum. On the tin's `new` list.
    Sparse,
    /// Was sparse and became empty. It waits for one turn in [`Tin::rounds`]; a packet that arrives before makes it bulk,
    /// so it cannot come back as sparse at once.
    Waiting,
    /// Spent its first quantum, and takes turns in [`Tin::rounds`].
    Bulk,
}

struct Flow<A: Arch> {
    queue: PacketList<A>,
    law: Law,
    blue: Blue,
    /// Bytes that the flow may send before its turn is over, in units of 2^-16 byte.
    deficit: i64,
    /// The flow behind it on its list, or [`NONE`].
    next: u16,
    /// Its hosts, as indices of [`Tin::hosts`]; [`NONE`] where the mode does not use them.
    src: u16,
    dst: u16,
    state: State,
    /// Whether the queue has packets of more than one flow.
    shared: bool,
    /// Packets dropped.
    drops: u64,
}

impl<A: Arch> Linked for Flow<A> {
    #[inline]
    fn next(&mut self) -> &mut u16 {
        &mut self.next
    }
}

/// Returns the length of a queue as [`Tin::size_of`] counts it.
#[inline]
fn size<A: Arch>(queue: &PacketList<A>) -> u64 {
    queue.bytes() + queue.len() as u64
}

/// A host, and the number of its flows in a tin.
#[derive(Debug, Clone, Copy, Default)]
struct Host {
    /// All its flows; the place is free at 0.
    flows: u16,
    /// Bulk flows that have the host as source, and those that have it as destination.
    bulk: [u16; 2],
}

/// One tin.
pub(super) struct Tin<A: Arch> {
    pub(super) share: Share,
    pub(super) stats: TinStats,
    pub(super) counts: Counts,
    /// The tin's virtual time: it has used its share up to here. With a rate.
    pub(super) next: Fine,
    /// Bytes that the tin may send before its turn is over. Without a rate.
    pub(super) deficit: i64,
    /// Packets queued, and their bytes.
    pub(super) len: usize,
    pub(super) bytes: u64,
    /// The number of flows that are sparse or waiting, and of those that are bulk.
    pub(super) sparse: u32,
    pub(super) bulk: u32,
    /// The flows, or none before the first packet; so the tables below.
    flows: Box<[Flow<A>]>,
    /// The hash of each queue's last flow.
    tags: Box<[u32]>,
    hosts: Box<[Host]>,
    /// The hash of each place's last host.
    host_tags: Box<[u32]>,
    /// The sparse flows, in order of arrival.
    new: List,
    /// The bulk and waiting flows, by the round of their next turn.
    rounds: Rounds,
}

impl<A: Arch> Tin<A> {
    pub(super) fn new(share: Share) -> Self {
        Self {
            share,
            stats: TinStats::default(),
            counts: Counts::default(),
            next: 0,
            deficit: 0,
            len: 0,
            bytes: 0,
            sparse: 0,
            bulk: 0,
            flows: Box::default(),
            tags: Box::default(),
            hosts: Box::default(),
            host_tags: Box::default(),
            new: List::EMPTY,
            rounds: Rounds::default(),
        }
    }

    /// Allocates the tables.
    #[cold]
    fn allocate(&mut self) {
        let flow = || Flow {
            queue: PacketList::new(),
            law: Law::default(),
            blue: Blue::default(),
            deficit: 0,
            next: NONE,
            src: NONE,
            dst: NONE,
            state: State::Idle,
            shared: false,
            drops: 0,
        };
        self.flows = (0..QUEUES).map(|_| flow()).collect();
        self.tags = vec![0; QUEUES].into();
        self.hosts = vec![Host::default(); QUEUES].into();
        self.host_tags = vec![0; QUEUES].into();
        self.rounds = Rounds::new();
    }

    /// Returns the number of flows from which BLUE drops.
    pub(super) fn unresponsive(&self) -> usize {
        self.flows.iter().filter(|flow| flow.blue.is_active()).count()
    }

    /// Returns the length of a queue: its bytes plus one for each packet, so that only an empty queue has length 0.
    #[inline]
    pub(super) fn size_of(&self, index: usize) -> u64 {
        size(&self.flows[index].queue)
    }

    /// Returns the lengths of all queues, in their order; none before the first packet.
    pub(super) fn sizes(&self) -> impl Iterator<Item = u64> {
        self.flows.iter().map(|flow| size(&flow.queue))
    }

    /// Returns a flow's queue, for a caller that takes packets out of it. The caller calls [`settle`](Tin::settle)
    /// afterwards.
    pub(super) fn queue_of(&mut self, index: usize) -> &mut PacketList<A> {
        &mut self.flows[index].queue
    }

    /// Subtracts the packets and bytes that a queue lost since it had `len` packets and `bytes` bytes.
    #[inline]
    pub(super) fn settle(&mut self, index: usize, (len, bytes): (usize, u64)) {
        let queue = &self.flows[index].queue;
        self.len -= len - queue.len();
        self.bytes -= bytes - queue.bytes();
    }

    /// Finds the queue for a packet's flow, and takes a free one for a new flow. Returns its index.
    #[inline]
    pub(super) fn of(&mut self, keys: &Keys) -> usize {
        if self.flows.is_empty() {
            self.allocate();
        }
        let flows = &self.flows;
        let (index, way) = hash::find(&self.tags, keys.flow, |at| {
            let flow = &flows[at];
            match (flow.queue.is_empty(), flow.state, flow.shared) {
                (true, State::Idle, _) => SlotState::Free,
                (true, ..) => SlotState::Empty,
                (false, _, false) => SlotState::InUse,
                (false, _, true) => SlotState::Shared,
            }
        });
        let flow = &mut self.flows[index];
        match way {
            Way::Direct => {}
            Way::Indirect => self.stats.indirect = self.stats.indirect.wrapping_add(1),
            Way::Miss => {
                self.stats.misses = self.stats.misses.wrapping_add(1);
                self.tags[index] = keys.flow;
                (flow.law, flow.blue) = (Law::default(), Blue::default());
            }
            Way::Collision => {
                self.stats.collisions = self.stats.collisions.wrapping_add(1);
                flow.shared = true;
            }
        }
        if flow.queue.is_empty() {
            flow.shared = false;
        }
        if way == Way::Miss || self.flows[index].state == State::Idle {
            self.assign(index, keys);
        }
        index
    }

    /// Appends a packet to its flow. An idle flow becomes sparse, a waiting one bulk.
    #[inline]
    pub(super) fn push(&mut self, index: usize, packet: Packet<A>, now: Nanos) {
        let bytes = packet.len() as u64;
        self.len += 1;
        self.bytes += bytes;
        self.stats.packets = self.stats.packets.wrapping_add(packet.segs().into());
        self.stats.bytes = self.stats.bytes.wrapping_add(bytes);
        self.stats.longest = self.stats.longest.max(bytes);
        let flow = &mut self.flows[index];
        if flow.queue.is_empty() {
            flow.blue.idle(now, self.share.goal.target);
        }
        flow.queue.push_back(packet);
        match flow.state {
            State::Idle => {
                flow.state = State::Sparse;
                self.sparse += 1;
                self.flows[index].deficit = self.gain(index);
                self.new.push(&mut self.flows, index);
            }
            State::Waiting => self.become_bulk(index),
            State::Sparse | State::Bulk => {}
        }
    }

    /// Dequeues the next packet; returns it, and the bytes that it takes on the link. Calls `touched` with the index and
    /// the length of each queue that lost packets, and `drop` with each packet that COBALT drops.
    pub(super) fn dequeue(
        &mut self,
        link: &Link,
        now: Nanos,
        random: &mut Rng,
        mut touched: impl FnMut(usize, u64),
        mut drop: impl FnMut(Packet<A>, DropReason),
    ) -> Option<(Packet<A>, u64)> {
        loop {
            let (index, is_new) = match self.new.head {
                NONE => (self.rounds.front()?, false),
                head => (usize::from(head), true),
            };
            if self.flows[index].deficit <= 0 {
                self.leave(is_new);
                if self.flows[index].state == State::Sparse {
                    self.become_bulk(index);
                }
                self.rotate(index);
                continue;
            }
            let mut goal = self.share.goal;
            // With many bulk flows a packet waits for the others' packets in any case, so the target grows with their
            // number.
            let turns = u64::from(self.bulk).saturating_mul(2).max(4);
            goal.target = goal.target.max(self.share.mtu_time.saturating_mul(turns));
            let Flow { queue, law, blue, .. } = &mut self.flows[index];
            let before = (queue.len(), queue.bytes());
            let packet =
                cobalt::dequeue(queue, (law, *blue), (&goal, now), &mut self.counts, random, &mut drop);
            if queue.is_empty() && before.0 > 0 {
                blue.emptied(now, goal.target);
            }
            let waited = law.ldelay;
            touched(index, size(queue));
            let taken = before.0 - queue.len() - usize::from(packet.is_some());
            self.flows[index].drops += taken as u64;
            self.settle(index, before);
            if let Some(packet) = packet {
                let bytes = link.wire_bytes(&packet);
                // At least one byte, so that packets of no length on the link end the turn; and at most MAX_CHARGE, so that
                // the next turn is few rounds away.
                self.flows[index].deficit -= (bytes.clamp(1, MAX_CHARGE) as i64) << DEFICIT_FRACTION;
                self.stats.delay(waited);
                return Some((packet, bytes));
            }
            self.leave(is_new);
            match self.flows[index].state {
                State::Sparse if self.bulk > 0 => {
                    self.flows[index].state = State::Waiting;
                    self.rounds.push(&mut self.flows, index, 1);
                }
                _ => self.become_idle(index),
            }
        }
    }

    /// Takes and returns the first packet of a queue, because the tins use too much memory. Counts it as a drop, and tells
    /// CoDel and BLUE.
    pub(super) fn overflow(&mut self, index: usize, now: Nanos) -> Option<Packet<A>> {
        let flow = &mut self.flows[index];
        let mut packet = flow.queue.pop_front()?;
        packet.take_queued();
        flow.drops += 1;
        flow.law.dropped(1);
        flow.blue.overflow(now, self.share.goal.target);
        self.len -= 1;
        self.bytes -= packet.len() as u64;
        Some(packet)
    }

    /// Gives all packets to `take`, with the index of their queue, and forgets all flows.
    pub(super) fn clear(&mut self, mut take: impl FnMut(usize, Packet<A>)) {
        for index in 0..self.flows.len() {
            while let Some(mut packet) = self.flows[index].queue.pop_front() {
                packet.take_queued();
                take(index, packet);
            }
            let flow = &mut self.flows[index];
            (flow.law, flow.blue, flow.state) = (Law::default(), Blue::default(), State::Idle);
            (flow.src, flow.dst, flow.shared) = (NONE, NONE, false);
        }
        self.hosts.fill(Host::default());
        self.new = List::EMPTY;
        self.rounds.clear();
        (self.sparse, self.bulk, self.len, self.bytes) = (0, 0, 0, 0);
        (self.next, self.deficit) = (0, 0);
    }

    /// Takes the first flow off the list of sparse flows, or off the rounds.
    #[inline]
    fn leave(&mut self, is_new: bool) {
        match is_new {
            true => self.new.pop(&mut self.flows),
            false => self.rounds.pop(&mut self.flows),
        }
    }

    /// Returns the gain of a flow in a round, in units of 2^-16 byte.
    #[inline]
    fn gain(&self, index: usize) -> i64 {
        let flow = &self.flows[index];
        let load = |host: u16, side: usize| self.hosts.get(usize::from(host)).map_or(0, |h| h.bulk[side]);
        let load = load(flow.src, 0).max(load(flow.dst, 1)).max(1);
        let quantum = u64::from(self.share.quantum) << DEFICIT_FRACTION;
        (if load == 1 { quantum } else { quantum / u64::from(load) }) as i64
    }

    /// Puts a flow that spent its turn into the round of its next turn, and adds its gain of the rounds until then.
    #[inline]
    fn rotate(&mut self, index: usize) {
        let gain = self.gain(index);
        let lacks = 1 - self.flows[index].deficit;
        let rounds = ((lacks + gain - 1) / gain).clamp(1, ROUNDS as i64 - 1);
        self.flows[index].deficit += rounds * gain;
        self.rounds.push(&mut self.flows, index, rounds as usize);
    }

    fn become_bulk(&mut self, index: usize) {
        self.sparse -= 1;
        self.bulk += 1;
        self.flows[index].state = State::Bulk;
        self.count_bulk(index, 1);
    }

    fn become_idle(&mut self, index: usize) {
        self.release(index);
        match self.flows[index].state {
            State::Bulk => self.bulk -= 1,
            State::Sparse | State::Waiting => self.sparse -= 1,
            State::Idle => {}
        }
        self.flows[index].state = State::Idle;
    }

    /// Assigns a flow to its hosts.
    fn assign(&mut self, index: usize, keys: &Keys) {
        self.release(index);
        let src = keys.src.map_or(NONE, |hash| self.host(hash));
        let dst = keys.dst.map_or(NONE, |hash| self.host(hash));
        (self.flows[index].src, self.flows[index].dst) = (src, dst);
        if self.flows[index].state == State::Bulk {
            self.count_bulk(index, 1);
        }
    }

    /// Finds or adds the host with a hash, counts one more flow for it and returns its index.
    fn host(&mut self, hash: u32) -> u16 {
        let hosts = &self.hosts;
        let place = |at: usize| if hosts[at].flows == 0 { SlotState::Free } else { SlotState::InUse };
        let (at, way) = hash::find(&self.host_tags, hash, place);
        if way == Way::Miss {
            self.host_tags[at] = hash;
        }
        self.hosts[at].flows += 1;
        at as u16
    }

    /// Takes a flow away from its hosts.
    fn release(&mut self, index: usize) {
        if self.flows[index].state == State::Bulk {
            self.count_bulk(index, -1);
        }
        let Flow { src, dst, .. } = &mut self.flows[index];
        for host in [src, dst] {
            if let Some(host) = self.hosts.get_mut(usize::from(std::mem::replace(host, NONE))) {
                host.flows -= 1;
            }
        }
    }

    /// Adds `by` to the number of bulk flows of a flow's hosts.
    fn count_bulk(&mut self, index: usize, by: i16) {
        let Flow { src, dst, .. } = self.flows[index];
        for (side, host) in [src, dst].into_iter().enumerate() {
            if let Some(host) = self.hosts.get_mut(usize::from(host)) {
                host.bulk[side] = host.bulk[side].wrapping_add_signed(by);
            }
        }
    }
}
