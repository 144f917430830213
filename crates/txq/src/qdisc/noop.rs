//! noop: no qdisc at all, where there must be something (`noop_qdisc`): the leaf of a class whose qdisc was deleted.

use crate::arch::Arch;
use crate::drop::DropReason;
use crate::packet::{Packet, PacketList};
use crate::qdisc::{Budget, Cx, Qdisc, Verdict};
use crate::stats::QdiscStats;

/// Drops everything, and tells the sender so as of congestion (`NET_XMIT_CN`).
pub(super) struct Noop;

impl<A: Arch> Qdisc<A> for Noop {
    fn kind(&self) -> &'static str {
        "noop"
    }

    fn enqueue(&mut self, packet: Packet<A>, cx: &mut Cx<'_, A>) -> Verdict {
        cx.drop(packet, DropReason::QdiscDrop);
        Verdict::Congested
    }

    fn dequeue_batch(&mut self, _: Budget, _: &mut PacketList<A>, _: &mut Cx<'_, A>) {}

    fn reset(&mut self, _: &mut Cx<'_, A>) {}

    fn qlen(&self) -> usize {
        0
    }

    fn stats(&self) -> QdiscStats {
        QdiscStats::default()
    }
}
