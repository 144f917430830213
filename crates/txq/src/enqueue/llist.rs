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
//! What bounds the list is `qdisc_max_burst`, not the qdisc's limit. The count may fall behind the list by the packets
//! pushed between the owner's exchange and its reset, and by the batches of senders that found the list empty, at most
//! one for each sender. The kernel allows itself the same slack.
//!
//! The root lock is still a lock: while its holder is preempted in the qdisc, the one sender with the duty waits, and
//! the list fills behind it. Its waiters are preempted, too: so who finds it free takes it, whoever waits
//! (`SpinLock::steal_at`), for a lock that goes to a thread that does not run is nobody's. And an owner whose turn is over
//! leaves the queue open to the next sender, who need not wait for the worker to get a CPU.
//!
//! Whoever makes room in the device need not send a worker while the list is not empty (`look_again`; Linux 6.19,
//! f8a55d5e71e6 "net: add a fast path in __netif_schedule()"): a sender is on its way to the lock, or a worker has been
//! sent, and either will take the list and then look whether the txq is open. The waker stores the open txq and then
//! loads the list; the owner exchanges the list and then loads whether the txq is open. Each is a store before a load of
//! the other's word, so each has a full fence between: in `look_again` and `Owns::gather`, which pair.

use std::sync::atomic::Ordering::{Relaxed, SeqCst};

use crossbeam_utils::CachePadded;

use crate::arch::{Arch, Atomic};
use crate::ctx::Ctx;
use crate::drop::DropReason;
use crate::enqueue::Discipline;
use crate::enqueue::intake::Intake;
use crate::netdev::Root;
use crate::packet::PacketList;
use crate::pool::slot::Slot;
use crate::qdisc::Verdict;
use crate::run::{Core, Driven, Owner, turn};
use crate::sync::contention::{Lock, Recorded, Retry, Site};
use crate::sync::llist::LList;
use crate::sync::spinlock::{Held, SpinLock};

struct Llist<A: Arch> {
    defer: CachePadded<Defer<A>>,
    root: CachePadded<SpinLock<A, Owned<A>>>,
    max_burst: u32,
}

/// The line that senders write and the owner does not, but to take it all.
struct Defer<A: Arch> {
    list: LList<A, Slot<A>>,
    /// Packets pushed since the owner last reset it, those that found the list empty excepted (`defer_count`).
    count: A::AtomicU32,
    /// 1 when an owner whose turn was over has left packets behind. The worker will come for them, and a sender that
    /// comes first goes on in its place: else all would wait, and drop, until the worker has a CPU.
    open: A::AtomicU32,
}

/// What the root lock guards.
struct Owned<A: Arch> {
    core: Core<A>,
    intake: Intake<A>,
}

pub(super) fn build<A: Arch>(core: Core<A>, max_burst: u32) -> Box<dyn Discipline<A>> {
    let defer = Defer { list: LList::new(), count: A::AtomicU32::new(0), open: A::AtomicU32::new(0) };
    let root = SpinLock::new(Owned { core, intake: Intake::new() });
    Box::new(Llist { defer: CachePadded::new(defer), root: CachePadded::new(root), max_burst })
}

/// The holder of the root lock, for one turn.
struct Owns<'w, A: Arch> {
    root: Held<'w, A, Owned<A>>,
    defer: &'w Defer<A>,
    /// Whether this turn has taken the list. Who pushes onto it from then on has the duty.
    took: bool,
}

