//! The root lock: what `spinlock` and `busylock` have in common.
//!
//! The lock guards the core. Its holder releases it while it is in the driver and retakes it afterwards, so two busy senders
//! would take it by turns for each packet, and the queue would move from CPU to CPU. Where the queue is cheap, they lease it to
//! one another instead (`enqueue/lease.rs`); the kernel's senders do not.
//!
//! A sender that takes the lease waits until the last holder's turn is over ([`RootLock::running`]). Otherwise that turn
//! would find the new holder's packets and send them, up to its quota, and both would compete for the lock as long.

use std::sync::atomic::Ordering::Relaxed;

use crossbeam_utils::CachePadded;

use txq_core::arch::inside::Lent;
use txq_core::arch::{Arch, Atomic};
use txq_core::packet::PacketList;
use txq_core::stats::contention::Site;
use txq_core::sync::lease::Lease;
use txq_core::sync::spinlock::{Held, SpinLock};
use txq_sched::generic::qdisc::Verdict;

use crate::generic::datapath::Core;
use crate::generic::datapath::Ctx;
use crate::generic::datapath::Root;
use crate::generic::datapath::Trial;
use crate::generic::enqueue::lease;
use crate::generic::enqueue::{QUEUE, ROOT_LOCK};
use crate::generic::run::{Driven, Owner, turn};

/// A lock over a queue's core, and its lease.
pub(super) struct RootLock<A: Arch> {
    pub(super) lock: CachePadded<SpinLock<A, Guarded<A>>>,
    /// 1 while an owner's turn lasts, else 0 (`qdisc->running`). Written by the owner under the lock, read by senders. Relaxed:
    /// a hint that orders nothing.
    running: CachePadded<A::AtomicU32>,
    /// Read by every sender at every call, written when the lease is granted, taken or ended.
    pub(super) lease: CachePadded<Lease<A>>,
    /// Whether owners write `running` also where there are no leases.
    shows_running: bool,
}

/// What the root lock guards.
pub(super) struct Guarded<A: Arch> {
    core: Core<A>,
    /// The last sender ([`Cache::id`](txq_core::pool::Cache::id)); 0 before the first. Used only where there are leases.
    last: usize,
    /// Measures whether leases send more than taking the lock by turns.
    trial: Trial,
}

impl<A: Arch> RootLock<A> {
    pub(super) fn new(core: Core<A>, shows_running: bool) -> Self {
        Self {
            lock: CachePadded::new(SpinLock::new(Guarded { core, last: 0, trial: Trial::new() })),
            running: CachePadded::new(A::AtomicU32::new(0)),
            lease: CachePadded::new(Lease::new()),
            shows_running,
        }
    }

    /// Whether an owner runs the queue. The answer may be stale.
    #[inline]
    pub(super) fn is_running(&self) -> bool {
        self.running.load(Relaxed) != 0
    }

    /// Waits while another sender has the lease.
    #[inline]
    pub(super) fn wait_for_lease(&self, packets: usize, cx: &mut Ctx<'_, A>) {
        if lease::is_anothers(&self.lease, cx) {
            self.wait_for_turn(packets, cx);
        }
    }

    #[cold]
    fn wait_for_turn(&self, packets: usize, cx: &mut Ctx<'_, A>) {
        if lease::wait(&self.lease, packets, cx) {
            // If the last holder does not run, its packets and the caller's share a turn.
            let _ = self.running.spin_until(Relaxed, |running| running == 0);
        }
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
        let mut held = self.lock.lock_at(Site::Enqueue);
        if A::lease() > 0 && held.data().last != cx.cache.id() {
            self.try_leases(&mut held, cx);
        }
        self.turn(held, busy, root, batch, cx)
    }

    /// Waits for the lock as a worker, and runs a turn.
    pub(super) fn run(&self, root: &Root<A>, cx: &mut Ctx<'_, A>) {
        let _ = self.turn(self.lock.lock_at(Site::Worker), None, root, &mut PacketList::new(), cx);
    }

    #[inline]
    fn turn(
        &self,
        mut held: Held<'_, A, Guarded<A>>,
        busy: Option<Held<'_, A, ()>>,
        root: &Root<A>,
        batch: &mut PacketList<A>,
        cx: &mut Ctx<'_, A>,
    ) -> Verdict {
        let share = batch.len();
        // While another owner is in the driver, the caller only enqueues.
        let shows = (self.shows_running || A::lease() > 0) && !held.data().core.running;
        let _shown = shows.then(|| Shown::new(&*self.running));
        let verdict = turn(Turn { _shown, held, busy }, root, batch, share, cx);
        cx.free_dropped();
        verdict
    }

    /// Notes that the queue goes to another sender, and begins or ends leases if the trial says so. A wait for the lock would
    /// be no sign that senders meet: while the queue goes to another CPU, the lock is often released already when its line
    /// arrives.
    #[cold]
    fn try_leases(&self, held: &mut Held<'_, A, Guarded<A>>, cx: &Ctx<'_, A>) {
        let Guarded { core, last, trial } = held.data();
        *last = cx.cache.id();
        if trial.is_due::<A>() {
            lease::look(trial, &self.lease, core.sent(), cx);
        }
    }

    pub(super) fn with_core(&self, f: &mut dyn FnMut(&mut Core<A>, bool)) {
        self.lock.with(|held| f(&mut held.data().core, false));
    }

    pub(super) fn try_with_core(&self, f: &mut dyn FnMut(&mut Core<A>, bool)) -> Option<bool> {
        self.lock.try_with_at(Site::Control, |held| f(&mut held.data().core, false)).map(|()| true)
    }

    pub(super) fn name_lines(&self) {
        self.lock.name_lines(ROOT_LOCK, QUEUE);
        A::name(&self.running, "root lock: whether the queue runs");
        A::name(&self.lease, "root lock: lease");
    }
}

/// The holder of the root lock. The other senders wait and leave no packets for it, so it keeps the defaults of [`Owner`]. It
/// releases the busylock when it enters the driver, the long part of its turn.
struct Turn<'w, A: Arch> {
    /// Dropped before the lock is released.
    _shown: Option<Shown<'w, A>>,
    held: Held<'w, A, Guarded<A>>,
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

impl<A: Arch> Owner<A> for Turn<'_, A> {
    #[inline]
    fn core(&mut self) -> &mut Core<A> {
        &mut self.held.data().core
    }

    #[inline]
    fn drive(&mut self, driven: &mut Driven<A>, f: impl FnOnce(&mut Driven<A>)) -> bool {
        self.busy = None;
        self.held.unlocked_at(Site::Retake, || {
            let _lent = Lent::<A>::begin();
            f(driven);
        });
        true
    }
}
