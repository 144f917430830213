//! A sender's home: the inbox, the account and the kick that other threads reach it by.

use std::ptr::NonNull;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Waker;
use std::{mem, ptr};

use crossbeam_utils::CachePadded;

use crate::arch::{Arch, Atomic, AtomicPtr, CpuId, Event, Nanos};
use crate::drop::DropReason;
use crate::pool::account::{Account, AccountWord, since};
use crate::pool::fate::Fate;
use crate::pool::inbox::Inbox;
use crate::pool::retired::Run;
use crate::pool::slot::Slot;
use crate::pool::store::{FreeMode, Store};
use crate::stats::contention::Retry;
use crate::sync::spinlock::SpinLock;
use crate::sync::waiter;

/// More than half of `defer_max` waits in the inbox.
const INBOX: u32 = 1;
/// The pool's size has changed, or a sender waits for a buffer.
const RESIZED: u32 = 2;

/// The shared side of one sender's cache: other CPUs free the sender's buffers to its inbox.
///
/// Homes are never removed while the pool lives. A home is vacant from the end of its sender until a new sender occupies it.
/// Buffers freed to a vacant home go to the store. A run that was counted before the sender left still goes to the inbox; a
/// sender without buffers finds it there ([`Homes::iter`]).
pub(crate) struct Home<A: Arch> {
    /// Written by each free on another CPU; with one node, a free writes no other line of the home.
    front: CachePadded<Front<A>>,
    /// The inboxes of the nodes from the second on.
    others: Box<[CachePadded<Inbox<A>>]>,
    /// [`INBOX`] and [`RESIZED`]: what the sender must check in its next call. Any thread sets a bit; the sender loads the
    /// word (relaxed) in every call, and swaps 0 in (acquire) before it empties its inbox (`answer_kick`). Seldom written,
    /// so the line stays shared.
    kicked: CachePadded<A::AtomicU32>,
    /// For a sender that sleeps for credit: in the lower half [`AccountWord::freed`] when it went to sleep, in the upper half the
    /// number of packets freed since that wakes it. Written by the sender before it sets `SLEEPS`, read by threads that find
    /// `SLEEPS` set; relaxed (`Account::sleep` says why).
    waits_for: A::AtomicU64,
    /// The sender sleeps here; the thread that clears `SLEEPS` to wake it notifies.
    event: A::Event,
    /// The waker of a task that waits for credit: stored by the sender before it sets `SLEEPS`, taken by the thread that
    /// clears `SLEEPS`. Boxed: few senders use it.
    task: Box<CachePadded<SpinLock<A, Option<Waker>>>>,
    /// The buffer that the sender has got in the line (`pool/line.rs`); null for none. Stored under the parking lock by the
    /// thread that removes the sender from the line. Taken by the sender, which has found under the same lock that it is not
    /// in the line. Relaxed: the lock orders both, and the buffer with them.
    granted: A::AtomicPtr<Slot<A>>,
    /// Drops and sampled times of its packets. Only drops and samples touch this line.
    fate: CachePadded<Fate<A>>,
    /// The CPU that its sender allocates on. Written by the sender; a hint for all others.
    pub(super) cpu: A::AtomicU32,
    /// [`AccountWord::freed`] at which all packets of the last sender are freed. Written by that sender before it vacates the home
    /// (release), read by the next sender before it occupies the home (the lock of `Homes::vacant` orders both).
    settled: A::AtomicU32,
    pub(super) store: Arc<Store<A>>,
    /// Whether no sender may occupy this home: it is the home of copies, which count for no sender. It is always vacant, so
    /// buffers freed to it go to the store.
    nobodys: bool,
    /// The sender's name, for messages.
    name: Mutex<String>,
    /// The home made before this one. Never changes.
    next: *const Home<A>,
    /// The vacant home behind this one in [`Vacant`]; null for the last. Accessed under the lock of `Homes::vacant`; relaxed.
    next_vacant: A::AtomicPtr<Home<A>>,
}

struct Front<A: Arch> {
    account: Account<A>,
    /// The first node's inbox.
    inbox: Inbox<A>,
}

