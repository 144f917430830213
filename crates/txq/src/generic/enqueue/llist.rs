//! llist: a sender that finds packets on the defer list adds its own and returns (Linux 6.19, 100dfa74ca74 "net:
//! dev_queue_xmit() llist adoption").
//!
//! A sender that pushes onto the empty list has a duty: it takes the root lock, takes the whole list, enqueues it, and runs
//! the queue. So one sender at a time waits for the lock, however many there are, and it enqueues the packets of all. A
//! batch is one node of the list: the owner moves it into the qdisc without touching each packet.
//!
//! The kernel's owner enqueues the whole list. Here an owner enqueues no more than it dequeues, and leaves the rest to the
//! worker at the end of its turn: with a qdisc that is slow to enqueue, an owner that enqueued the whole list would send
//! nothing.
//!
//! The price of a push: it returns [`Verdict::Success`] before the qdisc has seen the packets. Only counters then report
//! drops. A sender that finds the list empty and the lock free gets the qdisc's own verdict.
//!
//! Where the queue is cheap, busy senders take turns instead (`enqueue/lease.rs`); the kernel's do not.
//!
//! `qdisc_max_burst` bounds the list; in front of a full pfifo, the room in the pfifo does (`llist/entrance.rs`). The count
//! ([`Defer::count`]) may be lower than the number of packets on the list. It misses the packets pushed between the owner's
//! exchange and its reset. It also misses the batches of senders that found the list empty, at most one for each sender. The
//! kernel allows itself the same slack.
//!
//! # No wait for a preempted lock holder
//! The holder of the root lock can be preempted; the kernel's cannot. A thread that waited for it would wait for the
//! scheduler, and so would everything behind that thread: the list behind a sender with the duty, the driver behind an owner
//! that returns from it. So senders and owners wait no longer than a running holder needs:
//!
//! - A sender that does not get the lock leaves its duty to the worker and sets [`Entrance::open`]. The worker or the next
//!   sender runs the queue, whichever gets the lock first.
//! - An owner that returns from the driver and finds the lock taken publishes its result in [`Llist::driven`] and ends its
//!   turn. The lock holder continues in its place. [`Llist::returned`] documents how neither misses the other.
//!
//! In a simulation of the kernel's llist no holder is preempted ([`Arch::holders_run`]), and threads do what the kernel's do: a
//! sender with the duty, and an owner that returns from the driver, wait for the lock as long as it takes. Only a sender with the
//! duty takes the list, and all of it, so one sender at a time waits for the lock. `qdisc_max_burst` alone bounds the list, and
//! no sender waits for a lease.
//!
//! # Wakes without a worker
//! A thread that makes room in the device need not schedule a worker while the list is not empty (`try_notify_owner`;
//! Linux 6.19, f8a55d5e71e6 "net: add a fast path in __netif_schedule()"): a sender is about to take the lock, or a worker
//! is scheduled. Either takes the list and then checks whether the txq is open. The waker stores the open txq and then loads
//! the list; the owner exchanges the list and then loads the state of the txq. Each stores one word before it loads the
//! other's, so each needs a full fence in between. The fences in `try_notify_owner` and `Turn::gather` pair.

mod entrance;
mod owner;

use std::sync::atomic::Ordering::{Relaxed, SeqCst};

use crossbeam_utils::CachePadded;

use txq_core::arch::{Arch, Atomic, CellApi};
use txq_core::packet::PacketList;
use txq_core::pool::slot::Slot;
use txq_core::stats::contention::{Lock, Retry, Site};
use txq_core::sync::contention::Recorded;
use txq_core::sync::lease::Lease;
use txq_core::sync::llist::LList;
use txq_core::sync::spinlock::{Held, SpinLock};
use txq_sched::generic::qdisc::Verdict;

