//! The rules with one set of masks, in a hash table.
//!
//! The table stores and hashes only those words of the key in which the masks have bits. It has at least twice as many slots
//! as rules, and probes linearly. Packets choose the keys that are looked up, not the keys in the table, so the hash need
//! not be secret.
//!
//! Rules with port ranges are compared one by one, in their order; for them the table serves only to find the rule with a
//! given match. A removed rule leaves a gap in that order. Once there are more gaps than rules, the gaps are closed. So
//! adding, changing and removing a rule cost amortised constant time.

use super::key::{KEY_WORDS, Key, Match, Range};
use crate::tc::Handle;

/// An empty slot.
const EMPTY: u32 = u32::MAX;

/// The handle of a removed rule.
const REMOVED: u32 = 0;

struct Entry {
    /// [`REMOVED`] for a gap.
    handle: u32,
    class: Handle,
    ranges: (Range, Range),
}

pub(super) struct Group {
    of: Match,
    /// Index and mask of each word of a key that is compared.
    masks: Vec<(usize, u64)>,
    /// The masked words of all entries, one entry after the other.
    keys: Vec<u64>,
    /// In the order of creation, with gaps.
    entries: Vec<Entry>,
    /// The number of gaps in `entries`.
    gaps: usize,
    /// Indices of entries, or [`EMPTY`]; never the index of a gap. The length is a power of two.
    slots: Vec<u32>,
}

/// Returns `hash` with a word added.
#[inline]
fn mix(hash: u64, word: u64) -> u64 {
    let product = u128::from(hash ^ word ^ 0x9e37_79b9_7f4a_7c15) * 0xd6e8_feb8_6659_fd93;
    product as u64 ^ (product >> 64) as u64
}

fn within(range: Range, port: u16) -> bool {
    range.is_none_or(|(first, last)| (first..=last).contains(&port))
}

impl Group {
    pub(super) fn new(of: &Match) -> Self {
        let masks = (0..KEY_WORDS).map(|at| (at, of.mask.word(at))).filter(|&(_, mask)| mask != 0).collect();
        Self { of: of.clone(), masks, keys: Vec::new(), entries: Vec::new(), gaps: 0, slots: vec![EMPTY; 4] }
    }

    /// Whether a rule with these masks belongs to this group.
    pub(super) fn is_of(&self, what: &Match) -> bool {
        self.of.same_masks(what)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.len() == self.gaps
    }

    fn has_ranges(&self) -> bool {
        self.of.src_ports.is_some() || self.of.dst_ports.is_some()
    }

    #[inline]
    fn hash(&self, key: &Key) -> u64 {
        self.masks.iter().fold(0, |hash, &(at, mask)| mix(hash, key.word(at) & mask))
    }

    /// Returns the hash of a rule: `hash`, that of its words, with its port ranges added.
    fn hash_of(&self, hash: u64, (src, dst): (Range, Range)) -> u64 {
        let add = |hash, (first, last): (u16, u16)| mix(hash, u64::from(first) << 16 | u64::from(last));
        [src, dst].into_iter().flatten().fold(hash, add)
    }

    fn words(&self, entry: usize) -> &[u64] {
        &self.keys[entry * self.masks.len()..][..self.masks.len()]
    }

    /// Returns the slot at which the search for an entry begins.
    fn first_slot(&self, entry: usize) -> usize {
        let hash = self.words(entry).iter().fold(0, |hash, &word| mix(hash, word));
        self.hash_of(hash, self.entries[entry].ranges) as usize & (self.slots.len() - 1)
    }

    #[inline]
    fn is_key_of(&self, entry: usize, key: &Key) -> bool {
        self.masks.iter().zip(self.words(entry)).all(|(&(at, mask), &word)| key.word(at) & mask == word)
    }

    /// Returns the slot of the first entry for which `is_it` holds, or as an error the empty slot where the search ended.
    #[inline]
    fn probe(&self, hash: u64, is_it: impl Fn(usize) -> bool) -> Result<usize, usize> {
        let last = self.slots.len() - 1;
        let mut slot = hash as usize & last;
        loop {
            match self.slots[slot] {
                EMPTY => return Err(slot),
                entry if is_it(entry as usize) => return Ok(slot),
                _ => slot = (slot + 1) & last,
            }
        }
    }

    /// Returns the slot of the rule with this match, or as an error the empty slot where it belongs.
    fn slot_of(&self, what: &Match) -> Result<usize, usize> {
        let ranges = (what.src_ports, what.dst_ports);
        self.probe(self.hash_of(self.hash(&what.value), ranges), |entry| {
            self.entries[entry].ranges == ranges && self.is_key_of(entry, &what.value)
        })
    }

