//! llist: a sender that finds packets on the defer list adds its own and returns (Linux 6.19, 100dfa74ca74 "net:
//! dev_queue_xmit() llist adoption").
//!
//! A sender that pushes onto the empty list has the duty: it takes the root lock, takes the whole list, enqueues it, and runs
//! the queue. So one sender at a time waits for the lock, however many there are, and it enqueues the packets of all. A
//! batch is one node of the list.
//!
//! The price of a push: it returns [`Verdict::Success`] before the qdisc has seen the packets. Only counters then report
//! drops. A sender that finds no other packets on the list gets the qdisc's own verdict.
//!
//! `qdisc_max_burst` bounds the list. The count ([`Defer::count`]) may be lower than the number of packets on the list. It misses
//! the packets pushed between the owner's exchange and its reset. It also misses the batches of senders that found the list
//! empty, at most one for each sender. The kernel allows itself the same slack.
//!
//! The kernel's lock holder cannot be preempted; this one can. Meanwhile the sender with the duty waits, and the others fill the
//! list and then drop. That is the one difference.
//!
//! # Wakes without a worker
//! A thread that makes room in the device need not schedule a worker while the list is not empty (`try_notify_owner`;
//! Linux 6.19, f8a55d5e71e6 "net: add a fast path in __netif_schedule()"): a sender is about to take the lock. It takes the list
//! and then checks whether the txq is open. The waker stores the open txq and then loads the list; the owner exchanges the list
//! and then loads the state of the txq. Each stores one word before it loads the other's, so each needs a full fence in
//! between. The fences in `try_notify_owner` and `take_list` pair.

use std::sync::atomic::Ordering::{Relaxed, SeqCst};

use crossbeam_utils::CachePadded;

use txq_core::arch::{Arch, Atomic};
use txq_core::packet::PacketList;
use txq_core::pool::slot::Slot;
use txq_core::stats::contention::{Lock, Retry, Site};
use txq_core::sync::contention::Recorded;
use txq_core::sync::llist::LList;
use txq_sched::generic::qdisc::Verdict;

use crate::generic::datapath::{Core, CoreAccess, Ctx, Gate, Root};
use crate::generic::enqueue::intake::Intake;
use crate::generic::enqueue::owns_queue;
use crate::generic::enqueue::root_lock::RootLock;

struct Llist<A: Arch> {
    defer: CachePadded<Defer<A>>,
    root: RootLock<A>,
    max_burst: u32,
}

/// The line that senders write. The lock holder writes it only to take the whole list.
struct Defer<A: Arch> {
    /// Batches that wait for the sender with the duty, newest first. Senders push (Release); the lock holder takes the whole
    /// list (Acquire).
    list: LList<A, Slot<A>>,
    /// Packets pushed since the lock holder last reset it, without the batches that found the list empty (`defer_count`).
    /// Senders add to it before they push, and read it; the lock holder resets it after it has taken the list. Relaxed: a bound
    /// that orders nothing.
    count: A::AtomicU32,
}

pub(super) fn build<A: Arch>(core: Core<A>, max_burst: u32) -> Box<dyn CoreAccess<A>> {
    let defer = Defer { list: LList::new(), count: A::AtomicU32::new(0) };
    Box::new(Llist { defer: CachePadded::new(defer), root: RootLock::new(core, false), max_burst })
}

impl<A: Arch> Llist<A> {
    /// Moves the packets of the whole list to `packets`; returns the number of batches. The caller holds the lock.
    fn take_list(&self, packets: &mut PacketList<A>) -> usize {
        let newest = self.defer.list.take_all();
        self.defer.count.store(0, Relaxed);
        // Orders the exchange of the list before the load of the txq's state. Pairs with the fence in `try_notify_owner`.
        A::fence(SeqCst);
        let mut intake = Intake::new();
        // SAFETY: `submit` pushes batches given up by `take_chain`, and `take_all` acquired them.
        unsafe { intake.refill(newest) };
        intake.next(usize::MAX, packets)
    }

    /// Calls `f` with the core, which the caller has locked. While a rule is being changed, moves the listed packets into the
    /// core, too. The sender with the duty runs the queue afterwards.
    fn visit(&self, core: &mut Core<A>, f: &mut dyn FnMut(&mut Core<A>, bool)) {
        f(core, !self.defer.list.is_empty());
        if core.gate() == Gate::Hold {
            let mut listed = PacketList::new();
            self.take_list(&mut listed);
            core.admit_later(&mut listed);
        }
    }
}

impl<A: Arch> CoreAccess<A> for Llist<A> {
    fn submit(&self, root: &Root<A>, batch: &mut PacketList<A>, cx: &mut Ctx<'_, A>) -> Verdict {
        if owns_queue(batch, cx) {
            return Verdict::Drop;
        }
        let n = batch.len();
        if !self.defer.list.is_empty_to_push()
            && self.defer.count.fetch_add(n as u32, Relaxed).saturating_add(n as u32) > self.max_burst
        {
            root.drop_burst(batch, cx);
            return Verdict::Drop;
        }
        let Some(chain) = batch.take_chain() else { return Verdict::Success };
        // SAFETY: the chain was just given up by its list, and descriptors live as long as the pool.
        if !unsafe { self.defer.list.push_or(chain.as_ptr(), || cx.dev.retries.note(Retry::DeferList)) } {
            return Verdict::Success;
        }
        let mut held = self.root.lock.lock_at(Site::Enqueue);
        let mut listed = PacketList::new();
        let batches = self.take_list(&mut listed);
        if batches > 1 {
            held.data().note_drained(listed.len());
        }
        match self.root.turn(held, None, root, &mut listed, n, cx) {
            verdict if batches == 1 => verdict,
            _ => Verdict::Success,
        }
    }

    fn run(&self, root: &Root<A>, cx: &mut Ctx<'_, A>) {
        self.root.run(root, cx);
    }

    fn needs_tx_lock(&self) -> bool {
        true
    }

    fn with_core(&self, f: &mut dyn FnMut(&mut Core<A>, bool)) -> bool {
        self.root.with_core(&mut |core| self.visit(core, f));
        true
    }

    fn try_with_core(&self, f: &mut dyn FnMut(&mut Core<A>, bool)) -> Option<bool> {
        self.root.try_with_core(&mut |core| self.visit(core, f))
    }

    fn try_notify_owner(&self) -> bool {
        // Orders the store of the open txq before the load of the list. Pairs with the fence in `take_list`.
        A::fence(SeqCst);
        !self.defer.list.is_empty()
    }

    fn is_behind(&self, long: u32) -> bool {
        let Defer { list, count } = &*self.defer;
        count.load(Relaxed) > long && !list.is_empty()
    }

    fn locks(&self, f: &mut dyn FnMut(Lock, &dyn Recorded)) {
        f(Lock::Root, &*self.root.lock);
    }

    fn name_lines(&self) {
        A::name(&self.defer, "llist head");
        self.root.name_lines();
    }
}
