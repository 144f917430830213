//! spinlock: one root lock, which every sender takes to enqueue and the owner takes again after each batch it has sent.
//!
//! How Linux began, and the first measured cost of sharing a queue: with N senders the owner competes with all of them for
//! the lock it needs to drain the queue, so the drain slows down as senders come. The lock is fair and queued
//! ([`SpinLock`]). When its holder, or the next in line, is preempted, all senders wait until it runs again: the bound
//! of a sender's wait is the scheduler's, once for each thread in front of it.

use crate::arch::Arch;
use crate::ctx::Ctx;
use crate::enqueue::Discipline;
use crate::netdev::Root;
use crate::packet::PacketList;
use crate::qdisc::Verdict;
use crate::run::{Core, Owner, admit, run};
use crate::sync::contention::{Lock, Recorded, Site};
use crate::sync::spinlock::{Held, SpinLock};

struct Spinlock<A: Arch> {
    root: SpinLock<A, Core<A>>,
}

pub(super) fn build<A: Arch>(core: Core<A>, _max_burst: u32) -> Box<dyn Discipline<A>> {
    Box::new(Spinlock { root: SpinLock::new(core) })
}

impl<A: Arch> Owner<A> for Held<'_, A, Core<A>> {
    #[inline]
    fn core(&mut self) -> &mut Core<A> {
        self.data()
    }

    #[inline]
    fn unlocked<R>(&mut self, f: impl FnOnce() -> R) -> R {
        self.unlocked_at(Site::Retake, f)
    }
}

impl<A: Arch> Discipline<A> for Spinlock<A> {
    fn submit(&self, root: &Root<A>, batch: &mut PacketList<A>, cx: &mut Ctx<'_, A>) -> Verdict {
        let verdict = self.root.with_at(Site::Enqueue, |held| {
            let verdict = admit(held, root, batch, cx);
            run(held, root, cx);
            verdict
        });
        cx.free_dropped();
        verdict
    }

    fn run(&self, root: &Root<A>, cx: &mut Ctx<'_, A>) {
        self.root.with_at(Site::Worker, |held| run(held, root, cx));
        cx.free_dropped();
    }

    fn with_core(&self, f: &mut dyn FnMut(&mut Core<A>)) {
        self.root.with(|held| f(held.data()));
    }

    fn is_idle(&self) -> bool {
        self.root.with(|held| held.data().is_idle())
    }

    fn locks(&self, f: &mut dyn FnMut(Lock, &dyn Recorded)) {
        f(Lock::Root, &self.root);
    }
}
