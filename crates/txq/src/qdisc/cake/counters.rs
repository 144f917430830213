//! What tc shows of a tin.

use crate::arch::Nanos;

/// Counters of one tin.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct TinStats {
    /// Arrived.
    pub(super) packets: u64,
    pub(super) bytes: u64,
    pub(super) indirect: u32,
    pub(super) misses: u32,
    pub(super) collisions: u32,
    pub(super) drops: u64,
    pub(super) ack_drops: u64,
    pub(super) longest: u64,
    /// How long packets wait: a mean that rises fast, one that does neither, and one that falls fast.
    pub(super) peak_delay: Nanos,
    pub(super) mean_delay: Nanos,
    pub(super) base_delay: Nanos,
}

impl TinStats {
    /// A packet leaves that has waited so long.
    #[inline]
    pub(super) fn delay(&mut self, delay: Nanos) {
        let towards = |mean: Nanos, shift: u32| mean - (mean >> shift) + (delay >> shift);
        self.peak_delay = towards(self.peak_delay, if delay > self.peak_delay { 2 } else { 8 });
        self.mean_delay = towards(self.mean_delay, 8);
        self.base_delay = towards(self.base_delay, if delay < self.base_delay { 2 } else { 8 });
    }
}
