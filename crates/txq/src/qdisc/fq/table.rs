//! The flows, found by key.
//!
//! Flows lie in chunks that never move. A hash table of lists finds them; it grows by one bucket for each flow that is
//! too many (Litwin's linear hashing), so that no packet waits until a big table is rebuilt. Idle flows are on a list in the
//! order in which they became idle, so that forgetting the oldest costs nothing to find it.

use std::hint::black_box;

use crate::arch::{Arch, Nanos};
use crate::qdisc::fq::flow::{Flow, NIL, Place};

/// Packets whose flows are looked up together.
pub(super) const TOGETHER: usize = 16;
/// Flows in a chunk.
const CHUNK: usize = 64;
/// How long an idle flow is remembered, for its credit and the time of its next packet (`FQ_GC_AGE`).
const GC_AGE: Nanos = 3_000_000_000;

/// A list of flows, linked through them.
pub(super) struct List {
    pub(super) head: u32,
    tail: u32,
    pub(super) len: usize,
}

impl List {
    pub(super) const fn new() -> Self {
        Self { head: NIL, tail: NIL, len: 0 }
    }
}

pub(super) struct Table<A: Arch> {
    chunks: Vec<Box<[Flow<A>]>>,
    /// Unused flows, by `chain`.
    free: u32,
    /// First flow of each bucket. Empty until first used.
    buckets: Vec<u32>,
    /// Flows in use.
    pub(super) len: usize,
    pub(super) idle: List,
    /// Flows forgotten so far.
    pub(super) gc: u64,
}

impl<A: Arch> Table<A> {
    pub(super) fn new() -> Self {
        Self { chunks: Vec::new(), free: NIL, buckets: Vec::new(), len: 0, idle: List::new(), gc: 0 }
    }

    #[inline]
    pub(super) fn flow(&self, id: u32) -> &Flow<A> {
        &self.chunks[id as usize / CHUNK][id as usize % CHUNK]
    }

    #[inline]
    pub(super) fn flow_mut(&mut self, id: u32) -> &mut Flow<A> {
        &mut self.chunks[id as usize / CHUNK][id as usize % CHUNK]
    }

