//! Random numbers, and whether something happens that has a chance.

/// SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014).
pub(super) struct Rng(u64);

impl Rng {
    /// The same numbers for the same seed.
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(super) fn next(&mut self) -> u32 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 32) as u32
    }

    /// A number below `bound`, which is not 0.
    pub(super) fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound)) >> 32) as u64
    }

    /// Whether it happens.
    pub(super) fn happens(&mut self, chance: Percent) -> bool {
        chance.0 > 0 && self.next() <= chance.0
    }
}

/// A share of the whole, which is `u32::MAX`, as the kernel keeps it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Percent(pub(super) u32);

impl Percent {
    pub(super) const ALL: Self = Self(u32::MAX);

    /// Of 1.
    pub(super) fn share(self) -> f64 {
        f64::from(self.0) / f64::from(u32::MAX)
    }

    /// What is missing to the whole.
    pub(super) fn rest(self) -> Self {
        Self(u32::MAX - self.0)
    }
}

/// How often something happens, and how much each time depends on the time before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Odds {
    pub(super) chance: Percent,
    pub(super) correlation: Percent,
}

/// Numbers of which each is, with the chance `correlation`, the one before. So they are as evenly spread as without it,
/// and the n-th next correlates with `correlation` to the power of n.
#[derive(Default)]
pub(super) struct Correlated {
    last: Option<u32>,
}

impl Correlated {
    pub(super) fn next(&mut self, correlation: Percent, rng: &mut Rng) -> u32 {
        match self.last {
            Some(last) if rng.happens(correlation) => last,
            _ => *self.last.insert(rng.next()),
        }
    }

    /// Whether it happens.
    pub(super) fn happens(&mut self, odds: Odds, rng: &mut Rng) -> bool {
        odds.chance.0 > 0 && self.next(odds.correlation, rng) <= odds.chance.0
    }
}
