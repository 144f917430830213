//! combine: one word holds the list of what senders leave and who has the queue; nobody waits for anybody.
//!
//! A sender that finds the queue free takes it with one compare-and-swap, and brings its packets along. One that finds it
//! taken leaves its packets on the list with one compare-and-swap, and goes. Both are exchanges of the same word, so
//! there is no moment at which packets are left and the owner has just stopped looking: its last exchange, which frees the
//! queue, fails if the list is not empty. There is no lock: an owner that is preempted holds up the packets, as it
//! must, and no thread.
//!
//! There are two ownerships, because there are two kinds of work. Who has the [`QDISC`] enqueues and dequeues; who
//! has the [`DRIVER`] sends the batch. Where only one sender comes, an owner keeps the first while it does the second, which
//! costs nothing. Where others come meanwhile, it lets go of the qdisc before it goes to the driver, so that
//! another sender enqueues while it sends: two stages of a pipeline. When it returns it takes the qdisc again; if another
//! has it, it leaves what it brings from the driver in `driven`, gives the driver up and goes: the owner of the
//! qdisc finds the driver free, and goes on in its place.
//!
//! ```text
//!   word = list of batches, newest first | QDISC | DRIVER | AGAIN
//!
//!   sender     QDISC clear: set it, gather, enqueue ..     set: put the batch on the list, go
//!   to driver  clear QDISC, set DRIVER                     (only where others come)
//!   return     QDISC clear: set it, clear DRIVER           set: leave the result, clear DRIVER, go
//!   leave      list empty, no AGAIN, driver not left: clear QDISC      otherwise: go on
//!   tired      clear QDISC, whatever is left: the next sender or the worker takes it
//! ```
//!
//! A turn is bounded (`run::turn`). When it is over and there is more, the owner frees the queue with what is left on the
//! list, and sends the worker; the next sender takes it if it comes first. `AGAIN` is set by who has made room in the
//! device and finds the queue owned: the owner looks once more before it leaves, and no worker need be sent.
//!
//! Each part is an exchange of one word, which orders everything: no fence is needed, and the model tests break each
//! exchange's ordering and see it fail.

use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::{mem, ptr};

use crossbeam_utils::CachePadded;

use crate::arch::{Arch, Atomic, AtomicPtr, CellApi};
use crate::ctx::Ctx;
use crate::enqueue::intake::Intake;
use crate::enqueue::lease::{self, Trial};
use crate::enqueue::room::{InHand, Patience};
use crate::enqueue::{DRIVEN, Discipline, LONG, QUEUE};
use crate::netdev::Root;
use crate::packet::PacketList;
use crate::pool::slot::Slot;
use crate::qdisc::Verdict;
use crate::run::{Bypass, Core, Driven, Owner, bypass, turn};
use crate::sync::contention::{Lock, Recorded, Retry};
use crate::sync::lease::Lease;
use crate::sync::llist::Linked;

/// Somebody has the qdisc.
const QDISC: usize = 1;
/// Somebody is in the driver and has let go of the qdisc.
const DRIVER: usize = 2;
/// Who has the queue shall look once more what there is to send.
const AGAIN: usize = 4;
/// What is not the list. A slot's address is a multiple of 128.
const FLAGS: usize = QDISC | DRIVER | AGAIN;

type Word<A> = *mut Slot<A>;

fn is<A: Arch>(word: Word<A>, flag: usize) -> bool {
    word.addr() & flag != 0
}

fn list<A: Arch>(word: Word<A>) -> *mut Slot<A> {
    word.map_addr(|a| a & !FLAGS)
}

/// `list` with the flags of `word`.
fn flagged<A: Arch>(list: *mut Slot<A>, word: Word<A>) -> Word<A> {
    list.map_addr(|a| a | (word.addr() & FLAGS))
}

fn with<A: Arch>(word: Word<A>, set: usize, clear: usize) -> Word<A> {
    word.map_addr(|a| (a | set) & !clear)
}

