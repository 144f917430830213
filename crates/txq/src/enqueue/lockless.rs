//! lockless: senders put packets where the qdisc will find them, each without owning anything, and one at a time has the
//! token to run the queue (Linux 4.16, "lockless qdisc series"; `TCQ_F_NOLOCK`).
//!
//! pfifo_fast says which of its bands a packet belongs to and how many a band holds, so a sender needs nothing of the
//! qdisc itself: it counts its packets into the band, or drops them, and puts them on the band's list, all of a call with one
//! exchange a band. (The kernel's bands are rings with a lock for producers. A ring's slot that a preempted sender has reserved
//! holds up those behind it; a list has no such slot, and packets link themselves.) Whoever has the token moves what is
//! on the lists into the qdisc. A qdisc of any other kind is entered by one list, bounded by `qdisc_max_burst`.
//!
//! The token and what is said about it are bits of one word. A sender that has listed sets [`TOKEN`] and [`MISSED`] in one
//! exchange, and by what it found there it is the owner or has told the owner. The owner gives the token up in one
//! exchange with a word in which nobody has said `MISSED`. So neither can miss the other, and nobody needs a fence. (The
//! kernel's lock and `MISSED` are two words. Who stores one of them and looks at the other needs a full fence between, Linux
//! 5.19, 2e8728c955ce; and a sender that has said `MISSED` tries again, Linux 5.13, a90c57f2cedd.)
//!
//! An owner that leaves packets on the lists, or taken off them, says `MISSED` as well. So who finds the word 0 and takes the
//! token knows that nothing waits of what was handed in before: it looks at no list, neither before it sends its own packets
//! nor when it goes. What is listed meanwhile, its sender says.
//!
//! [`DRAINING`] says that packets are left in the qdisc, for the txq is stopped or the qdisc holds them back, and that
//! something else will run the queue: a sender need not try to pass by.

use std::array;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use crossbeam_utils::CachePadded;

use crate::arch::{Arch, Atomic, CellApi};
use crate::ctx::Ctx;
use crate::enqueue::intake::Intake;
use crate::enqueue::refused::Refused;
use crate::enqueue::room::{InHand, Patience};
use crate::enqueue::{Discipline, LONG, QUEUE};
use crate::netdev::Root;
use crate::packet::PacketList;
use crate::qdisc::{BANDS, Verdict};
use crate::run::{Bypass, Core, Driven, Owner, bypass, turn_here};
use crate::sync::contention::{Lock, Recorded};

mod lists;

use lists::Lists;

/// Somebody runs the queue (`qdisc->seqlock`).
const TOKEN: u32 = 1;
/// There is or may be something on the lists, or taken off them, that no owner is about to see to.
const MISSED: u32 = 2;
/// Packets are left in the qdisc, for a wake or a timer to send.
const DRAINING: u32 = 4;

struct Lockless<A: Arch> {
    lists: Lists<A>,
    state: CachePadded<A::AtomicU32>,
    /// For who has the token.
    owned: CachePadded<A::Cell<Owned<A>>>,
    /// Packets dropped for want of room in their band (`TCQ_F_CPUSTATS`).
    refused: Refused<A>,
    max_burst: u32,
}

// SAFETY: the cell is for who has the token, one at a time, and what it holds is `Send`.
unsafe impl<A: Arch> Send for Lockless<A> {}
// SAFETY: as above.
unsafe impl<A: Arch> Sync for Lockless<A> {}

pub(super) fn build<A: Arch>(core: Core<A>, max_burst: u32) -> Box<dyn Discipline<A>> {
    let lists = Lists::new();
    lists.rule.follow(&core, max_burst);
    Box::new(Lockless {
        lists,
        state: CachePadded::new(A::AtomicU32::new(0)),
        owned: CachePadded::new(A::Cell::new(Owned {
            core,
            intake: array::from_fn(|_| Intake::new()),
            inside: [0; BANDS],
            counted: false,
        })),
        refused: Refused::new(),
        max_burst,
    })
}

impl<A: Arch> Lockless<A> {
    /// Takes the token if nobody has it and nothing waits.
    #[inline]
    fn pass(&self) -> bool {
        // Acquire: what the last owner did; pairs with `leave`.
        self.state.load(Relaxed) == 0 && self.state.compare_exchange(0, TOKEN, Acquire, Relaxed).is_ok()
    }

    /// Takes the token, or makes sure that its owner looks again (`qdisc_run_begin`).
    #[inline]
    fn begin(&self) -> bool {
        // Release: the packets that we listed, to the owner that clears `MISSED`. Acquire: what the last owner did.
        self.state.fetch_or(TOKEN | MISSED, AcqRel) & TOKEN == 0
    }

