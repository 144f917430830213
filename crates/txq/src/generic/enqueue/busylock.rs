//! busylock: a root lock, and a second lock in front of it for contended senders.
//!
//! The owner retakes the root lock after each batch. Without the busylock it would queue behind all waiting senders. With
//! it, of the senders that find the queue running only the holder of the busylock waits for the root lock, so the owner
//! competes with one. Every other sender still waits, for the busylock (Linux 2.6.36, "net: add additional lock to qdisc to
//! increase throughput").
//!
//! A sender reads without a lock whether the queue is running, so the answer may be stale. Then it takes the busylock in
//! vain, or competes with the owner once more; nothing else depends on it.

use crossbeam_utils::CachePadded;

use txq_core::arch::Arch;
use txq_core::packet::PacketList;
use txq_core::stats::contention::{Lock, Site};
use txq_core::sync::contention::Recorded;
use txq_core::sync::spinlock::SpinLock;
use txq_sched::generic::qdisc::Verdict;

use crate::generic::datapath::Core;
use crate::generic::datapath::CoreAccess;
use crate::generic::datapath::Ctx;
use crate::generic::datapath::Root;
use crate::generic::enqueue::owns_queue;
use crate::generic::enqueue::root_lock::RootLock;

struct Busylock<A: Arch> {
    busy: CachePadded<SpinLock<A, ()>>,
    root: RootLock<A>,
}

pub(super) fn build<A: Arch>(core: Core<A>, _max_burst: u32) -> Box<dyn CoreAccess<A>> {
    Box::new(Busylock { busy: CachePadded::new(SpinLock::new(())), root: RootLock::new(core, true) })
}

impl<A: Arch> CoreAccess<A> for Busylock<A> {
    fn submit(&self, root: &Root<A>, batch: &mut PacketList<A>, cx: &mut Ctx<'_, A>) -> Verdict {
        if owns_queue(batch, cx) {
            return Verdict::Drop;
        }
        let busy = self.root.is_running().then(|| self.busy.lock_at(Site::Enqueue));
        self.root.submit(busy, root, batch, cx)
    }

    fn run(&self, root: &Root<A>, cx: &mut Ctx<'_, A>) {
        self.root.run(root, cx);
    }

    fn needs_tx_lock(&self) -> bool {
        true
    }

    fn with_core(&self, f: &mut dyn FnMut(&mut Core<A>, bool)) -> bool {
        self.root.with_core(&mut |core| f(core, false));
        true
    }

    fn try_with_core(&self, f: &mut dyn FnMut(&mut Core<A>, bool)) -> Option<bool> {
        self.root.try_with_core(&mut |core| f(core, false))
    }

    fn locks(&self, f: &mut dyn FnMut(Lock, &dyn Recorded)) {
        f(Lock::Root, &*self.root.lock);
        f(Lock::Busy, &*self.busy);
    }

    fn name_lines(&self) {
        self.busy.name_lines("busylock", "busylock");
        self.root.name_lines();
    }
}