struct Combine<A: Arch> {
    defer: CachePadded<Defer<A>>,
    /// For who has `QDISC`.
    owned: CachePadded<A::Cell<Owned<A>>>,
    /// What came back from the driver. For who has `DRIVER`, and for who has `QDISC` when nobody has.
    driven: CachePadded<A::Cell<Driven<A>>>,
    /// Read by every sender at every call, written when it changes hands.
    lease: CachePadded<Lease<A>>,
    max_burst: u32,
}

/// The line that senders write.
struct Defer<A: Arch> {
    word: A::AtomicPtr<Slot<A>>,
    /// Packets put on the list since it was last taken, those that found it empty excepted (`defer_count`).
    count: A::AtomicU32,
}

struct Owned<A: Arch> {
    core: Core<A>,
    intake: Intake<A>,
    /// Whether others came during the last turn. True before the first, for want of knowledge.
    crowded: bool,
    /// Whether leases are better than handing over.
    trial: Trial,
}

// SAFETY: the cells are for the owners that the word names, one at a time, and what they hold is `Send`.
unsafe impl<A: Arch> Send for Combine<A> {}
// SAFETY: as above.
unsafe impl<A: Arch> Sync for Combine<A> {}

pub(super) fn build<A: Arch>(core: Core<A>, max_burst: u32) -> Box<dyn Discipline<A>> {
    let word = A::AtomicPtr::new(ptr::null_mut());
    let owned = Owned { core, intake: Intake::new(), crowded: true, trial: Trial::new() };
    Box::new(Combine {
        defer: CachePadded::new(Defer { word, count: A::AtomicU32::new(0) }),
        owned: CachePadded::new(A::Cell::new(owned)),
        driven: CachePadded::new(A::Cell::new(Driven::new())),
        lease: CachePadded::new(Lease::new()),
        max_burst,
    })
}

impl<A: Arch> Combine<A> {
    /// Exchanges the word for what `f` makes of it, until that succeeds; `None` of `f` is the end without.
    #[inline]
    fn exchange(&self, mut f: impl FnMut(Word<A>) -> Option<Word<A>>) -> Result<Word<A>, Word<A>> {
        let mut word = self.defer.word.load(Relaxed);
        loop {
            let Some(new) = f(word) else { return Err(word) };
            // Release: what we did as an owner, or the batch we leave. Acquire: what the last owner did, and what
            // was left for us.
            match self.defer.word.compare_exchange_weak(word, new, AcqRel, Relaxed) {
                Ok(_) => return Ok(word),
                Err(now) => word = now,
            }
        }
    }

    /// Takes the qdisc, if nobody has it.
    #[inline]
    fn try_own(&self) -> bool {
        self.exchange(|word| (!is(word, QDISC)).then(|| with(word, QDISC, 0))).is_ok()
    }

    /// Counts `n` packets for the list, if it has room for them.
    fn has_room(&self, n: u32) -> bool {
        let Defer { word, count } = &*self.defer;
        list::<A>(word.load(Relaxed)).is_null()
            || count.fetch_add(n, Relaxed).saturating_add(n) <= self.max_burst
    }

    /// Waits until the list has room, or until nobody has the queue any more, which the caller then has.
    #[cold]
    fn wait_for_room(&self, root: &Root<A>, n: u32, cx: &mut Ctx<'_, A>) -> Put {
        let mut patience = Patience::new();
        while patience.wait(root, cx) {
            if self.try_own() {
                return Put::Owned;
            }
            // Looks before it counts: each sender that waits would count its packets each time.
            let full = self.defer.count.load(Relaxed).saturating_add(n) > self.max_burst;
            if (!full || list::<A>(self.defer.word.load(Relaxed)).is_null()) && self.has_room(n) {
                return Put::Listed;
            }
        }
        Put::Dropped
    }

