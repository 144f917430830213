//! combine: one word holds the list of waiting batches and the ownership of the queue; there is no lock.
//!
//! A sender that finds the queue free takes it with one compare-and-swap and submits its own packets. A sender that finds it
//! owned pushes its packets onto the list with one compare-and-swap and returns. Both change the same word, so no push can
//! slip in after the owner's last check: the owner's last exchange, which frees the queue, fails if the list is not empty.
//! A preempted owner delays the packets, which is inevitable, but blocks no sender. A sender waits, for a bounded time, only
//! while the list is full (`enqueue/room.rs`).
//!
//! The owner keeps the queue while it is in the driver. If it released the queue there, as a holder of the root lock does, the
//! next sender would own it for a packet or two, and the qdisc's state would move to another CPU with each call of the driver.
//!
//! ```text
//!   word = list of batches, newest first | OWNED | AGAIN
//!
//!   step       OWNED clear                    OWNED set
//!   sender     set OWNED, gather, enqueue     push the batch onto the list, return
//!   leave                                     list empty, no AGAIN: clear OWNED; else go on
//!   tired                                     clear OWNED and AGAIN; the next sender or the worker takes the queue
//! ```
//!
//! A turn is bounded (`run::turn`). If packets are left at its end, the owner frees the queue with the batches still on the
//! list and schedules the worker; the next sender takes the queue if it comes first. A thread that makes room in the device
//! and finds the queue owned sets [`AGAIN`]: the owner checks once more before it leaves, and no worker need be scheduled.
//!
//! Each step is an exchange of one word, which orders everything: no fence is needed. The model tests weaken the ordering of
//! each exchange and fail.

use std::ptr;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use crossbeam_utils::CachePadded;

use txq_core::arch::{Arch, Atomic, AtomicPtr, CellApi};
use txq_core::packet::PacketList;
use txq_core::pool::slot::Slot;
use txq_core::stats::contention::{Lock, Retry};
use txq_core::sync::contention::Recorded;
use txq_core::sync::llist::Linked;
use txq_sched::generic::qdisc::Verdict;

use crate::generic::datapath::Core;
use crate::generic::datapath::CoreAccess;
use crate::generic::datapath::Ctx;
use crate::generic::datapath::Gate;
use crate::generic::datapath::InHand;
use crate::generic::datapath::Root;
use crate::generic::enqueue::QUEUE;
use crate::generic::enqueue::intake::Intake;
use crate::generic::enqueue::room::Patience;
use crate::generic::run::{Bypass, Owner, bypass, turn};

mod owner;

use owner::CombineTurn;

/// A thread owns the queue.
const OWNED: usize = 1;
/// The owner must check once more for packets to send before it leaves.
const AGAIN: usize = 2;
/// The bits that are not the list. A slot's address is a multiple of 128.
const WORD_FLAGS: usize = OWNED | AGAIN;

type Word<A> = *mut Slot<A>;

/// Whether `word` has any bit of `flag`.
fn is<A: Arch>(word: Word<A>, flag: usize) -> bool {
    word.addr() & flag != 0
}

/// Returns the newest batch on the list of `word`; null if the list is empty.
fn list<A: Arch>(word: Word<A>) -> *mut Slot<A> {
    word.map_addr(|a| a & !WORD_FLAGS)
}

/// Returns `list` with the flags of `word`.
fn flagged<A: Arch>(list: *mut Slot<A>, word: Word<A>) -> Word<A> {
    list.map_addr(|a| a | (word.addr() & WORD_FLAGS))
}

/// Returns `word` with the bits of `set` set and those of `clear` cleared.
fn with<A: Arch>(word: Word<A>, set: usize, clear: usize) -> Word<A> {
    word.map_addr(|a| (a | set) & !clear)
}

struct Combine<A: Arch> {
    defer: CachePadded<Defer<A>>,
    /// Accessed only by the thread that set `OWNED`.
    owner_state: CachePadded<A::Cell<OwnerState<A>>>,
    max_burst: u32,
}

/// The line that senders write.
struct Defer<A: Arch> {
    /// The newest batch on the list, and the flags [`OWNED`] and [`AGAIN`]. Null: the queue is free and no packet waits for an
    /// owner.
    ///
    /// Written by senders (push a batch), by senders, visits and the worker (take the free queue), by the owner (take the list,
    /// leave), and by the worker and threads that make room in the device (set `AGAIN`). Each write is an exchange: it releases
    /// the writer's batch or its work as the owner, and acquires the last owner's work and the batches on the list. Two
    /// exchanges order one way only: taking the null word acquires, and freeing a word that is just `OWNED` releases.
    word: A::AtomicPtr<Slot<A>>,
    /// Packets pushed since the list was last taken, without those that found it empty (`defer_count`). Senders add to it
    /// before they push, and read it; the owner resets it after it has taken the list. Relaxed: a bound that orders
    /// nothing.
    count: A::AtomicU32,
}

