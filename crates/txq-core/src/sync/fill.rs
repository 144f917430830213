//! The fill word of a queue: whether the queue has room, and the senders that wait for room (`sock_def_write_space`, for a
//! qdisc).
//!
//! One word holds the state of the queue and whether senders wait. The owner of the queue sets `FULL` when the queue
//! reaches its high mark, and clears it at the low mark that the word carries. A sender that finds the queue full joins the
//! list and sets `WAITERS` in one critical section, and loads the word again before it sleeps. So either the sender sees
//! the queue open again, or its bit comes before the owner's exchange, and the owner sees the bit. No fence is needed,
//! because both write the same word, and the owner takes the lock of the list after its exchange.
//!
//! Clearing and waking are two steps: the owner clears `FULL` while it has the queue, and wakes after it has left the
//! queue. `WAITERS` stays set between the steps. If the owner panics in between, no wake is lost: the next owner finds the
//! bit.
//!
//! A wake is for one thread. That thread leaves the list and then wakes the next one, if the queue is still open. So an
//! owner pays for one wake; if the queue fills up again meanwhile, the other waiters stay asleep until the next low mark. A
//! [`Waker`] belongs to a task that may never ask again and so may pass no wake on: after it, the owner also wakes the next
//! waiter.

use std::collections::VecDeque;
use std::mem;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::Waker;

use crate::arch::{Arch, Atomic, Nanos};
use crate::stats::contention::Site;
use crate::sync::spinlock::SpinLock;
use crate::sync::waiter;

pub use crate::sync::waiter::Waiter;

/// The queue has reached its high mark: arriving packets may find no room.
const FULL: u64 = 1;
/// A part of the queue (a band, a class, a flow, the list in front of it) has refused packets for want of room.
const PARTIAL: u64 = 2;
/// The list is not empty. Changes only under the list's lock.
const WAITERS: u64 = 4;
/// The device is down.
const DOWN: u64 = 8;
/// The device is gone. Never cleared.
const GONE: u64 = 16;
/// The lowest bit of the low mark, which is in packets.
const LOW: u32 = 32;
/// The bits of the low mark.
const LOW_MASK: u64 = u64::MAX << LOW;

/// The state of a queue at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Word(u64);

impl Word {
    /// Whether the queue is open and no sender waits.
    #[inline]
    pub fn is_quiet(self) -> bool {
        self.0 == 0
    }

    /// Whether the queue has no room for a sender; `refused` says whether the queue has refused packets of that sender.
    #[inline]
    pub fn is_full(self, refused: bool) -> bool {
        let blocks = if refused { FULL | PARTIAL } else { FULL };
        self.0 & blocks != 0 && !self.is_closed()
    }

    /// Whether the device is down.
    pub fn is_down(self) -> bool {
        self.0 & DOWN != 0
    }

    /// Whether the device is gone.
    pub fn is_gone(self) -> bool {
        self.0 & GONE != 0
    }

    fn is_closed(self) -> bool {
        self.0 & (DOWN | GONE) != 0
    }

    fn has_waiters(self) -> bool {
        self.0 & WAITERS != 0
    }

    fn low(self) -> u64 {
        self.0 >> LOW
    }

    fn flags(self) -> u64 {
        self.0 & !LOW_MASK
    }
}

/// Returns a low mark shifted to its place in the word.
fn mark(packets: usize) -> u64 {
    (packets as u64).min(u32::MAX.into()) << LOW
}

/// An entry of the list.
struct Entry<A: Arch> {
    waiter: Arc<Waiter<A>>,
    /// Whether the queue has refused packets of this sender, so that it waits also while [`PARTIAL`] is set.
    refused: bool,
    /// The waker of a task; `None` for a thread that sleeps at `waiter`.
    waker: Option<Waker>,
}

impl<A: Arch> Entry<A> {
    fn wake(self) {
        match self.waker {
            None => self.waiter.notify(),
            Some(waker) => waiter::wake(waker),
        }
    }
}