    /// Puts `batch` on the list, for who has the queue. With `or_own`, takes the queue instead if nobody has it any more,
    /// and the batch stays with the caller.
    #[cold]
    fn put(&self, root: &Root<A>, batch: &mut PacketList<A>, cx: &mut Ctx<'_, A>, or_own: bool) -> Put {
        // An owner takes the list next: its own packets need no bound, and no room.
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
            owned = or_own && !is(word, QDISC);
            if owned {
                return Some(with(word, QDISC, 0));
            }
            // SAFETY: the chain is ours alone until the exchange succeeds.
            unsafe { chain.as_ref().link().with_mut(|l| *l = list(word)) };
            Some(flagged(chain.as_ptr(), word))
        });
        (1..tries).for_each(|_| cx.dev.retries.note(Retry::DeferList));
        if owned {
            // SAFETY: given up just now, and not put on the list.
            *batch = unsafe { PacketList::from_chain(chain) };
            return Put::Owned;
        }
        Put::Listed
    }

    /// As [`submit`](Discipline::submit), by a sender that has taken the queue and found nothing waiting.
    #[inline]
    fn submit_alone(&self, root: &Root<A>, batch: &mut PacketList<A>, cx: &mut Ctx<'_, A>) -> Verdict {
        let mut owner = Owns { way: self, has: true, came: false, dropped: false };
        let Owned { core, intake, crowded, .. } = owner.owned();
        // Where others come all the time, the qdisc is not kept in the driver.
        let alone = core.has_permit() || (intake.is_empty() && !*crowded);
        let bypassed = if alone { bypass(core, root, batch, cx) } else { Bypass::No };
        let own = with::<A>(ptr::null_mut(), QDISC, 0);
        self.owned.access_ends();
        // Release: what we did, to the next owner.
        if bypassed == Bypass::Done
            && self.defer.word.compare_exchange(own, ptr::null_mut(), Release, Relaxed).is_ok()
        {
            owner.has = false;
            cx.free_dropped();
            return Verdict::Success;
        }
        let share = batch.len();
        let verdict = turn(owner, root, batch, share, cx);
        cx.free_dropped();
        if bypassed == Bypass::No { verdict } else { Verdict::Success }
    }

    /// Calls `f` with the core, which the caller has become the owner of.
    fn visit_owned(&self, f: &mut dyn FnMut(&mut Core<A>, bool)) -> bool {
        let mut owner = Owns { way: self, has: true, came: false, dropped: false };
        let waiting = owner.waits();
        f(owner.core(), waiting);
        owner.leave(true)
    }

    /// Waits as another sender has the lease; returns whether the caller has taken the lease and the qdisc.
    #[cold]
    fn wait_for_lease(&self, packets: usize, cx: &mut Ctx<'_, A>) -> bool {
        // The last holder, if it runs, is done with its call soon.
        lease::wait(&self.lease, packets, cx)
            && self.defer.word.spin_until(Relaxed, |word| !is(word, QDISC)).is_some()
            && self.try_own()
    }

    /// A turn of the owner, which the caller has become with the lease that it has just taken.
    #[cold]
    fn own_leased(&self, root: &Root<A>, own: &mut PacketList<A>, cx: &mut Ctx<'_, A>) -> Verdict {
        let mut owner = Owns { way: self, has: true, came: false, dropped: false };
        owner.look(cx);
        let share = own.len();
        let verdict = turn(owner, root, own, share, cx);
        cx.free_dropped();
        verdict
    }

    /// A turn of the owner, which the caller has become.
    #[inline]
    fn own(&self, root: &Root<A>, own: &mut PacketList<A>, cx: &mut Ctx<'_, A>) -> Verdict {
        let owner = Owns { way: self, has: true, came: false, dropped: false };
        let share = own.len();
        let verdict = turn(owner, root, own, share, cx);
        cx.free_dropped();
        verdict
    }
}

/// What has become of a sender's batch.
#[derive(PartialEq, Eq)]
enum Put {
    Listed,
    Dropped,
    /// It is in the sender's hands still, and now so is the queue.
    Owned,
}

