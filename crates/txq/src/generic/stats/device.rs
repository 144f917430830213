//! The counters of a device.

use std::time::Duration;

use txq_core::drop::DropCounts;

use crate::generic::bql::BqlState;
use crate::generic::txqueue::TxCounters;

/// The counters of a device's packets. At any time `accepted + created = sent + dropped + queued`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeviceStats {
    /// Packets handed in; a GSO packet is one.
    pub accepted: u64,
    /// Packets that qdiscs created: copies (netem's `duplicate`), and for a GSO packet that was cut all segments but one.
    pub created: u64,
    /// Packets that the driver took and did not drop.
    pub sent: u64,
    /// Their bytes.
    pub bytes_sent: u64,
    /// Of the packets sent, those that the driver handed on to another device, which counts them as accepted.
    pub handed_on: u64,
    /// Packets dropped, by reason. As a text and as a summand it is the number of packets.
    pub dropped: DropCounts,
    /// Packets on their way to the driver: waiting for a qdisc's owner, in a qdisc, or in a call of the driver.
    pub queued: u64,
    /// Number of times that the driver refused a packet.
    pub requeues: u64,
    /// Queues with packets in them that an owner left to a worker: at the end of its quota, or of its time.
    pub hand_offs: u64,
    /// Packets sent that the device still keeps.
    pub in_flight: u64,
    /// The counters of each txq.
    pub queues: Vec<QueueStats>,
    /// The counters of each sender, in the order of creation. Of the senders that are gone, the last 256 have a row each;
    /// one row before them has the sum of all others.
    pub senders: Vec<SenderStats>,
}

impl DeviceStats {
    /// Adds the rows of the senders, which were read before these counters.
    pub(crate) fn with_senders(self, mut senders: Vec<SenderStats>) -> Self {
        let under_way = self.queued.saturating_add(self.in_flight);
        for row in &mut senders {
            // Buffers that the sender holds: a receiver keeps a stock of them.
            let held = row.pending.saturating_sub(under_way);
            row.pending -= held;
            row.sent += held;
        }
        Self { senders, ..self }
    }
}

/// The counters of one sender's packets. `accepted = sent + dropped + pending`.
///
/// `accepted`, `no_buffer` and `at_limit` are exact at any time. A drop is counted where it happens, for the sender that
/// allocated the packet. A packet whose buffer is free again and that was not dropped was sent. So the other counters are
/// exact if a sender hands in only its own packets, and:
///
/// - packets count as pending until the device has completed them, not only until the driver has taken them;
/// - `pending` is the value at the sender's last call of xmit less the packets that other threads have freed since, and
///   never more than the packets neither sent nor dropped, nor than those that the device has queued or in flight; while it
///   has some, buffers that the sender holds and has not handed in count as pending;
/// - a packet lost in a panic counts as sent;
/// - packets pending when their sender ended are still counted as sent or dropped. In a pool that devices share, one that was
///   dropped after the last update may count as sent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SenderStats {
    /// The name that the sender was created with.
    pub name: String,
    /// Whether the sender still exists.
    pub alive: bool,
    /// Packets handed in.
    pub accepted: u64,
    /// Packets that the device has sent and completed.
    pub sent: u64,
    /// Packets dropped, for any reason.
    pub dropped: u64,
    /// The same by reason.
    pub drops: DropCounts,
    /// Packets on their way, including those that the device keeps.
    pub pending: u64,
    /// Calls of alloc that failed because the pool had no free buffer.
    pub no_buffer: u64,
    /// Calls of alloc that failed because the sender was at its limit.
    pub at_limit: u64,
    /// Times from xmit to the driver, if packets were sampled. A packet that the driver refuses counts at each attempt.
    pub latency: Option<SampledTimes>,
    /// Calls of xmit that were measured: those whose packets are sampled, or all under
    /// [`Builder::xmit_times`](crate::generic::netdev::Builder::xmit_times).
    pub measured_calls: u64,
    /// The longest of these calls; `None` if none was measured.
    pub longest_call: Option<Duration>,
}

impl SenderStats {
    /// Returns the counters of a sender that has done nothing.
    pub(crate) fn named(name: &str) -> Self {
        Self { name: name.to_owned(), ..Self::default() }
    }

    /// Ends the row of a sender that is gone, and that had so many drops: its other packets were sent.
    pub(crate) fn end(&mut self, drops: DropCounts) {
        self.drops = drops;
        self.dropped = drops.total().min(self.accepted);
        (self.sent, self.pending) = (self.accepted - self.dropped, 0);
    }

    /// Adds another sender's counters. Of each time the longer one stays.
    pub(crate) fn merge(&mut self, other: &Self) {
        self.accepted += other.accepted;
        self.sent += other.sent;
        self.dropped += other.dropped;
        self.drops.merge(&other.drops);
        self.pending += other.pending;
        self.no_buffer += other.no_buffer;
        self.at_limit += other.at_limit;
        self.latency = match (self.latency, other.latency) {
            (Some(a), Some(b)) => Some(SampledTimes {
                samples: a.samples + b.samples,
                p50: a.p50.max(b.p50),
                p99: a.p99.max(b.p99),
            }),
            (a, b) => a.or(b),
        };
        self.measured_calls += other.measured_calls;
        self.longest_call = self.longest_call.max(other.longest_call);
    }
}

/// Times of the sampled packets, each with a relative error of at most 1/16.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct SampledTimes {
    /// Packets that were sampled.
    pub samples: u64,
    /// The time that half of the samples do not exceed.
    pub p50: Duration,
    /// The time that 99 % of the samples do not exceed.
    pub p99: Duration,
}

/// One txq's counters.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct QueueStats {
    /// The txq.
    pub txq: u16,
    /// Packets, bytes and events since the device was created.
    pub counters: TxCounters,
    /// Packets that the device keeps now.
    pub in_flight: u32,
    /// Whether the txq is stopped now.
    pub stopped: bool,
    /// Its byte queue limits, if it has them.
    pub bql: Option<BqlState>,
}