impl<A: Arch> Owner<A> for Owns<'_, A> {
    #[inline]
    fn core(&mut self) -> &mut Core<A> {
        &mut self.root.data().core
    }

    #[inline]
    fn gather(
        &mut self,
        _: &mut PacketList<A>,
        packets: usize,
        chunk: &mut PacketList<A>,
        _: &Root<A>,
        _: &mut Ctx<'_, A>,
    ) -> usize {
        let intake = &mut self.root.data().intake;
        if intake.is_empty() && !self.took {
            self.took = true;
            let newest = self.defer.list.take_all();
            self.defer.count.store(0, Relaxed);
            // Exchange the list before load the txq's state: pairs with the fence in `look_again`.
            A::fence(SeqCst);
            // SAFETY: `submit` pushes batches given up by `take_chain`, and `take_all` acquired them.
            unsafe { intake.refill(newest) };
        }
        let batches = intake.next(packets, chunk);
        if batches > 0 {
            self.core().note_drained(chunk.len());
        }
        batches
    }

    #[inline]
    fn drive(&mut self, driven: &mut Driven<A>, f: impl FnOnce(&mut Driven<A>)) -> bool {
        self.root.unlocked_stealing_at(Site::Retake, || f(driven));
        true
    }

    fn waits(&mut self) -> bool {
        !self.root.data().intake.is_empty() || (!self.took && !self.defer.list.is_empty())
    }

    #[inline]
    fn leave(&mut self, tired: bool) -> bool {
        let left = self.waits();
        if left && tired {
            self.defer.open.store(1, Relaxed);
        }
        !left
    }
}

impl<A: Arch> Llist<A> {
    /// Goes on where an owner's turn was over, if one has left the queue open. Comes when the caller's own packets are in
    /// other hands: a driver may panic in this.
    #[inline]
    fn take_over(&self, root: &Root<A>, cx: &mut Ctx<'_, A>) {
        // The lock says who has the queue; this only says that asking for it is worth while.
        if self.defer.open.load(Relaxed) != 0
            && let Some(held) = self.root.try_lock_at(Site::Enqueue)
        {
            self.defer.open.store(0, Relaxed);
            let _ = self.turn(held, root, 0, cx);
        }
    }

    fn turn(
        &self,
        root_lock: Held<'_, A, Owned<A>>,
        root: &Root<A>,
        share: usize,
        cx: &mut Ctx<'_, A>,
    ) -> Verdict {
        let owner = Owns { root: root_lock, defer: &self.defer, took: false };
        let verdict = turn(owner, root, &mut PacketList::new(), share, cx);
        cx.free_dropped();
        verdict
    }
}

impl<A: Arch> Discipline<A> for Llist<A> {
    fn submit(&self, root: &Root<A>, batch: &mut PacketList<A>, cx: &mut Ctx<'_, A>) -> Verdict {
        let n = batch.len() as u32;
        if !self.defer.list.is_empty()
            && self.defer.count.fetch_add(n, Relaxed).saturating_add(n) > self.max_burst
        {
            root.count_burst_drops(n);
            batch.for_each_mut(|p| p.set_drop_reason(DropReason::QdiscBurstDrop));
            cx.cache.free(batch);
            self.take_over(root, cx);
            return Verdict::Drop;
        }
        let Some(chain) = batch.take_chain() else { return Verdict::Success };
        // SAFETY: the chain was just given up by its list, and descriptors live as long as the pool.
        if !unsafe { self.defer.list.push_or(chain.as_ptr(), || cx.dev.retries.note(Retry::DeferList)) } {
            self.take_over(root, cx);
            return Verdict::Success;
        }
        self.turn(self.root.steal_at(Site::Enqueue), root, n as usize, cx)
    }

    fn run(&self, root: &Root<A>, cx: &mut Ctx<'_, A>) {
        let _ = self.turn(self.root.steal_at(Site::Worker), root, 0, cx);
    }

    fn visit(&self, f: &mut dyn FnMut(&mut Core<A>, bool)) -> bool {
        self.root.with(|held| {
            let Owned { core, intake } = held.data();
            // Under the lock: whoever took packets off the list has put them in one of the two by now.
            f(core, !intake.is_empty() || !self.defer.list.is_empty());
        });
        true
    }

    fn look_again(&self) -> bool {
        // Store the open txq before load the list: pairs with the fence in `gather`.
        A::fence(SeqCst);
        !self.defer.list.is_empty()
    }

    fn locks(&self, f: &mut dyn FnMut(Lock, &dyn Recorded)) {
        f(Lock::Root, &*self.root);
    }
}