use crate::generic::datapath::Core;
use crate::generic::datapath::CoreAccess;
use crate::generic::datapath::Ctx;
use crate::generic::datapath::Gate;
use crate::generic::datapath::Root;
use crate::generic::datapath::Trial;
use crate::generic::enqueue::intake::Intake;
use crate::generic::enqueue::lease;
use crate::generic::enqueue::llist::entrance::{Entrance, Room};
use crate::generic::enqueue::llist::owner::Turn;
use crate::generic::enqueue::refused::Refused;
use crate::generic::enqueue::room::InHand;
use crate::generic::enqueue::{DRIVEN, QUEUE, ROOT_LOCK};
use crate::generic::run::{Bypass, Driven, Owner, bypass, turn};

struct Llist<A: Arch> {
    defer: CachePadded<Defer<A>>,
    root: CachePadded<SpinLock<A, OwnerState<A>>>,
    /// The result of a driver call that returned while the lock was taken. Belongs to the thread in the driver while
    /// `returned` is 0, and to the holder of the root lock while it is 1.
    driven: CachePadded<A::Cell<Driven<A>>>,
    /// The owner of `driven`.
    ///
    /// - 0: `driven` holds no result.
    /// - 1: `driven` holds a result that the lock holder must absorb.
    ///
    /// Written with 1 (Release) by an owner that returns from the driver, in [`Turn::come_back`]; with 0 (Relaxed) by the
    /// lock holder that takes the result, in `gather` or `come_back`. Read with the lock held (Acquire, pairs with the store
    /// of 1) in `gather` and `come_back`, and without the lock (Relaxed, after a fence) in `come_back` and `leave`.
    ///
    /// The returning owner stores 1 and then tries the lock; the lock holder releases the lock and then loads this. The
    /// SeqCst fences between these steps, in `come_back` and `leave`, pair: at least one of the two threads sees the other.
    ///
    /// On a line of its own: an owner that read it on the list's line would take that line from a sender between the
    /// sender's load of the head and its exchange.
    returned: CachePadded<A::AtomicU32>,
    entrance: CachePadded<Entrance<A>>,
    /// Read by every sender at every call, written when the lease is granted, taken or ended.
    lease: CachePadded<Lease<A>>,
    /// Packets that senders dropped for want of room in the qdisc.
    refused: Refused<A>,
    max_burst: u32,
}

/// The line that senders write. The owner writes it only to take the whole list.
struct Defer<A: Arch> {
    /// Batches that wait for the owner, newest first. Senders push (Release); the lock holder takes the whole list
    /// (Acquire).
    list: LList<A, Slot<A>>,
    /// Packets pushed since the owner last reset it, without the batches that found the list empty (`defer_count`). Senders
    /// add to it before they push, and read it; the lock holder resets it after it has taken the list. Relaxed: a bound that
    /// orders nothing.
    count: A::AtomicU32,
}

/// The state that the root lock guards.
struct OwnerState<A: Arch> {
    core: Core<A>,
    intake: Intake<A>,
    /// Whether the list was not empty when an owner last took it. True before the first time. While it is false, a sender
    /// that takes the lock at once may bypass the qdisc, and holds the lock while it is in the driver.
    crowded: bool,
    /// A copy of [`Entrance::bound`], which only the lock holder writes.
    bound: u32,
    /// Measures whether leases send more than handing over.
    trial: Trial,
}

// SAFETY: one thread at a time accesses the cell, as its field says, and its content is `Send`.
unsafe impl<A: Arch> Send for Llist<A> {}
// SAFETY: as above.
unsafe impl<A: Arch> Sync for Llist<A> {}

pub(super) fn build<A: Arch>(core: Core<A>, max_burst: u32) -> Box<dyn CoreAccess<A>> {
    let [count, returned] = [(); 2].map(|()| A::AtomicU32::new(0));
    let owned =
        OwnerState { core, intake: Intake::new(), crowded: true, bound: max_burst, trial: Trial::new() };
    Box::new(Llist {
        defer: CachePadded::new(Defer { list: LList::new(), count }),
        root: CachePadded::new(SpinLock::new(owned)),
        driven: CachePadded::new(A::Cell::new(Driven::new())),
        returned: CachePadded::new(returned),
        entrance: CachePadded::new(Entrance::new(max_burst)),
        lease: CachePadded::new(Lease::new()),
        refused: Refused::new(),
        max_burst,
    })
}

