//! The state that a device's handle, its senders and its workers share.

pub(crate) mod hook;

use std::ops::Deref;
use std::sync::Arc;

use txq_core::arch::{Arch, CpuId, Nanos};
use txq_core::flow::FlowHasher;
use txq_core::pool::Cache;
use txq_core::sync::rcu::Rcu;

use crate::generic::datapath::Datapath;
use crate::generic::registry::Registry;
use crate::generic::steering::Steering;
use hook::Hooks;

/// Latency sampling policy: which packets are measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Sampling {
    /// No packet. The cost is one branch for each call of xmit.
    Off,
    /// The first packet of each sender's call 1, n + 1, 2n + 1 and so on. 0 counts as 1.
    Every(u32),
    /// Every packet.
    All,
}

/// The state that senders, workers and the handle share.
pub(crate) struct Shared<A: Arch> {
    pub(crate) steering: Arc<Rcu<A, Steering>>,
    /// How long a choice of txqs may be kept although another is due; 0 for ever (`net.core.txq_reselection_ms`).
    pub(crate) reselection: Nanos,
    pub(crate) hasher: FlowHasher,
    pub(crate) sampling: Sampling,
    /// Whether senders measure their calls of xmit.
    pub(crate) xmit_times: bool,
    pub(crate) senders: Registry<A>,
    pub(crate) created: Nanos,
    pub(crate) hooks: Hooks<A>,
    /// The last field, so that its pool is dropped after all fields that may still hold packets of it.
    pub(crate) path: Datapath<A>,
}

impl<A: Arch> Deref for Shared<A> {
    type Target = Datapath<A>;

    #[inline]
    fn deref(&self) -> &Datapath<A> {
        &self.path
    }
}

impl<A: Arch> Shared<A> {
    /// Creates a stock of buffers for a sender, a worker or a command. All of the device's are created here, so that the rows of gone
    /// senders stay right.
    pub(crate) fn cache(&self, name: &str, cpu: CpuId) -> Cache<A> {
        self.senders.cache(&self.pool, name, cpu)
    }

    /// Names its lines ([`Arch::name`]).
    pub(crate) fn name_lines(&self) {
        A::name(self, "device: setup");
        A::name(&*self.steering, "device: steering map");
        A::name(&self.hooks, "device: hooks");
        self.path.name_lines();
    }
}
