//! The owner of an llist queue, for one turn.

use std::mem;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};

use txq_core::arch::{Arch, Atomic, CellApi};
use txq_core::packet::PacketList;
use txq_core::stats::contention::Site;
use txq_core::sync::spinlock::Held;

use super::{Llist, OwnerState};
use crate::generic::datapath::Core;
use crate::generic::datapath::Ctx;
use crate::generic::datapath::Root;
use crate::generic::enqueue::lease;
use crate::generic::run::{Driven, Owner};

/// The queue's owner, for one turn: it holds the root lock, or has released the lock and is in the driver.
pub(super) struct Turn<'w, A: Arch> {
    /// The root lock; `None` while the owner is in the driver.
    pub(super) root: Option<Held<'w, A, OwnerState<A>>>,
    pub(super) queue: &'w Llist<A>,
    /// Whether this turn has taken the list. From then on a sender that pushes onto the empty list has the duty.
    pub(super) drained_list: bool,
}

impl<A: Arch> Turn<'_, A> {
    #[inline]
    pub(super) fn owner_state(&mut self) -> &mut OwnerState<A> {
        self.root.as_mut().expect("only the driver is called without the lock").data()
    }

    /// Moves all packets that senders have pushed into the core.
    pub(super) fn take_listed(&mut self) {
        let queue = self.queue;
        let OwnerState { core, intake, .. } = self.owner_state();
        let mut listed = PacketList::new();
        intake.next(usize::MAX, &mut listed);
        // SAFETY: as in `gather`.
        unsafe { intake.refill(queue.take_list()) };
        intake.next(usize::MAX, &mut listed);
        core.admit_later(&mut listed);
    }

    /// Begins or ends leases if the trial says so.
    #[cold]
    pub(super) fn try_leases(&mut self, cx: &Ctx<'_, A>) {
        let queue = self.queue;
        let OwnerState { core, trial, .. } = self.owner_state();
        lease::look(trial, &queue.lease, core.sent(), cx);
    }

    /// Publishes the driver's result in [`Llist::driven`], and retakes the lock if it is free. Returns true with the lock
    /// held and a result in `driven`; false if the lock holder absorbs the result.
    #[cold]
    fn come_back(&mut self, driven: &mut Driven<A>) -> bool {
        let Llist { root, driven: cell, returned, .. } = self.queue;
        // SAFETY: while `returned` is 0 this thread counts as in the driver, and no lock holder accesses the cell.
        cell.with_mut(|d| mem::swap(unsafe { &mut *d }, driven));
        // Release: publishes the cell; pairs with the Acquire loads made with the lock held.
        returned.store(1, Release);
        loop {
            // Orders the store to `returned`, or the release of the lock, before the load of `returned` and the attempt to
            // take the lock. Pairs with the fence in `leave`.
            A::fence(SeqCst);
            if returned.load(Relaxed) == 0 {
                return false;
            }
            self.root = root.try_lock_at(Site::Retake);
            match &self.root {
                None => return false,
                Some(_) if returned.load(Acquire) != 0 => break,
                // The previous holder absorbed the result. Another owner may have returned while this thread held the lock:
                // release it and check again.
                Some(_) => self.root = None,
            }
        }
        // The cell may hold a result that another owner published later. The queue absorbs either.
        returned.store(0, Relaxed);
        // SAFETY: `returned` was 1 and this thread holds the lock.
        cell.with_mut(|d| mem::swap(unsafe { &mut *d }, driven));
        true
    }
}

impl<A: Arch> Owner<A> for Turn<'_, A> {
    #[inline]
    fn core(&mut self) -> &mut Core<A> {
        &mut self.owner_state().core
    }

    #[inline]
    fn gather(
        &mut self,
        own: &mut PacketList<A>,
        packets: usize,
        chunk: &mut PacketList<A>,
        root: &Root<A>,
        cx: &mut Ctx<'_, A>,
    ) -> usize {
        let (queue, drained_list) = (self.queue, self.drained_list);
        let OwnerState { core, intake, crowded, .. } = self.owner_state();
        let take = intake.is_empty() && !drained_list;
        // Acquire: the content of the cell; pairs with the store in `come_back`.
        if core.is_running() && queue.returned.load(Acquire) != 0 {
            queue.returned.store(0, Relaxed);
            // SAFETY: `returned` was 1 and this thread holds the lock.
            queue.driven.with_mut(|d| core.absorb(root, unsafe { &mut *d }, cx));
        }
        if take {
            let newest = queue.take_list();
            debug_assert!(!A::holders_run() || !newest.is_null(), "another thread has done this one's duty");
            // Orders the exchange of the list before the load of the txq's state. Pairs with the fence in `try_notify_owner`.
            A::fence(SeqCst);
            *crowded = !newest.is_null();
            // SAFETY: `submit` pushes batches given up by `take_chain`, and `take_list` acquired them.
            unsafe { intake.refill(newest) };
        }
        intake.append(own);
        let packets = if A::holders_run() { usize::MAX } else { packets };
        let batches = intake.next(packets, chunk);
        self.drained_list |= take;
        if batches > 0 && self.owner_state().crowded {
            self.core().note_drained(chunk.len());
            if take && self.owner_state().trial.is_due::<A>() {
                self.try_leases(cx);
            }
        }
        batches
    }

    #[inline]
    fn drive(&mut self, driven: &mut Driven<A>, f: impl FnOnce(&mut Driven<A>)) -> bool {
        /// Waits for the lock when the driver panics, so that the owner can correct the counters.
        struct Unwound<'o, 'w, A: Arch>(&'o mut Turn<'w, A>);
        impl<A: Arch> Drop for Unwound<'_, '_, A> {
            fn drop(&mut self) {
                self.0.root = Some(self.0.queue.root.lock_at(Site::Retake));
            }
        }
        self.set_bound(driven.len());
        self.root = None;
        let unwound = Unwound(self);
        f(driven);
        mem::forget(unwound);
        self.root = self.queue.lock_soon_at(Site::Retake);
        self.root.is_some() || self.come_back(driven)
    }

    fn waits(&mut self) -> bool {
        !self.owner_state().intake.is_empty() || (!self.drained_list && !self.queue.defer.list.is_empty())
    }

    #[inline]
    fn leave(&mut self, tired: bool) -> bool {
        let left = self.waits();
        if left && !tired {
            return false;
        }
        self.set_bound(0);
        let Llist { root, returned, entrance, .. } = self.queue;
        if left {
            entrance.open.store(1, Relaxed);
        }
        if !self.core().is_running() {
            return !left;
        }
        // Another thread is in the driver and may return during this.
        self.root = None;
        // Orders the release of the lock before the load of `returned`. Pairs with the fence in `come_back`.
        A::fence(SeqCst);
        if returned.load(Relaxed) == 0 {
            return !left;
        }
        if tired {
            return false;
        }
        self.root = root.try_lock_at(Site::Retake);
        // If another thread holds the lock, that thread absorbs the result.
        self.root.is_none()
    }
}
