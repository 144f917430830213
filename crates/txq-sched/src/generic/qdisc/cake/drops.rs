//! Drops that COBALT does not decide: for the memory limit, and by the ACK filter.

use txq_core::arch::{Arch, Nanos};
use txq_core::drop::DropReason;

use crate::generic::qdisc::Cx;
use crate::generic::qdisc::cake::hash::QUEUES;
use crate::generic::qdisc::cake::params::AckFilter;
use crate::generic::qdisc::cake::{Cake, ack};

impl<A: Arch> Cake<A> {
    /// Drops packets from the head of the longest queue until the memory limit holds. Returns whether the queue `own` lost
    /// one.
    #[cold]
    pub(super) fn shed(&mut self, own: usize, now: Nanos, cx: &mut Cx<'_, A>) -> bool {
        let mut own_lost = false;
        while self.memory() > self.memory_limit {
            let queue = self.longest.find(own);
            let (tin, index) = (&mut self.tins[queue / QUEUES], queue % QUEUES);
            let Some(packet) = tin.overflow(index, now) else { break };
            own_lost |= queue == own;
            tin.stats.drops += 1;
            self.longest.set(queue, tin.size_of(index));
            self.len -= 1;
            self.bytes -= packet.len() as u64;
            self.stats.drops += 1;
            if self.params.ingress {
                self.shaper.lost(self.params.link.wire(&packet).bytes);
            }
            cx.drop(packet, DropReason::QdiscOverlimit);
        }
        own_lost
    }

    /// Drops an acknowledgement that the last packet of the queue makes needless, if there is one.
    pub(super) fn filter(&mut self, number: usize, index: usize, cx: &mut Cx<'_, A>) {
        let keep = usize::from(self.params.ack_filter == AckFilter::On);
        let tin = &mut self.tins[number];
        let queue = tin.queue_of(index);
        let before = (queue.len(), queue.bytes());
        let Some(packet) = ack::filter(queue, keep) else { return };
        tin.settle(index, before);
        tin.stats.ack_drops += 1;
        self.longest.set(number * QUEUES + index, tin.size_of(index));
        self.len -= 1;
        self.bytes -= packet.len() as u64;
        self.stats.drops += 1;
        cx.drop(packet, DropReason::QdiscDrop);
    }
}
