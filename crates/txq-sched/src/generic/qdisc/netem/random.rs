//! Random decisions: whether an event of a given chance happens.

use crate::generic::qdisc::random::Rng;

impl Rng {
    /// Decides whether an event with this chance happens.
    pub(super) fn happens(&mut self, chance: Percent) -> bool {
        chance.0 > 0 && self.next() <= chance.0
    }
}

/// A share of the whole, which is `u32::MAX`, as the kernel keeps it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Percent(pub(super) u32);

impl Percent {
    pub(super) const ALL: Self = Self(u32::MAX);

    /// Returns the share as a number from 0 to 1.
    pub(super) fn share(self) -> f64 {
        f64::from(self.0) / f64::from(u32::MAX)
    }

    /// Returns the whole minus this share.
    pub(super) fn rest(self) -> Self {
        Self(u32::MAX - self.0)
    }
}

/// The chance of an event, and how much each decision depends on the one before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Odds {
    pub(super) chance: Percent,
    pub(super) correlation: Percent,
}

/// A source of correlated numbers: each number is, with the chance `correlation`, the same as the one before. So the numbers
/// are as evenly spread as without correlation, and two that are n apart correlate with `correlation` to the power of n.
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

    /// Decides whether an event with these odds happens.
    pub(super) fn happens(&mut self, odds: Odds, rng: &mut Rng) -> bool {
        odds.chance.0 > 0 && self.next(odds.correlation, rng) <= odds.chance.0
    }
}
