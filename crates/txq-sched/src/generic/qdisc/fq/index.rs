//! Finds flows by key: a hash table whose buckets are cache lines.
//!
//! A bucket holds the numbers of up to [`FLOWS_PER_BUCKET`] flows, and a tag for each: eight bits of its key's hash. A lookup
//! compares the key with a flow only if the tag matches, so it reads the bucket's cache line and the flow's, and rarely
//! another flow's. A full bucket has overflow buckets behind it. The table grows by one bucket for each [`LOAD`] flows
//! (Litwin's linear hashing), so that no packet waits for a table to be rebuilt.

use txq_core::arch::fetch_to_write;

use crate::generic::qdisc::fq::chunks::Chunks;
use crate::generic::qdisc::fq::flow::NIL;

/// 1 in each byte.
const ONES: u64 = u64::from_ne_bytes([1; 8]);
/// The number of flows in a bucket.
const FLOWS_PER_BUCKET: usize = 12;
/// The average number of flows in a bucket beyond which the table grows.
const LOAD: usize = 4;

#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Bucket {
    /// The flows; [`NIL`] in a free place.
    ids: [u32; FLOWS_PER_BUCKET],
    /// The flows' tags: bits of their keys' hashes.
    tags: [u8; FLOWS_PER_BUCKET],
    /// The overflow bucket behind this one: its index in [`Index::behind`] plus 1, or 0 for none.
    more: u32,
}

impl Bucket {
    const EMPTY: Self = Self { ids: [NIL; FLOWS_PER_BUCKET], tags: [0; FLOWS_PER_BUCKET], more: 0 };

    /// Returns the places with this tag, and a few others.
    #[inline]
    fn places(&self, tag: u8) -> Places {
        let (first, others) = self.tags.split_first_chunk().expect("8 of 12");
        let others = others.try_into().map_or(0, u32::from_le_bytes);
        let tag = u64::from(tag) * ONES;
        let differs = [u64::from_le_bytes(*first) ^ tag, u64::from(others) ^ tag];
        // A byte of `differs` is 0 where the tags are equal. Subtracting 1 sets its highest bit.
        let [first, others] = differs.map(|word| word.wrapping_sub(ONES) & !word & (ONES << 7));
        Places { first, others: others & u64::from(u32::MAX) }
    }
}

/// Places of a bucket, each as the highest bit of a byte: the first eight, and four more.
struct Places {
    first: u64,
    others: u64,
}

impl Iterator for Places {
    type Item = usize;

    #[inline]
    fn next(&mut self) -> Option<usize> {
        let (bits, base) = if self.first != 0 { (&mut self.first, 0) } else { (&mut self.others, 8) };
        let place = (*bits != 0).then(|| base + bits.trailing_zeros() as usize / 8)?;
        *bits &= *bits - 1;
        Some(place)
    }
}

/// Where the flow of a key is: its bucket, and its tag.
#[derive(Clone, Copy)]
struct Spot {
    bucket: usize,
    tag: u8,
}

/// The hash table.
pub(super) struct Index {
    buckets: Chunks<Bucket>,
    /// Buckets in use; 0 until the first flow.
    len: usize,
    /// The bits of a hash that choose among buckets, for those that are split already.
    mask: usize,
    /// Overflow buckets.
    behind: Vec<Bucket>,
    /// The first unused overflow bucket, as in [`Bucket::more`], which links to the next.
    free: u32,
    /// Flows in the table.
    flows: usize,
}

impl Index {
    pub(super) fn new() -> Self {
        Self { buckets: Chunks::new(), len: 0, mask: 0, behind: Vec::new(), free: 0, flows: 0 }
    }

    /// Returns where the flow of a key is. The table has buckets.
    #[inline]
    fn spot(&self, key: u64) -> Spot {
        // The upper half of the product depends on all bits of the key. A program may use consecutive keys.
        let hash = key.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        // A bucket beyond the last one is not split off yet: its keys are in the bucket with one bit less.
        let wide = (hash >> 32) as usize & self.mask;
        let bucket = if wide < self.len { wide } else { wide & (self.mask >> 1) };
        Spot { bucket, tag: (hash >> 56) as u8 }
    }

    /// Returns the flow of a key. `is_it` returns whether a flow has the key.
    #[inline]
    pub(super) fn find(&self, key: u64, is_it: impl Fn(u32) -> bool) -> Option<u32> {
        if self.len == 0 {
            return None;
        }
        let Spot { bucket, tag } = self.spot(key);
        let mut bucket = &self.buckets[bucket];
        loop {
            let found = bucket.places(tag).map(|place| bucket.ids[place]).find(|&id| id != NIL && is_it(id));
            if found.is_some() || bucket.more == 0 {
                return found;
            }
            bucket = &self.behind[bucket.more as usize - 1];
        }
    }

    /// Prefetches the bucket of a key.
    #[inline]
    pub(super) fn fetch(&self, key: u64) {
        if self.len > 0 {
            fetch_to_write(&self.buckets[self.spot(key).bucket]);
        }
    }