/// How full a queue is, as senders see it.
pub struct Fill<A: Arch> {
    /// The low mark in packets (bits 32 to 63), and the flags [`FULL`], [`PARTIAL`], [`WAITERS`], [`DOWN`] and [`GONE`]. 0:
    /// the queue is open and no sender waits. Owners, refused senders, waiters and the control path write it by
    /// read-modify-writes; owners and waiting senders read it. All accesses are relaxed: the protocol relies on the
    /// modification order of this one word, and the list has a lock.
    word: A::AtomicU64,
    /// The waiting senders, the one that has waited longest first. Boxed: the word shares its line with data that every
    /// sender reads.
    waiting: Box<SpinLock<A, VecDeque<Entry<A>>>>,
}

impl<A: Arch> Fill<A> {
    /// Creates the word of an open queue.
    #[expect(clippy::new_without_default, reason = "made by its queue alone")]
    pub fn new() -> Self {
        Self { word: A::AtomicU64::new(0), waiting: Box::new(SpinLock::new(VecDeque::new())) }
    }

    /// Returns the word.
    #[inline]
    pub fn word(&self) -> Word {
        Word(self.word.load(Relaxed))
    }

    /// Replaces the word by `f` of it, unless both are equal; returns the new word.
    fn update(&self, f: impl Fn(Word) -> u64) -> Word {
        let mut word = self.word();
        loop {
            let new = f(word);
            if new == word.0 {
                return word;
            }
            match self.word.compare_exchange_weak(word.0, new, Relaxed, Relaxed) {
                Ok(_) => return Word(new),
                Err(now) => word = Word(now),
            }
        }
    }

    /// Marks the queue as full until at most `low` packets are left. The caller is its owner.
    #[cold]
    pub fn note_full(&self, low: usize) {
        self.update(|word| word.flags() | FULL | mark(low));
    }

    /// Notes that a part of the queue has refused packets; it may have room again when at most `low` packets are left in the
    /// whole queue. The caller is the owner, or ensures that the queue has an owner after this.
    #[cold]
    pub fn note_partial(&self, low: usize) {
        // The mark of a full queue stays. Of several parts, the mark that is reached first counts.
        self.update(|word| match word.0 & FULL {
            0 => word.flags() | PARTIAL | mark(low).max(word.0 & LOW_MASK),
            _ => word.0 | PARTIAL,
        });
    }

    /// Reopens the queue if it is at the low mark. The caller is its owner, which ends a turn with `packets` in the queue,
    /// and calls [`wake`](Fill::wake) after it has left the queue.
    #[cold]
    pub fn note_backlog(&self, packets: usize) {
        self.update(|word| match packets as u64 <= word.low() {
            true => word.0 & (WAITERS | DOWN | GONE),
            false => word.0,
        });
    }

    /// Wakes the waiting senders for which the queue is open, in order, up to the first that is a thread: that thread wakes
    /// the next ones. Does nothing if the queue is full.
    #[cold]
    pub fn wake(&self) {
        let word = self.word();
        if !word.has_waiters() || word.is_full(false) {
            return;
        }
        let woken = self.with_list(|list| {
            let mut woken = Vec::new();
            let mut at = 0;
            while let Some(entry) = list.get(at) {
                if self.word().is_full(entry.refused) {
                    at += 1;
                    continue;
                }
                let thread = entry.waker.is_none();
                woken.extend(list.remove(at));
                if thread {
                    break;
                }
            }
            self.note_emptied(list);
            woken
        });
        // With no lock held. The thread is last on the list and is woken first: it wakes others meanwhile.
        woken.into_iter().rev().for_each(Entry::wake);
    }

    /// Reopens the queue and wakes all waiting senders, after a purge or a change of the queue. `down` says whether the
    /// device is down.
    pub fn reset(&self, down: bool) {
        self.wake_all(|word| word.0 & GONE | if down { DOWN } else { 0 });
    }

    /// Marks the device as gone and wakes all waiting senders; none waits from now on.
    pub fn end(&self) {
        self.wake_all(|_| GONE);
    }

