//! A timing wheel: things that wait for their time, in the exact order of their times.
//!
//! What holds packets or flows back until a time (fq, netem, etf, a shaper's classes) needs the earliest of many, for
//! each packet. A balanced tree or a heap costs a walk of dependent cache misses each time; buckets cost one lookup. Here
//! a time is read as digits to the base 64, and a thing is kept at the highest digit in which its time differs from the
//! wheel's own, in the bucket of its digit there: eleven levels of 64 buckets hold every time of 64 bits. The earliest
//! thing is in the first bucket of the lowest level that has any, and two find-first-sets find it. A bucket whose turn
//! has come is dealt out again to the levels below. After "Carousel" (Saeed et al., SIGCOMM 2017), "Eiffel" (Saeed et al.,
//! NSDI 2019), and the radix heap of Ahuja et al. (1990), whose idea of measuring from the last minimum makes the order exact.
//!
//! **Precision**: one nanosecond. Things of one time leave in the order in which they came. A thing whose time is before
//! the wheel's, which is never after the `now` of the last [`pop`](Wheel::pop), is kept as if it had the wheel's time.
//!
//! **Bounds**: inserting and removing take constant time; a thing is dealt out ten times at most, and seldom more than
//! three times when it waits for milliseconds. A single call may deal out a whole bucket: what is due in the next 4 us,
//! 262 us, 17 ms or 1 s, by level. Memory is 11 KiB when first used and 32 bytes a thing at its highest; nothing is allocated
//! for a thing while there are no more of them than there have been.

use std::num::NonZeroU32;

use crate::arch::Nanos;

/// Bits of a digit.
const BITS: u32 = 6;
const BUCKETS: usize = 1 << BITS;
const LEVELS: usize = 11;
/// No node.
const NIL: u32 = u32::MAX;

/// Things that wait for their time.
pub(super) struct Wheel<T> {
    /// Times are measured from here; not after any thing's time.
    now: Nanos,
    /// For each level, which buckets hold something.
    used: [u64; LEVELS],
    /// The levels that do.
    levels: u16,
    /// Empty until first used.
    buckets: Vec<Bucket>,
    nodes: Vec<Node<T>>,
    /// Unused nodes, by `next`.
    free: u32,
    len: usize,
}

/// A list of nodes.
#[derive(Clone, Copy)]
struct Bucket {
    head: u32,
    tail: u32,
    /// Not after the time of any of them; the earliest one's until that is removed.
    earliest: Nanos,
}

struct Node<T> {
    at: Nanos,
    next: u32,
    prev: u32,
    bucket: u16,
    item: Option<T>,
}

/// Names a thing that waits, until it has left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ticket(NonZeroU32);

impl Ticket {
    fn of(node: u32) -> Self {
        Self(NonZeroU32::MIN.saturating_add(node))
    }

    fn node(self) -> usize {
        self.0.get() as usize - 1
    }
}

impl<T> Wheel<T> {
    /// A wheel with nothing on it.
    pub(super) fn new() -> Self {
        Self {
            now: 0,
            used: [0; LEVELS],
            levels: 0,
            buckets: Vec::new(),
            nodes: Vec::new(),
            free: NIL,
            len: 0,
        }
    }

    /// Number of things that wait.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Has `item` wait until `at`.
    pub(super) fn insert(&mut self, at: Nanos, item: T) -> Ticket {
        if self.buckets.is_empty() {
            self.buckets = vec![Bucket { head: NIL, tail: NIL, earliest: 0 }; LEVELS * BUCKETS];
        }
        let node = Node { at: at.max(self.now), next: NIL, prev: NIL, bucket: 0, item: Some(item) };
        let id = match self.free {
            NIL => {
                self.nodes.push(node);
                (self.nodes.len() - 1) as u32
            }
            id => {
                self.free = self.nodes[id as usize].next;
                self.nodes[id as usize] = node;
                id
            }
        };
        self.len += 1;
        self.link(id);
        Ticket::of(id)
    }

    /// Takes a thing off before its time.
    pub(super) fn remove(&mut self, ticket: Ticket) -> Option<T> {
        let id = ticket.node();
        let item = self.nodes.get_mut(id)?.item.take()?;
        let Node { next, prev, bucket, .. } = self.nodes[id];
        let ends = &mut self.buckets[usize::from(bucket)];
        match prev {
            NIL => ends.head = next,
            _ => self.nodes[prev as usize].next = next,
        }
        match next {
            NIL => ends.tail = prev,
            _ => self.nodes[next as usize].prev = prev,
        }
        if ends.head == NIL {
            self.mark_empty(bucket.into());
        }
        self.nodes[id].next = self.free;
        self.free = id as u32;
        self.len -= 1;
        Some(item)
    }

