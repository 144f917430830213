//! The counters of a device.

use crate::bql::BqlState;
use crate::drop::DropCounts;
use crate::txqueue::TxCounters;

/// What has become of a device's packets. At any time
/// `accepted + created = sent + dropped.total() + queued`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeviceStats {
    /// Packets handed in; a GSO packet is one.
    pub accepted: u64,
    /// Packets that qdiscs have made: copies (netem's `duplicate`), and of a GSO packet that was cut the segments but one.
    pub created: u64,
    /// Packets that the driver took and did not drop.
    pub sent: u64,
    /// Their bytes.
    pub bytes_sent: u64,
    /// Packets dropped, by reason.
    pub dropped: DropCounts,
    /// Packets on their way to the driver: waiting for a qdisc's owner, in a qdisc, or in the driver's hands.
    pub queued: u64,
    /// Times that the driver refused a packet.
    pub requeues: u64,
    /// Of the packets sent, those that the device still keeps.
    pub in_flight: u64,
    /// Each txq's share.
    pub queues: Vec<QueueStats>,
}

/// One txq's counters.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct QueueStats {
    /// The txq.
    pub txq: u16,
    /// Packets, bytes and events since the device was made.
    pub counters: TxCounters,
    /// Packets that the device keeps now.
    pub in_flight: u32,
    /// Whether the txq is stopped now.
    pub stopped: bool,
    /// Its byte queue limits, where it has some.
    pub bql: Option<BqlState>,
}
