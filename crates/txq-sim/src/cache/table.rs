//! Which line has which number: a hash table that only grows. It is never walked, so where things lie in it, which depends
//! on addresses, is nowhere seen.

/// A key that no line has.
const EMPTY: u64 = u64::MAX;

pub(super) struct Table {
    /// Key and number.
    slots: Box<[(u64, u32)]>,
    used: usize,
}

impl Table {
    pub(super) fn new() -> Self {
        Self { slots: vec![(EMPTY, 0); 1 << 14].into(), used: 0 }
    }

    #[inline]
    fn place(&self, key: u64) -> usize {
        // Fibonacci hashing: addresses differ in their low bits, the product in its high ones.
        (key.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (64 - self.slots.len().trailing_zeros())) as usize
    }

    /// The number of `key`, which becomes `new` if it has none yet.
    #[inline]
    pub(super) fn find_or(&mut self, key: u64, new: u32) -> u32 {
        let mut i = self.place(key);
        loop {
            let (k, number) = self.slots[i];
            if k == key {
                return number;
            }
            if k == EMPTY {
                break;
            }
            i = (i + 1) & (self.slots.len() - 1);
        }
        self.slots[i] = (key, new);
        self.used += 1;
        if self.used * 2 > self.slots.len() {
            self.grow();
        }
        new
    }

    #[cold]
    fn grow(&mut self) {
        let larger = vec![(EMPTY, 0); self.slots.len() * 2].into();
        let old = std::mem::replace(&mut self.slots, larger);
        for &(key, number) in old.iter().filter(|(key, _)| *key != EMPTY) {
            let mut i = self.place(key);
            while self.slots[i].0 != EMPTY {
                i = (i + 1) & (self.slots.len() - 1);
            }
            self.slots[i] = (key, number);
        }
    }
}
