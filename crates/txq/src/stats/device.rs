//! The counters of a device.

use crate::arch::Nanos;
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
    /// Each sender's share, in the order in which they were made; of senders that are gone the last 256, and before them
    /// all others in one row.
    pub senders: Vec<SenderStats>,
}

/// What has become of one sender's packets. `accepted = sent + dropped + pending`.
///
/// `accepted`, `no_buffer` and `at_limit` are exact at any time. Packets are counted where they are dropped, and told from
/// those that were sent when their buffers are free again, for the sender that allocated them. So the other counters are
/// exact where a sender hands in its own packets, and:
///
/// - packets count as pending until the device has completed them, not until the driver has them;
/// - `pending` is that of the sender's last call of xmit less what other threads have freed since, and never more than its
///   packets that are neither sent nor dropped; buffers that it holds and has not handed in count as pending;
/// - a packet that a panic took along counts as sent;
/// - of a sender that ended with packets pending, these are told apart until another device's sender gets its place in a
///   shared pool.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SenderStats {
    /// The name that it was made with.
    pub name: String,
    /// Whether it is still there.
    pub alive: bool,
    /// Packets handed in.
    pub accepted: u64,
    /// Packets that the device has sent and completed.
    pub sent: u64,
    /// Packets dropped, for whatever reason.
    pub dropped: u64,
    /// Packets on their way, those that the device keeps among them.
    pub pending: u64,
    /// Calls of alloc that were refused because the pool had no free buffer.
    pub no_buffer: u64,
    /// Calls of alloc that were refused because the sender was at its limit.
    pub at_limit: u64,
    /// From xmit to the driver, where packets were sampled. A packet that the driver refuses counts at each attempt.
    pub latency: Option<SampledTimes>,
    /// Calls of xmit that were measured: those whose packets are sampled, or all under
    /// [`Builder::xmit_times`](crate::netdev::Builder::xmit_times).
    pub measured_calls: u64,
    /// The longest of them, in nanoseconds; `None` where none was measured.
    pub longest_call: Option<Nanos>,
}

impl SenderStats {
    /// Of a sender that has done nothing.
    pub(crate) fn named(name: &str) -> Self {
        Self { name: name.to_owned(), ..Self::default() }
    }

    /// Adds another sender's. Of times the longer ones stay.
    pub(crate) fn merge(&mut self, other: &Self) {
        self.accepted += other.accepted;
        self.sent += other.sent;
        self.dropped += other.dropped;
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

/// Times of the packets that were sampled, in nanoseconds, each with an error of at most a 16th.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SampledTimes {
    /// Packets that were sampled.
    pub samples: u64,
    /// The time that half of them do not exceed.
    pub p50: Nanos,
    /// The time that 99 % of them do not exceed.
    pub p99: Nanos,
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
