//! Random numbers for the qdiscs that decide by chance.

use txq_core::arch::Arch;

/// Returns the seed of a new qdisc, unpredictable: no sender can compute which of its packets will be dropped. In the tests of
/// this crate it is the same for each qdisc, unless a test asks for [`testing::unpredictable`].
pub(super) fn seed<A: Arch>() -> u64 {
    #[cfg(test)]
    if let Some(seed) = testing::SEED.get() {
        return seed;
    }
    A::random()
}

/// A generator of random numbers: SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014).
pub(super) struct Rng(u64);

impl Rng {
    /// Returns a generator; the same seed gives the same numbers.
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns the next number, of 32 bits.
    pub(super) fn next(&mut self) -> u32 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 32) as u32
    }

    /// Returns a number below `bound`, which is not 0.
    pub(super) fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound)) >> 32) as u64
    }
}

#[cfg(test)]
pub(super) mod testing {
    //! The seed in tests.

    use std::cell::Cell;

    thread_local! {
        /// The seed of the qdiscs that this thread creates; `None` for an unpredictable one each.
        pub(super) static SEED: Cell<Option<u64>> = const { Cell::new(Some(1)) };
    }

    /// Calls `f`, during which each new qdisc gets a seed of its own, as in a program.
    pub(in crate::generic::qdisc) fn unpredictable<R>(f: impl FnOnce() -> R) -> R {
        let before = SEED.replace(None);
        let result = f();
        SEED.set(before);
        result
    }
}