    /// Counts and frees what had no room.
    #[cold]
    fn refuse(&self, root: &Root<A>, refused: &mut PacketList<A>, cx: &mut Ctx<'_, A>) {
        if !self.lists.rule.is_banded() {
            return root.drop_burst(refused, cx);
        }
        self.refused.drop_batch(refused, cx);
    }

    /// Calls `f` with the core. The caller has the token.
    fn visit_owned(&self, f: &mut dyn FnMut(&mut Core<A>, bool)) -> bool {
        // What waits has been said, or is about to be, and that stays.
        let mut owner = Owns { way: self, has: true, waiting: false, took: false, past: false };
        let waiting = owner.waits();
        let core = owner.core();
        core.add_refused(self.refused.take());
        f(core, waiting);
        // `f` may have changed the qdisc, or exchanged it.
        let mut listed = PacketList::new();
        let banded = core.qdisc.as_ref().is_some_and(|q| q.nolock().is_some());
        if banded != self.lists.rule.is_banded() {
            // What was listed by two rules is in order still; by three it would not be.
            owner.take(usize::MAX, &mut listed);
        }
        let nothing_listed = listed.is_empty();
        owner.core().admit_later(&mut listed);
        self.lists.rule.follow(owner.core(), self.max_burst);
        owner.leave(true) && nothing_listed
    }

    /// Goes on with a batch of `n` packets of which the lists had no room for some: `refused`. A band that is full drops
    /// them. A list in front of a qdisc without bands is full because its owner does not run: the sender waits for that.
    #[cold]
    fn submit_refused(
        &self,
        root: &Root<A>,
        refused: &mut PacketList<A>,
        n: usize,
        cx: &mut Ctx<'_, A>,
    ) -> Verdict {
        let mut patience = Patience::new();
        if self.lists.rule.is_banded() {
            // Before `begin`: the owner's turn ends after this.
            root.fill.note_partial(self.lists.rule.half());
        }
        loop {
            // What was listed needs an owner, before any wait.
            let owned = self.begin();
            if owned {
                InHand::during(cx.dev, refused.len(), || {
                    let _ = self.own(true, root, &mut PacketList::new(), n, cx);
                });
            }
            if refused.is_empty() {
                return Verdict::Success;
            }
            if self.lists.rule.is_banded() {
                let dropped = refused.len();
                self.refuse(root, refused, cx);
                if !owned {
                    // Where the owner does not run, it gets the CPU.
                    A::yield_cpu();
                }
                return if dropped == n { Verdict::Drop } else { Verdict::Congested };
            }
            if !owned && !InHand::during(cx.dev, refused.len(), || patience.wait(root, cx)) {
                let dropped = refused.len();
                self.refuse(root, refused, cx);
                return if dropped == n { Verdict::Drop } else { Verdict::Congested };
            }
            let mut again = std::mem::take(refused);
            self.lists.put(&mut again, refused, &cx.dev.retries);
        }
    }

    /// As [`submit`](Discipline::submit), by a sender that has taken the token and knows that nothing waits.
    #[inline]
    fn submit_alone(&self, root: &Root<A>, batch: &mut PacketList<A>, cx: &mut Ctx<'_, A>) -> Verdict {
        let n = batch.len();
        let mut owner = Owns { way: self, has: true, waiting: false, took: false, past: false };
        let Owned { core, counted, .. } = owner.owned();
        let bypassed = if *counted { Bypass::No } else { bypass(core, root, batch, cx) };
        self.owned.access_ends();
        // Release: as in `leave`.
        if bypassed == Bypass::Done && self.state.compare_exchange(TOKEN, 0, Release, Relaxed).is_ok() {
            owner.has = false;
            cx.free_dropped();
            return Verdict::Success;
        }
        // What others have listed meanwhile they have said.
        owner.waiting = bypassed == Bypass::Done;
        let verdict = turn_here(owner, root, batch, n, cx);
        cx.free_dropped();
        if bypassed == Bypass::No { verdict } else { Verdict::Success }
    }

    /// A turn of who has the token. `waiting` says whether there may be something on the lists.
    #[inline]
    fn own(
        &self,
        waiting: bool,
        root: &Root<A>,
        own: &mut PacketList<A>,
        share: usize,
        cx: &mut Ctx<'_, A>,
    ) -> Verdict {
        let verdict =
            turn_here(Owns { way: self, has: true, waiting, took: false, past: false }, root, own, share, cx);
        cx.free_dropped();
        verdict
    }
}

