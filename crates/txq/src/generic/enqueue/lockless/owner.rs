//! The owner of a lockless queue, for one turn.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use txq_core::arch::{Arch, Atomic, CellApi};
use txq_core::packet::PacketList;
use txq_sched::generic::qdisc::BANDS;

use super::{DRAINING, Lockless, MISSED, OwnerState, TOKEN};
use crate::generic::datapath::Core;
use crate::generic::datapath::Ctx;
use crate::generic::datapath::Root;
use crate::generic::enqueue::intake::Intake;
use crate::generic::run::{Driven, Owner};

/// The token holder, for one turn.
pub(super) struct LocklessTurn<'w, A: Arch> {
    pub(super) queue: &'w Lockless<A>,
    /// Whether it still has the token.
    pub(super) has: bool,
    /// Whether packets remained when the lists were last taken, on them or in an intake; before that, whether packets may be there.
    /// `MISSED` is set for packets listed later.
    pub(super) waiting: bool,
    /// Whether this turn has taken packets off the lists.
    pub(super) drained_lists: bool,
    /// Whether all packets bypassed the qdisc, which is still empty.
    pub(super) bypassed: bool,
}

impl<A: Arch> LocklessTurn<'_, A> {
    #[inline]
    pub(super) fn owner_state(&mut self) -> &mut OwnerState<A> {
        debug_assert!(self.has);
        // SAFETY: this thread has the token and alone accesses the cell. The borrow ends with the borrow of `self`, so none
        // is alive when `leave` or `drop` returns the token.
        self.queue.owner_state.with_mut(|o| unsafe { &mut *o })
    }

    /// Moves about `packets` packets from the lists to `chunk`; returns the number of batches.
    ///
    /// A flow changes its list when a qdisc with bands replaces one without, or the reverse. Its older packets are then on a
    /// list that the rule in force does not choose for it. The owner takes that list after the others, and so takes every
    /// packet that is older than one taken from them. It moves that list's packets to `chunk` first.
    #[inline]
    pub(super) fn take(&mut self, packets: usize, chunk: &mut PacketList<A>) -> usize {
        let queue = self.queue;
        let flat = !queue.lists.rule.is_banded();
        let order: [usize; BANDS] = if flat { [1, 2, 0] } else { [0, 1, 2] };
        let older = if flat { 2 } else { 1 };
        let OwnerState { intake, inside, counted, .. } = self.owner_state();
        let refill = |intake: &mut Intake<A>, band: usize| {
            if intake.is_empty() && !queue.lists.bands[band].list.is_empty() {
                // SAFETY: `put` lists batches given up by `take_chain`, and `take_all` acquires them.
                unsafe { intake.refill(queue.lists.bands[band].list.take_all()) };
            }
        };
        order.iter().rev().for_each(|&band| refill(&mut intake[band], band));
        let mut batches = 0;
        for (place, band) in order.into_iter().enumerate() {
            let before = chunk.len();
            batches += intake[band].next(packets, chunk);
            if place < older && chunk.len() < packets {
                // The intake still held batches taken earlier, so the list was not taken above.
                refill(&mut intake[band], band);
                batches += intake[band].next(packets, chunk);
            }
            inside[band] += (chunk.len() - before) as u32;
        }
        *counted |= batches > 0;
        self.drained_lists |= batches > 0;
        batches
    }

    /// As [`take`](Self::take), after clearing `MISSED`; then updates `waiting`.
    #[inline(never)]
    fn take_clearing_missed(&mut self, packets: usize, chunk: &mut PacketList<A>) -> usize {
        let state = &self.queue.state;
        if state.load(Relaxed) != TOKEN {
            // Before the lists are taken: a sender that lists packets after that sets `MISSED` again. Acquire: the listed
            // packets; pairs with `begin`.
            state.swap(TOKEN, Acquire);
        }
        let batches = self.take(packets, chunk);
        self.bypassed = false;
        self.waiting = self.waits();
        if batches > 0 {
            self.core().note_drained(chunk.len());
        }
        batches
    }

    /// Updates the packet count of each band, which senders read. Returns whether packets are queued.
    #[inline]
    fn count(&mut self) -> bool {
        let OwnerState { core, counted, .. } = self.owner_state();
        let backlog = core.qlen() > 0;
        if backlog || *counted {
            self.count_bands();
        }
        backlog
    }

    #[inline(never)]
    fn count_bands(&mut self) {
        let queue = self.queue;
        let OwnerState { core, inside, counted, .. } = self.owner_state();
        let now = core.qdisc.as_ref().and_then(|q| q.nolock()).map_or([0; BANDS], |bands| bands.len);
        for ((band, inside), now) in queue.lists.bands.iter().zip(inside).zip(now) {
            if *inside != now {
                band.len.fetch_add(now.wrapping_sub(*inside), Relaxed);
                *inside = now;
            }
        }
        *counted = now.iter().any(|&n| n > 0);
    }

    /// Returns the token even if `MISSED` is set, and leaves `left` in the word: 0 or [`DRAINING`]. Returns false if
    /// `MISSED` is set, so that packets may wait for another owner.
    #[cold]
    fn leave_tired(&mut self, left: u32) -> bool {
        let state = &self.queue.state;
        // The next owner must see what this one leaves and what others have set.
        state.fetch_or(left | if self.waiting { MISSED } else { 0 }, Relaxed);
        self.has = false;
        self.queue.owner_state.access_ends();
        // Release: as in `leave`.
        state.fetch_and(left | MISSED, Release) & MISSED == 0
    }
}

