//! Counters: those that `tc -s` prints, and those of the report.

pub mod contention;
pub mod latency;
pub mod log2;

/// The counters of one qdisc, with the kernel's meaning (`gnet_stats_basic`, `gnet_stats_queue`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QdiscStats {
    /// Bytes dequeued (`Sent B bytes`).
    pub bytes: u64,
    /// Packets dequeued, each GSO packet counted as its segments (`Sent .. P pkt`).
    pub packets: u64,
    /// Packets dropped by the qdisc.
    pub drops: u64,
    /// Number of times that the qdisc delayed a packet to keep to a rate.
    pub overlimits: u64,
    /// Packets that the driver refused, or that were dequeued for a stopped txq.
    pub requeues: u64,
    /// Bytes now queued.
    pub backlog: u64,
    /// Packets now queued.
    pub qlen: u64,
}

impl QdiscStats {
    /// Counts packets as dequeued; wraps. A packet that bypassed one queue and was refused may be requeued to another queue.
    /// Then the counters of one queue are below zero, and the sum of both is right.
    #[inline]
    pub fn count_sent(&mut self, packets: u64, bytes: u64) {
        self.packets = self.packets.wrapping_add(packets);
        self.bytes = self.bytes.wrapping_add(bytes);
    }
}

impl std::ops::Add for QdiscStats {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            // Wrapping: one summand may be below zero (`count_sent`).
            bytes: self.bytes.wrapping_add(other.bytes),
            packets: self.packets.wrapping_add(other.packets),
            drops: self.drops + other.drops,
            overlimits: self.overlimits + other.overlimits,
            requeues: self.requeues + other.requeues,
            backlog: self.backlog + other.backlog,
            qlen: self.qlen + other.qlen,
        }
    }
}
