//! The way in where there is no qdisc: the sender calls the driver itself, one at a time (`netif_tx_lock`).

use crate::arch::Arch;
use crate::ctx::Ctx;
use crate::enqueue::Discipline;
use crate::netdev::Root;
use crate::packet::PacketList;
use crate::qdisc::Verdict;
use crate::run::{Core, run_noqueue};
use crate::sync::contention::{Lock, Recorded, Site};
use crate::sync::spinlock::SpinLock;

/// One txq without a queue.
pub(crate) struct NoQueue<A: Arch> {
    core: SpinLock<A, Core<A>>,
    txq: u16,
}

impl<A: Arch> NoQueue<A> {
    pub(crate) fn new(txq: u16) -> Self {
        Self { core: SpinLock::new(Core::new(None)), txq }
    }
}

impl<A: Arch> Discipline<A> for NoQueue<A> {
    fn submit(&self, _: &Root<A>, batch: &mut PacketList<A>, cx: &mut Ctx<'_, A>) -> Verdict {
        let verdict = self.core.with_at(Site::Enqueue, |held| run_noqueue(held.data(), self.txq, batch, cx));
        cx.free_dropped();
        verdict
    }

    /// There is nothing that could be left behind.
    fn run(&self, _: &Root<A>, _: &mut Ctx<'_, A>) {}

    fn visit(&self, f: &mut dyn FnMut(&mut Core<A>, bool)) -> bool {
        self.core.with(|held| f(held.data(), false));
        true
    }

    fn locks(&self, f: &mut dyn FnMut(Lock, &dyn Recorded)) {
        f(Lock::Root, &self.core);
    }
}