impl<A: Arch> Discipline<A> for Combine<A> {
    #[inline]
    fn submit(&self, root: &Root<A>, batch: &mut PacketList<A>, cx: &mut Ctx<'_, A>) -> Verdict {
        if lease::is_anothers(&self.lease, cx) && self.wait_for_lease(batch.len(), cx) {
            return self.own_leased(root, batch, cx);
        }
        let own = with::<A>(ptr::null_mut(), QDISC, 0);
        // Nobody has the queue and nothing waits. Acquire: what the last owner did.
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
            .exchange(|word| Some(if is(word, QDISC) { with(word, AGAIN, 0) } else { with(word, QDISC, 0) }));
        if before.is_ok_and(|before| !is(before, QDISC)) {
            let _ = self.own(root, &mut PacketList::new(), cx);
        }
    }

    fn visit(&self, f: &mut dyn FnMut(&mut Core<A>, bool)) -> bool {
        while !self.try_own() {
            self.defer.word.wait_until(Relaxed, |word| !is(word, QDISC));
        }
        self.visit_owned(f)
    }

    fn try_visit(&self, f: &mut dyn FnMut(&mut Core<A>, bool)) -> Option<bool> {
        self.try_own().then(|| self.visit_owned(f))
    }

    fn look_again(&self) -> bool {
        self.exchange(|word| is(word, QDISC | DRIVER).then(|| with(word, AGAIN, 0))).is_ok()
    }

    fn is_behind(&self) -> bool {
        let Defer { word, count } = &*self.defer;
        count.load(Relaxed) > self.max_burst / LONG && !list::<A>(word.load(Relaxed)).is_null()
    }

    /// There is none.
    fn locks(&self, _: &mut dyn FnMut(Lock, &dyn Recorded)) {}

    fn name_lines(&self) {
        A::name(&self.defer, "combine's word");
        A::name(&self.owned, QUEUE);
        A::name(&self.driven, DRIVEN);
        A::name(&self.lease, "combine's lease");
    }
}

/// Who has the qdisc, for one turn; or has let go of it and is in the driver.
struct Owns<'w, A: Arch> {
    way: &'w Combine<A>,
    /// Has the qdisc.
    has: bool,
    /// Others have left something in this turn.
    came: bool,
    /// What the owner brought was too much for the list.
    dropped: bool,
}

