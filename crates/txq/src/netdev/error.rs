//! Errors of device construction.

use std::io;

use thiserror::Error;

use txq_core::pool::PoolError;
use txq_sched::tc::ParseError;

use crate::bql::BqlError;
use crate::xps::XpsError;

/// Why a device cannot be built.
#[derive(Debug, Error)]
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
    #[error("0 workers cannot look after any queue: use at least 1")]
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
