//! Where a sender's buffers come home to, and how.

use std::ptr;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::{Arc, Mutex, PoisonError};

use crossbeam_utils::CachePadded;

use crate::arch::{Arch, Atomic, AtomicPtr, CpuId, Event, Nanos};
use crate::pool::account::{Account, Word, since};
use crate::pool::fate::Fate;
use crate::pool::inbox::Inbox;
use crate::pool::retired::Run;
use crate::pool::slot::Slot;
use crate::pool::store::{FreeMode, Store};
use crate::sync::contention::Retry;

/// The inbox is half full.
const INBOX: u32 = 1;
/// The pool's size has changed.
const SIZE: u32 = 2;

/// A place for one sender's cache: the inbox that other CPUs put its buffers into.
///
/// Homes are never removed while the pool lives. One whose sender is gone is vacant, until a new sender moves in. What
/// comes home there goes to the store, except for what was on its way when the sender left; whoever runs out of
/// buffers finds that ([`Homes::iter`]).
pub(crate) struct Home<A: Arch> {
    /// What a free on another CPU writes: with one node, this line and no other.
    front: CachePadded<Front<A>>,
    /// The inboxes of the nodes from the second on.
    others: Box<[CachePadded<Inbox<A>>]>,
    /// What the sender shall do at its next call. Read by the sender at every call, written seldom.
    kicked: CachePadded<A::AtomicU32>,
    /// Who sleeps for credit: the number of freed packets when it lay down, and above it how many more wake it.
    waits_for: A::AtomicU64,
    event: A::Event,
    /// What became of its packets. Touched by drops and samples alone.
    fate: CachePadded<Fate<A>>,
    /// The CPU that its sender allocates on.
    pub(super) cpu: A::AtomicU32,
    /// The number of freed packets at which the packets of a sender that is gone are all back.
    settled: A::AtomicU32,
    pub(super) store: Arc<Store<A>>,
    /// Nobody ever lives here: the home of packets that count for no sender. What is freed goes to the store.
    nobodys: bool,
    /// For messages only.
    name: Mutex<String>,
    /// The home made before this one. Never changes.
    next: *const Home<A>,
}

struct Front<A: Arch> {
    account: Account<A>,
    /// The first node's inbox.
    inbox: Inbox<A>,
}

// SAFETY: `next` points to another home of the same pool, alive as long as this one.
unsafe impl<A: Arch> Send for Home<A> {}
// SAFETY: as above; everything else in it is atomic, or made to be shared.
unsafe impl<A: Arch> Sync for Home<A> {}

impl<A: Arch> Home<A> {
    pub(crate) fn cpu(&self) -> CpuId {
        self.cpu.load(Relaxed)
    }

    /// Names its lines ([`Arch::name`]).
    fn name_lines(&self) {
        A::name(self, "pool: a sender's home");
        A::name(&self.front, "pool: a sender's inbox");
        self.others.iter().for_each(|inbox| A::name(inbox, "pool: a sender's inbox"));
        A::name(&self.kicked, "pool: a sender's kick");
        A::name(&self.event, "pool: a sender's sleep");
        A::name(&self.fate, "pool: a sender's drops");
    }

