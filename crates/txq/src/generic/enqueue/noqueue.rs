//! noqueue: there is no qdisc, and senders call the driver themselves, one at a time (`netif_tx_lock`).

use std::sync::atomic::Ordering::Relaxed;

use crossbeam_utils::CachePadded;

use txq_core::arch::{Arch, Atomic, Nanos};
use txq_core::drop::DropReason;
use txq_core::packet::PacketList;
use txq_core::stats::contention::{Lock, Site};
use txq_core::sync::contention::Recorded;
use txq_core::sync::spinlock::{Held, SpinLock};
use txq_sched::generic::qdisc::Verdict;

use crate::generic::datapath::CoreAccess;
use crate::generic::datapath::Root;
use crate::generic::datapath::{Core, Gate};
use crate::generic::datapath::{Ctx, Errand};
use crate::generic::enqueue::{QUEUE, ROOT_LOCK};
use crate::generic::run::{forward, run_noqueue};

/// One txq without a queue.
pub(crate) struct NoQueue<A: Arch> {
    core: CachePadded<SpinLock<A, Core<A>>>,
    /// The thread that holds the core ([`Arch::thread`]), or [`NO_OWNER`] (`xmit_lock_owner`). Written by the lock holder;
    /// read by threads that are inside another call. Relaxed: a thread compares it only with itself.
    owner: CachePadded<A::AtomicU64>,
    txq: u16,
}

/// No thread owns the core.
const NO_OWNER: u64 = 0;
/// How long a driver waits for another device that has no queue, in nanoseconds: far longer than any driver works. This
/// bounds a circle of devices in which each waits for the next.
const LONGEST_DEVICE_WAIT: Nanos = 10_000_000;

/// The core, owned by this thread until this is dropped.
struct Owned<'q, A: Arch> {
    core: Held<'q, A, Core<A>>,
    owner: &'q A::AtomicU64,
}

impl<A: Arch> Drop for Owned<'_, A> {
    #[inline]
    fn drop(&mut self) {
        // The lock is released after this.
        self.owner.store(NO_OWNER, Relaxed);
    }
}

impl<A: Arch> NoQueue<A> {
    pub(crate) fn new(core: Core<A>, txq: u16) -> Self {
        Self {
            core: CachePadded::new(SpinLock::new(core)),
            owner: CachePadded::new(A::AtomicU64::new(NO_OWNER)),
            txq,
        }
    }

    /// Reopens the queue for waiting senders and wakes one, if the txq is open: without a qdisc the device's ring is the
    /// queue.
    #[inline]
    fn note_wake(&self, root: &Root<A>, cx: &Ctx<'_, A>) {
        if !root.fill.word().is_quiet() && !cx.dev.txqs[usize::from(self.txq)].stopped() {
            root.fill.note_backlog(0);
            root.fill.wake();
        }
    }

    /// Waits for the core and takes it. Returns `None` if the wait might never end: this thread owns the core already,
    /// because its driver sends to its own device, or the owner's driver waits for something that this thread owns.
    #[inline]
    fn own(&self) -> Option<Owned<'_, A>> {
        // The caller's own entry is one.
        match A::inside(|inside| inside.depth()) <= 1 {
            true => Some(self.owned(self.core.lock_at(Site::Enqueue))),
            false => self.own_nested(),
        }
    }

    #[inline]
    fn owned<'q>(&'q self, core: Held<'q, A, Core<A>>) -> Owned<'q, A> {
        self.owner.store(A::thread(), Relaxed);
        Owned { core, owner: &self.owner }
    }

    /// As [`own`](NoQueue::own), for a thread that is inside another call.
    #[cold]
    fn own_nested(&self) -> Option<Owned<'_, A>> {
        let end = A::now() + LONGEST_DEVICE_WAIT;
        while self.owner.load(Relaxed) != A::thread() {
            if let Some(core) = self.core.try_lock_at(Site::Enqueue) {
                return Some(self.owned(core));
            }
            if A::now() >= end {
                break;
            }
            A::relax();
        }
        None
    }
}

impl<A: Arch> CoreAccess<A> for NoQueue<A> {
    fn submit(&self, root: &Root<A>, batch: &mut PacketList<A>, cx: &mut Ctx<'_, A>) -> Verdict {
        let verdict = self.own().map(|mut owned| {
            let core = owned.core.data();
            match core.gate() {
                Gate::Relay | Gate::Hold => None,
                _ => Some(run_noqueue(core, root, self.txq, batch, cx)),
            }
        });
        match verdict {
            Some(Some(verdict)) => {
                cx.free_dropped();
                self.note_wake(root, cx);
                verdict
            }
            Some(None) => {
                forward(root, batch, cx);
                Verdict::Success
            }
            None => {
                cx.dev.count_looped(batch.len() as u64);
                batch.for_each_mut(|p| p.set_drop_reason(DropReason::RecursionLimit));
                cx.free_list(batch);
                Verdict::Drop
            }
        }
    }

    /// Reaps completions if the worker asks for that. No packets wait here.
    fn run(&self, root: &Root<A>, cx: &mut Ctx<'_, A>) {
        if let Errand::Reap(txq) = cx.errand {
            let next = self.own().map(|mut owned| {
                owned.core.data().end_permit();
                cx.dev.txqs[usize::from(txq)].reap_for_worker(root.index, cx)
            });
            cx.errand = Errand::Done(next.flatten());
        }
        self.note_wake(root, cx);
    }

    fn with_core(&self, f: &mut dyn FnMut(&mut Core<A>, bool)) -> bool {
        self.core.with(|held| f(held.data(), false));
        true
    }

    fn try_with_core(&self, f: &mut dyn FnMut(&mut Core<A>, bool)) -> Option<bool> {
        self.core.try_with_at(Site::Control, |held| f(held.data(), false)).map(|()| true)
    }

    fn locks(&self, f: &mut dyn FnMut(Lock, &dyn Recorded)) {
        f(Lock::Root, &*self.core);
    }

    fn name_lines(&self) {
        self.core.name_lines(ROOT_LOCK, QUEUE);
        A::name(&self.owner, "noqueue: owner");
    }
}