    /// Wakes all waiting senders to check their queue again: their packets may go to another queue now.
    pub fn wake_to_recheck(&self) {
        self.wake_all(|word| word.0 & !WAITERS);
    }

    fn wake_all(&self, f: impl Fn(Word) -> u64) {
        let woken = self.with_list(|list| {
            self.update(f);
            mem::take(list)
        });
        woken.into_iter().for_each(Entry::wake);
    }

    /// Sleeps until the queue has room, is reset or ends, or until the time `until`. May return earlier; the caller then
    /// checks [`word`](Fill::word). Calls `run_queue` once the sender is on the list: it runs the queue or makes its
    /// owner check the queue again, and returns whether the sender has another reason to sleep that ends with an owner's turn.
    pub fn wait(
        &self,
        waiter: &Arc<Waiter<A>>,
        refused: bool,
        until: Nanos,
        run_queue: impl FnOnce() -> bool,
    ) {
        let _registered = Registered { fill: self, waiter };
        self.register(waiter, refused, None);
        if run_queue() | self.word().is_full(refused) {
            waiter.sleep(Some(until));
        }
    }

    /// Registers `waker` to be woken when the queue has room, is reset or ends. The caller checks the word after this: if
    /// the queue is not full then, no wake may come.
    pub fn watch(&self, waiter: &Arc<Waiter<A>>, refused: bool, waker: &Waker) {
        self.register(waiter, refused, Some(waker.clone()));
    }

    /// Replaces the waker of a sender that is still on the list, and keeps its place; returns false if the sender is not on
    /// the list. The caller checks the word after this, as after [`watch`](Fill::watch).
    pub fn watch_on(&self, waiter: &Arc<Waiter<A>>, refused: bool, waker: &Waker) -> bool {
        // Cloned before the lock is taken, and dropped after: both are the program's code.
        let mut waker = Some(waker.clone());
        self.with_list(|list| {
            let Some(entry) = list.iter_mut().find(|entry| Arc::ptr_eq(&entry.waiter, waiter)) else {
                return false;
            };
            entry.refused = refused;
            mem::swap(&mut entry.waker, &mut waker);
            true
        })
    }

    /// Puts a sender on the list and sets [`WAITERS`], under the list's lock.
    fn register(&self, waiter: &Arc<Waiter<A>>, refused: bool, waker: Option<Waker>) {
        self.with_list(|list| {
            list.push_back(Entry { waiter: waiter.clone(), refused, waker });
            self.word.fetch_or(WAITERS, Relaxed);
        });
    }

    /// Removes a sender from the list, if it is still there, and passes on a wake that it may have had.
    pub fn leave(&self, waiter: &Arc<Waiter<A>>) {
        let left = self.with_list(|list| {
            let at = list.iter().position(|entry| Arc::ptr_eq(&entry.waiter, waiter));
            let left = at.and_then(|at| list.remove(at));
            self.note_emptied(list);
            left
        });
        drop(left);
        self.wake();
    }

    /// Calls `f` with the list, under its lock. Many threads may want the lock at a time, and none is in a hurry: a thread
    /// that finds it held sleeps for a moment. With a fair lock they would all yield to each other.
    fn with_list<R>(&self, f: impl FnOnce(&mut VecDeque<Entry<A>>) -> R) -> R {
        loop {
            if let Some(mut held) = self.waiting.try_lock_soon_at(Site::Control) {
                return f(held.data());
            }
            A::relax();
        }
    }

    /// Clears [`WAITERS`] if the list is empty. The caller holds the list's lock.
    fn note_emptied(&self, list: &VecDeque<Entry<A>>) {
        if list.is_empty() {
            self.word.fetch_and(!WAITERS, Relaxed);
        }
    }
}

/// Removes a sender from the list when dropped: after its sleep, or by a panic.
struct Registered<'f, A: Arch> {
    fill: &'f Fill<A>,
    waiter: &'f Arc<Waiter<A>>,
}

impl<A: Arch> Drop for Registered<'_, A> {
    fn drop(&mut self) {
        self.fill.leave(self.waiter);
    }
}
