//! Errors of device construction and of the audit.

use std::io;

use thiserror::Error;

use txq_core::pool::PoolError;
use txq_sched::tc::ParseError;

use crate::generic::bql::BqlError;
use crate::generic::stats::device::DeviceStats;
use crate::xps::XpsError;

/// Why a device cannot be built.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum BuildError {
    /// More txqs were requested than the device has, or none.
    #[error("device \"{device}\" has {max} txqs, not {asked}: use 1 to {max}")]
    Txqs {
        /// The device.
        device: String,
        /// How many txqs it has.
        max: u16,
        /// How many were requested.
        asked: u16,
    },
    /// The text of a qdisc is wrong.
    #[error("qdisc \"{text}\": {source}")]
    Qdisc {
        /// The text.
        text: String,
        /// The problem with it.
        source: ParseError,
    },
    /// A qdisc was given for a txq that has none of its own.
    #[error("qdisc \"{text}\" for txq {txq}: {why}")]
    Child {
        /// The text.
        text: String,
        /// The txq.
        txq: u16,
        /// The problem with it.
        why: String,
    },
    /// A map does not fit the device.
    #[error(transparent)]
    Xps(#[from] XpsError),
    /// There would be no worker for the queues.
    #[error("0 workers cannot serve any queue: use at least 1")]
    Workers,
    /// A txq is assigned to a worker that does not exist, or not every txq is assigned to one.
    #[error(
        "the affinity {map:?} is not for {txqs} txqs and {workers} workers: name a worker from 0 to {} for each txq",
        .workers - 1
    )]
    Affinity {
        /// The requested affinity.
        map: Vec<usize>,
        /// The device's txqs.
        txqs: u16,
        /// Its workers.
        workers: usize,
    },
    /// A byte queue limit is out of range.
    #[error("byte queue limits: {0}")]
    Bql(#[from] BqlError),
    /// The pool cannot be created.
    #[error(transparent)]
    Pool(#[from] PoolError),
    /// The device does not open.
    #[error("device \"{device}\", txq {txq}: {source}")]
    Open {
        /// The device.
        device: String,
        /// The txq.
        txq: u16,
        /// What the system says.
        source: io::Error,
    },
    /// A txq's ring has no room.
    #[error(
        "device \"{device}\", txq {txq}: a ring of 0 packets sends nothing: use at least 1, or none if the device keeps no packets"
    )]
    Ring {
        /// The device.
        device: String,
        /// The txq.
        txq: u16,
    },
    /// A worker's thread does not start.
    #[error("a worker thread does not start: {0}")]
    Thread(io::Error),
}

/// The wrong sum of a device's counters that [`NetDev::audit`](crate::NetDev::audit) has found. Each variant has all counters.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum AuditError {
    /// Packets of the device are missing or counted twice: `accepted + created` is not `sent + dropped + queued`.
    #[error(
        "accepted {} + created {} is not sent + dropped + queued {accounted}: {stats:?}",
        .stats.accepted, .stats.created
    )]
    #[non_exhaustive]
    Packets {
        /// `sent + dropped + queued`.
        accounted: u64,
        /// The counters.
        stats: Box<DeviceStats>,
    },
    /// The device is idle, and yet packets count as queued.
    #[error("{} packets are queued and yet none is on its way: {stats:?}", .stats.queued)]
    #[non_exhaustive]
    Queued {
        /// The counters.
        stats: Box<DeviceStats>,
    },
    /// The device is idle, and its txqs have sent other packets or bytes than its queues.
    #[error("the txqs have sent ({packets}, {bytes}) packets and bytes: {stats:?}")]
    #[non_exhaustive]
    Sent {
        /// The packets that all txqs have sent.
        packets: u64,
        /// The bytes that all txqs have sent.
        bytes: u64,
        /// The counters.
        stats: Box<DeviceStats>,
    },
    /// The device is idle, and yet bytes count as in flight on a txq.
    #[error("nothing is in flight on txq {txq} but bytes: {stats:?}")]
    #[non_exhaustive]
    BytesInFlight {
        /// The txq.
        txq: u16,
        /// The bytes, as its byte queue limits count them.
        bytes: u32,
        /// The counters.
        stats: Box<DeviceStats>,
    },
}

impl AuditError {
    /// Returns all counters, as the audit read them; without rows of senders.
    pub fn stats(&self) -> &DeviceStats {
        match self {
            Self::Packets { stats, .. }
            | Self::Queued { stats }
            | Self::Sent { stats, .. }
            | Self::BytesInFlight { stats, .. } => stats,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_audit_names_the_wrong_sum() {
        let stats = || Box::new(DeviceStats { accepted: 7, created: 1, queued: 3, ..DeviceStats::default() });
        let all = format!("{:?}", stats());
        for (error, text) in [
            (
                AuditError::Packets { accounted: 9, stats: stats() },
                "accepted 7 + created 1 is not sent + dropped + queued 9: ",
            ),
            (AuditError::Queued { stats: stats() }, "3 packets are queued and yet none is on its way: "),
            (
                AuditError::Sent { packets: 4, bytes: 400, stats: stats() },
                "the txqs have sent (4, 400) packets and bytes: ",
            ),
            (
                AuditError::BytesInFlight { txq: 2, bytes: 60, stats: stats() },
                "nothing is in flight on txq 2 but bytes: ",
            ),
        ] {
            assert_eq!(error.to_string(), format!("{text}{all}"));
            assert_eq!(error.stats(), &*stats());
        }
    }
}
