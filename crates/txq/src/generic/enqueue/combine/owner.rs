//! The owner of a combine queue, for one turn.

use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::{mem, ptr};

use txq_core::arch::{Arch, Atomic, AtomicPtr, CellApi};
use txq_core::packet::PacketList;

use super::{AGAIN, Combine, DRIVER, OwnerState, QDISC, flagged, is, list, with};
use crate::generic::datapath::Core;
use crate::generic::datapath::Ctx;
use crate::generic::datapath::Root;
use crate::generic::run::{Driven, Owner};

/// The queue's owner, for one turn: it has the qdisc, or has released the qdisc and is in the driver.
pub(super) struct CombineTurn<'w, A: Arch> {
    pub(super) queue: &'w Combine<A>,
    /// Whether it has the qdisc.
    pub(super) has: bool,
    /// Whether this turn has taken packets that others pushed.
    pub(super) contended: bool,
}

impl<A: Arch> CombineTurn<'_, A> {
    #[inline]
    pub(super) fn owner_state(&mut self) -> &mut OwnerState<A> {
        debug_assert!(self.has);
        // SAFETY: this thread has set `QDISC` and alone accesses the cell. The borrow ends with the borrow of `self`, so
        // none is alive when `drive`, `leave` or `drop` clears the bit.
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

    /// Clears `DRIVER` after the driver has returned. Retakes the qdisc and returns true; or, if another thread owns it,
    /// publishes the batch in `driven` and returns false.
    fn come_back(&mut self, driven: &mut Driven<A>) -> bool {
        let queue = self.queue;
        // SAFETY: this thread owns the driver: `DRIVER` stays set until the exchange below clears it.
        let swap = |driven: &mut Driven<A>| queue.driven.with_mut(|d| mem::swap(unsafe { &mut *d }, driven));
        let mut laid_down = false;
        let before = queue.exchange(|word| {
            if is(word, QDISC) != laid_down {
                swap(driven);
                laid_down = !laid_down;
            }
            Some(if laid_down { with(word, 0, DRIVER) } else { with(word, QDISC, DRIVER) })
        });
        self.has = before.is_ok_and(|before| !is(before, QDISC));
        self.has
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
        // Acquire: the result of the thread that cleared `DRIVER`.
        let word = queue.defer.word.load(Acquire);
        let listed = !list::<A>(word).is_null();
        let OwnerState { core, intake, .. } = self.owner_state();
        if core.is_running() && !is(word, DRIVER) {
            // SAFETY: `DRIVER` is clear, so the cell belongs to the `QDISC` owner: this thread.
            queue.driven.with_mut(|d| core.absorb(root, unsafe { &mut *d }, cx));
        }
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

    #[inline]
    fn drive(&mut self, driven: &mut Driven<A>, f: impl FnOnce(&mut Driven<A>)) -> bool {
        if !self.contended && !self.owner_state().crowded {
            f(driven);
            return true;
        }
        /// Waits for the qdisc when the driver panics, so that the owner can correct the counters.
        struct Unwound<'o, 'w, A: Arch>(&'o mut CombineTurn<'w, A>);
        impl<A: Arch> Drop for Unwound<'_, '_, A> {
            fn drop(&mut self) {
                let CombineTurn { queue, has, .. } = self.0;
                while queue.exchange(|word| (!is(word, QDISC)).then(|| with(word, QDISC, DRIVER))).is_err() {
                    queue.defer.word.wait_until(Relaxed, |word| !is(word, QDISC));
                }
                *has = true;
            }
        }
        self.has = false;
        self.queue.owner_state.access_ends();
        let _ = self.queue.exchange(|word| Some(with(word, DRIVER, QDISC)));
        let unwound = Unwound(self);
        f(driven);
        mem::forget(unwound);
        self.come_back(driven)
    }

    fn waits(&mut self) -> bool {
        !self.owner_state().intake.is_empty() || !list::<A>(self.queue.defer.word.load(Relaxed)).is_null()
    }

    #[inline]
    fn leave(&mut self, tired: bool) -> bool {
        let (queue, contended) = (self.queue, self.contended);
        let owned = self.owner_state();
        let waiting = !owned.intake.is_empty();
        if waiting && !tired {
            return false;
        }
        owned.crowded = contended;
        let running = owned.core.is_running();
        let mut left = waiting;
        queue.owner_state.access_ends();
        let ended = queue.exchange(|word| {
            left = waiting || !list(word).is_null() || is(word, AGAIN) || (running && !is(word, DRIVER));
            (tired || !left).then(|| with(word, 0, QDISC | AGAIN))
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
            let _ = self.queue.exchange(|word| Some(with(word, 0, QDISC)));
        }
    }
}
