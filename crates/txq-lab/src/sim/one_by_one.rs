//! A fifo that dequeues one packet per call, whatever the budget, as every qdisc did before bulk dequeue (Linux 3.18,
//! 5772e9a34632). The root lock is then taken again for each packet.

use txq::drop::DropReason;
use txq::generic::qdisc::{Budget, Cx, Qdisc, Verdict};
use txq::stats::QdiscStats;
use txq_core::packet::{Packet, PacketList};

use crate::sim::arch::Sim;

pub(crate) struct OneByOne {
    queue: PacketList<Sim>,
    limit: usize,
    stats: QdiscStats,
}

impl OneByOne {
    /// Creates a fifo of at most `limit` packets.
    pub(crate) fn new(limit: u32) -> Self {
        Self { queue: PacketList::new(), limit: limit as usize, stats: QdiscStats::default() }
    }
}

impl Qdisc<Sim> for OneByOne {
    fn kind(&self) -> &'static str {
        "one_by_one"
    }

    fn enqueue(&mut self, packet: Packet<Sim>, cx: &mut Cx<'_, Sim>) -> Verdict {
        if self.queue.len() >= self.limit {
            self.stats.drops += 1;
            cx.drop(packet, DropReason::QdiscOverlimit);
            return Verdict::Drop;
        }
        self.queue.push_back(packet);
        Verdict::Success
    }

    fn dequeue_batch(&mut self, _: Budget, out: &mut PacketList<Sim>, _: &mut Cx<'_, Sim>) {
        if let Some(packet) = self.queue.pop_front() {
            self.stats.packets += 1;
            self.stats.bytes += packet.len() as u64;
            out.push_back(packet);
        }
    }

    fn reset(&mut self, cx: &mut Cx<'_, Sim>) {
        while let Some(packet) = self.queue.pop_front() {
            cx.drop(packet, DropReason::QueuePurge);
        }
    }

    fn qlen(&self) -> usize {
        self.queue.len()
    }

    fn stats(&self) -> QdiscStats {
        QdiscStats { backlog: self.queue.bytes(), qlen: self.queue.len() as u64, ..self.stats }
    }
}