// SAFETY: `next` points to another home of the same pool, alive as long as this one.
unsafe impl<A: Arch> Send for Home<A> {}
// SAFETY: as above; every other field is atomic, or `Sync` itself.
unsafe impl<A: Arch> Sync for Home<A> {}

impl<A: Arch> Home<A> {
    pub(crate) fn cpu(&self) -> CpuId {
        self.cpu.load(Relaxed)
    }

    /// Returns the bytes of each buffer of its pool that a packet may have.
    pub(crate) fn space(&self) -> usize {
        self.store.space
    }

    /// Names its lines ([`Arch::name`]).
    fn name_lines(&self) {
        A::name(self, "pool: a sender's home");
        A::name(&self.front, "pool: a sender's inbox");
        self.others.iter().for_each(|inbox| A::name(inbox, "pool: a sender's inbox"));
        A::name(&self.kicked, "pool: a sender's kick");
        A::name(&self.event, "pool: a sender's sleep");
        A::name(&*self.task, "pool: a sender's waker");
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

    /// Counts `n` packets of this home, dropped for `reason`. The caller frees them next.
    #[inline]
    pub(crate) fn note_dropped(&self, reason: DropReason, n: u32) {
        self.fate.note_dropped(reason, n);
    }

    /// Records the time of a sampled packet of this home.
    pub(crate) fn note_time(&self, time: Nanos) {
        self.fate.note_time(time);
    }

    /// The inbox that threads on `node` free to.
    #[inline]
    fn inbox(&self, node: usize) -> &Inbox<A> {
        match node {
            0 => &self.front.inbox,
            _ => &self.others[node - 1],
        }
    }

    /// Takes back a run of this home's buffers from a thread on `node`: returns the packets' credit at once, and the memory
    /// by the pool's mode.
    ///
    /// Giving the buffers away is the last access: once all buffers of a pool are home, another thread may free the pool and
    /// this home.
    ///
    /// All buffers of the run must be of this home.
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
        let inbox = self.inbox(if self.others.is_empty() { 0 } else { node(store) });
        if !inbox.push(run, || store.retries.note(Retry::Inbox)) {
            self.take_elsewhere(run);
        }
    }

    /// Puts a run, which is counted in the backlog, into the stock: the inbox is closed.
    #[cold]
    fn take_elsewhere(&self, run: &mut Run<A>) {
        self.account().taken(run.len());
        self.store.put(run);
    }

    /// Returns credit for `n` packets whose buffers do not come home.
    #[inline]
    pub(super) fn credit(&self, n: u32) {
        let word = self.account().credit(n);
        self.wake(word);
    }

    /// Wakes the sender if it sleeps and `word` has enough for it.
    #[inline]
    fn wake(&self, word: AccountWord) {
        if word.sleeps() {
            self.wake_sleeper(word);
        }
    }

    #[cold]
    fn wake_sleeper(&self, word: AccountWord) {
        let waits_for = self.waits_for.load(Relaxed);
        let (from, need) = (waits_for as u32, (waits_for >> 32) as u32);
        if since(word.freed(), from) >= need && self.account().rouse() {
            self.event.notify();
            self.wake_task();
        }
    }

    /// Wakes the task that waits for credit, if there is one.
    fn wake_task(&self) {
        self.set_task(None).into_iter().for_each(waiter::wake);
    }

    /// Replaces the waker of the task that waits for credit; returns the old one, for the caller to use with no lock held.
    pub(super) fn set_task(&self, waker: Option<Waker>) -> Option<Waker> {
        self.task.with(|held| mem::replace(held.data(), waker))
    }

    /// Wakes the sender to check its device again, if it waits for credit.
    pub(super) fn wake_to_recheck(&self) {
        self.event.notify();
        self.wake_task();
    }

    /// Takes the buffer that the sender has got in the line; null for none. The sender is not in the line.
    pub(super) fn claim(&self) -> *mut Slot<A> {
        let slot = self.granted.load(Relaxed);
        self.granted.store(ptr::null_mut(), Relaxed);
        slot
    }

