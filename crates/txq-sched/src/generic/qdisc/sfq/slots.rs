//! The queues of flows: found by bucket, served in a ring, and kept by length so that the longest is known.

use std::collections::VecDeque;

use txq_core::arch::Arch;
use txq_core::packet::Packet;

use crate::generic::qdisc::red::law::{Average, Curve};

/// No slot.
const NONE: u32 = u32::MAX;

/// A flow's queue.
pub(super) struct Slot<A: Arch> {
    pub(super) queue: VecDeque<Packet<A>>,
    pub(super) bytes: u64,
    /// Bytes that the flow may send before its turn is over.
    pub(super) allot: i64,
    pub(super) average: Average,
    bucket: u32,
    /// The neighbours in the list of the slots of the same length.
    next: u32,
    prev: u32,
}

/// All flows with packets.
pub(super) struct Slots<A: Arch> {
    slots: Vec<Slot<A>>,
    /// Slots without packets.
    free: Vec<u32>,
    /// How many buckets there are, and how many packets a queue holds at most.
    sizes: [u32; 2],
    /// The slot of each bucket, or [`NONE`]. Empty until the first flow, as `longest`.
    table: Box<[u32]>,
    /// The slots with packets in the order of their turns.
    ring: VecDeque<u32>,
    /// For each length the slot that reached it last, from which `next` leads to the others.
    longest: Vec<u32>,
    /// The length of the longest queue.
    depth: usize,
    len: usize,
    bytes: u64,
}

impl<A: Arch> Slot<A> {
    /// Returns the bucket of the flow, or of the last one that had the slot.
    pub(super) fn bucket(&self) -> u32 {
        self.bucket
    }
}