impl<A: Arch> Llist<A> {
    /// Takes the lock. Where a holder may be preempted, waits no longer than a running one needs.
    #[inline]
    fn lock_soon_at(&self, site: Site) -> Option<Held<'_, A, OwnerState<A>>> {
        match A::holders_run() {
            true => Some(self.root.lock_at(site)),
            false => self.root.try_lock_soon_at(site),
        }
    }

    /// Takes the whole list; returns the newest batch. The caller holds the lock.
    fn take_list(&self) -> *mut Slot<A> {
        let newest = self.defer.list.take_all();
        self.defer.count.store(0, Relaxed);
        self.entrance.reopen();
        newest
    }

    /// As [`submit`](CoreAccess::submit), for a sender that found the list empty and has taken the lock. Packets that this
    /// sender pushed earlier are no longer on the list; senders that push now have the duty themselves.
    #[inline]
    fn submit_alone(
        &self,
        held: Held<'_, A, OwnerState<A>>,
        root: &Root<A>,
        batch: &mut PacketList<A>,
        cx: &mut Ctx<'_, A>,
    ) -> Verdict {
        let share = batch.len();
        let mut owner = Turn { root: Some(held), queue: self, drained_list: false };
        let OwnerState { core, intake, crowded, .. } = owner.owner_state();
        let alone = core.has_permit() || (intake.is_empty() && !*crowded);
        let bypassed = if alone { bypass(core, root, batch, cx) } else { Bypass::No };
        if let Bypass::Done(verdict) = bypassed {
            drop(owner);
            cx.free_dropped();
            return verdict;
        }
        let verdict = turn(owner, root, batch, share, cx);
        cx.free_dropped();
        bypassed.verdict_or(verdict)
    }

    /// As [`submit_alone`](Llist::submit_alone), for a sender that has just taken the lease.
    #[cold]
    fn submit_leased(
        &self,
        held: Held<'_, A, OwnerState<A>>,
        root: &Root<A>,
        batch: &mut PacketList<A>,
        cx: &mut Ctx<'_, A>,
    ) -> Verdict {
        let share = batch.len();
        let mut owner = Turn { root: Some(held), queue: self, drained_list: false };
        owner.try_leases(cx);
        Self::turn(owner, root, batch, share, cx)
    }

    /// Calls `f` with the core, and with whether packets wait for an owner. Returns false if a worker must run the queue.
    fn visit_held(&self, held: Held<'_, A, OwnerState<A>>, f: &mut dyn FnMut(&mut Core<A>, bool)) -> bool {
        let mut owner = Turn { root: Some(held), queue: self, drained_list: false };
        // With the lock held: packets that an owner took off the list are in the intake or the qdisc by now.
        let waiting = owner.waits();
        owner.core().add_refused(self.refused.take());
        f(owner.core(), waiting);
        if owner.core().gate() == Gate::Hold {
            owner.take_listed();
        }
        owner.leave(true)
    }

    /// Runs a turn of the lock holder, which has no packets of its own to add.
    fn turn_for_others(
        &self,
        held: Held<'_, A, OwnerState<A>>,
        root: &Root<A>,
        share: usize,
        cx: &mut Ctx<'_, A>,
    ) -> Verdict {
        let owner = Turn { root: Some(held), queue: self, drained_list: false };
        Self::turn(owner, root, &mut PacketList::new(), share, cx)
    }

    /// Runs a turn of `owner`, which adds its own packets, and frees those that the qdisc has dropped.
    fn turn(
        owner: Turn<'_, A>,
        root: &Root<A>,
        own: &mut PacketList<A>,
        share: usize,
        cx: &mut Ctx<'_, A>,
    ) -> Verdict {
        let verdict = turn(owner, root, own, share, cx);
        cx.free_dropped();
        verdict
    }
}