impl<A: Arch> Discipline<A> for Lockless<A> {
    fn submit(&self, root: &Root<A>, batch: &mut PacketList<A>, cx: &mut Ctx<'_, A>) -> Verdict {
        let n = batch.len();
        if self.pass() {
            return self.submit_alone(root, batch, cx);
        }
        let mut refused = PacketList::new();
        self.lists.put(batch, &mut refused, &cx.dev.retries);
        if !refused.is_empty() {
            return self.submit_refused(root, &mut refused, n, cx);
        }
        if !self.begin() {
            return Verdict::Success;
        }
        // The qdisc's own verdict, if it was on this batch alone.
        self.own(true, root, batch, n, cx)
    }

    fn run(&self, root: &Root<A>, cx: &mut Ctx<'_, A>) {
        if self.begin() {
            let _ = self.own(true, root, &mut PacketList::new(), 0, cx);
        }
    }

    fn visit_excludes_driver(&self) -> bool {
        true
    }

    fn visit(&self, f: &mut dyn FnMut(&mut Core<A>, bool)) -> bool {
        // Acquire: as in `begin`.
        while self.state.fetch_or(TOKEN, Acquire) & TOKEN != 0 {
            self.state.wait_until(Relaxed, |state| state & TOKEN == 0);
        }
        self.visit_owned(f)
    }

    fn try_visit(&self, f: &mut dyn FnMut(&mut Core<A>, bool)) -> Option<bool> {
        // Acquire: as in `begin`.
        (self.state.fetch_or(TOKEN, Acquire) & TOKEN == 0).then(|| self.visit_owned(f))
    }

    fn look_again(&self) -> bool {
        // Release: what made the caller ask, to the owner that clears the flag.
        self.state.load(Relaxed) & TOKEN != 0 && self.state.fetch_or(MISSED, Release) & TOKEN != 0
    }

    fn is_behind(&self) -> bool {
        let band = &self.lists.bands[0];
        !self.lists.rule.is_banded()
            && band.len.load(Relaxed) > self.max_burst / LONG
            && !band.list.is_empty()
    }

    /// There is none.
    fn locks(&self, _: &mut dyn FnMut(Lock, &dyn Recorded)) {}

    fn name_lines(&self) {
        self.lists.name_lines();
        A::name(&self.state, "lockless: token");
        A::name(&self.owned, QUEUE);
        self.refused.name_lines("lockless: packets refused");
    }
}

/// What the token guards.
struct Owned<A: Arch> {
    core: Core<A>,
    /// Taken off each band's list.
    intake: [Intake<A>; BANDS],
    /// Packets of each band that are counted in `Band::len` and are in the qdisc.
    inside: [u32; BANDS],
    /// Whether any of `inside` is not 0.
    counted: bool,
}

/// Who has the token, for one turn.
struct Owns<'w, A: Arch> {
    way: &'w Lockless<A>,
    has: bool,
    /// Whether something was left on the lists, or taken off them, by the last look, or may be there before the first. For
    /// what came later, `MISSED` is said.
    waiting: bool,
    /// Whether this turn has taken anything off the lists.
    took: bool,
    /// Whether all there was went past the qdisc, which is as empty as it was then.
    past: bool,
}

