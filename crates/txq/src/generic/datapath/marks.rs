//! The marks of a queue: the backlogs at which it counts as full, and as having room again, for senders that wait
//! ([`txq_core::sync::fill`]).
//!
//! A queue whose qdisc has a limit in packets is full at three quarters of the limit: the last quarter is for the packets of
//! senders that checked before. It has room again at half of the limit, as a socket's send buffer has. A queue without such
//! a limit (bytes, bands, classes) never counts as full; a part of it that refuses packets has room again when the backlog
//! has halved.

use txq_core::arch::Arch;
use txq_core::drop::DropReason;
use txq_sched::generic::qdisc::Qdisc;

use crate::generic::datapath::Core;
use crate::generic::datapath::QUOTA;
use crate::generic::datapath::Root;
use crate::generic::panics::Panics;

/// Reasons of drops at enqueue that more room would avoid.
const WANT_OF_ROOM: [DropReason; 3] =
    [DropReason::QdiscOverlimit, DropReason::FqFlowLimit, DropReason::FqBandLimit];

/// The marks of a queue, in packets.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Marks {
    /// The qdisc's limit; `usize::MAX` if it has none, or none is known.
    limit: usize,
    /// The queue is full at this backlog or more; `usize::MAX` if that is not known.
    pub(crate) high: usize,
    /// The queue has room again at this backlog or less.
    pub(crate) low: usize,
    /// How many packets of a sender certainly find room while the queue is not full: 0 if that is not known.
    pub(crate) spare: u32,
    /// Packets dropped for want of room when a refusal was last noted.
    refused: u64,
}

/// The list in front of a qdisc is long from a 16th of the qdisc's limit on. With as many packets again in the owner's hands,
/// they fit in the last quarter of the limit.
const LONG_LIST_DIVISOR: usize = 16;

impl Marks {
    /// Returns the length from which on the list in front of the qdisc is long, in packets, if it has at most `max_burst`.
    pub(crate) fn long(&self, max_burst: u32) -> u32 {
        // At most `max_burst`, so it fits.
        (self.limit.min(max_burst as usize) / LONG_LIST_DIVISOR) as u32
    }

    pub(crate) fn of<A: Arch>(qdisc: Option<&dyn Qdisc<A>>) -> Self {
        match qdisc.and_then(|qdisc| qdisc.limit()) {
            Some(limit @ 1..) => {
                // The last quarter has room for these, for a 16th and two such batches each on the list and in the owner's hands,
                // and for a batch that the driver gives back.
                let spare = (limit / 8).saturating_sub(QUOTA) / 5;
                let one = qdisc.is_some_and(|qdisc| qdisc.has_one_limit());
                let spare = if one { u32::try_from(spare).unwrap_or(u32::MAX) } else { 0 };
                Self { limit, high: limit - limit / 4, low: limit / 2, spare, refused: 0 }
            }
            _ => Self { limit: usize::MAX, high: usize::MAX, low: 0, spare: 0, refused: 0 },
        }
    }
}

impl<A: Arch> Core<A> {
    /// Updates the marks after the qdisc or its limit may have changed.
    pub(crate) fn note_limit(&mut self) {
        // The limit of a qdisc that panics is unknown. The panic goes no further, so that the qdisc can be replaced.
        let now = Panics::default().catch(|| Marks::of(self.qdisc.as_deref()));
        self.marks = Marks { refused: self.marks.refused, ..now.unwrap_or(Marks::of::<A>(None)) };
    }

    /// Publishes that the queue has refused packets, if drops of the last enqueue were for want of room.
    #[cold]
    pub(crate) fn note_refusal(&mut self, root: &Root<A>) {
        let refused = WANT_OF_ROOM.iter().map(|&reason| self.counters.drops.get(reason)).sum();
        if self.marks.refused == refused {
            return;
        }
        self.marks.refused = refused;
        // In an empty queue no dequeue will make room.
        let queued = self.qlen();
        if queued > 0 {
            root.fill.note_partial(queued / 2);
        }
    }
}
