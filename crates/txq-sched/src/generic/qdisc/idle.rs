//! Leaves that have been used, for a parent that takes back the memory of those that stay idle.
//!
//! An fq_codel allocates 1,024 queues for its first packet, and each of thousands of leaves may have had one. A leaf that becomes empty
//! is likely to have packets again soon, so its parent sweeps the used leaves a few at a time, each once in [`ROUND`]. A leaf that
//! was idle at two sweeps, and not used between them, gives its memory back. A parent without traffic sweeps no leaf.

use txq_core::arch::Nanos;

/// How long a round through all used leaves takes, while packets leave.
const ROUND: Nanos = 2_000_000_000;
/// The leaves of one sweep.
const LEAVES_PER_SWEEP: usize = 2;

/// Whether a leaf may have memory to give back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Warmth {
    /// Its kind has none.
    Never,
    /// It has none, and is in no [`Idle`].
    Cold,
    /// It has not been used since the last sweep.
    Seen,
    /// It has been used since the last sweep.
    Used,
}

/// The ids of the leaves to sweep.
#[derive(Debug, Default)]
pub(super) struct Idle {
    ids: Vec<u32>,
    /// The place in `ids` of the next one.
    next: usize,
    /// When the next sweep is due.
    at: Nanos,
}

impl Idle {
    /// Adds a leaf.
    pub(super) fn add(&mut self, id: u32) {
        self.ids.push(id);
    }

    /// Returns whether a sweep is due.
    #[inline]
    pub(super) fn is_due(&self, now: Nanos) -> bool {
        now >= self.at && !self.ids.is_empty()
    }

    /// Calls `keep` with the next leaves, and forgets those for which it returns false.
    pub(super) fn sweep(&mut self, now: Nanos, mut keep: impl FnMut(u32) -> bool) {
        let steps = self.ids.len().div_ceil(LEAVES_PER_SWEEP) as Nanos;
        // A parent that was not called for a while catches up, but not with a long pause.
        self.at = self.at.max(now.saturating_sub(ROUND / 4)) + ROUND / steps.max(1);
        for _ in 0..LEAVES_PER_SWEEP.min(self.ids.len()) {
            if self.next >= self.ids.len() {
                self.next = 0;
            }
            if keep(self.ids[self.next]) {
                self.next += 1;
            } else {
                self.ids.swap_remove(self.next);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_leaf_is_swept_once_in_a_round() {
        let mut idle = Idle::default();
        assert!(!idle.is_due(Nanos::MAX));
        (0..101).for_each(|id| idle.add(id));
        let mut sweeps = vec![0; 101];
        for now in (0..2 * ROUND).step_by(1_000_000) {
            if idle.is_due(now) {
                idle.sweep(now, |id| {
                    sweeps[id as usize] += 1;
                    true
                });
            }
        }
        assert!(sweeps.iter().all(|sweeps| (2..=3).contains(sweeps)), "{sweeps:?}");
        // A pause is not made up for.
        let mut calls = 0;
        while idle.is_due(100 * ROUND) {
            idle.sweep(100 * ROUND, |_| true);
            calls += 1;
        }
        assert!((10..=15).contains(&calls), "a quarter of a round: {calls}");
        // Of the first round's leaves, those with odd numbers go.
        let mut left = 0;
        for now in (101 * ROUND..105 * ROUND).step_by(1_000_000) {
            if idle.is_due(now) {
                idle.sweep(now, |id| {
                    left += 1;
                    id % 2 == 0
                });
            }
        }
        assert!((101 + 51..=101 + 51 * 6).contains(&left) && idle.ids.len() == 51, "{left}");
    }
}
