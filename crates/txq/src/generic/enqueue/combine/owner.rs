//! The owner of a combine queue, for one turn.

use std::ptr;
use std::sync::atomic::Ordering::Relaxed;

use txq_core::arch::{Arch, Atomic, AtomicPtr, CellApi};
use txq_core::packet::PacketList;

use super::{AGAIN, Combine, OWNED, OwnerState, flagged, is, list, with};
use crate::generic::datapath::Core;
use crate::generic::datapath::Ctx;
use crate::generic::datapath::Root;
use crate::generic::run::Owner;

/// The queue's owner, for one turn.
pub(super) struct CombineTurn<'w, A: Arch> {
    pub(super) queue: &'w Combine<A>,
    /// Whether it still owns the queue.
    pub(super) has: bool,
    /// Whether this turn has taken packets that others pushed.
    pub(super) contended: bool,
}

impl<A: Arch> CombineTurn<'_, A> {
    #[inline]
    pub(super) fn owner_state(&mut self) -> &mut OwnerState<A> {
        debug_assert!(self.has);
        // SAFETY: this thread has set `OWNED` and alone accesses the cell. The borrow ends with the borrow of `self`, so
        // none is alive when `leave` or `drop` clears the bit.
        self.queue.owner_state.with_mut(|o| unsafe { &mut *o })
    }

    /// Fills the empty intake with the packets on the list.
    #[inline]
    fn refill(&mut self) {
        let queue = self.queue;
        let before = queue.exchange(|word| Some(flagged(ptr::null_mut(), word)));
        queue.defer.count.store(0, Relaxed);
        let newest = before.map_or(ptr::null_mut(), list);
        // SAFETY: `put` lists batches given up by `take_chain`, and the exchange acquired them.
        unsafe { self.owner_state().intake.refill(newest) };
    }

    /// Moves all packets that senders have pushed into the core.
    pub(super) fn take_listed(&mut self) {
        let mut listed = PacketList::new();
        self.owner_state().intake.next(usize::MAX, &mut listed);
        self.refill();
        self.owner_state().intake.next(usize::MAX, &mut listed);
        self.core().admit_later(&mut listed);
    }
}

impl<A: Arch> Owner<A> for CombineTurn<'_, A> {
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
        let queue = self.queue;
        let listed = !list::<A>(queue.defer.word.load(Relaxed)).is_null();
        let intake = &mut self.owner_state().intake;
        if intake.is_empty() && listed {
            self.refill();
            self.owner_state().intake.append(own);
            self.contended = true;
        } else if intake.is_empty() {
            chunk.append(own);
            return 1;
        } else if listed && !own.is_empty() {
            // This sender's earlier packets may be on the list: these go behind them.
            let _ = queue.put(root, own, cx, false);
        } else {
            intake.append(own);
        }
        let batches = self.owner_state().intake.next(packets, chunk);
        if self.contended && batches > 0 {
            self.core().note_drained(chunk.len());
        }
        batches
    }

    fn waits(&mut self) -> bool {
        !self.owner_state().intake.is_empty() || !list::<A>(self.queue.defer.word.load(Relaxed)).is_null()
    }

    #[inline]
    fn leave(&mut self, tired: bool) -> bool {
        let queue = self.queue;
        let waiting = !self.owner_state().intake.is_empty();
        if waiting && !tired {
            return false;
        }
        let mut left = waiting;
        queue.owner_state.access_ends();
        let ended = queue.exchange(|word| {
            left = waiting || !list(word).is_null() || is(word, AGAIN);
            (tired || !left).then(|| with(word, 0, OWNED | AGAIN))
        });
        match ended {
            Ok(_) => self.has = false,
            Err(word) if is(word, AGAIN) => drop(queue.exchange(|word| Some(with(word, 0, AGAIN)))),
            Err(_) => {}
        }
        !left
    }
}

impl<A: Arch> Drop for CombineTurn<'_, A> {
    fn drop(&mut self) {
        if self.has {
            // The qdisc or the driver has panicked. The worker runs the queue.
            let _ = self.queue.exchange(|word| Some(with(word, 0, OWNED)));
        }
    }
}