impl<A: Arch> Owner<A> for LocklessTurn<'_, A> {
    #[inline]
    fn core(&mut self) -> &mut Core<A> {
        &mut self.owner_state().core
    }

    #[inline(always)]
    fn gather(
        &mut self,
        own: &mut PacketList<A>,
        packets: usize,
        chunk: &mut PacketList<A>,
        _: &Root<A>,
        _: &mut Ctx<'_, A>,
    ) -> usize {
        if self.waiting {
            debug_assert!(own.is_empty(), "who does not pass has listed its own");
            return self.take_clearing_missed(packets, chunk);
        }
        chunk.append(own);
        1
    }

    #[inline]
    fn drive(&mut self, driven: &mut Driven<A>, f: impl FnOnce(&mut Driven<A>)) {
        let bypassed = driven.bypassed && !self.drained_lists;
        if !bypassed {
            self.count();
        }
        f(driven);
        self.bypassed = bypassed && driven.is_done();
    }

    fn waits(&mut self) -> bool {
        let listed = self.queue.lists.bands.iter().any(|band| !band.list.is_empty());
        listed || self.owner_state().intake.iter().any(|intake| !intake.is_empty())
    }

    fn leave(&mut self, tired: bool) -> bool {
        if self.waiting && !tired {
            return false;
        }
        let left = if !self.bypassed && self.count() { DRAINING } else { 0 };
        if tired {
            return self.leave_tired(left);
        }
        if self.drained_lists && self.queue.state.load(Relaxed) != TOKEN {
            // Another sender has set `MISSED`: the exchange would fail, and take the line from the senders for nothing.
            self.waiting = true;
            return false;
        }
        self.queue.owner_state.access_ends();
        // Release: this owner's writes, to the next owner.
        self.has = self.queue.state.compare_exchange(TOKEN, left, Release, Relaxed).is_err();
        self.waiting = self.has;
        !self.has
    }
}

impl<A: Arch> Drop for LocklessTurn<'_, A> {
    fn drop(&mut self) {
        if self.has {
            // The qdisc or the driver has panicked. The worker runs the queue; `MISSED` disables the bypass until the lists
            // are drained. Release: as in `leave`.
            self.queue.state.swap(MISSED, Release);
        }
    }
}
