//! The rules of one set of masks, in a hash table.
//!
//! Only the words of the key that the masks let anything of through are kept and hashed. The table has at least twice as
//! many slots as rules, and probes on to the next. Packets choose keys to look up, not those in the table, so the
//! hash need not be secret.
//!
//! Rules with port ranges are compared one by one, in their order; for them the table only finds a rule by what it matches. A
//! rule that goes leaves a gap in that order, and the gaps are closed once there are more gaps than rules, so adding, changing
//! and removing cost constant time, amortised.

use super::key::{Key, Match, Range, WORDS};
use crate::tc::Handle;

/// An empty slot.
const EMPTY: u32 = u32::MAX;

/// The handle of a rule that has gone.
const GONE: u32 = 0;

struct Entry {
    /// [`GONE`] for a gap.
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
    /// In the order in which they came, with gaps.
    entries: Vec<Entry>,
    /// How many of them are gaps.
    gaps: usize,
    /// Indices of entries; a power of two of them. No slot holds a gap.
    slots: Vec<u32>,
}

/// Adds a word to a hash.
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
        let masks = (0..WORDS).map(|at| (at, of.mask.word(at))).filter(|&(_, mask)| mask != 0).collect();
        Self { of: of.clone(), masks, keys: Vec::new(), entries: Vec::new(), gaps: 0, slots: vec![EMPTY; 4] }
    }

    /// Whether rules with these masks belong here.
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

    /// The hash of what a rule matches.
    fn hash_of(&self, hash: u64, (src, dst): (Range, Range)) -> u64 {
        let add = |hash, (first, last): (u16, u16)| mix(hash, u64::from(first) << 16 | u64::from(last));
        [src, dst].into_iter().flatten().fold(hash, add)
    }

    fn words(&self, entry: usize) -> &[u64] {
        &self.keys[entry * self.masks.len()..][..self.masks.len()]
    }

    /// The slot that an entry is looked for at first.
    fn first_slot(&self, entry: usize) -> usize {
        let hash = self.words(entry).iter().fold(0, |hash, &word| mix(hash, word));
        self.hash_of(hash, self.entries[entry].ranges) as usize & (self.slots.len() - 1)
    }

    #[inline]
    fn is_key_of(&self, entry: usize, key: &Key) -> bool {
        self.masks.iter().zip(self.words(entry)).all(|(&(at, mask), &word)| key.word(at) & mask == word)
    }

    /// The slot of an entry that `is_it` holds of, or the empty one that it would have.
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

    /// The slot of the rule for the very same packets, or the one that it would have.
    fn slot_of(&self, what: &Match) -> Result<usize, usize> {
        let ranges = (what.src_ports, what.dst_ports);
        self.probe(self.hash_of(self.hash(&what.value), ranges), |entry| {
            self.entries[entry].ranges == ranges && self.is_key_of(entry, &what.value)
        })
    }

    /// The class of a packet with these fields.
    #[inline]
    pub(super) fn find(&self, key: &Key) -> Option<Handle> {
        let entry = match self.has_ranges() {
            false => {
                self.slots[self.probe(self.hash(key), |entry| self.is_key_of(entry, key)).ok()?] as usize
            }
            true => self.find_in_range(key)?,
        };
        Some(self.entries[entry].class)
    }

    fn find_in_range(&self, key: &Key) -> Option<usize> {
        let (src, dst) = (key.short(super::key::SRC_PORT), key.short(super::key::DST_PORT));
        (0..self.entries.len()).find(|&at| {
            let Entry { handle, ranges: (sources, destinations), .. } = self.entries[at];
            within(sources, src) && within(destinations, dst) && self.is_key_of(at, key) && handle != GONE
        })
    }

    /// The handle of the rule for the very same packets.
    pub(super) fn handle_of(&self, what: &Match) -> Option<u32> {
        let slot = self.slot_of(what).ok()?;
        Some(self.entries[self.slots[slot] as usize].handle)
    }

    /// Adds a rule for packets that no other is for.
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

    /// Changes the rule for `old` to one for `new`, packets that no other rule is for, and to another class. It keeps its place
    /// and its handle.
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

    /// Removes the rule for these packets, if it is here.
    pub(super) fn remove(&mut self, what: &Match) {
        let Some(entry) = self.unlink(what) else { return };
        self.entries[entry].handle = GONE;
        self.gaps += 1;
        if self.gaps * 2 > self.entries.len() {
            self.rebuild();
        }
    }

    /// Takes the rule for these packets out of its slot, and closes up those behind it. Returns its entry.
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
            // It may move to the hole unless it is first looked for behind that.
            if (slot.wrapping_sub(self.first_slot(next as usize)) & last) >= (slot.wrapping_sub(hole) & last)
            {
                self.slots[hole] = next;
                hole = slot;
            }
        }
        self.slots[hole] = EMPTY;
        Some(entry)
    }

    /// Closes the gaps, and makes as many slots as the rules and as many again want.
    fn rebuild(&mut self) {
        let words = self.masks.len();
        let mut kept = 0;
        for entry in 0..self.entries.len() {
            if self.entries[entry].handle != GONE {
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
            // All are different, so the first empty slot is the one.
            let (Ok(slot) | Err(slot)) = self.probe(self.first_slot(entry) as u64, |_| false);
            self.slots[slot] = entry as u32;
        }
    }
}
