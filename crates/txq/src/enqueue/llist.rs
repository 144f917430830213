//! llist: a sender that finds others waiting leaves its packets on their list and goes (Linux 6.19, 100dfa74ca74 "net:
//! dev_queue_xmit() llist adoption").
//!
//! Pushing onto the empty list is a duty: that sender takes the root lock, takes the whole list, enqueues it, and
//! runs the queue. So one sender at a time waits for the lock, however many there are, and it brings everybody's packets
//! along. A batch is one node of the list: its owner moves it into the qdisc without touching each packet.
//!
//! The kernel's owner enqueues all that it took. Here an owner enqueues no more than it dequeues, and leaves the rest to
//! the worker when its turn is over: with a qdisc that is slow to enqueue, one that only enqueued would send nothing.
//!
//! The price of leaving: who leaves is told [`Verdict::Success`] before the qdisc has seen its packets. Drops are then told
//! by counters only. A sender that comes alone gets the qdisc's own verdict.
//!
//! What bounds the list is `qdisc_max_burst`; and in front of a full pfifo its room (`llist/entrance.rs`). The
//! count may fall behind the list by the packets
//! pushed between the owner's exchange and its reset, and by the batches of senders that found the list empty, at most
//! one for each sender. The kernel allows itself the same slack.
//!
//! The root lock is still a lock, and its holder can be preempted, which the kernel's cannot. Who waited for it then would
//! wait for the scheduler, with everything that depends on it: the list behind a sender that has the duty, the driver behind
//! an owner that comes back from it. So nobody waits for longer than a holder that runs needs. A sender that does not get the
//! lock leaves its duty to the worker, and the list [`open`](Entrance::open): who comes first of the two goes on. An owner that
//! comes back from the driver and finds the lock taken leaves what it brings in [`Llist::driven`], and goes: the holder goes on
//! in its place. Holder and comer must not miss each other: the comer stores `returned` and then tries the lock, the holder
//! releases the lock and then loads `returned`, each with a full fence between, in [`Owns::come_back`] and `leave`, which
//! pair.
//!
//! Whoever makes room in the device need not send a worker while the list is not empty (`look_again`; Linux 6.19,
//! f8a55d5e71e6 "net: add a fast path in __netif_schedule()"): a sender is on its way to the lock, or a worker has been
//! sent, and either will take the list and then look whether the txq is open. The waker stores the open txq and then
//! loads the list; the owner exchanges the list and then loads whether the txq is open. Each is a store before a load of
//! the other's word, so each has a full fence between: in `look_again` and `Owns::gather`, which pair.

mod entrance;

use std::mem;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};

use crossbeam_utils::CachePadded;

use crate::arch::{Arch, Atomic, CellApi};
use crate::ctx::Ctx;
use crate::enqueue::intake::Intake;
use crate::enqueue::llist::entrance::{Entrance, Room};
use crate::enqueue::refused::Refused;
use crate::enqueue::room::InHand;
use crate::enqueue::{DRIVEN, Discipline, LONG, QUEUE, ROOT_LOCK};
use crate::netdev::Root;
use crate::packet::PacketList;
use crate::pool::slot::Slot;
use crate::qdisc::Verdict;
use crate::run::{Bypass, Core, Driven, Owner, bypass, turn};
use crate::sync::contention::{Lock, Recorded, Retry, Site};
use crate::sync::llist::LList;
use crate::sync::spinlock::{Held, SpinLock};

struct Llist<A: Arch> {
    defer: CachePadded<Defer<A>>,
    root: CachePadded<SpinLock<A, Owned<A>>>,
    /// What came back from the driver. For who is in the driver; and once `returned` is 1, for who has the root lock.
    driven: CachePadded<A::Cell<Driven<A>>>,
    /// 1 when there is something in `driven`. On a line of its own: with the list's, each owner that looks here would take it
    /// from a sender between its reading of the head and its exchange.
    returned: CachePadded<A::AtomicU32>,
    entrance: CachePadded<Entrance<A>>,
    /// Packets that senders dropped for want of room in the qdisc.
    refused: Refused<A>,
    max_burst: u32,
}

/// The line that senders write and the owner does not, but to take it all.
struct Defer<A: Arch> {
    list: LList<A, Slot<A>>,
    /// Packets pushed since the owner last reset it, those that found the list empty excepted (`defer_count`).
    count: A::AtomicU32,
}

/// What the root lock guards.
struct Owned<A: Arch> {
    core: Core<A>,
    intake: Intake<A>,
    /// Whether the last turn found packets on the list. True before the first. While it is false an owner keeps the lock in
    /// the driver.
    crowded: bool,
    /// `Entrance::bound`.
    bound: u32,
}

