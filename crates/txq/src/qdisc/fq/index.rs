//! Flows by key: a hash table of cache lines.
//!
//! A bucket is one line: the numbers of up to [`PLACES`] flows, and eight bits of the hash of each. A key is compared with a
//! flow only where those bits agree, so looking up reads the bucket's line and the flow's, and no other flow's. What does not
//! fit is in a bucket behind it. The table grows by one bucket for each [`LOAD`] flows (Litwin's linear hashing), so that no
//! packet waits until a big table is rebuilt.

use crate::arch::fetch_to_write;
use crate::qdisc::fq::chunks::Chunks;
use crate::qdisc::fq::flow::NIL;

/// A 1 in each byte.
const ONES: u64 = u64::from_ne_bytes([1; 8]);
/// Flows in a bucket.
const PLACES: usize = 12;
/// Flows for each bucket on average, beyond which there is a bucket more.
const LOAD: usize = 4;

#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Bucket {
    /// [`NIL`] where there is none.
    ids: [u32; PLACES],
    /// Of each, bits of its key's hash.
    tags: [u8; PLACES],
    /// One more than the index of the bucket behind it, or 0.
    more: u32,
}

impl Bucket {
    const EMPTY: Self = Self { ids: [NIL; PLACES], tags: [0; PLACES], more: 0 };

    /// The places whose tag may be this one: all that have it, and few others.
    #[inline]
    fn places(&self, tag: u8) -> Places {
        let (first, others) = self.tags.split_first_chunk().expect("8 of 12");
        let others = others.try_into().map_or(0, u32::from_le_bytes);
        let tag = u64::from(tag) * ONES;
        let differs = [u64::from_le_bytes(*first) ^ tag, u64::from(others) ^ tag];
        // The borrow of a byte that is 0, in which both are equal, comes from its highest bit.
        let [first, others] = differs.map(|word| word.wrapping_sub(ONES) & !word & (ONES << 7));
        Places { first, others: others & u64::from(u32::MAX) }
    }
}

/// Places of a bucket, each by the highest bit of eight: the first eight, and four more.
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

/// Where flows of some keys are: the bucket, and the bits of the hash that it keeps.
#[derive(Clone, Copy)]
struct Spot {
    bucket: usize,
    tag: u8,
}

/// The table.
pub(super) struct Index {
    buckets: Chunks<Bucket>,
    /// Buckets in use; 0 until the first flow.
    len: usize,
    /// Bits of a hash that tell buckets apart, where they are split already.
    mask: usize,
    /// Buckets behind others; those not in use by `more`.
    behind: Vec<Bucket>,
    free: u32,
    flows: usize,
}

impl Index {
    pub(super) fn new() -> Self {
        Self { buckets: Chunks::new(), len: 0, mask: 0, behind: Vec::new(), free: 0, flows: 0 }
    }

    /// Where the flow of a key is, if there are buckets.
    #[inline]
    fn spot(&self, key: u64) -> Spot {
        // The upper half of the product depends on all bits of the key, which a program may have numbered.
        let hash = key.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        // The first buckets are split already.
        let wide = (hash >> 32) as usize & self.mask;
        let bucket = if wide < self.len { wide } else { wide & (self.mask >> 1) };
        Spot { bucket, tag: (hash >> 56) as u8 }
    }

    /// The flow of a key; `is_it` tells whether a flow is.
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

    /// Fetches the line that a key is looked up in.
    #[inline]
    pub(super) fn fetch(&self, key: u64) {
        if self.len > 0 {
            fetch_to_write(&self.buckets[self.spot(key).bucket]);
        }
    }

    /// The flow that a key is probably of, by its bucket alone; [`NIL`] if there is none.
    #[inline]
    pub(super) fn guess(&self, key: u64) -> u32 {
        if self.len == 0 {
            return NIL;
        }
        let Spot { bucket, tag } = self.spot(key);
        let bucket = &self.buckets[bucket];
        bucket.places(tag).next().map_or(NIL, |place| bucket.ids[place])
    }

    /// Adds a flow that is not there. `buckets` is for how many flows it has room from the beginning; `key_of` tells a
    /// flow's key.
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

    fn set_len(&mut self, len: usize) {
        self.len = len;
        self.mask = (2 << len.ilog2()) - 1;
    }

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

    /// One bucket more, which gets a part of the flows of another.
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

    /// Removes a flow that is there.
    pub(super) fn remove(&mut self, key: u64, id: u32) {
        if let Some((bucket, place)) = self.place_of(self.spot(key).bucket, id) {
            (bucket.ids[place], bucket.tags[place]) = (NIL, 0);
            self.flows -= 1;
        }
    }

    /// The place of a flow, or one that is free, in a bucket or one behind it.
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

        /// Keys that differ in their upper bits only share buckets, so some do not fit.
        #[test]
        fn it_is_a_map(
            start in 1usize..40,
            script in prop::collection::vec((prop::bool::weighted(0.7), 0u64..300, prop::bool::ANY), 1..600),
        ) {
            let (mut index, mut model, mut keys) = (Index::new(), HashMap::new(), Vec::new());
            for (add, number, wide) in script {
                // The inverse of the factor: the products, which tell the buckets, are few.
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
