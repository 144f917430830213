//! When a queue counts as full, and when as having room again, for senders that wait ([`crate::sync::fill`]).
//!
//! A queue whose qdisc has a limit in packets is full at three quarters of the limit: the last quarter is for the packets of
//! senders that looked before. It has room at half of the limit, as a socket's send buffer has. A queue without such a
//! limit (bytes, bands, classes) is not known to be full; where a part of it refuses packets, that part has room when the
//! backlog has halved.

use crate::arch::Arch;
use crate::drop::DropReason;
use crate::netdev::Root;
use crate::qdisc::Qdisc;
use crate::run::Core;

/// Reasons of drops at enqueue for which there is a remedy: room.
const WANT_OF_ROOM: [DropReason; 3] =
    [DropReason::QdiscOverlimit, DropReason::FqFlowLimit, DropReason::FqBandLimit];

/// The marks of a queue, in packets.
#[derive(Debug, Clone, Copy)]
pub(super) struct Marks {
    /// The queue is full from here on; `usize::MAX` if that is not known.
    pub(super) high: usize,
    /// The queue has room again from here down.
    pub(super) low: usize,
    /// Packets dropped for want of room when a refusal was last noted.
    refused: u64,
}

impl Marks {
    pub(super) fn of<A: Arch>(qdisc: Option<&dyn Qdisc<A>>) -> Self {
        match qdisc.and_then(|qdisc| qdisc.limit()) {
            Some(limit @ 1..) => Self { high: limit - limit / 4, low: limit / 2, refused: 0 },
            _ => Self { high: usize::MAX, low: 0, refused: 0 },
        }
    }
}

impl<A: Arch> Core<A> {
    /// The qdisc may be another, or its limit.
    pub(crate) fn note_limit(&mut self) {
        self.marks = Marks { refused: self.marks.refused, ..Marks::of(self.qdisc.as_deref()) };
    }

    /// The qdisc has dropped some of what it was given: a queue that did so for want of room tells the senders.
    #[cold]
    pub(super) fn note_refusal(&mut self, root: &Root<A>) {
        let refused = WANT_OF_ROOM.iter().map(|&reason| self.counters.drops.get(reason)).sum();
        if self.marks.refused == refused {
            return;
        }
        self.marks.refused = refused;
        // Where nothing is queued nothing will be dequeued that could make room.
        let queued = self.qlen();
        if queued > 0 {
            root.fill.note_partial(queued / 2);
        }
    }
}
