//! llist: a sender that finds others waiting leaves its packets on their list and goes (Linux 6.19, 100dfa74ca74 "net:
//! dev_queue_xmit() llist adoption").
//!
//! Pushing onto the empty list is a duty: that sender takes the root lock, takes the whole list, enqueues it, and
//! runs the queue. So one sender at a time waits for the lock, however many there are, and it brings everybody's packets
//! along. A batch is one node of the list: its owner moves it into the qdisc without touching each packet.
//!
//! The price of leaving: who leaves is told [`Verdict::Success`] before the qdisc has seen its packets. Drops are then told
//! by counters only. A sender that comes alone gets the qdisc's own verdict.
//!
//! What bounds the list is `qdisc_max_burst`, not the qdisc's limit. The count may fall behind the list by the packets
//! pushed between the owner's exchange and its reset, and by the batches of senders that found the list empty, at most
//! one for each sender. The kernel allows itself the same slack.
//!
//! The root lock is still a lock: while its holder is preempted in the qdisc, the one sender with the duty waits, and
//! the list fills behind it.

use std::ptr::NonNull;
use std::sync::atomic::Ordering::Relaxed;

use crossbeam_utils::CachePadded;

use crate::arch::{Arch, Atomic, CellApi};
use crate::ctx::Ctx;
use crate::drop::DropReason;
use crate::enqueue::Discipline;
use crate::netdev::Root;
use crate::packet::PacketList;
use crate::pool::slot::Slot;
use crate::qdisc::Verdict;
use crate::run::{Core, admit, run};
use crate::sync::contention::{Lock, Recorded, Retry, Site};
use crate::sync::llist::{self, LList, Linked};
use crate::sync::spinlock::SpinLock;

struct Llist<A: Arch> {
    defer: CachePadded<Defer<A>>,
    root: CachePadded<SpinLock<A, Core<A>>>,
    max_burst: u32,
}

/// The line that senders write and the owner does not, but to take it all.
struct Defer<A: Arch> {
    list: LList<A, Slot<A>>,
    /// Packets pushed since the owner last reset it, those that found the list empty excepted (`defer_count`).
    count: A::AtomicU32,
}

pub(super) fn build<A: Arch>(core: Core<A>, max_burst: u32) -> Box<dyn Discipline<A>> {
    let defer = Defer { list: LList::new(), count: A::AtomicU32::new(0) };
    let root = CachePadded::new(SpinLock::new(core));
    Box::new(Llist { defer: CachePadded::new(defer), root, max_burst })
}

impl<A: Arch> Llist<A> {
    /// Takes the whole list, oldest first, and tells whether one sender brought it all. The caller has the
    /// root lock, which is what keeps one taking from overtaking the next.
    fn take(&self, all: &mut PacketList<A>) -> bool {
        let taken = self.defer.list.take_all();
        self.defer.count.store(0, Relaxed);
        // SAFETY: just taken, and nobody else has it.
        let mut node = unsafe { llist::reverse::<A, _>(taken) };
        let mut senders = 0;
        while let Some(head) = NonNull::new(node) {
            // SAFETY: taken nodes are valid and ours. The link is read before the list it heads is made.
            node = unsafe { head.as_ref().link().with(|l| *l) };
            // SAFETY: pushed by `submit` below as a chain, and acquired by `take_all`.
            all.append(&mut unsafe { PacketList::from_chain(head) });
            senders += 1;
        }
        senders == 1
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
            return Verdict::Drop;
        }
        let Some(chain) = batch.take_chain() else { return Verdict::Success };
        // SAFETY: the chain was just given up by its list, and descriptors live as long as the pool.
        if !unsafe { self.defer.list.push_or(chain.as_ptr(), || cx.dev.retries.note(Retry::DeferList)) } {
            return Verdict::Success;
        }
        let verdict = self.root.with_at(Site::Enqueue, |held| {
            let mut packets = PacketList::new();
            let alone = self.take(&mut packets);
            held.data().note_drained(packets.len());
            let verdict = admit(held, root, &mut packets, cx);
            run(held, root, cx);
            if alone { verdict } else { Verdict::Success }
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
        // Under the lock: whoever took packets off the list has enqueued them by now.
        self.root.with(|held| self.defer.list.is_empty() && held.data().is_idle())
    }

    fn locks(&self, f: &mut dyn FnMut(Lock, &dyn Recorded)) {
        f(Lock::Root, &*self.root);
    }
}
