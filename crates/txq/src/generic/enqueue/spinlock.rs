//! spinlock: one root lock, which every sender takes to enqueue and the owner retakes after each batch.
//!
//! Linux began with this discipline, and it shows the first measured cost of sharing a queue: with N senders the owner
//! competes with all of them for the lock that it needs to drain the queue, so the drain slows down as senders are added.
//! The lock is queued ([`SpinLock`]). While its holder is preempted, all senders wait until that thread runs again. While the
//! first waiter is, others may pass the queue, so the lock stays in use: a bounded number of times before each waiter.

use txq_core::arch::Arch;
use txq_core::packet::PacketList;
use txq_core::stats::contention::Lock;
use txq_core::sync::contention::Recorded;
use txq_sched::generic::qdisc::Verdict;

use crate::generic::datapath::Core;
use crate::generic::datapath::CoreAccess;
use crate::generic::datapath::Ctx;
use crate::generic::datapath::Root;
use crate::generic::enqueue::owns_queue;
use crate::generic::enqueue::root_lock::RootLock;

struct Spinlock<A: Arch> {
    root: RootLock<A>,
}

pub(super) fn build<A: Arch>(core: Core<A>, _max_burst: u32) -> Box<dyn CoreAccess<A>> {
    Box::new(Spinlock { root: RootLock::new(core, false) })
}

impl<A: Arch> CoreAccess<A> for Spinlock<A> {
    fn submit(&self, root: &Root<A>, batch: &mut PacketList<A>, cx: &mut Ctx<'_, A>) -> Verdict {
        if owns_queue(batch, cx) {
            return Verdict::Drop;
        }
        self.root.submit(None, root, batch, cx)
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
    }

    fn name_lines(&self) {
        self.root.name_lines();
    }
}
