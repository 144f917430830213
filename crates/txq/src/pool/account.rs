//! What other CPUs did with a home's packets, in one word: a free of a whole run of packets is one addition, and one
//! load tells the sender its credit and whether anything waits for it.
//!
//! | bits | |
//! |---|---|
//! | 63..33 | packets freed elsewhere so far, modulo 2^31: the sender's credit (`sk_wmem_alloc`) |
//! | 32 | nobody lives here |
//! | 31 | the sender sleeps until credit returns |
//! | 30..0 | buffers in the home's inbox, or about to be: the backlog (`skb_defer_node.count`) |
//!
//! The backlog is counted before the buffers are pushed and uncounted after they are taken, by exactly as many. So it
//! is never less than what lies in the inbox, zero means empty, and it cannot stick: the kernel's count, which a flush
//! resets while pushes go on, may. All is in one word because the questions of both sides meet here: a sender that
//! lies down and a packet that is freed are ordered by the word itself, so neither misses the other.

use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use crate::arch::{Arch, Atomic};

const FREED: u32 = 33;
const VACANT: u64 = 1 << 32;
const SLEEPS: u64 = 1 << 31;
const BACKLOG: u64 = SLEEPS - 1;
/// Numbers of freed packets are modulo this. A pool has fewer buffers, so differences are exact.
const MODULUS: u32 = 1 << 31;

/// The word as it was at some moment.
#[derive(Clone, Copy)]
pub(super) struct Word(u64);

impl Word {
    pub(super) fn backlog(self) -> u32 {
        (self.0 & BACKLOG) as u32
    }

    pub(super) fn freed(self) -> u32 {
        (self.0 >> FREED) as u32
    }

    pub(super) fn vacant(self) -> bool {
        self.0 & VACANT != 0
    }

    pub(super) fn sleeps(self) -> bool {
        self.0 & SLEEPS != 0
    }
}

/// How many were freed from `then` to `now`.
pub(super) fn since(now: u32, then: u32) -> u32 {
    now.wrapping_sub(then) % MODULUS
}

/// The number of freed packets `n` after `freed`.
pub(super) fn after(freed: u32, n: u32) -> u32 {
    freed.wrapping_add(n) % MODULUS
}

pub(super) struct Account<A: Arch>(A::AtomicU64);

impl<A: Arch> Account<A> {
    /// Of a home in which somebody lives.
    pub(super) fn new() -> Self {
        Self(A::AtomicU64::new(0))
    }

    #[inline]
    pub(super) fn read(&self) -> Word {
        Word(self.0.load(Relaxed))
    }

    /// Returns credit for `n` packets whose buffers do not come by the inbox.
    #[inline]
    pub(super) fn credit(&self, n: u32) -> Word {
        self.add(u64::from(n) << FREED)
    }

    /// Returns credit for `n` packets and announces their buffers.
    #[inline]
    pub(super) fn defer(&self, n: u32) -> Word {
        self.add((u64::from(n) << FREED) + u64::from(n))
    }

    /// `n` of the buffers that were announced are not in the inbox any more.
    #[inline]
    pub(super) fn taken(&self, n: u32) -> Word {
        // No borrow: each of them was announced before it was pushed, and is taken once.
        let word = self.add(u64::from(n).wrapping_neg());
        debug_assert!(u64::from(word.backlog()) + u64::from(n) <= BACKLOG, "taken before it was announced");
        word
    }

    #[inline]
    fn add(&self, what: u64) -> Word {
        // Acquire and release: from a sender that answers a kick and then counts what it took, to whoever counts next
        // and may have to kick again (`Home::answer_kick`).
        Word(self.0.fetch_add(what, AcqRel).wrapping_add(what))
    }

    /// The sender lies down. It must not sleep if the word returned has credit for it; who frees after this wakes it.
    pub(super) fn sleep(&self) -> Word {
        // For how much it waits may be seen late: then the last time's smaller number wakes it early, and it looks again.
        Word(self.0.fetch_or(SLEEPS, Relaxed))
    }

    /// Ends the sender's sleep. True for one of those who do.
    pub(super) fn rouse(&self) -> bool {
        self.0.fetch_and(!SLEEPS, Relaxed) & SLEEPS != 0
    }

    /// The sender is gone.
    pub(super) fn vacate(&self) {
        // Release: what it left behind; pairs with the acquire in `occupy`.
        self.0.fetch_or(VACANT, Release);
    }

    /// Moves in, if nobody lives here.
    pub(super) fn occupy(&self) -> Option<Word> {
        // Acquire: what the last one left behind; pairs with the release in `vacate`.
        let was = self.0.fetch_and(!VACANT, Acquire);
        (was & VACANT != 0).then_some(Word(was & !VACANT))
    }
}