impl<A: Arch> Owns<'_, A> {
    #[inline]
    fn owned(&mut self) -> &mut Owned<A> {
        debug_assert!(self.has);
        // SAFETY: we have the token, so the cell is ours; the borrow ends with the borrow of `self`, so none is alive
        // when `leave` or `drop` gives it up.
        self.way.owned.with_mut(|o| unsafe { &mut *o })
    }

    /// Moves what is on the lists to `chunk`, about `packets` of it, and tells how many batches that were.
    ///
    /// A flow changes its list when a qdisc with bands takes the place of one without, or the reverse. Its older packets
    /// are then on the list that the rule in force would not choose for it: that list goes first, and it is taken
    /// after the others, so that what is older than anything taken is taken too.
    #[inline]
    fn take(&mut self, packets: usize, chunk: &mut PacketList<A>) -> usize {
        let way = self.way;
        let flat = !way.lists.rule.is_banded();
        let order: [usize; BANDS] = if flat { [1, 2, 0] } else { [0, 1, 2] };
        let older = if flat { 2 } else { 1 };
        let Owned { intake, inside, counted, .. } = self.owned();
        let refill = |intake: &mut Intake<A>, band: usize| {
            if intake.is_empty() && !way.lists.bands[band].list.is_empty() {
                // SAFETY: `put` lists batches given up by `take_chain`, and `take_all` acquires them.
                unsafe { intake.refill(way.lists.bands[band].list.take_all()) };
            }
        };
        order.iter().rev().for_each(|&band| refill(&mut intake[band], band));
        let mut batches = 0;
        for (place, band) in order.into_iter().enumerate() {
            let before = chunk.len();
            batches += intake[band].next(packets, chunk);
            if place < older && chunk.len() < packets {
                // What was left of an earlier look was in the way of the list.
                refill(&mut intake[band], band);
                batches += intake[band].next(packets, chunk);
            }
            inside[band] += (chunk.len() - before) as u32;
        }
        *counted |= batches > 0;
        self.took |= batches > 0;
        batches
    }

    /// As [`take`](Self::take), what others and this sender have said that they listed.
    #[inline(never)]
    fn look(&mut self, packets: usize, chunk: &mut PacketList<A>) -> usize {
        let state = &self.way.state;
        if state.load(Relaxed) != TOKEN {
            // Before the lists are taken: who says it again has listed after that. Acquire: what they listed.
            state.swap(TOKEN, Acquire);
        }
        let batches = self.take(packets, chunk);
        self.past = false;
        self.waiting = self.waits();
        if batches > 0 {
            self.core().note_drained(chunk.len());
        }
        batches
    }

    /// Tells senders how many packets of each band there are now, and the caller whether any are queued.
    #[inline]
    fn count(&mut self) -> bool {
        let Owned { core, counted, .. } = self.owned();
        let backlog = core.qlen() > 0;
        if backlog || *counted {
            self.count_bands();
        }
        backlog
    }

    #[inline(never)]
    fn count_bands(&mut self) {
        let way = self.way;
        let Owned { core, inside, counted, .. } = self.owned();
        let now = core.qdisc.as_ref().and_then(|q| q.nolock()).map_or([0; BANDS], |bands| bands.len);
        for ((band, inside), now) in way.lists.bands.iter().zip(inside).zip(now) {
            if *inside != now {
                band.len.fetch_add(now.wrapping_sub(*inside), Relaxed);
                *inside = now;
            }
        }
        *counted = now.iter().any(|&n| n > 0);
    }

    /// Gives the token up with `left` in the queue, whatever has been said; false when something has.
    #[cold]
    fn leave_tired(&mut self, left: u32) -> bool {
        let state = &self.way.state;
        // What is left, and what others have said, the next owner must see.
        state.fetch_or(left | if self.waiting { MISSED } else { 0 }, Relaxed);
        self.has = false;
        self.way.owned.access_ends();
        // Release: as in `leave`.
        state.fetch_and(left | MISSED, Release) & MISSED == 0
    }
}

impl<A: Arch> Owner<A> for Owns<'_, A> {
    #[inline]
    fn core(&mut self) -> &mut Core<A> {
        &mut self.owned().core
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
            return self.look(packets, chunk);
        }
        chunk.append(own);
        1
    }

    #[inline]
    fn drive(&mut self, driven: &mut Driven<A>, f: impl FnOnce(&mut Driven<A>)) -> bool {
        let past = driven.past && !self.took;
        if !past {
            self.count();
        }
        f(driven);
        self.past = past && driven.is_done();
        true
    }

    fn waits(&mut self) -> bool {
        let listed = self.way.lists.bands.iter().any(|band| !band.list.is_empty());
        listed || self.owned().intake.iter().any(|intake| !intake.is_empty())
    }

    fn leave(&mut self, tired: bool) -> bool {
        if self.waiting && !tired {
            return false;
        }
        let left = if !self.past && self.count() { DRAINING } else { 0 };
        if tired {
            return self.leave_tired(left);
        }
        if self.took && self.way.state.load(Relaxed) != TOKEN {
            // Others come often: an exchange would take the line from them for nothing.
            self.waiting = true;
            return false;
        }
        self.way.owned.access_ends();
        // Release: what we did, to the next owner.
        self.has = self.way.state.compare_exchange(TOKEN, left, Release, Relaxed).is_err();
        self.waiting = self.has;
        !self.has
    }
}

impl<A: Arch> Drop for Owns<'_, A> {
    fn drop(&mut self) {
        if self.has {
            // A panic of the qdisc or the driver; the worker goes on, and nobody passes what is on the lists. Release: as in
            // `leave`.
            self.way.state.swap(MISSED, Release);
        }
    }
}
