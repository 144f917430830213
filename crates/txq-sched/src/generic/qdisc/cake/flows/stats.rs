//! The counters of a tin's flows, for `tc class show`.

use txq_core::arch::Arch;

use super::{DEFICIT_FRACTION, Flow, State, Tin};

/// A flow's counters.
#[derive(Debug, Clone, Copy)]
pub(in crate::generic::qdisc::cake) struct FlowStats {
    pub(in crate::generic::qdisc::cake) drops: u64,
    pub(in crate::generic::qdisc::cake) backlog: u64,
    pub(in crate::generic::qdisc::cake) qlen: usize,
    /// Bytes that the flow may send before its turn is over.
    pub(in crate::generic::qdisc::cake) deficit: i64,
    /// The drop count of CoDel's law.
    pub(in crate::generic::qdisc::cake) count: u32,
    /// BLUE's drop probability, in units of 2^-32.
    pub(in crate::generic::qdisc::cake) chance: u32,
}

impl<A: Arch> Tin<A> {
    /// Returns the queues that have a flow: those with packets, and empty ones that are still on a list.
    pub(in crate::generic::qdisc::cake) fn active(&self) -> impl Iterator<Item = usize> {
        self.flows.iter().enumerate().filter(|(_, flow)| flow.state != State::Idle).map(|(index, _)| index)
    }

    /// Returns the counters of a queue.
    pub(in crate::generic::qdisc::cake) fn flow_stats(&self, index: usize) -> FlowStats {
        let Flow { queue, law, blue, deficit, drops, .. } = &self.flows[index];
        FlowStats {
            drops: *drops,
            backlog: queue.bytes(),
            qlen: queue.len(),
            deficit: deficit >> DEFICIT_FRACTION,
            count: law.count(),
            chance: blue.chance(),
        }
    }
}
