//! [`OwnerRecord`]: what contention reports say of a queue's owners.

use txq_core::stats::log2::Log2;

/// The record of a queue's owners, kept in the queue's core.
#[derive(Debug, Default)]
pub(crate) struct OwnerRecord {
    pub(crate) on: bool,
    /// Packets that an owner took at a time from those that senders had queued.
    pub(crate) drained: Log2,
    pub(crate) hand_offs: u64,
}