    /// Returns the probable flow of a key by its bucket alone; [`NIL`] if there is none.
    #[inline]
    pub(super) fn guess(&self, key: u64) -> u32 {
        if self.len == 0 {
            return NIL;
        }
        let Spot { bucket, tag } = self.spot(key);
        let bucket = &self.buckets[bucket];
        bucket.places(tag).next().map_or(NIL, |place| bucket.ids[place])
    }

    /// Adds a flow that is not in the table. `buckets` is the number of flows for which an empty table gets room; `key_of`
    /// returns a flow's key.
    pub(super) fn insert(&mut self, key: u64, id: u32, buckets: usize, key_of: impl Fn(u32) -> u64) {
        if self.len == 0 {
            let len = buckets.div_ceil(LOAD).max(1);
            while self.buckets.len() < len {
                self.buckets.grow(|| Bucket::EMPTY);
            }
            self.set_len(len);
        } else if self.flows >= self.len * LOAD {
            self.split(key_of);
        }
        self.flows += 1;
        self.put(key, id);
    }

    /// Sets the number of buckets in use.
    fn set_len(&mut self, len: usize) {
        self.len = len;
        self.mask = (2 << len.ilog2()) - 1;
    }

    /// Puts a flow into its bucket, or into an overflow bucket behind it.
    fn put(&mut self, key: u64, id: u32) {
        let Spot { bucket: first, tag } = self.spot(key);
        if let Some((bucket, place)) = self.place_of(first, NIL) {
            (bucket.ids[place], bucket.tags[place]) = (id, tag);
            return;
        }
        let mut new = Bucket { more: self.buckets[first].more, ..Bucket::EMPTY };
        (new.ids[0], new.tags[0]) = (id, tag);
        let more = match self.free {
            0 => {
                self.behind.push(new);
                self.behind.len() as u32
            }
            free => {
                let unused = &mut self.behind[free as usize - 1];
                self.free = std::mem::replace(unused, new).more;
                free
            }
        };
        self.buckets[first].more = more;
    }

    /// Adds a bucket, and moves part of another bucket's flows to it.
    fn split(&mut self, key_of: impl Fn(u32) -> u64) {
        let new = self.len;
        if new == self.buckets.len() {
            self.buckets.grow(|| Bucket::EMPTY);
        }
        self.set_len(new + 1);
        let mut old = std::mem::replace(&mut self.buckets[new - (1 << new.ilog2())], Bucket::EMPTY);
        loop {
            old.ids.into_iter().filter(|&id| id != NIL).for_each(|id| self.put(key_of(id), id));
            let more = old.more;
            if more == 0 {
                return;
            }
            old = self.behind[more as usize - 1];
            self.behind[more as usize - 1].more = self.free;
            self.free = more;
        }
    }

    /// Removes a flow that is in the table.
    pub(super) fn remove(&mut self, key: u64, id: u32) {
        if let Some((bucket, place)) = self.place_of(self.spot(key).bucket, id) {
            (bucket.ids[place], bucket.tags[place]) = (NIL, 0);
            self.flows -= 1;
        }
    }

    /// Returns the place of a flow, in a bucket or its overflow buckets. With [`NIL`] as `id` it returns a free place.
    fn place_of(&mut self, first: usize, id: u32) -> Option<(&mut Bucket, usize)> {
        let of = |bucket: &Bucket| bucket.ids.iter().position(|&there| there == id);
        let (mut more, mut place) = (0, of(&self.buckets[first]));
        let mut next = self.buckets[first].more;
        while place.is_none() && next != 0 {
            let bucket = &self.behind[next as usize - 1];
            (more, place, next) = (next, of(bucket), bucket.more);
        }
        let bucket = match more {
            0 => &mut self.buckets[first],
            more => &mut self.behind[more as usize - 1],
        };
        place.map(|place| (bucket, place))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 200 }))]

        /// Keys that differ only in their upper bits share buckets, so some of them overflow.
        #[test]
        fn it_is_a_map(
            start in 1usize..40,
            script in prop::collection::vec((prop::bool::weighted(0.7), 0u64..300, prop::bool::ANY), 1..600),
        ) {
            let (mut index, mut model, mut keys) = (Index::new(), HashMap::new(), Vec::new());
            for (add, number, wide) in script {
                // The factor's inverse: there are few products, and so few buckets in use.
                let key = if wide { number } else { (number << 57 | 7 << 32).wrapping_mul(0xf1de_83e1_9937_733d) };
                match (add, model.get(&key)) {
                    (true, None) => {
                        let id = keys.len() as u32;
                        keys.push(key);
                        index.insert(key, id, start, |id| keys[id as usize]);
                        model.insert(key, id);
                    }
                    (false, Some(&id)) => {
                        index.remove(key, id);
                        model.remove(&key);
                    }
                    _ => {}
                }
                index.fetch(key);
                let guess = index.guess(key);
                prop_assert!(guess == NIL || model.values().any(|&id| id == guess));
                for (&key, &id) in &model {
                    prop_assert_eq!(index.find(key, |id| keys[id as usize] == key), Some(id));
                }
                prop_assert_eq!(index.find(u64::MAX, |id| keys[id as usize] == u64::MAX), None);
            }
        }
    }
}