// SAFETY: the cell is for one thread at a time, as its field says, and what it holds is `Send`.
unsafe impl<A: Arch> Send for Llist<A> {}
// SAFETY: as above.
unsafe impl<A: Arch> Sync for Llist<A> {}

pub(super) fn build<A: Arch>(core: Core<A>, max_burst: u32) -> Box<dyn Discipline<A>> {
    let [count, returned] = [(); 2].map(|()| A::AtomicU32::new(0));
    let owned = Owned { core, intake: Intake::new(), crowded: true, bound: max_burst };
    Box::new(Llist {
        defer: CachePadded::new(Defer { list: LList::new(), count }),
        root: CachePadded::new(SpinLock::new(owned)),
        driven: CachePadded::new(A::Cell::new(Driven::new())),
        returned: CachePadded::new(returned),
        entrance: CachePadded::new(Entrance::new(max_burst)),
        refused: Refused::new(),
        max_burst,
    })
}

/// The holder of the root lock, for one turn; or has let go of it and is in the driver.
struct Owns<'w, A: Arch> {
    root: Option<Held<'w, A, Owned<A>>>,
    way: &'w Llist<A>,
    /// Whether this turn has taken the list. Who pushes onto it from then on has the duty.
    took: bool,
}

impl<A: Arch> Owns<'_, A> {
    #[inline]
    fn owned(&mut self) -> &mut Owned<A> {
        self.root.as_mut().expect("only the driver is called without the lock").data()
    }

    /// Comes back from the driver. Takes the lock, and true; or leaves what it brings to who has the lock.
    #[cold]
    fn come_back(&mut self, driven: &mut Driven<A>) -> bool {
        let Llist { root, driven: cell, returned, .. } = self.way;
        // SAFETY: we are in the driver still, for those who have the lock, as long as `returned` is 0.
        cell.with_mut(|d| mem::swap(unsafe { &mut *d }, driven));
        // Release: the cell, to who loads this with the lock held.
        returned.store(1, Release);
        loop {
            // Store `returned`, or release the lock, before try the lock or load `returned`: pairs with the fence in `leave`.
            A::fence(SeqCst);
            if returned.load(Relaxed) == 0 {
                return false;
            }
            self.root = root.try_lock_at(Site::Retake);
            match &self.root {
                None => return false,
                Some(_) if returned.load(Acquire) != 0 => break,
                // Who had the lock before us has seen to it; another may have come back while we had it.
                Some(_) => self.root = None,
            }
        }
        // What we find may be what another has brought since: it is all the same to the queue.
        returned.store(0, Relaxed);
        // SAFETY: `returned` was 1 and we have the lock.
        cell.with_mut(|d| mem::swap(unsafe { &mut *d }, driven));
        true
    }
}

impl<A: Arch> Owner<A> for Owns<'_, A> {
    #[inline]
    fn core(&mut self) -> &mut Core<A> {
        &mut self.owned().core
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
        let (way, took) = (self.way, self.took);
        let Owned { core, intake, crowded, .. } = self.owned();
        let take = intake.is_empty() && !took;
        // Acquire: what is in the cell.
        if core.is_running() && way.returned.load(Acquire) != 0 {
            way.returned.store(0, Relaxed);
            // SAFETY: `returned` was 1 and we have the lock.
            way.driven.with_mut(|d| core.absorb(root, unsafe { &mut *d }, cx));
        }
        if take {
            let newest = way.defer.list.take_all();
            way.defer.count.store(0, Relaxed);
            way.entrance.reopen();
            // Exchange the list before load the txq's state: pairs with the fence in `look_again`.
            A::fence(SeqCst);
            *crowded = !newest.is_null();
            // SAFETY: `submit` pushes batches given up by `take_chain`, and `take_all` acquired them.
            unsafe { intake.refill(newest) };
        }
        intake.append(own);
        let batches = intake.next(packets, chunk);
        self.took |= take;
        if batches > 0 && self.owned().crowded {
            self.core().note_drained(chunk.len());
        }
        batches
    }

    #[inline]
    fn drive(&mut self, driven: &mut Driven<A>, f: impl FnOnce(&mut Driven<A>)) -> bool {
        /// A panic of the driver: the lock is taken back, whoever has it now, for the accounts to be set right.
        struct Unwound<'o, 'w, A: Arch>(&'o mut Owns<'w, A>);
        impl<A: Arch> Drop for Unwound<'_, '_, A> {
            fn drop(&mut self) {
                self.0.root = Some(self.0.way.root.lock_at(Site::Retake));
            }
        }
        self.set_bound(driven.len());
        self.root = None;
        let unwound = Unwound(self);
        f(driven);
        mem::forget(unwound);
        self.root = self.way.root.try_lock_soon_at(Site::Retake);
        self.root.is_some() || self.come_back(driven)
    }

    fn waits(&mut self) -> bool {
        !self.owned().intake.is_empty() || (!self.took && !self.way.defer.list.is_empty())
    }

    #[inline]
    fn leave(&mut self, tired: bool) -> bool {
        let left = self.waits();
        if left && !tired {
            return false;
        }
        self.set_bound(0);
        let Llist { root, returned, entrance, .. } = self.way;
        if left {
            entrance.open.store(1, Relaxed);
        }
        if !self.core().is_running() {
            return !left;
        }
        // Somebody is in the driver, and may come back while we go.
        self.root = None;
        // Release the lock before load `returned`: pairs with the fence in `come_back`.
        A::fence(SeqCst);
        if returned.load(Relaxed) == 0 {
            return !left;
        }
        if tired {
            return false;
        }
        self.root = root.try_lock_at(Site::Retake);
        // Whoever has the lock now sees to it.
        self.root.is_none()
    }
}

