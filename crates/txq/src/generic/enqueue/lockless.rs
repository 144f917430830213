//! lockless: senders put packets on a list for each band without owning the queue; the token holder runs the queue (Linux
//! 4.16, "lockless qdisc series"; `TCQ_F_NOLOCK`).
//!
//! pfifo_fast publishes the band of each priority and the limit of a band, so a sender need not access the qdisc. It counts
//! its packets into the band, or drops them, and pushes them onto the band's list, with one exchange a band and call. As in
//! the kernel, it holds the producers' lock of the band meanwhile. (The kernel's bands are rings; a list has no slot that a
//! preempted sender could have reserved.) The token holder moves the packets from the lists into the qdisc. A qdisc of any other
//! kind has one list in front, bounded by `qdisc_max_burst`.
//!
//! [`Lockless::state`] holds the token and `MISSED` in one word. A sender that has listed packets sets both in one exchange,
//! and the old value says whether it now owns the queue or has notified the owner. The owner returns the token with one
//! exchange that fails if `MISSED` is set. So neither can miss the other, and no fence is needed. (The kernel's lock and
//! `MISSED` are two words. A thread that stores one of them and loads the other needs a full fence between, Linux 5.19,
//! 2e8728c955ce; and a sender that has set `MISSED` tries again, Linux 5.13, a90c57f2cedd.)
//!
//! An owner that leaves packets on the lists, or in an intake, sets `MISSED` too. So a sender that changes the word from 0
//! to [`TOKEN`] knows that no earlier packet waits. It checks no list, neither before it sends its own packets nor when it
//! leaves: a sender that lists packets meanwhile sets `MISSED`.

use std::array;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use crossbeam_utils::CachePadded;

use txq_core::arch::{Arch, Atomic, CellApi};
use txq_core::packet::PacketList;
use txq_core::stats::contention::Lock;
use txq_core::sync::contention::Recorded;
use txq_sched::generic::qdisc::{BANDS, Verdict};

use crate::generic::datapath::Core;
use crate::generic::datapath::CoreAccess;
use crate::generic::datapath::Ctx;
use crate::generic::datapath::Gate;
use crate::generic::datapath::InHand;
use crate::generic::datapath::Root;
use crate::generic::enqueue::QUEUE;
use crate::generic::enqueue::intake::Intake;
use crate::generic::enqueue::refused::Refused;
use crate::generic::enqueue::room::Patience;
use crate::generic::panics::Panics;
use crate::generic::run::{Bypass, Owner, bypass, turn_here};

mod lists;
mod owner;

use lists::{Lists, bands};
use owner::LocklessTurn;

/// A thread owns the queue and runs it (`qdisc->seqlock`).
const TOKEN: u32 = 1;
/// Packets may wait on the lists or in an intake. The owner checks them before it leaves; without an owner, a worker or a
/// sender must run the queue.
const MISSED: u32 = 2;
/// The qdisc holds packets: the txq is stopped, or the qdisc holds them back. A wake or a timer runs the queue, so a sender
/// does not try to bypass the qdisc.
const DRAINING: u32 = 4;

struct Lockless<A: Arch> {
    lists: Lists<A>,
    /// [`TOKEN`], [`MISSED`] and [`DRAINING`], in any combination. 0: the queue is free and the qdisc is empty.
    ///
    /// | from | to | by |
    /// |---|---|---|
    /// | 0 | `TOKEN` | a sender that has listed nothing: it may bypass the qdisc (`pass`) |
    /// | any | adds `TOKEN`, `MISSED` | a sender that has listed packets, or the worker (`begin`) |
    /// | any | adds `TOKEN` | a visit |
    /// | any | adds `MISSED` | a thread that has just read `TOKEN` and makes the owner check again (`try_notify_owner`) |
    /// | `TOKEN` and others | `TOKEN` | the owner, before it takes the lists (`take_clearing_missed`) |
    /// | `TOKEN` | 0 or `DRAINING` | the owner that leaves (`leave`) |
    /// | `TOKEN` and others | `DRAINING`, `MISSED`, both or 0 | the owner whose turn is over, or a visit (`leave_tired`) |
    /// | `TOKEN` and others | `MISSED` | the owner that a panic ends |
    ///
    /// The thread that adds `TOKEN` owns the queue if `TOKEN` was clear before.
    ///
    /// Each transition is a read-modify-write. The owner that leaves releases `owner_state`; the thread that takes the token
    /// acquires it. A sender that sets `MISSED` releases its packets, and the owner that clears it acquires them.
    state: CachePadded<A::AtomicU32>,
    /// Accessed only by the token holder.
    owner_state: CachePadded<A::Cell<OwnerState<A>>>,
    /// Packets dropped for want of room in their band (`TCQ_F_CPUSTATS`).
    refused: Refused<A>,
    max_burst: u32,
}

