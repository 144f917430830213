//! A wheel of slots, each of which covers a short time (Varghese and Lauck, "Hashed and hierarchical timing wheels", 1987).
//! The keys of a slot are sorted; a bitmap marks non-empty slots.

use super::{Key, LAST_KEY, at};
use crate::sim::machine::Picos;

/// A slot covers 2 to the power of this, in picoseconds.
const SLOT: u32 = 8;
/// Number of slots: 64 words of 64 bits.
const SLOTS: usize = 64 * 64;
/// Maximum number of keys.
const MAX_KEYS: u16 = 1 << 13;
/// No key.
const NIL: u16 = u16::MAX;

#[derive(Debug)]
pub(super) struct Wheel {
    /// The least key; [`LAST_KEY`] when there is none.
    first: Key,
    /// The current time in slots, counted from time 0. All keys belong to this slot and the [`SLOTS`] - 1 after it.
    now: u64,
    /// Bitmap of the non-zero words of `bits`.
    words: u64,
    bits: [u64; 64],
    /// Index of the first key of each slot.
    slots: Box<[u16; SLOTS]>,
    keys: Vec<(Key, u16)>,
    /// Head of the list of unused keys.
    free: u16,
}

impl Wheel {
    pub(super) fn new() -> Self {
        let slots = Box::new([NIL; SLOTS]);
        Self { first: LAST_KEY, now: 0, words: 0, bits: [0; 64], slots, keys: Vec::new(), free: NIL }
    }

    /// Returns the least key, or [`LAST_KEY`].
    #[inline]
    pub(super) fn first(&self) -> Key {
        self.first
    }

    /// Inserts a key if its time is near and there is room; returns whether it did.
    #[inline]
    pub(super) fn put(&mut self, key: Key) -> bool {
        let time = at(key) >> SLOT;
        if time.wrapping_sub(self.now) >= SLOTS as u64 {
            return false;
        }
        let place = match self.free {
            NIL if self.keys.len() == usize::from(MAX_KEYS) => return false,
            NIL => {
                self.keys.push((key, NIL));
                self.keys.len() as u16 - 1
            }
            free => {
                self.free = self.keys[usize::from(free)].1;
                free
            }
        };
        let slot = time as usize % SLOTS;
        let (mut before, mut after) = (NIL, self.slots[slot]);
        while after != NIL && self.keys[usize::from(after)].0 < key {
            (before, after) = (after, self.keys[usize::from(after)].1);
        }
        self.keys[usize::from(place)] = (key, after);
        match before {
            NIL => self.slots[slot] = place,
            before => self.keys[usize::from(before)].1 = place,
        }
        self.bits[slot / 64] |= 1 << (slot % 64);
        self.words |= 1 << (slot / 64);
        self.first = self.first.min(key);
        true
    }

    /// Removes the least key, which must exist.
    #[inline]
    pub(super) fn take(&mut self) {
        let slot = (at(self.first) >> SLOT) as usize % SLOTS;
        let place = self.slots[slot];
        let next = std::mem::replace(&mut self.keys[usize::from(place)].1, self.free);
        self.free = place;
        self.slots[slot] = next;
        let least = if next == NIL { self.empty(slot) } else { next };
        self.first = self.keys.get(usize::from(least)).map_or(LAST_KEY, |(key, _)| *key);
    }

    /// Marks a slot as empty; returns the first key of the next slot that is not.
    #[inline]
    fn empty(&mut self, slot: usize) -> u16 {
        let (word, bit) = (slot / 64, slot % 64);
        self.bits[word] &= !(1 << bit);
        let later = self.bits[word] >> bit << bit;
        if later != 0 {
            return self.slots[word * 64 + later.trailing_zeros() as usize];
        }
        if self.bits[word] == 0 {
            self.words &= !(1 << word);
        }
        if self.words == 0 {
            return NIL;
        }
        // The next non-zero word, cyclically; the last candidate is this word itself.
        let word = (word + 1 + self.words.rotate_right(word as u32 + 1).trailing_zeros() as usize) % 64;
        self.slots[word * 64 + self.bits[word].trailing_zeros() as usize]
    }

    /// Advances the current time; the caller has removed all earlier keys.
    #[inline]
    pub(super) fn turn(&mut self, now: Picos) {
        self.now = self.now.max(now >> SLOT);
    }
}
