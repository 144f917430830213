//! spinlock: one root lock, which every sender takes to enqueue and the owner retakes after each batch.
//!
//! Linux began with this discipline, and it shows the first measured cost of sharing a queue: with N senders the owner
//! competes with all of them for the lock that it needs to drain the queue, so the drain slows down as senders are added.
//! The lock is queued ([`SpinLock`]). While its holder is preempted, all senders wait until that thread runs again. While the
//! first waiter is, others may pass the queue, so the lock stays in use: a bounded number of times before each waiter.

use crossbeam_utils::CachePadded;

use txq_core::arch::Arch;
use txq_core::arch::inside::Lent;
use txq_core::packet::PacketList;
use txq_core::stats::contention::{Lock, Site};
use txq_core::sync::contention::Recorded;
use txq_core::sync::spinlock::{Held, SpinLock};
use txq_sched::qdisc::Verdict;

use crate::datapath::Core;
use crate::datapath::CoreAccess;
use crate::datapath::Ctx;
use crate::datapath::Root;
use crate::enqueue::{QUEUE, ROOT_LOCK, owns_queue};
use crate::run::{Driven, Owner, turn};

struct Spinlock<A: Arch> {
    root: CachePadded<SpinLock<A, Core<A>>>,
}

pub(super) fn build<A: Arch>(core: Core<A>, _max_burst: u32) -> Box<dyn CoreAccess<A>> {
    Box::new(Spinlock { root: CachePadded::new(SpinLock::new(core)) })
}

/// The holder of a root lock. The other senders wait and leave no packets for it, so it keeps the defaults of [`Owner`].
impl<A: Arch> Owner<A> for Held<'_, A, Core<A>> {
    #[inline]
    fn core(&mut self) -> &mut Core<A> {
        self.data()
    }

    #[inline]
    fn drive(&mut self, driven: &mut Driven<A>, f: impl FnOnce(&mut Driven<A>)) -> bool {
        self.unlocked_at(Site::Retake, || {
            let _lent = Lent::<A>::begin();
            f(driven);
        });
        true
    }
}

impl<A: Arch> CoreAccess<A> for Spinlock<A> {
    fn submit(&self, root: &Root<A>, batch: &mut PacketList<A>, cx: &mut Ctx<'_, A>) -> Verdict {
        if owns_queue(batch, cx) {
            return Verdict::Drop;
        }
        let share = batch.len();
        let verdict = turn(self.root.lock_at(Site::Enqueue), root, batch, share, cx);
        cx.free_dropped();
        verdict
    }

    fn run(&self, root: &Root<A>, cx: &mut Ctx<'_, A>) {
        let _ = turn(self.root.lock_at(Site::Worker), root, &mut PacketList::new(), 0, cx);
        cx.free_dropped();
    }

    /// True, as in Linux, with which this discipline is compared.
    fn needs_tx_lock(&self) -> bool {
        true
    }

    fn with_core(&self, f: &mut dyn FnMut(&mut Core<A>, bool)) -> bool {
        self.root.with(|held| f(held.data(), false));
        true
    }

    fn try_with_core(&self, f: &mut dyn FnMut(&mut Core<A>, bool)) -> Option<bool> {
        self.root.try_with_at(Site::Control, |held| f(held.data(), false)).map(|()| true)
    }

    fn locks(&self, f: &mut dyn FnMut(Lock, &dyn Recorded)) {
        f(Lock::Root, &*self.root);
    }

    fn name_lines(&self) {
        self.root.name_lines(ROOT_LOCK, QUEUE);
    }
}
