//! What tc shows of a tin, and of all packets.

use crate::arch::Nanos;
use crate::qdisc::cake::shaper::Wire;

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

/// The sizes of packets so far.
pub(super) struct Sizes {
    /// The shortest and the longest: before the link adds to it, and after.
    pub(super) network: (u64, u64),
    pub(super) adjusted: (u64, u64),
    /// The mean of where network headers are, with 16 bits of a fraction.
    pub(super) offset: u64,
}

impl Sizes {
    pub(super) const NONE: Self = Self { network: (65535, 0), adjusted: (65535, 0), offset: 0 };

    /// A packet arrives.
    #[inline]
    pub(super) fn see(&mut self, wire: &Wire) {
        let see = |all: &mut (u64, u64), one: (u64, u64)| *all = (all.0.min(one.0), all.1.max(one.1));
        see(&mut self.network, wire.network);
        see(&mut self.adjusted, wire.adjusted);
        self.offset = self.offset - (self.offset >> 8) + (wire.offset << 8);
    }
}