// SAFETY: only the token holder accesses the cell, one thread at a time, and its content is `Send`.
unsafe impl<A: Arch> Send for Lockless<A> {}
// SAFETY: as above.
unsafe impl<A: Arch> Sync for Lockless<A> {}

pub(super) fn build<A: Arch>(core: Core<A>, max_burst: u32) -> Box<dyn CoreAccess<A>> {
    let lists = Lists::new();
    lists.rule.follow(bands(&core), max_burst);
    Box::new(Lockless {
        lists,
        state: CachePadded::new(A::AtomicU32::new(0)),
        owner_state: CachePadded::new(A::Cell::new(OwnerState {
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
    /// Takes the token if it is free and no packet waits; returns whether it did.
    #[inline]
    fn pass(&self) -> bool {
        // Acquire: the last owner's writes; pairs with `leave`.
        self.state.load(Relaxed) == 0 && self.state.compare_exchange(0, TOKEN, Acquire, Relaxed).is_ok()
    }

    /// Takes the token, or makes the owner check the lists again (`qdisc_run_begin`). Returns whether the caller is the
    /// owner.
    #[inline]
    fn begin(&self) -> bool {
        // Release: the caller's listed packets, to the owner that clears `MISSED`. Acquire: the last owner's writes.
        self.state.fetch_or(TOKEN | MISSED, AcqRel) & TOKEN == 0
    }

    /// Counts and frees packets that had no room on the lists.
    #[cold]
    fn refuse(&self, root: &Root<A>, refused: &mut PacketList<A>, cx: &mut Ctx<'_, A>) {
        if !self.lists.rule.is_banded() {
            return root.drop_burst(refused, cx);
        }
        self.refused.drop_batch(refused, cx);
    }

    /// Calls `f` with the core, and with whether packets wait for an owner; then returns the token. The caller has the
    /// token. Returns false if a worker must run the queue.
    fn with_core_owned(&self, f: &mut dyn FnMut(&mut Core<A>, bool)) -> bool {
        // For listed packets a sender has set `MISSED` or is about to, and a visit does not clear it.
        let mut owner =
            LocklessTurn { queue: self, has: true, waiting: false, drained_lists: false, bypassed: false };
        let waiting = owner.waits();
        let core = owner.core();
        core.add_refused(self.refused.take());
        f(core, waiting);
        // `f` may have changed or replaced the qdisc.
        let mut listed = PacketList::new();
        let bands = bands(core);
        if bands.is_some() != self.lists.rule.is_banded() || core.gate() == Gate::Hold {
            // Packets listed under two rules can still be taken in order (`take`); under three they could not.
            owner.take(usize::MAX, &mut listed);
        }
        let nothing_listed = listed.is_empty();
        owner.core().admit_later(&mut listed);
        self.lists.rule.follow(bands, self.max_burst);
        // A panic of a qdisc that is asked for its length goes no further, so that the qdisc can be replaced.
        Panics::default().catch(|| owner.leave(true)) == Some(true) && nothing_listed
    }

    /// Submits the rest of a batch of `n` packets: the lists had no room for `refused`. Where the qdisc has bands, drops
    /// them: the band is full. Where it has none, waits, since the list is full only while the owner does not run; drops
    /// them if the wait is over.
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
            // Before `begin`, so that an owner's turn ends after this and reads the fill word.
            root.fill.note_partial(self.lists.rule.half());
        }
        loop {
            // Before any wait: the listed packets need an owner.
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
                    // The owner may be preempted: give it the CPU.
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

    /// As [`submit`](CoreAccess::submit), for a sender that has taken the token by `pass`: no packet waits.
    #[inline]
    fn submit_alone(&self, root: &Root<A>, batch: &mut PacketList<A>, cx: &mut Ctx<'_, A>) -> Verdict {
        let n = batch.len();
        let mut owner =
            LocklessTurn { queue: self, has: true, waiting: false, drained_lists: false, bypassed: false };
        let OwnerState { core, counted, .. } = owner.owner_state();
        let bypassed = if *counted { Bypass::No } else { bypass(core, root, batch, cx) };
        self.owner_state.access_ends();
        // Release: as in `leave`.
        if let Bypass::Done(verdict) = bypassed
            && self.state.compare_exchange(TOKEN, 0, Release, Relaxed).is_ok()
        {
            owner.has = false;
            cx.free_dropped();
            return verdict;
        }
        // The exchange failed: another sender has listed packets and set `MISSED`.
        owner.waiting = matches!(bypassed, Bypass::Done(_));
        let verdict = turn_here(owner, root, batch, n, cx);
        cx.free_dropped();
        bypassed.verdict_or(verdict)
    }

    /// Runs a turn of the token holder. `waiting` says whether packets may wait on the lists.
    #[inline]
    fn own(
        &self,
        waiting: bool,
        root: &Root<A>,
        own: &mut PacketList<A>,
        share: usize,
        cx: &mut Ctx<'_, A>,
    ) -> Verdict {
        let verdict = turn_here(
            LocklessTurn { queue: self, has: true, waiting, drained_lists: false, bypassed: false },
            root,
            own,
            share,
            cx,
        );
        cx.free_dropped();
        verdict
    }
}

impl<A: Arch> CoreAccess<A> for Lockless<A> {
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
        // The qdisc's verdict, if the owner took this batch alone.
        self.own(true, root, batch, n, cx)
    }

    fn run(&self, root: &Root<A>, cx: &mut Ctx<'_, A>) {
        if self.begin() {
            let _ = self.own(true, root, &mut PacketList::new(), 0, cx);
        }
    }

    fn with_core(&self, f: &mut dyn FnMut(&mut Core<A>, bool)) -> bool {
        // Acquire: as in `begin`.
        while self.state.fetch_or(TOKEN, Acquire) & TOKEN != 0 {
            self.state.wait_until(Relaxed, |state| state & TOKEN == 0);
        }
        self.with_core_owned(f)
    }

    fn try_with_core(&self, f: &mut dyn FnMut(&mut Core<A>, bool)) -> Option<bool> {
        // Acquire: as in `begin`.
        (self.state.fetch_or(TOKEN, Acquire) & TOKEN == 0).then(|| self.with_core_owned(f))
    }

    fn try_notify_owner(&self) -> bool {
        // Release: the room that the caller has made, to the owner that clears the flag.
        self.state.load(Relaxed) & TOKEN != 0 && self.state.fetch_or(MISSED, Release) & TOKEN != 0
    }

    fn is_behind(&self, long: u32) -> bool {
        let band = &self.lists.bands[0];
        !self.lists.rule.is_banded() && band.len.load(Relaxed) > long && !band.list.is_empty()
    }

    fn locks(&self, f: &mut dyn FnMut(Lock, &dyn Recorded)) {
        self.lists.bands.iter().for_each(|band| f(Lock::Producers, &band.producers));
    }

    fn name_lines(&self) {
        self.lists.name_lines();
        A::name(&self.state, "lockless: token");
        A::name(&self.owner_state, QUEUE);
        self.refused.name_lines("lockless: packets refused");
    }
}

/// The state that the token guards.
struct OwnerState<A: Arch> {
    core: Core<A>,
    /// Batches taken off each band's list and not yet given to the qdisc.
    intake: [Intake<A>; BANDS],
    /// Packets of each band that the owner has given to the qdisc and that `Band::len` still counts.
    inside: [u32; BANDS],
    /// Whether any of `inside` is not 0.
    counted: bool,
}
