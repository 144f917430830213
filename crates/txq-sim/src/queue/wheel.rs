//! A wheel of slots that stand for a short time each (Varghese and Lauck, "Hashed and hierarchical timing wheels", 1987). What
//! is in a slot is sorted; bits tell which slots have something.

use super::{Key, LAST, at};
use crate::machine::Picos;

/// A slot's time is 2 to the power of this, in picoseconds.
const SLOT: u32 = 8;
/// Slots: 64 words of 64.
const SLOTS: usize = 64 * 64;
/// Keys, at most.
const MOST: u16 = 1 << 13;
/// No key.
const NIL: u16 = u16::MAX;

#[derive(Debug)]
pub(super) struct Wheel {
    /// The least key; [`LAST`] when there is none.
    first: Key,
    /// The slot's time, counted from time 0, that has come. All keys are of it and the [`SLOTS`] - 1 after it.
    now: u64,
    /// Which words have a bit.
    words: u64,
    bits: [u64; 64],
    /// The first key of each slot.
    slots: Box<[u16; SLOTS]>,
    keys: Vec<(Key, u16)>,
    /// Places of keys that are gone.
    free: u16,
}

impl Wheel {
    pub(super) fn new() -> Self {
        let slots = Box::new([NIL; SLOTS]);
        Self { first: LAST, now: 0, words: 0, bits: [0; 64], slots, keys: Vec::new(), free: NIL }
    }

    /// The least key.
    #[inline]
    pub(super) fn first(&self) -> Key {
        self.first
    }

    /// Puts a key, if its time is near and there is room.
    #[inline]
    pub(super) fn put(&mut self, key: Key) -> bool {
        let time = at(key) >> SLOT;
        if time.wrapping_sub(self.now) >= SLOTS as u64 {
            return false;
        }
        let place = match self.free {
            NIL if self.keys.len() == usize::from(MOST) => return false,
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

    /// Takes the least key, which there is.
    #[inline]
    pub(super) fn take(&mut self) {
        let slot = (at(self.first) >> SLOT) as usize % SLOTS;
        let place = self.slots[slot];
        let next = std::mem::replace(&mut self.keys[usize::from(place)].1, self.free);
        self.free = place;
        self.slots[slot] = next;
        let least = if next == NIL { self.empty(slot) } else { next };
        self.first = self.keys.get(usize::from(least)).map_or(LAST, |(key, _)| *key);
    }

    /// A slot has become empty. Tells the first key of the next that is not.
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
        // The words after this one, round to itself again.
        let word = (word + 1 + self.words.rotate_right(word as u32 + 1).trailing_zeros() as usize) % 64;
        self.slots[word * 64 + self.bits[word].trailing_zeros() as usize]
    }

    /// It is so late that no key of an earlier time is left.
    #[inline]
    pub(super) fn turn(&mut self, now: Picos) {
        self.now = self.now.max(now >> SLOT);
    }
}
