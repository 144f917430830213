//! The root lock: what `spinlock`, `busylock` and `llist` have in common.
//!
//! The lock guards the core. Its holder releases it while it is in the driver and retakes it afterwards.

use std::sync::atomic::Ordering::Relaxed;

use crossbeam_utils::CachePadded;

use txq_core::arch::inside::Lent;
use txq_core::arch::{Arch, Atomic};
use txq_core::packet::PacketList;
use txq_core::stats::contention::Site;
use txq_core::sync::spinlock::{Held, SpinLock};
use txq_sched::generic::qdisc::Verdict;

use crate::generic::datapath::{Core, Ctx, Root};
use crate::generic::enqueue::{QUEUE, ROOT_LOCK};
use crate::generic::run::{Driven, Owner, turn};

/// A lock over a queue's core.
pub(super) struct RootLock<A: Arch> {
    pub(super) lock: CachePadded<SpinLock<A, Core<A>>>,
    /// 1 while an owner's turn lasts, else 0 (`qdisc->running`). Written by the owner under the lock, read by senders. Relaxed:
    /// a hint that orders nothing.
    running: CachePadded<A::AtomicU32>,
    /// Whether owners write `running`.
    shows_running: bool,
}

impl<A: Arch> RootLock<A> {
    pub(super) fn new(core: Core<A>, shows_running: bool) -> Self {
        Self {
            lock: CachePadded::new(SpinLock::new(core)),
            running: CachePadded::new(A::AtomicU32::new(0)),
            shows_running,
        }
    }

    /// Whether an owner runs the queue. The answer may be stale.
    #[inline]
    pub(super) fn is_running(&self) -> bool {
        self.running.load(Relaxed) != 0
    }

    /// Waits for the lock as a sender, and runs a turn. `busy` is the busylock, if the caller holds it.
    #[inline]
    pub(super) fn submit(
        &self,
        busy: Option<Held<'_, A, ()>>,
        root: &Root<A>,
        batch: &mut PacketList<A>,
        cx: &mut Ctx<'_, A>,
    ) -> Verdict {
        let share = batch.len();
        self.turn(self.lock.lock_at(Site::Enqueue), busy, root, batch, share, cx)
    }

    /// Waits for the lock as a worker, and runs a turn.
    pub(super) fn run(&self, root: &Root<A>, cx: &mut Ctx<'_, A>) {
        let _ = self.turn(self.lock.lock_at(Site::Worker), None, root, &mut PacketList::new(), 0, cx);
    }

    /// Runs a turn of the lock holder, which enqueues `packets`. The quota is `share` at least.
    #[inline]
    pub(super) fn turn(
        &self,
        mut held: Held<'_, A, Core<A>>,
        busy: Option<Held<'_, A, ()>>,
        root: &Root<A>,
        packets: &mut PacketList<A>,
        share: usize,
        cx: &mut Ctx<'_, A>,
    ) -> Verdict {
        // While another owner is in the driver, the caller only enqueues.
        let shows = self.shows_running && !held.data().running;
        let _shown = shows.then(|| Shown::new(&*self.running));
        let verdict = turn(RootHolder { _shown, held, busy }, root, packets, share, cx);
        cx.free_dropped();
        verdict
    }

    pub(super) fn with_core(&self, f: &mut dyn FnMut(&mut Core<A>)) {
        self.lock.with(|held| f(held.data()));
    }

    pub(super) fn try_with_core(&self, f: &mut dyn FnMut(&mut Core<A>)) -> Option<bool> {
        self.lock.try_with_at(Site::Control, |held| f(held.data())).map(|()| true)
    }

    pub(super) fn name_lines(&self) {
        self.lock.name_lines(ROOT_LOCK, QUEUE);
        A::name(&self.running, "root lock: whether the queue runs");
    }
}

/// The holder of the root lock. Other senders leave no packets for it during the turn, so it keeps the defaults of [`Owner`]. It
/// releases the busylock when it enters the driver, the long part of its turn.
struct RootHolder<'w, A: Arch> {
    /// Dropped before the lock is released.
    _shown: Option<Shown<'w, A>>,
    held: Held<'w, A, Core<A>>,
    busy: Option<Held<'w, A, ()>>,
}

/// Shows that an owner runs the queue, until it is dropped.
struct Shown<'w, A: Arch>(&'w A::AtomicU32);

impl<'w, A: Arch> Shown<'w, A> {
    #[inline]
    fn new(running: &'w A::AtomicU32) -> Self {
        running.store(1, Relaxed);
        Self(running)
    }
}

impl<A: Arch> Drop for Shown<'_, A> {
    #[inline]
    fn drop(&mut self) {
        self.0.store(0, Relaxed);
    }
}

impl<A: Arch> Owner<A> for RootHolder<'_, A> {
    #[inline]
    fn core(&mut self) -> &mut Core<A> {
        self.held.data()
    }

    #[inline]
    fn drive(&mut self, driven: &mut Driven<A>, f: impl FnOnce(&mut Driven<A>)) {
        self.busy = None;
        self.held.unlocked_at(Site::Retake, || {
            let _lent = Lent::<A>::begin();
            f(driven);
        });
    }
}
