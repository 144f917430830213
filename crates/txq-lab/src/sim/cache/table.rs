//! Maps a key to the place of its line: a hash table of pages, each with [`LINES_PER_PAGE`] adjacent places.
//!
//! A program's memory lies together, so there are few pages, which stay in the host's caches, and the lines of an object are
//! neighbours, as in the simulated machine. The table only grows and is never iterated: the positions in it depend on
//! addresses, and must have no visible effect.

/// Number of lines of a page. With fewer the table has more entries, which compete for the host's caches.
pub(super) const LINES_PER_PAGE: usize = 256;
/// Marks a free slot: no page has this number.
const EMPTY: u64 = u64::MAX;

pub(super) struct Table {
    /// Page and its number.
    slots: Box<[(u64, u32)]>,
    used: usize,
}

/// Returns a key's page, and its place there.
#[inline]
fn page(key: u64) -> (u64, usize) {
    (key / LINES_PER_PAGE as u64, key as usize % LINES_PER_PAGE)
}

impl Table {
    pub(super) fn new() -> Self {
        Self { slots: vec![(EMPTY, 0); 1 << 12].into(), used: 0 }
    }

    #[inline]
    fn slot(&self, page: u64) -> usize {
        // Fibonacci hashing: addresses differ in their low bits, the product in its high ones.
        (page.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (64 - self.slots.len().trailing_zeros())) as usize
    }

    /// Returns the place of `key`. Pages are numbered in the order of first requests.
    #[inline]
    pub(super) fn find(&mut self, key: u64) -> usize {
        let (page, place) = page(key);
        let mut i = self.slot(page);
        loop {
            let (p, number) = self.slots[i];
            if p == page {
                return number as usize * LINES_PER_PAGE + place;
            }
            if p == EMPTY {
                return self.add(i, page) * LINES_PER_PAGE + place;
            }
            i = (i + 1) & (self.slots.len() - 1);
        }
    }

    #[cold]
    fn add(&mut self, slot: usize, page: u64) -> usize {
        let number = self.used;
        self.slots[slot] = (page, number as u32);
        self.used += 1;
        if self.used * 2 > self.slots.len() {
            self.grow();
        }
        number
    }

    fn grow(&mut self) {
        let larger = vec![(EMPTY, 0); self.slots.len() * 2].into();
        let old = std::mem::replace(&mut self.slots, larger);
        for &(page, number) in old.iter().filter(|(page, _)| *page != EMPTY) {
            let mut i = self.slot(page);
            while self.slots[i].0 != EMPTY {
                i = (i + 1) & (self.slots.len() - 1);
            }
            self.slots[i] = (page, number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    /// Keys of lines and of objects side by side, and so many that the table grows.
    #[test]
    fn each_key_has_a_place_of_its_own_and_keeps_it() {
        let mut table = Table::new();
        let lines = (0..20_000).map(|i| (0x7F00_0000_0000_u64 >> 6) + i * 37);
        let objects = (0..10_000).map(|i| 1 << 63 | (0x7F00_0000_0000_u64 + i * 5));
        let keys: Vec<u64> = lines.chain(objects).collect();
        let mut of = HashMap::new();
        for &key in &keys {
            let before = of.insert(table.find(key), key);
            assert!(before.is_none_or(|other| other == key), "{before:x?} and {key:x}");
        }
        assert!(table.used * 2 <= table.slots.len() && table.slots.len() > 1 << 12);
        assert!(keys.iter().all(|&key| of[&table.find(key)] == key));
        // The lines of an object are neighbours.
        assert_eq!(table.find(0x1001), table.find(0x1000) + 1);
    }
}