impl<A: Arch> Llist<A> {
    /// As [`submit`](Discipline::submit), by a sender that has found nobody waiting and has taken the lock. Packets that it
    /// pushed before are not on the list any more, and what others push meanwhile is theirs to bring.
    #[inline]
    fn submit_alone(
        &self,
        held: Held<'_, A, Owned<A>>,
        root: &Root<A>,
        batch: &mut PacketList<A>,
        cx: &mut Ctx<'_, A>,
    ) -> Verdict {
        let share = batch.len();
        let mut owner = Owns { root: Some(held), way: self, took: false };
        let Owned { core, intake, crowded, .. } = owner.owned();
        let alone = core.has_permit() || (intake.is_empty() && !*crowded);
        let bypassed = if alone { bypass(core, root, batch, cx) } else { Bypass::No };
        if bypassed == Bypass::Done {
            drop(owner);
            cx.free_dropped();
            return Verdict::Success;
        }
        let verdict = turn(owner, root, batch, share, cx);
        cx.free_dropped();
        if bypassed == Bypass::No { verdict } else { Verdict::Success }
    }

    /// Calls `f` with the core.
    fn visit_held(&self, held: Held<'_, A, Owned<A>>, f: &mut dyn FnMut(&mut Core<A>, bool)) -> bool {
        let mut owner = Owns { root: Some(held), way: self, took: false };
        // Under the lock: whoever took packets off the list has put them into the intake or the qdisc by now.
        let waiting = owner.waits();
        owner.core().add_refused(self.refused.take());
        f(owner.core(), waiting);
        owner.leave(true)
    }

    fn turn(
        &self,
        held: Held<'_, A, Owned<A>>,
        root: &Root<A>,
        share: usize,
        cx: &mut Ctx<'_, A>,
    ) -> Verdict {
        let owner = Owns { root: Some(held), way: self, took: false };
        let verdict = turn(owner, root, &mut PacketList::new(), share, cx);
        cx.free_dropped();
        verdict
    }
}

impl<A: Arch> Discipline<A> for Llist<A> {
    fn submit(&self, root: &Root<A>, batch: &mut PacketList<A>, cx: &mut Ctx<'_, A>) -> Verdict {
        let n = batch.len() as u32;
        if self.entrance.closed.load(Relaxed) != 0
            && !InHand::during(cx.dev, batch.len(), || self.wait_at_entrance(root, cx))
        {
            self.refused.drop_batch(batch, cx);
            return Verdict::Drop;
        }
        if self.defer.list.is_empty()
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
        if let Some(held) = self.root.try_lock_soon_at(Site::Enqueue) {
            return self.turn(held, root, n as usize, cx);
        }
        self.entrance.open.store(1, Relaxed);
        cx.dev.hand_over(root.index);
        Verdict::Success
    }

    fn run(&self, root: &Root<A>, cx: &mut Ctx<'_, A>) {
        let _ = self.turn(self.root.lock_at(Site::Worker), root, 0, cx);
    }

    fn visit(&self, f: &mut dyn FnMut(&mut Core<A>, bool)) -> bool {
        self.visit_held(self.root.lock_at(Site::Control), f)
    }

    fn try_visit(&self, f: &mut dyn FnMut(&mut Core<A>, bool)) -> Option<bool> {
        self.root.try_lock_at(Site::Control).map(|held| self.visit_held(held, f))
    }

    fn look_again(&self) -> bool {
        // Store the open txq before load the list: pairs with the fence in `gather`.
        A::fence(SeqCst);
        !self.defer.list.is_empty()
    }

    fn is_behind(&self) -> bool {
        let Defer { list, count } = &*self.defer;
        count.load(Relaxed) > self.max_burst / LONG && !list.is_empty()
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
        self.refused.name_lines("llist: packets refused");
    }
}