    /// Gives a buffer to the sender, which leaves the line. The caller holds the parking lock.
    pub(super) fn grant(&self, slot: *mut Slot<A>) {
        self.granted.store(slot, Relaxed);
    }

    /// Announces that the sender, which has seen `freed`, sleeps until `need` more packets are freed. Returns the account's
    /// word ([`Account::sleep`]).
    pub(super) fn lie_down(&self, freed: u32, need: u32) -> AccountWord {
        self.waits_for.store(u64::from(need) << 32 | u64::from(freed), Relaxed);
        self.account().sleep()
    }

    pub(super) fn event(&self) -> &A::Event {
        &self.event
    }

    /// Makes the sender empty its inbox in its next call.
    #[inline]
    pub(super) fn kick(&self) {
        if self.kicked.load(Relaxed) & INBOX == 0 {
            // A read-modify-write: it continues the release sequence of `tell_size`.
            self.kicked.fetch_or(INBOX, Relaxed);
        }
    }

    /// Makes the sender read the pool's size in its next call.
    pub(super) fn tell_size(&self) {
        // Release: the size; pairs with the acquire in `answer_kick`.
        self.kicked.fetch_or(RESIZED, Release);
    }

    /// Whether a bit of the kick is set. Relaxed: `answer_kick` acquires.
    #[inline]
    pub(super) fn is_kicked(&self) -> bool {
        self.kicked.load(Relaxed) != 0
    }

    /// Clears the kick, before the sender empties its inbox; returns whether the pool's size may have changed. A thread that
    /// frees after the sender's [`Account::taken`] sees the kick cleared, and kicks again.
    pub(super) fn answer_kick(&self) -> bool {
        // Acquire: the size; pairs with the release in `tell_size`.
        self.kicked.swap(0, Acquire) & RESIZED != 0
    }

    /// Takes all buffers of the inboxes; yields the first buffer of each node's. Reads every node's inbox, so call it only if
    /// [`Account::read`] has a backlog.
    pub(super) fn take_all(&self) -> impl Iterator<Item = *mut Slot<A>> {
        let inboxes = (0..=self.others.len()).map(|node| self.inbox(node));
        inboxes.filter(|inbox| !inbox.is_empty()).map(Inbox::take_all)
    }

    /// Closes all inboxes while senders wait for a buffer, and takes their buffers; yields the first of each node's.
    pub(super) fn close_inboxes(&self) -> impl Iterator<Item = *mut Slot<A>> {
        (0..=self.others.len()).map(|node| self.inbox(node).close()).filter(|first| !first.is_null())
    }

    /// Opens all inboxes, as [`Inbox::open`] does.
    pub(super) fn open_inboxes(&self) {
        (0..=self.others.len()).for_each(|node| self.inbox(node).open());
    }

    /// Leaves the home at the end of its sender, which has seen `freed` and has `out` packets still in use.
    fn vacate(&self, freed: u32, out: u32) {
        self.settled.store(super::account::after(freed, out), Relaxed);
        self.account().vacate();
    }

    /// Occupies the home, which the caller has taken off the list of vacant ones; returns whether it did. Refuses if packets of
    /// the last sender are still in use: their credit must not go to the next sender.
    fn occupy(&self) -> bool {
        let is_settled = self.account().read().freed() == self.settled.load(Relaxed);
        is_settled && self.account().occupy().is_some()
    }
}

/// How many vacant homes a new sender tries: packets of their last senders may still be in use.
const HOME_TRIES: usize = 8;

/// The vacant homes, the one that has been vacant longest first.
struct Vacant<A: Arch> {
    first: *const Home<A>,
    /// Valid while `first` is not null.
    last: *const Home<A>,
}

// SAFETY: homes are shared between threads, and live as long as their pool.
unsafe impl<A: Arch> Send for Vacant<A> {}

impl<A: Arch> Vacant<A> {
    /// Appends a home.
    fn push(&mut self, home: &Home<A>) {
        home.next_vacant.store(ptr::null_mut(), Relaxed);
        // SAFETY: homes live as long as the list.
        match unsafe { self.last.as_ref() }.filter(|_| !self.first.is_null()) {
            Some(last) => last.next_vacant.store(ptr::from_ref(home).cast_mut(), Relaxed),
            None => self.first = home,
        }
        self.last = home;
    }