    /// The time of a thing that waits.
    pub(super) fn time_of(&self, ticket: Ticket) -> Option<Nanos> {
        self.nodes.get(ticket.node()).filter(|node| node.item.is_some()).map(|node| node.at)
    }

    /// The time of the earliest thing, or an earlier one if that has been removed.
    pub(super) fn next_time(&self) -> Option<Nanos> {
        self.first().map(|bucket| self.buckets[bucket].earliest)
    }

    /// Takes the earliest thing and its time, if that has come.
    pub(super) fn pop(&mut self, now: Nanos) -> Option<(Nanos, T)> {
        loop {
            let Some(first) = self.first() else {
                self.now = self.now.max(now);
                return None;
            };
            let Bucket { head, tail, earliest } = self.buckets[first];
            if earliest > now {
                self.advance(now);
                return None;
            }
            let at = self.nodes[head as usize].at;
            if head != tail && first >= BUCKETS {
                self.now = earliest;
                self.deal(first);
            } else if at <= now {
                self.now = at;
                return self.remove(Ticket::of(head)).map(|item| (at, item));
            } else {
                self.buckets[first].earliest = at;
            }
        }
    }

    /// Takes all things off, in no particular order, and gives their memory back.
    pub(super) fn clear(&mut self) -> impl Iterator<Item = T> {
        let now = self.now;
        let emptied = std::mem::replace(self, Self { now, ..Self::new() });
        emptied.nodes.into_iter().filter_map(|node| node.item)
    }

    /// Measures from `now`, which is before everything, so that what comes is told apart by finer digits.
    fn advance(&mut self, now: Nanos) {
        if now <= self.now {
            return;
        }
        // Only things in the bucket of `now` itself are nearer to it than to the time before.
        let bucket = self.bucket(now);
        self.now = now;
        if self.used[bucket / BUCKETS] >> (bucket % BUCKETS) & 1 != 0 {
            self.deal(bucket);
        }
    }

    /// The bucket of a time that is not before the wheel's.
    fn bucket(&self, at: Nanos) -> usize {
        // The last digit's bits are set, so that times that do not differ are at the lowest level.
        let differs = (at ^ self.now) | (BUCKETS as u64 - 1);
        let level = differs.ilog2() / BITS;
        level as usize * BUCKETS + (at >> (level * BITS)) as usize % BUCKETS
    }

    /// The first bucket with something in it.
    fn first(&self) -> Option<usize> {
        let level = (self.levels != 0).then(|| self.levels.trailing_zeros() as usize)?;
        Some(level * BUCKETS + self.used[level].trailing_zeros() as usize)
    }

    /// Puts a node where it belongs.
    fn link(&mut self, id: u32) {
        let at = self.nodes[id as usize].at;
        let index = self.bucket(at);
        let bucket = &mut self.buckets[index];
        let prev = bucket.tail;
        bucket.tail = id;
        if prev == NIL {
            (bucket.head, bucket.earliest) = (id, at);
            self.used[index / BUCKETS] |= 1 << (index % BUCKETS);
            self.levels |= 1 << (index / BUCKETS);
        } else {
            bucket.earliest = bucket.earliest.min(at);
            self.nodes[prev as usize].next = id;
        }
        let node = &mut self.nodes[id as usize];
        (node.prev, node.next, node.bucket) = (prev, NIL, index as u16);
    }

    /// Puts all nodes of a bucket where they belong now, in their order.
    fn deal(&mut self, index: usize) {
        let mut id = self.buckets[index].head;
        self.mark_empty(index);
        while id != NIL {
            let next = self.nodes[id as usize].next;
            self.link(id);
            id = next;
        }
    }

    fn mark_empty(&mut self, index: usize) {
        let level = index / BUCKETS;
        (self.buckets[index].head, self.buckets[index].tail) = (NIL, NIL);
        self.used[level] &= !(1 << (index % BUCKETS));
        if self.used[level] == 0 {
            self.levels &= !(1 << level);
        }
    }
}

#[cfg(test)]
mod tests;
