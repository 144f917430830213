//! noop: the placeholder where there must be a qdisc and is none (`noop_qdisc`). It drops every packet. The class of a tbf
//! has it once its qdisc is deleted. Users cannot name it.

use txq_core::arch::Arch;
use txq_core::drop::DropReason;
use txq_core::packet::{Packet, PacketList};
use txq_core::stats::QdiscStats;

use crate::generic::qdisc::{Budget, Cx, Qdisc, Verdict};

/// Drops every packet, and reports it to the sender as congestion, as the kernel does (`NET_XMIT_CN`).
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
