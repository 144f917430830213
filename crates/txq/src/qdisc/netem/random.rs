//! Whether something happens that has a chance.

use crate::qdisc::random::Rng;

impl Rng {
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
