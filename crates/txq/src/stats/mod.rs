//! Counters: the ones that `tc -s` prints and the ones behind the report.

pub mod device;
pub mod latency;

/// The counters of one qdisc, with the meaning the kernel gives them (`gnet_stats_basic`, `gnet_stats_queue`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QdiscStats {
    /// Bytes dequeued (`Sent B bytes`).
    pub bytes: u64,
    /// Packets dequeued, each GSO packet counted as its segments (`Sent .. P pkt`).
    pub packets: u64,
    /// Packets dropped by the qdisc.
    pub drops: u64,
    /// Times the qdisc held back a packet to keep to a rate.
    pub overlimits: u64,
    /// Packets given back by the driver or found on a stopped txq.
    pub requeues: u64,
    /// Bytes now queued.
    pub backlog: u64,
    /// Packets now queued.
    pub qlen: u64,
}

impl std::ops::Add for QdiscStats {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            // Wrapping: what one part lacks another has in excess.
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