impl<A: Arch> CoreAccess<A> for Llist<A> {
    fn submit(&self, root: &Root<A>, batch: &mut PacketList<A>, cx: &mut Ctx<'_, A>) -> Verdict {
        let n = batch.len() as u32;
        // The last holder of the lease ends its call soon, if it runs.
        if !A::holders_run()
            && lease::is_anothers(&self.lease, cx)
            && lease::wait(&self.lease, batch.len(), cx)
            && self.defer.list.is_empty()
            && let Some(held) = self.root.try_lock_soon_at(Site::Enqueue)
        {
            return self.submit_leased(held, root, batch, cx);
        }
        if self.entrance.closed.load(Relaxed) != 0
            && !InHand::during(cx.dev, batch.len(), || self.wait_at_entrance(root, cx))
        {
            self.refused.drop_batch(batch, cx);
            return Verdict::Drop;
        }
        if !A::holders_run()
            && self.defer.list.is_empty()
            && let Some(held) = self.root.try_lock_at(Site::Enqueue)
        {
            return self.submit_alone(held, root, batch, cx);
        }
        if !self.defer.list.is_empty_to_push() {
            let before = self.defer.count.fetch_add(n, Relaxed);
            if before.saturating_add(n) > self.entrance.bound.load(Relaxed) {
                match InHand::during(cx.dev, batch.len(), || self.wait_for_room(root, n, before, cx)) {
                    Room::Yes => {}
                    Room::QdiscFull => {
                        self.refused.drop_batch(batch, cx);
                        return Verdict::Drop;
                    }
                    Room::ListFull => {
                        root.drop_burst(batch, cx);
                        return Verdict::Drop;
                    }
                }
            }
        }
        let Some(chain) = batch.take_chain() else { return Verdict::Success };
        // SAFETY: the chain was just given up by its list, and descriptors live as long as the pool.
        if !unsafe { self.defer.list.push_or(chain.as_ptr(), || cx.dev.retries.note(Retry::DeferList)) } {
            self.take_over(root, cx);
            return Verdict::Success;
        }
        if let Some(held) = self.lock_soon_at(Site::Enqueue) {
            return self.turn_for_others(held, root, n as usize, cx);
        }
        self.entrance.open.store(1, Relaxed);
        cx.dev.hand_over(root.index);
        Verdict::Success
    }

    fn run(&self, root: &Root<A>, cx: &mut Ctx<'_, A>) {
        let held = self.root.lock_at(Site::Worker);
        // Where holders run, a sender with the duty waits for the lock and takes the list itself.
        let mut owner = Turn { root: Some(held), queue: self, drained_list: A::holders_run() };
        debug_assert!(
            !A::holders_run() || owner.owner_state().intake.is_empty(),
            "a part of a list was left"
        );
        let _ = Self::turn(owner, root, &mut PacketList::new(), 0, cx);
    }

    fn with_core(&self, f: &mut dyn FnMut(&mut Core<A>, bool)) -> bool {
        self.visit_held(self.root.lock_at(Site::Control), f)
    }

    fn try_with_core(&self, f: &mut dyn FnMut(&mut Core<A>, bool)) -> Option<bool> {
        self.root.try_lock_at(Site::Control).map(|held| self.visit_held(held, f))
    }

    fn try_notify_owner(&self) -> bool {
        // Orders the store of the open txq before the load of the list. Pairs with the fence in `gather`.
        A::fence(SeqCst);
        !self.defer.list.is_empty()
    }

    fn is_behind(&self, long: u32) -> bool {
        let Defer { list, count } = &*self.defer;
        count.load(Relaxed) > long && !list.is_empty()
    }

    fn lease(&self) -> Option<&Lease<A>> {
        Some(&self.lease)
    }

    fn locks(&self, f: &mut dyn FnMut(Lock, &dyn Recorded)) {
        f(Lock::Root, &*self.root);
    }

    fn name_lines(&self) {
        A::name(&self.defer, "llist head");
        self.root.name_lines(ROOT_LOCK, QUEUE);
        A::name(&self.driven, DRIVEN);
        A::name(&self.returned, "llist: whether a driver came back");
        A::name(&self.entrance, "llist: entrance");
        A::name(&self.lease, "llist: lease");
        self.refused.name_lines("llist: packets refused");
    }
}
