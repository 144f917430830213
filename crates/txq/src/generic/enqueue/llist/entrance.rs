//! The entrance: what a sender checks before it pushes onto the defer list, and what it does before it drops.
//!
//! The owner drops packets listed beyond the room of a full qdisc, one by one, on another CPU than their sender's. Senders
//! that return at once keep the list's line from the owner, which then sends one packet for hundreds of their attempts. So
//! where the qdisc reports its room ([`Qdisc::room`](txq_sched::generic::qdisc::Qdisc::room): pfifo), the list may hold no more packets
//! than that room, plus those that the owner sends before it takes the list. A sender that finds the list full drops its
//! packets itself, as the qdisc would, and closes the entrance: later senders need not read the list's line.

use std::sync::atomic::Ordering::Relaxed;

use txq_core::arch::{Arch, Atomic};
use txq_core::stats::contention::Site;

use super::{Defer, Llist, OwnerState, Turn};
use crate::generic::datapath::Ctx;
use crate::generic::datapath::Root;
use crate::generic::enqueue::room::{Patience, reap_stopped};

/// Packets beyond the qdisc's room that the list may hold: about as many are sent until the owner enqueues them.
const SLACK: u32 = 8;

/// The line that each sender reads and few threads write. All accesses are relaxed: the words are hints and order nothing.
pub(super) struct Entrance<A: Arch> {
    /// 1 when packets wait for the worker. Set by a sender that does not get the lock, and by an owner that ends its turn
    /// with packets left. Read by each sender that pushes or waits; cleared by the one that then takes the lock and runs the
    /// queue. Without this word all senders would wait, and drop, until the worker has a CPU.
    pub(super) open: A::AtomicU32,
    /// 1 when the list holds `bound` packets because the qdisc is nearly full. Set by the sender that finds this. Cleared by
    /// the owner that takes the list, and by a sender that finds the root lock free. Read by each sender.
    pub(super) closed: A::AtomicU32,
    /// Packets that the list may hold: `max_burst`, or fewer where the qdisc reports less room. Written by the holder of the
    /// root lock, read by senders.
    pub(super) bound: A::AtomicU32,
}

impl<A: Arch> Entrance<A> {
    pub(super) fn new(max_burst: u32) -> Self {
        let [open, closed] = [(); 2].map(|()| A::AtomicU32::new(0));
        Self { open, closed, bound: A::AtomicU32::new(max_burst) }
    }

    /// Clears [`closed`](Entrance::closed). The caller has taken the list.
    #[inline]
    pub(super) fn reopen(&self) {
        if self.closed.load(Relaxed) != 0 {
            self.closed.store(0, Relaxed);
        }
    }
}

/// Whether the list has room for a sender's packets.
pub(super) enum Room {
    Yes,
    /// The listed packets fill the qdisc's room.
    QdiscFull,
    /// The list holds `max_burst` packets, and no owner took it while the sender waited.
    ListFull,
}

impl<A: Arch> Turn<'_, A> {
    /// Publishes how many packets the list may hold. `sending` packets are about to leave the queue and make room.
    #[inline]
    pub(super) fn set_bound(&mut self, sending: usize) {
        let Llist { max_burst, .. } = *self.queue;
        let OwnerState { core, crowded, bound, .. } = self.owner_state();
        if A::holders_run() || (!*crowded && *bound == max_burst) {
            return;
        }
        let room = core.room().map_or(max_burst, |room| {
            u32::try_from(room + sending).unwrap_or(u32::MAX).saturating_add(SLACK).min(max_burst)
        });
        if *bound != room {
            *bound = room;
            self.queue.entrance.bound.store(room, Relaxed);
        }
    }
}

impl<A: Arch> Llist<A> {
    /// Runs the queue if packets wait for the worker and the lock is free. A driver may panic in this, so the caller holds
    /// no packets of its own, or counts them with [`InHand`](crate::generic::enqueue::room::InHand).
    #[inline]
    pub(super) fn take_over(&self, root: &Root<A>, cx: &mut Ctx<'_, A>) {
        // The lock decides the ownership; this word only hints that an attempt is worthwhile. Where holders run, the list is its
        // first sender's.
        if self.entrance.open.load(Relaxed) != 0
            && !A::holders_run()
            && let Some(held) = self.root.try_lock_at(Site::Enqueue)
        {
            self.entrance.open.store(0, Relaxed);
            let _ = self.turn_for_others(held, root, 0, cx);
        }
    }

    /// Decides whether a sender may list `n` packets, which it has counted when `before` were listed; waits if the list
    /// holds `max_burst` packets, since its owner may be preempted. Runs the queue meanwhile if packets wait for the worker.
    ///
    /// If the qdisc has room for a part of the batch, the sender lists the whole batch and the owner drops the rest. If it
    /// has room for none, this closes the entrance.
    #[cold]
    pub(super) fn wait_for_room(&self, root: &Root<A>, n: u32, before: u32, cx: &mut Ctx<'_, A>) -> Room {
        let Defer { list, count } = &*self.defer;
        let mut patience = Patience::new();
        let mut before = before;
        loop {
            let bound = self.entrance.bound.load(Relaxed);
            if bound < self.max_burst {
                if before < bound {
                    return Room::Yes;
                }
                self.entrance.closed.store(1, Relaxed);
                return Room::QdiscFull;
            }
            self.take_over(root, cx);
            // Reads before it adds: otherwise each waiting sender would count its packets at each attempt.
            let full = count.load(Relaxed).saturating_add(n) > bound;
            if list.is_empty() || (!full && count.fetch_add(n, Relaxed).saturating_add(n) <= bound) {
                return Room::Yes;
            }
            if !patience.wait(root, cx) {
                return Room::ListFull;
            }
            before = count.load(Relaxed);
        }
    }

    /// Handles a closed entrance: reaps the stopped txqs, yields the CPU to the owner, and runs the queue if the lock is
    /// free. Returns whether the entrance is open now.
    #[cold]
    pub(super) fn wait_at_entrance(&self, root: &Root<A>, cx: &mut Ctx<'_, A>) -> bool {
        reap_stopped(root, cx);
        self.take_over(root, cx);
        A::yield_cpu();
        let Entrance { closed, .. } = &*self.entrance;
        if closed.load(Relaxed) != 0
            && let Some(held) = self.root.try_lock_at(Site::Enqueue)
        {
            closed.store(0, Relaxed);
            let _ = self.turn_for_others(held, root, 0, cx);
        }
        closed.load(Relaxed) == 0
    }
}
