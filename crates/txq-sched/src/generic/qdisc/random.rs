//! Random numbers for the qdiscs that decide by chance.

use txq_core::arch::Arch;

use crate::generic::qdisc::Env;
use crate::tc::Handle;

/// The odd number by which SplitMix64 steps: 2^64 divided by the golden ratio.
const SPLITMIX_STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// Returns the seed of a new qdisc: that of its device, or an unpredictable one, so that no sender can compute which of its
/// packets will be dropped.
pub(super) fn seed<A: Arch>(env: &Env) -> u64 {
    env.seed.unwrap_or_else(A::random)
}

/// Returns the properties of a tree's device for the qdisc below `parent`: with a seed of its own, if the tree has one. The
/// handle does not count: a qdisc draws the same numbers whether the user or the tree has chosen its handle.
pub(super) fn env_below(env: &Env, parent: Option<Handle>) -> Env {
    let place = parent.filter(|&parent| parent != Handle::ROOT).map_or(0, |parent| parent.0);
    let seed = env.seed.map(|seed| mix(seed ^ mix(place.into())));
    Env { seed, ..*env }
}

/// Mixes the bits of a number, so that any two inputs differ in about half of the output's bits (SplitMix64).
pub(crate) fn mix(number: u64) -> u64 {
    let z = number.wrapping_add(SPLITMIX_STEP);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
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
        let number = mix(self.0);
        self.0 = self.0.wrapping_add(SPLITMIX_STEP);
        (number >> 32) as u32
    }

    /// Returns a number below `bound`, which is not 0.
    pub(super) fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound)) >> 32) as u64
    }
}
