//! What a sender looks at before it pushes, and does before it drops.
//!
//! Packets that are listed beyond the room of a full qdisc are dropped by the owner, one by one, on another CPU than their
//! sender's; and senders that come back at once keep the list's line from the owner, which then sends one packet for hundreds
//! of their attempts. So where the qdisc tells its room ([`Qdisc::room`](crate::qdisc::Qdisc::room): pfifo), the list may
//! have no more packets than that, and than the owner sends before it takes the list. The sender that finds it full drops its
//! packets itself, as the qdisc would, and closes the entrance: those that follow need not look at the list.

use std::sync::atomic::Ordering::Relaxed;

use super::{Defer, Llist, Owned, Owns};
use crate::arch::{Arch, Atomic};
use crate::ctx::Ctx;
use crate::enqueue::room::{Patience, reap_stopped};
use crate::netdev::Root;
use crate::sync::contention::Site;

/// Packets beyond the qdisc's room that the list may have: so many are sent, about, until the owner enqueues them.
const SLACK: u32 = 8;

/// The line that each sender reads and few write. Relaxed throughout: the words are hints, and order nothing.
pub(super) struct Entrance<A: Arch> {
    /// 1 when packets have been left to the worker: by a sender that did not get the lock, or by an owner whose turn was
    /// over. The first sender that comes goes on in its place: else all would wait, and drop, until the worker has a CPU.
    pub(super) open: A::AtomicU32,
    /// 1 when the list has as many packets as `bound` allows for the qdisc's sake. Set by the sender that finds that, cleared by
    /// the owner that takes the list, and by a sender that finds the root lock free.
    pub(super) closed: A::AtomicU32,
    /// Packets that the list may have: `max_burst`, or less where the qdisc tells that it has room for less. Written by the
    /// holder of the root lock.
    pub(super) bound: A::AtomicU32,
}

impl<A: Arch> Entrance<A> {
    pub(super) fn new(max_burst: u32) -> Self {
        let [open, closed] = [(); 2].map(|()| A::AtomicU32::new(0));
        Self { open, closed, bound: A::AtomicU32::new(max_burst) }
    }

    /// The list has been taken.
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
    /// The qdisc has none for more than what is listed.
    QdiscFull,
    /// The list is as long as it may be, and no owner took it while the sender waited.
    ListFull,
}

impl<A: Arch> Owns<'_, A> {
    /// Tells senders how many packets the list may have, when `sending` packets are about to leave the qdisc's room to others.
    #[inline]
    pub(super) fn set_bound(&mut self, sending: usize) {
        let Llist { max_burst, .. } = *self.way;
        let Owned { core, crowded, bound, .. } = self.owned();
        if !*crowded && *bound == max_burst {
            return;
        }
        let room = core.room().map_or(max_burst, |room| {
            u32::try_from(room + sending).unwrap_or(u32::MAX).saturating_add(SLACK).min(max_burst)
        });
        if *bound != room {
            *bound = room;
            self.way.entrance.bound.store(room, Relaxed);
        }
    }
}

impl<A: Arch> Llist<A> {
    /// Goes on where a sender or an owner has left the queue open. Comes when the caller's own packets are in other
    /// hands: a driver may panic in this.
    #[inline]
    pub(super) fn take_over(&self, root: &Root<A>, cx: &mut Ctx<'_, A>) {
        // The lock says who has the queue; this only says that asking for it is worth while.
        if self.entrance.open.load(Relaxed) != 0
            && let Some(held) = self.root.try_lock_at(Site::Enqueue)
        {
            self.entrance.open.store(0, Relaxed);
            let _ = self.turn(held, root, 0, cx);
        }
    }

    /// Makes room for `n` packets, which the sender has counted when `before` were listed. A batch of which a part is within the
    /// qdisc's room is listed as a whole: its owner drops the rest. Where no packet is, closes the entrance. Where the list is as
    /// long as any may be, waits for the owner, which may have been preempted. Goes on where the queue was left open.
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
            // Looks before it counts: each sender that waits would count its packets each time.
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

    /// What a sender does that finds the entrance closed: what is due, then it gives its CPU to the owner, which may need it,
    /// and takes the queue if nobody has it. Returns whether the entrance is open.
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
            let _ = self.turn(held, root, 0, cx);
        }
        closed.load(Relaxed) == 0
    }
}
