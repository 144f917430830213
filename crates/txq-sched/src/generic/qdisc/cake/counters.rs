//! Counters that tc shows: those of each tin, and the sizes of all packets.

use txq_core::arch::Nanos;

use crate::generic::qdisc::cake::shaper::Wire;

/// Counters of one tin.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct TinStats {
    /// Packets that arrived, and their bytes.
    pub(super) packets: u64,
    pub(super) bytes: u64,
    /// Packets whose flow was found in another queue of its set, got a free queue, or had to share one.
    pub(super) indirect: u32,
    pub(super) misses: u32,
    pub(super) collisions: u32,
    /// Packets dropped, except by the ACK filter.
    pub(super) drops: u64,
    /// Packets dropped by the ACK filter.
    pub(super) ack_drops: u64,
    /// The longest packet, in bytes.
    pub(super) longest: u64,
    /// Moving means of the packets' delay: one rises fast, one is symmetric, and one falls fast.
    pub(super) peak_delay: Nanos,
    pub(super) mean_delay: Nanos,
    pub(super) base_delay: Nanos,
}

impl TinStats {
    /// Counts the delay of a packet that leaves.
    #[inline]
    pub(super) fn delay(&mut self, delay: Nanos) {
        let towards = |mean: Nanos, shift: u32| mean - (mean >> shift) + (delay >> shift);
        self.peak_delay = towards(self.peak_delay, if delay > self.peak_delay { 2 } else { 8 });
        self.mean_delay = towards(self.mean_delay, 8);
        self.base_delay = towards(self.base_delay, if delay < self.base_delay { 2 } else { 8 });
    }
}

/// The sizes of all packets so far, in bytes.
pub(super) struct Sizes {
    /// The shortest and the longest packet, before and after the link's overhead.
    pub(super) network: (u64, u64),
    pub(super) adjusted: (u64, u64),
    /// Moving mean of the network header's offset, in units of 2^-16 byte.
    pub(super) offset: u64,
}

impl Sizes {
    pub(super) const NONE: Self = Self { network: (65535, 0), adjusted: (65535, 0), offset: 0 };

    /// Counts the sizes of a packet that arrives.
    #[inline]
    pub(super) fn see(&mut self, wire: &Wire) {
        let see = |all: &mut (u64, u64), one: (u64, u64)| *all = (all.0.min(one.0), all.1.max(one.1));
        see(&mut self.network, wire.network);
        see(&mut self.adjusted, wire.adjusted);
        self.offset = self.offset - (self.offset >> 8) + (wire.offset << 8);
    }
}
