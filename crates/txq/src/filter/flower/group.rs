//! The rules of one set of masks, in a hash table.
//!
//! Only the words of the key that the masks let anything of through are kept and hashed. The table has at least twice as
//! many slots as rules, and probes on to the next. Packets choose keys to look up, not those in the table, so the
//! hash need not be secret.

use super::key::{Key, Match, Range, WORDS};
use crate::tc::Handle;

/// An empty slot.
const EMPTY: u32 = u32::MAX;

struct Entry {
    handle: u32,
    class: Handle,
    ranges: (Range, Range),
}

pub(super) struct Group {
    of: Match,
    /// The words of a key that count, and their masks.
    masks: Vec<(usize, u64)>,
    /// The words of all entries, one entry after the other.
    keys: Vec<u64>,
    /// In the order in which they came.
    entries: Vec<Entry>,
    /// Indices of entries; a power of two of them. Unused where there are ranges.
    slots: Vec<u32>,
}

fn within(range: Range, port: u16) -> bool {
    range.is_none_or(|(first, last)| (first..=last).contains(&port))
}

impl Group {
    pub(super) fn new(of: &Match) -> Self {
        let masks = (0..WORDS).map(|at| (at, of.mask.word(at))).filter(|&(_, mask)| mask != 0).collect();
        Self { of: of.clone(), masks, keys: Vec::new(), entries: Vec::new(), slots: vec![EMPTY; 4] }
    }

    /// Whether rules with these masks belong here.
    pub(super) fn is_of(&self, what: &Match) -> bool {
        self.of.same_masks(what)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    fn has_ranges(&self) -> bool {
        self.of.src_ports.is_some() || self.of.dst_ports.is_some()
    }

    #[inline]
    fn hash(&self, key: &Key) -> usize {
        let mut hash = 0;
        for &(at, mask) in &self.masks {
            let product =
                u128::from(hash ^ (key.word(at) & mask) ^ 0x9e37_79b9_7f4a_7c15) * 0xd6e8_feb8_6659_fd93;
            hash = product as u64 ^ (product >> 64) as u64;
        }
        hash as usize
    }

    #[inline]
    fn is_key_of(&self, entry: usize, key: &Key) -> bool {
        let words = &self.keys[entry * self.masks.len()..][..self.masks.len()];
        self.masks.iter().zip(words).all(|(&(at, mask), &word)| key.word(at) & mask == word)
    }

    /// The entry of a key, or the slot that it would have.
    #[inline]
    fn probe(&self, key: &Key) -> Result<usize, usize> {
        let last = self.slots.len() - 1;
        let mut slot = self.hash(key) & last;
        loop {
            match self.slots[slot] {
                EMPTY => return Err(slot),
                entry if self.is_key_of(entry as usize, key) => return Ok(entry as usize),
                _ => slot = (slot + 1) & last,
            }
        }
    }

    /// The class of a packet with these fields.
    #[inline]
    pub(super) fn find(&self, key: &Key) -> Option<Handle> {
        let entry = match self.has_ranges() {
            false => self.probe(key).ok()?,
            true => self.find_in_range(key)?,
        };
        Some(self.entries[entry].class)
    }

    fn find_in_range(&self, key: &Key) -> Option<usize> {
        let (src, dst) = (key.short(super::key::SRC_PORT), key.short(super::key::DST_PORT));
        (0..self.entries.len()).find(|&at| {
            let (sources, destinations) = self.entries[at].ranges;
            within(sources, src) && within(destinations, dst) && self.is_key_of(at, key)
        })
    }

    /// The handle of the rule for the very same packets.
    pub(super) fn handle_of(&self, what: &Match) -> Option<u32> {
        let entry = match self.has_ranges() {
            false => self.probe(&what.value).ok(),
            true => (0..self.entries.len()).find(|&at| {
                self.entries[at].ranges == (what.src_ports, what.dst_ports) && self.is_key_of(at, &what.value)
            }),
        };
        entry.map(|at| self.entries[at].handle)
    }

    /// Adds a rule for packets that no other is for.
    pub(super) fn insert(&mut self, what: &Match, handle: u32, class: Handle) {
        if (self.entries.len() + 1) * 2 > self.slots.len() {
            self.rebuild(self.slots.len() * 2);
        }
        if let (false, Err(slot)) = (self.has_ranges(), self.probe(&what.value)) {
            self.slots[slot] = self.entries.len() as u32;
        }
        self.keys.extend(self.masks.iter().map(|&(at, mask)| what.value.word(at) & mask));
        self.entries.push(Entry { handle, class, ranges: (what.src_ports, what.dst_ports) });
    }

    /// Removes the rule with this handle, if it is here.
    pub(super) fn remove(&mut self, handle: u32) {
        let Some(at) = self.entries.iter().position(|entry| entry.handle == handle) else { return };
        self.entries.remove(at);
        self.keys.drain(at * self.masks.len()..(at + 1) * self.masks.len());
        self.rebuild(self.slots.len());
    }

    fn rebuild(&mut self, slots: usize) {
        self.slots = vec![EMPTY; slots];
        if self.has_ranges() {
            return;
        }
        for entry in 0..self.entries.len() {
            let mut key = Key::ZERO;
            for (index, &(at, _)) in self.masks.iter().enumerate() {
                key.set_word(at, self.keys[entry * self.masks.len() + index]);
            }
            if let Err(slot) = self.probe(&key) {
                self.slots[slot] = entry as u32;
            }
        }
    }
}