/// The state that `OWNED` guards.
struct OwnerState<A: Arch> {
    core: Core<A>,
    intake: Intake<A>,
}

// SAFETY: only the owners that the word names access the cells, one thread at a time, and the content is `Send`.
unsafe impl<A: Arch> Send for Combine<A> {}
// SAFETY: as above.
unsafe impl<A: Arch> Sync for Combine<A> {}

pub(super) fn build<A: Arch>(core: Core<A>, max_burst: u32) -> Box<dyn CoreAccess<A>> {
    let word = A::AtomicPtr::new(ptr::null_mut());
    let owned = OwnerState { core, intake: Intake::new() };
    Box::new(Combine {
        defer: CachePadded::new(Defer { word, count: A::AtomicU32::new(0) }),
        owner_state: CachePadded::new(A::Cell::new(owned)),
        max_burst,
    })
}

impl<A: Arch> Combine<A> {
    /// Replaces the word by `f` of it, and retries until that succeeds or `f` returns `None`. Returns the word before the
    /// exchange, or as an error the word for which `f` returned `None`.
    #[inline]
    fn exchange(&self, mut f: impl FnMut(Word<A>) -> Option<Word<A>>) -> Result<Word<A>, Word<A>> {
        let mut word = self.defer.word.load(Relaxed);
        loop {
            let Some(new) = f(word) else { return Err(word) };
            // Release: the caller's work as the owner, or the batch that it pushes. Acquire: the last owner's work, and the
            // batches or the result left for the caller.
            match self.defer.word.compare_exchange_weak(word, new, AcqRel, Relaxed) {
                Ok(_) => return Ok(word),
                Err(now) => word = now,
            }
        }
    }

    /// Takes the qdisc if it is free; returns whether it did.
    #[inline]
    fn try_own(&self) -> bool {
        self.exchange(|word| (!is(word, OWNED)).then(|| with(word, OWNED, 0))).is_ok()
    }

    /// Counts `n` packets for the list, unless the list is empty; returns whether it has room for them.
    fn has_room(&self, n: u32) -> bool {
        let Defer { word, count } = &*self.defer;
        list::<A>(word.load(Relaxed)).is_null()
            || count.fetch_add(n, Relaxed).saturating_add(n) <= self.max_burst
    }

    /// Waits until the list has room or the queue is free, in which case it takes the queue; gives up when the sender's
    /// patience is over.
    #[cold]
    fn wait_for_room(&self, root: &Root<A>, n: u32, cx: &mut Ctx<'_, A>) -> Put {
        let mut patience = Patience::new();
        while patience.wait(root, cx) {
            if self.try_own() {
                return Put::Owned;
            }
            // Reads before it adds: otherwise each waiting sender would count its packets at each attempt.
            let full = self.defer.count.load(Relaxed).saturating_add(n) > self.max_burst;
            if (!full || list::<A>(self.defer.word.load(Relaxed)).is_null()) && self.has_room(n) {
                return Put::Listed;
            }
        }
        Put::Dropped
    }

    /// Pushes `batch` onto the list, for the current owner. With `or_own`, takes the queue instead if it is free by now; the
    /// batch then stays with the caller.
    #[cold]
    fn put(&self, root: &Root<A>, batch: &mut PacketList<A>, cx: &mut Ctx<'_, A>, or_own: bool) -> Put {
        // Without `or_own` the caller is the owner and takes the list next: its own packets need no bound and no room.
        if or_own && !self.has_room(batch.len() as u32) {
            let n = batch.len();
            match InHand::during(cx.dev, n, || self.wait_for_room(root, n as u32, cx)) {
                Put::Listed => {}
                Put::Dropped => {
                    root.drop_burst(batch, cx);
                    return Put::Dropped;
                }
                Put::Owned => return Put::Owned,
            }
        }
        let Some(chain) = batch.take_chain() else { return Put::Listed };
        let mut owned = false;
        let mut tries = 0;
        let _ = self.exchange(|word| {
            tries += 1;
            owned = or_own && !is(word, OWNED);
            if owned {
                return Some(with(word, OWNED, 0));
            }
            // SAFETY: the chain is this thread's alone until the exchange succeeds.
            unsafe { chain.as_ref().link().with_mut(|l| *l = list(word)) };
            Some(flagged(chain.as_ptr(), word))
        });
        (1..tries).for_each(|_| cx.dev.retries.note(Retry::DeferList));
        if owned {
            // SAFETY: `take_chain` has just given the chain up, and it is not on the list.
            *batch = unsafe { PacketList::from_chain(chain) };
            return Put::Owned;
        }
        Put::Listed
    }

