//! Why a packet was dropped, by the kernel's names (`enum skb_drop_reason`).

use std::fmt;
use std::ops::Add;

macro_rules! reasons {
    ($($(#[$doc:meta])* $variant:ident = $name:literal),+ $(,)?) => {
        /// Why a packet was dropped. The text form is the kernel's name, as `perf trace -e skb:kfree_skb` shows it.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        #[non_exhaustive]
        pub enum DropReason { $($(#[$doc])* $variant),+ }

        impl DropReason {
            /// All reasons, in the order of their numbers.
            pub const ALL: &'static [DropReason] = &[$(DropReason::$variant),+];

            /// Returns the kernel's name.
            pub const fn name(self) -> &'static str {
                match self { $(DropReason::$variant => $name),+ }
            }
        }
    };
}

reasons! {
    /// No reason was given.
    NotSpecified = "NOT_SPECIFIED",
    /// A qdisc dropped it without a more specific reason, or no qdisc is active.
    QdiscDrop = "QDISC_DROP",
    /// More packets waited for the queue's owner than `qdisc_max_burst` allows; the qdisc never saw this one.
    QdiscBurstDrop = "QDISC_BURST_DROP",
    /// The qdisc's limit was reached.
    QdiscOverlimit = "QDISC_OVERLIMIT",
    /// An AQM dropped it to keep the queue short.
    QdiscCongested = "QDISC_CONGESTED",
    /// Its flow does not respond to congestion signals (cake's BLUE).
    CakeFlood = "CAKE_FLOOD",
    /// Its fq band was full.
    FqBandLimit = "FQ_BAND_LIMIT",
    /// Its departure time was too far in the future.
    FqHorizonLimit = "FQ_HORIZON_LIMIT",
    /// Its fq flow was full.
    FqFlowLimit = "FQ_FLOW_LIMIT",
    /// It was queued when the queue was purged (reset, shutdown).
    QueuePurge = "QUEUE_PURGE",
    /// The device has no queue (noqueue), and its ring was full or its txq stopped.
    FullRing = "FULL_RING",
    /// The device is down or gone.
    DevReady = "DEV_READY",
    /// Drivers sent it on to each other in a loop.
    RecursionLimit = "RECURSION_LIMIT",
    /// It is longer than the device accepts.
    PktTooBig = "PKT_TOO_BIG",
    /// It is shorter than its header.
    HdrTrunc = "HDR_TRUNC",
    /// The device had no memory for it.
    NoMem = "NOMEM",
    /// The system has no route to its destination.
    IpOutnoroutes = "IP_OUTNOROUTES",
    /// The system's firewall does not let it out.
    NetfilterDrop = "NETFILTER_DROP",
    /// No program listens at its destination.
    NoSocket = "NO_SOCKET",
    /// The device does not send its protocol.
    UnhandledProto = "UNHANDLED_PROTO",
    /// A filter of the egress hook dropped it (clsact).
    TcEgress = "TC_EGRESS",
    /// A filter of the ingress hook dropped it (ingress, clsact).
    TcIngress = "TC_INGRESS",
    /// The receive buffer of its socket was full.
    SocketRcvbuff = "SOCKET_RCVBUFF",
}

impl fmt::Display for DropReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Numbers of packets, one for each [`DropReason`]. As a text and as a summand it is their total.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DropCounts([u64; DropReason::ALL.len()]);

impl DropCounts {
    /// Adds `packets` to the count of `reason`.
    #[inline]
    pub fn add(&mut self, reason: DropReason, packets: u64) {
        self.0[reason as usize] += packets;
    }

    /// Adds all counts of `other`.
    pub fn merge(&mut self, other: &DropCounts) {
        for (mine, theirs) in self.0.iter_mut().zip(other.0) {
            *mine += theirs;
        }
    }

    /// Returns what was counted after `before`, an earlier state of the same counters.
    pub(crate) fn since(&self, before: &DropCounts) -> DropCounts {
        DropCounts(std::array::from_fn(|at| self.0[at].wrapping_sub(before.0[at])))
    }

    /// Returns the number of packets dropped for `reason`.
    pub fn get(&self, reason: DropReason) -> u64 {
        self.0[reason as usize]
    }

    /// Returns the number of packets dropped for any reason.
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }

    /// Returns the reasons with counts above 0, with their counts.
    pub fn iter(&self) -> impl Iterator<Item = (DropReason, u64)> + '_ {
        DropReason::ALL.iter().map(|&r| (r, self.get(r))).filter(|&(_, n)| n > 0)
    }
}

impl fmt::Display for DropCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.total(), f)
    }
}

impl Add<DropCounts> for u64 {
    type Output = u64;

    fn add(self, drops: DropCounts) -> u64 {
        self + drops.total()
    }
}

impl Add<u64> for DropCounts {
    type Output = u64;

    fn add(self, packets: u64) -> u64 {
        self.total() + packets
    }
}