    pub(crate) fn name(&self) -> String {
        self.name.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    #[inline]
    pub(super) fn account(&self) -> &Account<A> {
        &self.front.account
    }

    #[inline]
    pub(super) fn fate(&self) -> &Fate<A> {
        &self.fate
    }

    /// Counts `n` packets of this home that were dropped and are freed next.
    #[inline]
    pub(crate) fn note_dropped(&self, n: u32) {
        self.fate.note_dropped(n);
    }

    /// Records the time of a sampled packet of this home.
    pub(crate) fn note_time(&self, time: Nanos) {
        self.fate.note_time(time);
    }

    #[inline]
    fn inbox(&self, node: usize) -> &Inbox<A> {
        match node {
            0 => &self.front.inbox,
            _ => &self.others[node - 1],
        }
    }

    /// Takes back buffers from a thread on `node`: the packets' credit at once, the memory by the pool's mode.
    ///
    /// Giving the buffers away comes last: when the last ones of a pool are home, the pool may end, and this home with it.
    ///
    /// The run's buffers are of this home.
    #[inline]
    pub(crate) fn take_back(&self, run: &mut Run<A>, node: impl FnOnce(&Store<A>) -> usize) {
        let (store, n) = (&*self.store, run.len());
        let max = if store.mode() == FreeMode::Defer { store.defer_max() } else { 0 };
        if max == 0 {
            self.credit(n);
            return store.put(run);
        }
        let word = self.account().defer(n);
        self.wake(word);
        if word.vacant() || word.backlog() > max {
            self.account().taken(n);
            return store.put(run);
        }
        if word.backlog() > max / 2 {
            self.kick();
        }
        self.inbox(if self.others.is_empty() { 0 } else { node(store) })
            .push(run, || store.retries.note(Retry::Inbox));
    }

    /// Returns credit for `n` packets whose buffers go elsewhere.
    #[inline]
    pub(super) fn credit(&self, n: u32) {
        let word = self.account().credit(n);
        self.wake(word);
    }

    /// Wakes the sender if it sleeps and `word` has enough for it.
    #[inline]
    fn wake(&self, word: Word) {
        if word.sleeps() {
            self.wake_sleeper(word);
        }
    }

    #[cold]
    fn wake_sleeper(&self, word: Word) {
        let waits_for = self.waits_for.load(Relaxed);
        let (from, need) = (waits_for as u32, (waits_for >> 32) as u32);
        if since(word.freed(), from) >= need && self.account().rouse() {
            self.event.notify();
        }
    }

    /// The sender lies down, having seen `freed`, until `need` more packets are freed.
    pub(super) fn lie_down(&self, freed: u32, need: u32) -> Word {
        self.waits_for.store(u64::from(need) << 32 | u64::from(freed), Relaxed);
        self.account().sleep()
    }

    pub(super) fn event(&self) -> &A::Event {
        &self.event
    }

    /// Has the sender empty its inbox at its next call.
    #[inline]
    pub(super) fn kick(&self) {
        if self.kicked.load(Relaxed) & INBOX == 0 {
            // An exchange: it passes on what `tell_size` released.
            self.kicked.fetch_or(INBOX, Relaxed);
        }
    }

    /// Has the sender look at the pool's size at its next call.
    pub(super) fn tell_size(&self) {
        // Release: the size; pairs with the acquire in `answer_kick`.
        self.kicked.fetch_or(SIZE, Release);
    }

    #[inline]
    pub(super) fn is_kicked(&self) -> bool {
        self.kicked.load(Relaxed) != 0
    }

    /// Before the sender empties its inbox. Who frees after it has counted what it took ([`Account::taken`]) sees that,
    /// and kicks again. Returns whether the pool's size may have changed.
    pub(super) fn answer_kick(&self) -> bool {
        // Acquire: the size; pairs with the release in `tell_size`.
        self.kicked.swap(0, Acquire) & SIZE != 0
    }

    /// The buffers in the inbox, by node: a first one each. Looks at all nodes, so ask [`Account::read`] before.
    pub(super) fn take_all(&self) -> impl Iterator<Item = *mut Slot<A>> {
        let inboxes = (0..=self.others.len()).map(|node| self.inbox(node));
        inboxes.filter(|inbox| !inbox.is_empty()).map(Inbox::take_all)
    }

    /// The sender is gone; it has `out` packets on their way and has seen `freed` come back.
    pub(super) fn vacate(&self, freed: u32, out: u32) {
        self.settled.store(super::account::after(freed, out), Relaxed);
        self.account().vacate();
    }

    /// Moves in, unless somebody lives here or packets of the last one are still on their way: their credit is not for
    /// the next one.
    fn occupy(&self) -> bool {
        let word = self.account().read();
        if self.nobodys || !word.vacant() || word.freed() != self.settled.load(Relaxed) {
            return false;
        }
        let Some(word) = self.account().occupy() else { return false };
        // Somebody else may have lived here between the two looks.
        let settled = word.freed() == self.settled.load(Relaxed);
        if !settled {
            self.account().vacate();
        }
        settled
    }
}

/// All homes of a pool: a list that only grows.
#[repr(align(128))]
pub(super) struct Homes<A: Arch> {
    newest: A::AtomicPtr<Home<A>>,
}

impl<A: Arch> Homes<A> {
    pub(super) fn new() -> Self {
        Self { newest: A::AtomicPtr::new(ptr::null_mut()) }
    }

    /// A vacant home, or a new one.
    pub(super) fn occupy(&self, name: &str, cpu: CpuId, store: &Arc<Store<A>>) -> &Home<A> {
        let home = self.iter().find(|h| h.occupy()).unwrap_or_else(|| self.build(store, false));
        *home.name.lock().unwrap_or_else(PoisonError::into_inner) = name.to_owned();
        home.cpu.store(cpu, Relaxed);
        home.fate.occupied();
        home
    }

    /// The home where nobody lives. Two threads may make one each, which does no harm.
    pub(super) fn nobody(&self, store: &Arc<Store<A>>) -> &Home<A> {
        self.iter().find(|h| h.nobodys).unwrap_or_else(|| {
            let home = self.build(store, true);
            *home.name.lock().unwrap_or_else(PoisonError::into_inner) = "copies".to_owned();
            home
        })
    }

    fn build(&self, store: &Arc<Store<A>>, nobodys: bool) -> &Home<A> {
        let mut newest = self.newest.load(Acquire);
        let home = Box::into_raw(Box::new(Home {
            front: CachePadded::new(Front { account: Account::new(), inbox: Inbox::new() }),
            others: (1..store.nodes()).map(|_| CachePadded::new(Inbox::new())).collect(),
            kicked: CachePadded::new(A::AtomicU32::new(0)),
            waits_for: A::AtomicU64::new(0),
            event: A::Event::new(),
            fate: CachePadded::new(Fate::new()),
            cpu: A::AtomicU32::new(0),
            settled: A::AtomicU32::new(0),
            store: store.clone(),
            nobodys,
            name: Mutex::new(String::new()),
            next: newest,
        }));
        // SAFETY: not published yet.
        let fresh = unsafe { &*home };
        fresh.name_lines();
        if nobodys {
            fresh.vacate(0, 0);
        }
        // AcqRel: releases this home, acquires the one that it links to.
        while let Err(now) = self.newest.compare_exchange(newest, home, AcqRel, Acquire) {
            newest = now;
            // SAFETY: not published yet, so still ours alone.
            unsafe { (*home).next = newest };
        }
        // SAFETY: homes live as long as `self`.
        unsafe { &*home }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Home<A>> {
        let mut at = self.newest.load(Acquire).cast_const();
        std::iter::from_fn(move || {
            // SAFETY: each home lives as long as `self` and was acquired with the newest.
            let home = unsafe { at.as_ref() }?;
            at = home.next;
            Some(home)
        })
    }
}

impl<A: Arch> Drop for Homes<A> {
    fn drop(&mut self) {
        let mut at = self.newest.load(Relaxed);
        while !at.is_null() {
            // SAFETY: nobody is left to use them, and each is on the list once.
            at = unsafe { Box::from_raw(at) }.next.cast_mut();
        }
    }
}