    /// Takes the first home.
    fn pop(&mut self) -> Option<NonNull<Home<A>>> {
        // SAFETY: as in `push`.
        let first = unsafe { self.first.as_ref() }?;
        self.first = first.next_vacant.load(Relaxed);
        Some(first.into())
    }
}

/// All homes of a pool: a list that only grows.
#[repr(align(128))]
pub(super) struct Homes<A: Arch> {
    /// The home built last; null when there is none. A thread that builds a home pushes it by compare-exchange (release);
    /// readers acquire it and every home that it links to.
    newest: A::AtomicPtr<Home<A>>,
    /// The vacant ones, so that a new sender does not walk along all.
    vacant: SpinLock<A, Vacant<A>>,
}

impl<A: Arch> Homes<A> {
    pub(super) fn new() -> Self {
        let vacant = SpinLock::new(Vacant { first: ptr::null(), last: ptr::null() });
        Self { newest: A::AtomicPtr::new(ptr::null_mut()), vacant }
    }

    /// Leaves a home at the end of its sender, as [`Home::vacate`].
    pub(super) fn vacate(&self, home: &Home<A>, freed: u32, out: u32) {
        home.vacate(freed, out);
        self.vacant.with(|held| held.data().push(home));
    }

    /// Occupies a vacant home. One that refuses goes to the end of the list.
    fn occupy_vacant(&self) -> Option<&Home<A>> {
        for _ in 0..HOME_TRIES {
            // SAFETY: homes live as long as `self`.
            let home = unsafe { self.vacant.with(|held| held.data().pop())?.as_ref() };
            if home.occupy() {
                return Some(home);
            }
            self.vacant.with(|held| held.data().push(home));
        }
        None
    }

    /// Returns a home for a sender: a vacant one, or a new one.
    pub(super) fn occupy(&self, name: &str, cpu: CpuId, store: &Arc<Store<A>>) -> &Home<A> {
        let home = self.occupy_vacant().unwrap_or_else(|| self.build(store, false));
        *home.name.lock().unwrap_or_else(PoisonError::into_inner) = name.to_owned();
        home.cpu.store(cpu, Relaxed);
        home.fate.occupied();
        home
    }

    /// Returns the home of copies, where no sender lives, and builds it at first use. Two threads may build one each, which
    /// does no harm.
    pub(super) fn nobody(&self, store: &Arc<Store<A>>) -> &Home<A> {
        self.iter().find(|h| h.nobodys).unwrap_or_else(|| {
            let home = self.build(store, true);
            *home.name.lock().unwrap_or_else(PoisonError::into_inner) = "copies".to_owned();
            home
        })
    }

    /// Builds a home and pushes it on the list.
    fn build(&self, store: &Arc<Store<A>>, nobodys: bool) -> &Home<A> {
        let mut newest = self.newest.load(Acquire);
        let home = Box::into_raw(Box::new(Home {
            front: CachePadded::new(Front { account: Account::new(), inbox: Inbox::new() }),
            others: (1..store.nodes()).map(|_| CachePadded::new(Inbox::new())).collect(),
            kicked: CachePadded::new(A::AtomicU32::new(0)),
            waits_for: A::AtomicU64::new(0),
            event: A::Event::new(),
            task: Box::new(CachePadded::new(SpinLock::new(None))),
            granted: A::AtomicPtr::new(ptr::null_mut()),
            fate: CachePadded::new(Fate::new()),
            cpu: A::AtomicU32::new(0),
            settled: A::AtomicU32::new(0),
            store: store.clone(),
            nobodys,
            name: Mutex::new(String::new()),
            next: newest,
            next_vacant: A::AtomicPtr::new(ptr::null_mut()),
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

    /// Iterates over all homes, the newest first.
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
            // SAFETY: the pool ends, so no thread uses a home, and each is on the list once.
            at = unsafe { Box::from_raw(at) }.next.cast_mut();
        }
    }
}
