//! A FIFO with a configurable cost for each packet, like that of a shaper or an AQM.
//!
//! fq_codel and cake hash each packet, read the clock, and under overload search for the longest queue to drop from. Here
//! all of that is a number, so the cost of a queue inside its lock can be compared with the cost around it.

use txq::drop::DropReason;
use txq::packet::{Packet, PacketList};
use txq::qdisc::{Budget, Cx, Qdisc, Shortcuts, Verdict};
use txq::stats::QdiscStats;

use super::work::Work;

/// The cost of each step of a packet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cost {
    pub(super) enqueue: Work,
    pub(super) dequeue: Work,
    pub(super) drop: Work,
}

/// The qdisc.
pub(super) struct Costly {
    kind: &'static str,
    cost: Cost,
    /// Packets that the qdisc holds.
    limit: usize,
    queue: PacketList,
    stats: QdiscStats,
}

impl Costly {
    pub(super) fn new(kind: &'static str, cost: Cost, limit: usize) -> Self {
        Self { kind, cost, limit, queue: PacketList::new(), stats: QdiscStats::default() }
    }
}

impl Qdisc for Costly {
    fn kind(&self) -> &'static str {
        self.kind
    }

    fn enqueue(&mut self, packet: Packet, cx: &mut Cx<'_>) -> Verdict {
        self.cost.enqueue.spend();
        if self.queue.len() < self.limit {
            self.queue.push_back(packet);
            return Verdict::Success;
        }
        self.cost.drop.spend();
        self.stats.drops += 1;
        cx.drop(packet, DropReason::QdiscOverlimit);
        Verdict::Drop
    }

    fn dequeue_batch(&mut self, budget: Budget, out: &mut PacketList, _: &mut Cx<'_>) {
        for packet in (0..budget.packets).map_while(|_| self.queue.pop_front()) {
            self.cost.dequeue.spend();
            self.stats.bytes += packet.len() as u64;
            self.stats.packets += u64::from(packet.segs());
            out.push_back(packet);
        }
    }

    fn reset(&mut self, cx: &mut Cx<'_>) {
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

impl Shortcuts for Costly {}

#[cfg(test)]
mod tests {
    use super::*;
    use txq::{Discipline, NetDev};
    use txq_device::Null;

    #[test]
    fn what_is_beyond_the_limit_is_dropped_and_counted() {
        let none = Work::default();
        let qdisc = Costly::new("slow", Cost { enqueue: none, dequeue: none, drop: none }, 2);
        let mut dev = NetDev::builder(Null::new(1))
            .custom_qdisc(qdisc)
            .discipline(Discipline::Spinlock)
            .build()
            .unwrap();
        let mut sender = dev.sender("test");
        let mut batch = PacketList::new();
        assert_eq!(sender.alloc_batch(5, 100, &mut batch), Ok(5));
        assert_eq!(sender.xmit_batch(&mut batch), Verdict::Congested);
        let stats = dev.audit().unwrap();
        assert_eq!((stats.sent, stats.dropped.get(DropReason::QdiscOverlimit)), (2, 3));
        let shown = dev.qdiscs(txq::tc::Style::default())[0].stats;
        assert_eq!((shown.packets, shown.bytes, shown.drops, shown.qlen), (2, 200, 3, 0));
        dev.shutdown().unwrap();
    }
}
