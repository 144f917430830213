//! Packets that senders drop because the qdisc has no room, without owning the queue. They count as the qdisc's own drops.

use std::sync::atomic::Ordering::Relaxed;

use crossbeam_utils::CachePadded;

use txq_core::arch::{Arch, Atomic};
use txq_core::drop::DropReason;
use txq_core::packet::PacketList;

use crate::generic::datapath::Ctx;

/// Number of counters, a power of two.
const SHARDS: usize = 8;

/// Packets dropped, by the sender's CPU modulo [`SHARDS`]. Senders add to a counter; the owner of the core reads and clears
/// it. Relaxed: a count orders nothing.
pub(super) struct Refused<A: Arch>(Box<[CachePadded<A::AtomicU64>]>);

impl<A: Arch> Refused<A> {
    pub(super) fn new() -> Self {
        Self((0..SHARDS).map(|_| CachePadded::new(A::AtomicU64::new(0))).collect())
    }

    /// Counts and frees a batch.
    pub(super) fn drop_batch(&self, batch: &mut PacketList<A>, cx: &mut Ctx<'_, A>) {
        self.0[A::cpu() as usize % SHARDS].fetch_add(batch.len() as u64, Relaxed);
        batch.for_each_mut(|p| p.set_drop_reason(DropReason::QdiscOverlimit));
        cx.free_list(batch);
    }

    /// Returns the number of packets dropped since the last call.
    pub(super) fn take(&self) -> u64 {
        self.0.iter().map(|n| n.swap(0, Relaxed)).sum()
    }

    /// Names the counters' lines ([`Arch::name`]).
    pub(super) fn name_lines(&self, name: &str) {
        A::name(&*self.0, name);
    }
}
