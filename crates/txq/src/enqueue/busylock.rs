//! busylock: a root lock, and a second lock in front of it for contended senders.
//!
//! The owner retakes the root lock after each batch. Without the busylock it would queue behind all waiting senders. With
//! it, of the senders that find the queue running only the holder of the busylock waits for the root lock, so the owner
//! competes with one. Every other sender still waits, for the busylock (Linux 2.6.36, "net: add additional lock to qdisc to
//! increase throughput").
//!
//! A sender reads without a lock whether the queue is running, so the answer may be stale. Then it takes the busylock in
//! vain, or competes with the owner once more; nothing else depends on it.

use std::sync::atomic::Ordering::Relaxed;

use crossbeam_utils::CachePadded;

use txq_core::arch::inside::Lent;
use txq_core::arch::{Arch, Atomic};
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

struct Busylock<A: Arch> {
    busy: CachePadded<SpinLock<A, ()>>,
    root: CachePadded<SpinLock<A, Core<A>>>,
    /// 1 while an owner is in the driver, else 0 (`qdisc->running`). Written by the owner, read by senders. Relaxed: a hint
    /// that orders nothing.
    running: CachePadded<A::AtomicU32>,
}

pub(super) fn build<A: Arch>(core: Core<A>, _max_burst: u32) -> Box<dyn CoreAccess<A>> {
    Box::new(Busylock {
        busy: CachePadded::new(SpinLock::new(())),
        root: CachePadded::new(SpinLock::new(core)),
        running: CachePadded::new(A::AtomicU32::new(0)),
    })
}

impl<A: Arch> Busylock<A> {
    /// Waits for the root lock and runs a turn. `busy` is the busylock, if the caller holds it.
    fn turn(
        &self,
        site: Site,
        busy: Option<Held<'_, A, ()>>,
        root: &Root<A>,
        batch: &mut PacketList<A>,
        cx: &mut Ctx<'_, A>,
    ) -> Verdict {
        let share = batch.len();
        let verdict = turn(Turn { root: self.root.lock_at(site), queue: self, busy }, root, batch, share, cx);
        cx.free_dropped();
        verdict
    }
}

/// The holder of the root lock. It releases the busylock when it enters the driver, the long part of its turn.
struct Turn<'w, A: Arch> {
    root: Held<'w, A, Core<A>>,
    queue: &'w Busylock<A>,
    busy: Option<Held<'w, A, ()>>,
}

impl<A: Arch> Owner<A> for Turn<'_, A> {
    #[inline]
    fn core(&mut self) -> &mut Core<A> {
        self.root.data()
    }

    #[inline]
    fn drive(&mut self, driven: &mut Driven<A>, f: impl FnOnce(&mut Driven<A>)) -> bool {
        self.queue.running.store(1, Relaxed);
        self.busy = None;
        let queue = self.queue;
        self.root.unlocked_at(Site::Retake, || {
            let _lent = Lent::<A>::begin();
            f(driven);
        });
        queue.running.store(0, Relaxed);
        true
    }
}

impl<A: Arch> CoreAccess<A> for Busylock<A> {
    fn submit(&self, root: &Root<A>, batch: &mut PacketList<A>, cx: &mut Ctx<'_, A>) -> Verdict {
        if owns_queue(batch, cx) {
            return Verdict::Drop;
        }
        let busy = (self.running.load(Relaxed) != 0).then(|| self.busy.lock_at(Site::Enqueue));
        self.turn(Site::Enqueue, busy, root, batch, cx)
    }

    fn run(&self, root: &Root<A>, cx: &mut Ctx<'_, A>) {
        let _ = self.turn(Site::Worker, None, root, &mut PacketList::new(), cx);
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
        f(Lock::Busy, &*self.busy);
    }

    fn name_lines(&self) {
        self.busy.name_lines("busylock", "busylock");
        self.root.name_lines(ROOT_LOCK, QUEUE);
        A::name(&self.running, "busylock: whether the queue runs");
    }
}