    /// The bucket of a key.
    #[inline]
    fn bucket(&self, key: u64) -> usize {
        // The upper half of the product depends on all bits of the key, which a program may have numbered.
        let hash = (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize;
        let n = self.buckets.len();
        let whole = 1 << n.ilog2();
        // The first buckets are split already, up to n - whole.
        let wide = hash & (2 * whole - 1);
        if wide < n { wide } else { hash & (whole - 1) }
    }

    #[inline]
    pub(super) fn find(&self, key: u64) -> Option<u32> {
        if self.buckets.is_empty() {
            return None;
        }
        let mut id = self.buckets[self.bucket(key)];
        while id != NIL {
            let flow = self.flow(id);
            if flow.key == key {
                return Some(id);
            }
            id = flow.chain;
        }
        None
    }

    /// Loads what the flows of some keys will be asked for. Done for many at once, their cache misses overlap, each of
    /// which would otherwise wait for the one before.
    pub(super) fn touch(&self, keys: impl Iterator<Item = u64>) {
        if self.buckets.is_empty() {
            return;
        }
        let mut heads = [NIL; TOGETHER];
        heads.iter_mut().zip(keys).for_each(|(head, key)| *head = self.buckets[self.bucket(key)]);
        let flows = || heads.iter().filter(|&&id| id != NIL).map(|&id| self.flow(id));
        black_box(flows().fold(0, |sum: u64, flow| sum.wrapping_add(flow.key ^ flow.queue.touch())));
        black_box(flows().fold(0, |sum: u64, flow| sum.wrapping_add(flow.queue.back_time())));
    }

    /// As [`touch`](Table::touch), for the two flows that follow on a list.
    #[inline]
    pub(super) fn touch_next(&self, id: u32) {
        let next = self.flow(id).next;
        if next != NIL {
            let flow = self.flow(next);
            black_box(flow.queue.front_time());
            if flow.next != NIL {
                black_box(self.flow(flow.next).credit);
            }
        }
    }

    /// A new flow, idle since `now`. `buckets` is how many there are at first.
    pub(super) fn create(&mut self, key: u64, credit: i64, buckets: usize, now: Nanos) -> u32 {
        if self.buckets.is_empty() {
            self.buckets = vec![NIL; buckets.max(1)];
        }
        if self.free == NIL {
            let first = (self.chunks.len() * CHUNK) as u32;
            self.chunks.push((0..CHUNK).map(|_| Flow::unused()).collect());
            for id in (first..first + CHUNK as u32).rev() {
                self.flow_mut(id).chain = self.free;
                self.free = id;
            }
        }
        if self.len >= self.buckets.len() {
            self.split();
        }
        let bucket = self.bucket(key);
        let (id, chain) = (self.free, self.buckets[bucket]);
        self.buckets[bucket] = id;
        self.len += 1;
        let flow = self.flow_mut(id);
        let free = flow.chain;
        (flow.key, flow.credit, flow.chain) = (key, credit, chain);
        flow.next_time = 0;
        self.free = free;
        self.set_idle(id, now);
        id
    }

    /// One bucket more.
    fn split(&mut self) {
        let n = self.buckets.len();
        let mut id = std::mem::replace(&mut self.buckets[n - (1 << n.ilog2())], NIL);
        self.buckets.push(NIL);
        while id != NIL {
            let bucket = self.bucket(self.flow(id).key);
            let next = std::mem::replace(&mut self.flow_mut(id).chain, NIL);
            self.flow_mut(id).chain = self.buckets[bucket];
            self.buckets[bucket] = id;
            id = next;
        }
    }

    /// Forgets up to `most` flows that have long been idle.
    pub(super) fn collect(&mut self, now: Nanos, most: usize) {
        for _ in 0..most {
            let id = self.idle.head;
            if id == NIL || now.saturating_sub(self.flow(id).time) <= GC_AGE {
                return;
            }
            let mut idle = std::mem::replace(&mut self.idle, List::new());
            self.unlink(&mut idle, id);
            self.idle = idle;
            self.forget(id);
            self.gc += 1;
        }
    }

    /// Makes an idle flow unused. With the last one all memory is given back.
    fn forget(&mut self, id: u32) {
        let flow = self.flow_mut(id);
        flow.queue.shrink();
        flow.place = Place::Free;
        let (key, chain) = (flow.key, flow.chain);
        let bucket = self.bucket(key);
        if self.buckets[bucket] == id {
            self.buckets[bucket] = chain;
        } else {
            let mut before = self.buckets[bucket];
            while self.flow(before).chain != id {
                before = self.flow(before).chain;
            }
            self.flow_mut(before).chain = chain;
        }
        self.flow_mut(id).chain = self.free;
        self.free = id;
        self.len -= 1;
        if self.len == 0 {
            self.clear();
        }
    }

    /// Forgets all flows at once.
    pub(super) fn clear(&mut self) {
        *self = Self { gc: self.gc, ..Self::new() };
    }

    /// Makes a flow without packets, which is on no list, idle.
    pub(super) fn set_idle(&mut self, id: u32, now: Nanos) {
        let flow = self.flow_mut(id);
        (flow.place, flow.time) = (Place::Idle, now);
        let mut idle = std::mem::replace(&mut self.idle, List::new());
        self.append(&mut idle, id);
        self.idle = idle;
    }

    /// Takes a flow off the list of idle ones.
    pub(super) fn unset_idle(&mut self, id: u32) {
        let mut idle = std::mem::replace(&mut self.idle, List::new());
        self.unlink(&mut idle, id);
        self.idle = idle;
    }

    #[inline]
    pub(super) fn append(&mut self, list: &mut List, id: u32) {
        let tail = list.tail;
        let flow = self.flow_mut(id);
        (flow.prev, flow.next) = (tail, NIL);
        match tail {
            NIL => list.head = id,
            _ => self.flow_mut(tail).next = id,
        }
        list.tail = id;
        list.len += 1;
    }

    #[inline]
    pub(super) fn unlink(&mut self, list: &mut List, id: u32) {
        let flow = self.flow_mut(id);
        let (prev, next) = (std::mem::replace(&mut flow.prev, NIL), std::mem::replace(&mut flow.next, NIL));
        match prev {
            NIL => list.head = next,
            _ => self.flow_mut(prev).next = next,
        }
        match next {
            NIL => list.tail = prev,
            _ => self.flow_mut(next).prev = prev,
        }
        list.len -= 1;
    }

    /// All flows, unused ones among them.
    pub(super) fn flows_mut(&mut self) -> impl Iterator<Item = &mut Flow<A>> {
        self.chunks.iter_mut().flatten()
    }

    /// The flows that have packets, in no particular order.
    pub(super) fn backlogged(&self) -> impl Iterator<Item = u32> {
        let flows = self.chunks.iter().flatten().zip(0..);
        flows.filter(|(flow, _)| !flow.queue.is_empty()).map(|(_, id)| id)
    }
}
