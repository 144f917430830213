//! A timing wheel: it holds items until their times, and returns them in the exact order of these times.
//!
//! A qdisc that holds flows or classes back until a time (fq, htb, drr) needs the earliest of many. A balanced tree or a
//! heap costs a walk of dependent cache misses each time; buckets cost one lookup. Here a time is read as digits to the base
//! 64. The wheel has a time of its own. An item is kept at the highest digit in which its time differs from the wheel's, in
//! the bucket of its digit there: eleven levels of 64 buckets hold every time of 64 bits. The earliest item is in the first
//! bucket in use of the lowest level in use; two find-first-sets find it. A bucket whose turn has come is dealt out to the
//! levels below. After "Carousel" (Saeed et al., SIGCOMM 2017), "Eiffel" (Saeed et al., NSDI 2019), and the radix heap of
//! Ahuja et al. (1990), whose idea of measuring from the last minimum makes the order exact.
//!
//! **Precision**: one nanosecond. Items with the same time leave in the order in which they came. The wheel's time is never
//! after the `now` of the last [`pop`](Wheel::pop). An item whose time is before the wheel's is kept as if it had the
//! wheel's time.
//!
//! **Bounds**: to insert or to remove an item takes constant time. An item is dealt out ten times at most, and seldom more
//! than three times when it waits for milliseconds. A single call may deal out a whole bucket: all items that are due in the
//! next 4 us, 262 us, 17 ms or 1 s, by level. Memory is 11 KiB from the first use on, and 32 bytes for each item at the
//! highest number of items. An item allocates nothing while there are no more of them than there have been.

use std::num::NonZeroU32;

use txq_core::arch::Nanos;

/// Bits of a digit.
const DIGIT_BITS: u32 = 6;
const DIGIT_BUCKETS: usize = 1 << DIGIT_BITS;
const WHEEL_LEVELS: usize = 11;
/// No node.
const NIL: u32 = u32::MAX;

/// Items that wait for their times.
pub(super) struct Wheel<T> {
    /// The wheel's time, from which times are measured; not after any item's time.
    now: Nanos,
    /// For each level, the buckets that hold items, as a bit mask.
    used: [u64; WHEEL_LEVELS],
    /// The levels with such a bucket, as a bit mask.
    levels: u16,
    /// Empty until first used.
    buckets: Vec<Bucket>,
    nodes: Vec<Node<T>>,
    /// The first unused node, from which `next` leads to the others.
    free: u32,
    /// Number of items.
    len: usize,
}

/// A list of nodes.
#[derive(Clone, Copy)]
struct Bucket {
    head: u32,
    tail: u32,
    /// Not after the time of any of its items; the time of the earliest one until that is removed.
    earliest: Nanos,
}

struct Node<T> {
    at: Nanos,
    next: u32,
    prev: u32,
    bucket: u16,
    /// `None` for an unused node.
    item: Option<T>,
}

/// Names an item that waits, until the item has left.
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
    /// Returns a wheel without items.
    pub(super) fn new() -> Self {
        Self {
            now: 0,
            used: [0; WHEEL_LEVELS],
            levels: 0,
            buckets: Vec::new(),
            nodes: Vec::new(),
            free: NIL,
            len: 0,
        }
    }

    /// Returns the number of items.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Adds an item that waits until `at`, and returns its ticket.
    pub(super) fn insert(&mut self, at: Nanos, item: T) -> Ticket {
        if self.buckets.is_empty() {
            self.buckets = vec![Bucket { head: NIL, tail: NIL, earliest: 0 }; WHEEL_LEVELS * DIGIT_BUCKETS];
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

    /// Removes an item before its time, and returns it.
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

    /// Returns the time of an item that waits.
    pub(super) fn time_of(&self, ticket: Ticket) -> Option<Nanos> {
        self.nodes.get(ticket.node()).filter(|node| node.item.is_some()).map(|node| node.at)
    }

    /// Returns the time of the earliest item, or an earlier time if that item has been removed.
    pub(super) fn next_time(&self) -> Option<Nanos> {
        self.first().map(|bucket| self.buckets[bucket].earliest)
    }

    /// Removes the earliest item if its time has come; returns its time and the item.
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
            if head != tail && first >= DIGIT_BUCKETS {
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

    /// Removes all items, in no particular order, and frees the wheel's memory.
    pub(super) fn clear(&mut self) -> impl Iterator<Item = T> {
        let now = self.now;
        let emptied = std::mem::replace(self, Self { now, ..Self::new() });
        emptied.nodes.into_iter().filter_map(|node| node.item)
    }

    /// Sets the wheel's time to `now`, which is before the time of every item, so that finer digits tell the items apart.
    fn advance(&mut self, now: Nanos) {
        if now <= self.now {
            return;
        }
        // Only items in the bucket of `now` itself come to a lower level.
        let bucket = self.bucket(now);
        self.now = now;
        if self.used[bucket / DIGIT_BUCKETS] >> (bucket % DIGIT_BUCKETS) & 1 != 0 {
            self.deal(bucket);
        }
    }

    /// Returns the bucket of a time that is not before the wheel's.
    fn bucket(&self, at: Nanos) -> usize {
        // The bits of the last digit are set, so that equal times are at the lowest level.
        let differs = (at ^ self.now) | (DIGIT_BUCKETS as u64 - 1);
        let level = differs.ilog2() / DIGIT_BITS;
        level as usize * DIGIT_BUCKETS + (at >> (level * DIGIT_BITS)) as usize % DIGIT_BUCKETS
    }

    /// Returns the first bucket with items.
    fn first(&self) -> Option<usize> {
        let level = (self.levels != 0).then(|| self.levels.trailing_zeros() as usize)?;
        Some(level * DIGIT_BUCKETS + self.used[level].trailing_zeros() as usize)
    }

    /// Appends a node to the bucket of its time.
    fn link(&mut self, id: u32) {
        let at = self.nodes[id as usize].at;
        let index = self.bucket(at);
        let bucket = &mut self.buckets[index];
        let prev = bucket.tail;
        bucket.tail = id;
        if prev == NIL {
            (bucket.head, bucket.earliest) = (id, at);
            self.used[index / DIGIT_BUCKETS] |= 1 << (index % DIGIT_BUCKETS);
            self.levels |= 1 << (index / DIGIT_BUCKETS);
        } else {
            bucket.earliest = bucket.earliest.min(at);
            self.nodes[prev as usize].next = id;
        }
        let node = &mut self.nodes[id as usize];
        (node.prev, node.next, node.bucket) = (prev, NIL, index as u16);
    }

    /// Moves all nodes of a bucket, in their order, to the buckets where they belong now.
    fn deal(&mut self, index: usize) {
        let mut id = self.buckets[index].head;
        self.mark_empty(index);
        while id != NIL {
            let next = self.nodes[id as usize].next;
            self.link(id);
            id = next;
        }
    }

    /// Clears a bucket, and its bits in the masks.
    fn mark_empty(&mut self, index: usize) {
        let level = index / DIGIT_BUCKETS;
        (self.buckets[index].head, self.buckets[index].tail) = (NIL, NIL);
        self.used[level] &= !(1 << (index % DIGIT_BUCKETS));
        if self.used[level] == 0 {
            self.levels &= !(1 << level);
        }
    }
}

#[cfg(test)]
mod tests;