    /// Returns the handle of the rule for a packet with these fields, and the class that it chooses.
    #[inline]
    pub(super) fn find(&self, key: &Key) -> Option<(u32, Handle)> {
        let entry = match self.has_ranges() {
            false => {
                self.slots[self.probe(self.hash(key), |entry| self.is_key_of(entry, key)).ok()?] as usize
            }
            true => self.find_in_range(key)?,
        };
        let Entry { handle, class, .. } = self.entries[entry];
        Some((handle, class))
    }

    fn find_in_range(&self, key: &Key) -> Option<usize> {
        let (src, dst) = (key.short(super::key::SRC_PORT), key.short(super::key::DST_PORT));
        (0..self.entries.len()).find(|&at| {
            let Entry { handle, ranges: (sources, destinations), .. } = self.entries[at];
            within(sources, src) && within(destinations, dst) && self.is_key_of(at, key) && handle != REMOVED
        })
    }

    /// Returns the handle of the rule with this match.
    pub(super) fn handle_of(&self, what: &Match) -> Option<u32> {
        let slot = self.slot_of(what).ok()?;
        Some(self.entries[self.slots[slot] as usize].handle)
    }

    /// Adds a rule. No other rule may have its match.
    pub(super) fn insert(&mut self, what: &Match, handle: u32, class: Handle) {
        if (self.entries.len() + 1) * 2 > self.slots.len() {
            self.rebuild();
        }
        if let Err(slot) = self.slot_of(what) {
            self.slots[slot] = self.entries.len() as u32;
        }
        self.keys.extend(self.masks.iter().map(|&(at, mask)| what.value.word(at) & mask));
        self.entries.push(Entry { handle, class, ranges: (what.src_ports, what.dst_ports) });
    }

    /// Changes the rule with match `old` to match `new`, which no other rule may have, and to another class. The rule keeps
    /// its place and its handle.
    pub(super) fn change(&mut self, old: &Match, new: &Match, class: Handle) {
        let Some(entry) = self.unlink(old) else { return };
        for (word, &(at, mask)) in self.masks.iter().enumerate() {
            self.keys[entry * self.masks.len() + word] = new.value.word(at) & mask;
        }
        let Entry { class: old_class, ranges, .. } = &mut self.entries[entry];
        (*old_class, *ranges) = (class, (new.src_ports, new.dst_ports));
        if let Err(slot) = self.slot_of(new) {
            self.slots[slot] = entry as u32;
        }
    }

    /// Removes the rule with this match, if there is one.
    pub(super) fn remove(&mut self, what: &Match) {
        let Some(entry) = self.unlink(what) else { return };
        self.entries[entry].handle = REMOVED;
        self.gaps += 1;
        if self.gaps * 2 > self.entries.len() {
            self.rebuild();
        }
    }

    /// Takes the rule with this match out of its slot, and moves later entries of the probe sequence up. Returns the index
    /// of the rule's entry.
    fn unlink(&mut self, what: &Match) -> Option<usize> {
        let mut hole = self.slot_of(what).ok()?;
        let (entry, last) = (self.slots[hole] as usize, self.slots.len() - 1);
        let mut slot = hole;
        loop {
            slot = (slot + 1) & last;
            let next = self.slots[slot];
            if next == EMPTY {
                break;
            }
            // The entry may move to the hole unless its search begins behind the hole.
            if (slot.wrapping_sub(self.first_slot(next as usize)) & last) >= (slot.wrapping_sub(hole) & last)
            {
                self.slots[hole] = next;
                hole = slot;
            }
        }
        self.slots[hole] = EMPTY;
        Some(entry)
    }

    /// Closes the gaps, and rebuilds the slots with room to double the rules.
    fn rebuild(&mut self) {
        let words = self.masks.len();
        let mut kept = 0;
        for entry in 0..self.entries.len() {
            if self.entries[entry].handle != REMOVED {
                self.entries.swap(kept, entry);
                self.keys.copy_within(entry * words..(entry + 1) * words, kept * words);
                kept += 1;
            }
        }
        self.entries.truncate(kept);
        self.keys.truncate(kept * words);
        self.gaps = 0;
        self.slots.clear();
        self.slots.resize(((kept + 1) * 4).next_power_of_two(), EMPTY);
        for entry in 0..kept {
            // All entries differ, so each goes to the first empty slot.
            let (Ok(slot) | Err(slot)) = self.probe(self.first_slot(entry) as u64, |_| false);
            self.slots[slot] = entry as u32;
        }
    }
}