impl<A: Arch> Slots<A> {
    /// Returns slots for `buckets` buckets, whose queues hold at most `depth` packets.
    pub(super) fn new(buckets: u32, depth: u32) -> Self {
        Self {
            slots: Vec::new(),
            free: Vec::new(),
            sizes: [buckets, depth],
            table: Box::default(),
            ring: VecDeque::new(),
            longest: Vec::new(),
            depth: 0,
            len: 0,
            bytes: 0,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the number of flows with packets.
    pub(super) fn flows(&self) -> usize {
        self.ring.len()
    }

    /// Returns the buckets of the flows with packets, in the order of the buckets.
    pub(super) fn buckets(&self) -> Vec<u32> {
        let mut buckets: Vec<_> = self.ring.iter().map(|&id| self.slots[id as usize].bucket).collect();
        buckets.sort_unstable();
        buckets
    }

    /// Returns the slot of a bucket, if it has one.
    pub(super) fn find(&self, bucket: u32) -> Option<u32> {
        self.table.get(bucket as usize).copied().filter(|&id| id != NONE)
    }

    pub(super) fn get(&self, id: u32) -> &Slot<A> {
        &self.slots[id as usize]
    }

    pub(super) fn get_mut(&mut self, id: u32) -> &mut Slot<A> {
        &mut self.slots[id as usize]
    }

    /// Gives a bucket without a slot an empty one. The caller pushes a packet to it.
    pub(super) fn open(&mut self, bucket: u32, curve: &Curve) -> u32 {
        let id = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot {
                queue: VecDeque::new(),
                bytes: 0,
                allot: 0,
                average: Average::new(curve),
                bucket: 0,
                next: NONE,
                prev: NONE,
            });
            (self.slots.len() - 1) as u32
        });
        let slot = &mut self.slots[id as usize];
        (slot.bucket, slot.average) = (bucket, Average::new(curve));
        if self.table.is_empty() {
            self.allocate();
        }
        self.table[bucket as usize] = id;
        id
    }

    /// Allocates the tables.
    #[cold]
    fn allocate(&mut self) {
        let [buckets, depth] = self.sizes;
        self.table = vec![NONE; buckets as usize].into();
        self.longest = vec![NONE; depth as usize + 1];
    }

    /// Appends a packet. A flow that had none has its turn after all others, of `quantum` bytes.
    pub(super) fn push(&mut self, id: u32, packet: Packet<A>, quantum: u32) {
        let bytes = packet.len() as u64;
        self.len += 1;
        self.bytes += bytes;
        let slot = &mut self.slots[id as usize];
        slot.bytes += bytes;
        slot.queue.push_back(packet);
        let len = slot.queue.len();
        if len == 1 {
            slot.allot = quantum.into();
            self.ring.push_back(id);
        }
        self.relink(id, len - 1);
    }

    /// Takes a packet from the front or the back of a queue. A flow without packets gives up its slot.
    pub(super) fn pop(&mut self, id: u32, front: bool) -> Option<Packet<A>> {
        let slot = &mut self.slots[id as usize];
        let packet = if front { slot.queue.pop_front() } else { slot.queue.pop_back() }?;
        let bytes = packet.len() as u64;
        slot.bytes -= bytes;
        self.len -= 1;
        self.bytes -= bytes;
        let len = slot.queue.len();
        self.relink(id, len + 1);
        if len == 0 {
            self.table[self.slots[id as usize].bucket as usize] = NONE;
            self.free.push(id);
            match self.ring.front() {
                Some(&first) if first == id => drop(self.ring.pop_front()),
                _ => self.ring.retain(|&other| other != id),
            }
        }
        Some(packet)
    }

    /// Returns the slot whose turn it is. A slot that has used up its turn goes to the end, with `quantum` bytes more.
    pub(super) fn turn(&mut self, quantum: u32) -> Option<u32> {
        let quantum = i64::from(quantum);
        loop {
            // The fewest turns that one of the slots needs.
            let mut nearest = i64::MAX;
            for _ in 0..self.ring.len() {
                let id = self.ring[0];
                let slot = &mut self.slots[id as usize];
                if slot.allot > 0 {
                    return Some(id);
                }
                slot.allot += quantum;
                nearest = nearest.min(slot.allot.min(0).unsigned_abs().cast_signed() / quantum);
                self.ring.rotate_left(1);
            }
            if self.ring.is_empty() {
                return None;
            }
            // The rounds in which no slot can send are computed instead of walked.
            for &id in &self.ring {
                self.slots[id as usize].allot += nearest * quantum;
            }
        }
    }

    /// Returns a slot with the longest queue: of several the one that reached the length last. If all have one packet, it is
    /// the one whose turn comes next.
    pub(super) fn fattest(&self) -> Option<u32> {
        match self.depth {
            0 | 1 => self.ring.front().copied(),
            depth => Some(self.longest[depth]),
        }
    }

    /// Takes all packets, flow by flow, in the order of the turns.
    pub(super) fn take_all(&mut self) -> Vec<Packet<A>> {
        let mut all = Vec::with_capacity(self.len);
        while let Some(&id) = self.ring.front() {
            while let Some(packet) = self.pop(id, true) {
                all.push(packet);
            }
        }
        all
    }

    /// Moves a slot to the list of its queue's length.
    fn relink(&mut self, id: u32, old: usize) {
        let Slot { next, prev, .. } = self.slots[id as usize];
        if old > 0 {
            match prev {
                NONE => self.longest[old] = next,
                _ => self.slots[prev as usize].next = next,
            }
            if next != NONE {
                self.slots[next as usize].prev = prev;
            }
        }
        let len = self.slots[id as usize].queue.len();
        let first = if len > 0 { std::mem::replace(&mut self.longest[len], id) } else { NONE };
        if first != NONE {
            self.slots[first as usize].prev = id;
        }
        let slot = &mut self.slots[id as usize];
        (slot.next, slot.prev) = (first, NONE);
        self.depth = self.depth.max(len);
        while self.depth > 0 && self.longest[self.depth] == NONE {
            self.depth -= 1;
        }
    }
}