impl<A: Arch> Owns<'_, A> {
    #[inline]
    fn owned(&mut self) -> &mut Owned<A> {
        debug_assert!(self.has);
        // SAFETY: `QDISC` is set by our own doing, so the cell is ours; the borrow ends with the borrow of `self`, so
        // none is alive when `drive`, `leave` or `drop` clears the bit.
        self.way.owned.with_mut(|o| unsafe { &mut *o })
    }

    /// Looks whether it is time to begin or to end leases.
    #[cold]
    fn look(&mut self, cx: &Ctx<'_, A>) {
        let now = A::now();
        let Owned { core, trial, .. } = self.owned();
        match trial.look(now, core.sent()) {
            Some(true) => self.way.lease.grant(cx.cache.tag(), now + A::LEASE),
            Some(false) => self.way.lease.end(),
            None => {}
        }
    }

    /// Comes back from the driver. Takes the qdisc, and true; or leaves what it brings to who has the qdisc.
    fn come_back(&mut self, driven: &mut Driven<A>) -> bool {
        let way = self.way;
        // SAFETY: we have the driver: `DRIVER` is set until our exchange clears it.
        let swap = |driven: &mut Driven<A>| way.driven.with_mut(|d| mem::swap(unsafe { &mut *d }, driven));
        let mut laid_down = false;
        let before = way.exchange(|word| {
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
        let way = self.way;
        // Acquire: what was left by who gave the driver up.
        let word = way.defer.word.load(Acquire);
        let listed = !list::<A>(word).is_null();
        let Owned { core, intake, .. } = self.owned();
        if core.is_running() && !is(word, DRIVER) {
            // SAFETY: nobody has the driver, so what is in the cell is for who has the qdisc.
            way.driven.with_mut(|d| core.absorb(root, unsafe { &mut *d }, cx));
        }
        if intake.is_empty() && listed {
            let before = way.exchange(|word| Some(flagged(ptr::null_mut(), word))).unwrap_or(word);
            way.defer.count.store(0, Relaxed);
            // SAFETY: `put` lists batches given up by `take_chain`, and the exchange acquired them.
            unsafe { intake.refill(list(before)) };
            intake.append(own);
            self.came = true;
            if A::LEASE > 0 && self.owned().trial.is_due() {
                self.look(cx);
            }
        } else if intake.is_empty() {
            chunk.append(own);
            return 1;
        } else if listed && !own.is_empty() {
            // Packets of our own may be on the list: these go behind them.
            self.dropped = way.put(root, own, cx, false) == Put::Dropped;
        } else {
            intake.append(own);
        }
        let batches = self.owned().intake.next(packets, chunk);
        if self.came && batches > 0 {
            self.core().note_drained(chunk.len());
        }
        batches
    }

    #[inline]
    fn drive(&mut self, driven: &mut Driven<A>, f: impl FnOnce(&mut Driven<A>)) -> bool {
        if !self.came && !self.owned().crowded {
            f(driven);
            return true;
        }
        /// A panic of the driver: the qdisc is taken back, whoever has it now, for the accounts to be set right.
        struct Unwound<'o, 'w, A: Arch>(&'o mut Owns<'w, A>);
        impl<A: Arch> Drop for Unwound<'_, '_, A> {
            fn drop(&mut self) {
                let Owns { way, has, .. } = self.0;
                while way.exchange(|word| (!is(word, QDISC)).then(|| with(word, QDISC, DRIVER))).is_err() {
                    way.defer.word.wait_until(Relaxed, |word| !is(word, QDISC));
                }
                *has = true;
            }
        }
        self.has = false;
        self.way.owned.access_ends();
        let _ = self.way.exchange(|word| Some(with(word, DRIVER, QDISC)));
        let unwound = Unwound(self);
        f(driven);
        mem::forget(unwound);
        self.come_back(driven)
    }

    fn waits(&mut self) -> bool {
        !self.owned().intake.is_empty() || !list::<A>(self.way.defer.word.load(Relaxed)).is_null()
    }

    #[inline]
    fn leave(&mut self, tired: bool) -> bool {
        let (way, came) = (self.way, self.came);
        let owned = self.owned();
        let waiting = !owned.intake.is_empty();
        if waiting && !tired {
            return false;
        }
        owned.crowded = came;
        let running = owned.core.is_running();
        let mut left = waiting;
        way.owned.access_ends();
        let ended = way.exchange(|word| {
            left = waiting || !list(word).is_null() || is(word, AGAIN) || (running && !is(word, DRIVER));
            (tired || !left).then(|| with(word, 0, QDISC | AGAIN))
        });
        match ended {
            Ok(_) => self.has = false,
            Err(word) if is(word, AGAIN) => drop(way.exchange(|word| Some(with(word, 0, AGAIN)))),
            Err(_) => {}
        }
        !left
    }

    fn said(&self) -> Option<Verdict> {
        self.dropped.then_some(Verdict::Drop)
    }
}

impl<A: Arch> Drop for Owns<'_, A> {
    fn drop(&mut self) {
        if self.has {
            // A panic of the qdisc or the driver; the worker goes on.
            let _ = self.way.exchange(|word| Some(with(word, 0, QDISC)));
        }
    }
}

impl<A: Arch> Drop for Combine<A> {
    fn drop(&mut self) {
        let mut rest = Intake::new();
        // SAFETY: as in `gather`; nobody is left to share it with.
        unsafe { rest.refill(list(self.defer.word.load(Acquire))) };
    }
}