    /// As [`submit`](CoreAccess::submit), for a sender that has taken a free queue with an empty list.
    #[inline]
    fn submit_alone(&self, root: &Root<A>, batch: &mut PacketList<A>, cx: &mut Ctx<'_, A>) -> Verdict {
        let mut owner = CombineTurn { queue: self, has: true, contended: false };
        let OwnerState { core, intake } = owner.owner_state();
        let bypassed = if intake.is_empty() { bypass(core, root, batch, cx) } else { Bypass::No };
        let own = with::<A>(ptr::null_mut(), OWNED, 0);
        self.owner_state.access_ends();
        // Release: this owner's work, to the next owner.
        if let Bypass::Done(verdict) = bypassed
            && self.defer.word.compare_exchange(own, ptr::null_mut(), Release, Relaxed).is_ok()
        {
            owner.has = false;
            cx.free_dropped();
            return verdict;
        }
        let share = batch.len();
        let verdict = turn(owner, root, batch, share, cx);
        cx.free_dropped();
        bypassed.verdict_or(verdict)
    }

    /// Calls `f` with the core, and with whether packets wait for an owner; then frees the queue. The caller owns the qdisc.
    /// Returns false if a worker must run the queue.
    fn with_core_owned(&self, f: &mut dyn FnMut(&mut Core<A>, bool)) -> bool {
        let mut owner = CombineTurn { queue: self, has: true, contended: false };
        let waiting = owner.waits();
        f(owner.core(), waiting);
        if owner.core().gate() == Gate::Hold {
            owner.take_listed();
        }
        owner.leave(true)
    }

    /// Runs a turn of the owner. The caller has just taken the qdisc.
    #[inline]
    fn own(&self, root: &Root<A>, own: &mut PacketList<A>, cx: &mut Ctx<'_, A>) -> Verdict {
        let owner = CombineTurn { queue: self, has: true, contended: false };
        let share = own.len();
        let verdict = turn(owner, root, own, share, cx);
        cx.free_dropped();
        verdict
    }
}

/// What happened to a sender's batch.
#[derive(PartialEq, Eq)]
enum Put {
    Listed,
    Dropped,
    /// The sender still has the batch, and now owns the queue.
    Owned,
}

impl<A: Arch> CoreAccess<A> for Combine<A> {
    #[inline]
    fn submit(&self, root: &Root<A>, batch: &mut PacketList<A>, cx: &mut Ctx<'_, A>) -> Verdict {
        let own = with::<A>(ptr::null_mut(), OWNED, 0);
        // The queue is free and no packet waits. Acquire: the last owner's work.
        if self.defer.word.compare_exchange(ptr::null_mut(), own, Acquire, Relaxed).is_ok() {
            return self.submit_alone(root, batch, cx);
        }
        if !self.try_own() {
            match self.put(root, batch, cx, true) {
                Put::Listed => return Verdict::Success,
                Put::Dropped => return Verdict::Drop,
                Put::Owned => {}
            }
        }
        self.own(root, batch, cx)
    }

    fn run(&self, root: &Root<A>, cx: &mut Ctx<'_, A>) {
        let before = self
            .exchange(|word| Some(if is(word, OWNED) { with(word, AGAIN, 0) } else { with(word, OWNED, 0) }));
        if before.is_ok_and(|before| !is(before, OWNED)) {
            let _ = self.own(root, &mut PacketList::new(), cx);
        }
    }

    fn with_core(&self, f: &mut dyn FnMut(&mut Core<A>, bool)) -> bool {
        while !self.try_own() {
            self.defer.word.wait_until(Relaxed, |word| !is(word, OWNED));
        }
        self.with_core_owned(f)
    }

    fn try_with_core(&self, f: &mut dyn FnMut(&mut Core<A>, bool)) -> Option<bool> {
        self.try_own().then(|| self.with_core_owned(f))
    }

    fn try_notify_owner(&self) -> bool {
        self.exchange(|word| is(word, OWNED).then(|| with(word, AGAIN, 0))).is_ok()
    }

    fn is_behind(&self, long: u32) -> bool {
        let Defer { word, count } = &*self.defer;
        count.load(Relaxed) > long && !list::<A>(word.load(Relaxed)).is_null()
    }

    /// Calls nothing: this discipline has no lock.
    fn locks(&self, _: &mut dyn FnMut(Lock, &dyn Recorded)) {}

    fn name_lines(&self) {
        A::name(&self.defer, "combine's word");
        A::name(&self.owner_state, QUEUE);
    }
}

impl<A: Arch> Drop for Combine<A> {
    fn drop(&mut self) {
        let mut rest = Intake::new();
        // SAFETY: as in `gather`; `&mut self` excludes every other thread.
        unsafe { rest.refill(list(self.defer.word.load(Acquire))) };
    }
}
