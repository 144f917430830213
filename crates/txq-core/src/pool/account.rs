//! Remote-free accounting of a home, packed in one u64. Freeing a whole run of packets is one addition; one load gives the
//! sender its credit and the size of its inbox.
//!
//! | bits | |
//! |---|---|
//! | 63..33 | packets freed elsewhere so far, modulo 2^31: the sender's credit (`sk_wmem_alloc`) |
//! | 32 | the home is vacant: it has no sender |
//! | 31 | the sender sleeps until credit returns |
//! | 30..0 | buffers in the home's inbox, or about to be: the backlog (`skb_defer_node.count`) |
//!
//! The freeing side adds to the backlog before it pushes buffers; the taking side subtracts the same number after it has
//! taken them. So the backlog is never less than the number of buffers in the inbox, zero means empty, and the backlog
//! cannot stick above zero. The kernel's count can: a flush resets it while pushes go on.
//!
//! Credit, sleep and backlog share one word so that the word's modification order decides between a sender that goes to
//! sleep and a thread that frees: either the sender sees the credit, or the thread sees `SLEEPS` and wakes the sender.

use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use crate::arch::{Arch, Atomic};

const FREED: u32 = 33;
const VACANT: u64 = 1 << 32;
const SLEEPS: u64 = 1 << 31;
const BACKLOG_MASK: u64 = SLEEPS - 1;
/// The number of freed packets wraps at this value. A pool has fewer buffers, so differences are exact.
const MODULUS: u32 = 1 << 31;

/// A value of the word, as one operation read it.
#[derive(Clone, Copy)]
pub(super) struct AccountWord(u64);

impl AccountWord {
    /// Buffers in the inbox, or about to be pushed.
    pub(super) fn backlog(self) -> u32 {
        (self.0 & BACKLOG_MASK) as u32
    }

    /// Packets freed elsewhere so far, modulo [`MODULUS`].
    pub(super) fn freed(self) -> u32 {
        (self.0 >> FREED) as u32
    }

    /// Whether the home has no sender.
    pub(super) fn vacant(self) -> bool {
        self.0 & VACANT != 0
    }

    /// Whether the sender sleeps until credit returns.
    pub(super) fn sleeps(self) -> bool {
        self.0 & SLEEPS != 0
    }
}

/// Returns how many packets were freed from `then` to `now`, two values of [`AccountWord::freed`].
pub(super) fn since(now: u32, then: u32) -> u32 {
    now.wrapping_sub(then) % MODULUS
}

/// Returns the value of [`AccountWord::freed`] when `n` more packets than at `freed` have been freed.
pub(super) fn after(freed: u32, n: u32) -> u32 {
    freed.wrapping_add(n) % MODULUS
}

/// The account of one home, laid out as the module says.
///
/// `freed` and the backlog: any thread that frees adds to both; the sender, or a thread that scavenges, subtracts from the
/// backlog. `VACANT`: the sender sets it when it is dropped, the next sender clears it. `SLEEPS`: the sender sets it before
/// it sleeps; the sender or the thread that wakes it clears it. The sender reads the word relaxed: credit and backlog are
/// numbers only, and the inbox's own acquire orders the buffers.
pub(super) struct Account<A: Arch>(A::AtomicU64);

impl<A: Arch> Account<A> {
    /// Returns the account of an occupied home, with nothing freed.
    pub(super) fn new() -> Self {
        Self(A::AtomicU64::new(0))
    }

    /// Reads the word. Relaxed: the numbers order no other memory.
    #[inline]
    pub(super) fn read(&self) -> AccountWord {
        AccountWord(self.0.load(Relaxed))
    }

    /// Returns credit for `n` packets whose buffers do not go through the inbox. Returns the new word.
    #[inline]
    pub(super) fn credit(&self, n: u32) -> AccountWord {
        self.add(u64::from(n) << FREED)
    }

    /// Returns credit for `n` packets and adds their buffers to the backlog, before the caller pushes them. Returns the new
    /// word.
    #[inline]
    pub(super) fn defer(&self, n: u32) -> AccountWord {
        self.add((u64::from(n) << FREED) + u64::from(n))
    }

    /// Subtracts `n` buffers from the backlog, after they were taken or went elsewhere. Returns the new word.
    #[inline]
    pub(super) fn taken(&self, n: u32) -> AccountWord {
        // No borrow: each buffer was added before it was pushed, and is taken once.
        let word = self.add(u64::from(n).wrapping_neg());
        debug_assert!(
            u64::from(word.backlog()) + u64::from(n) <= BACKLOG_MASK,
            "taken before it was announced"
        );
        word
    }

    /// Adds `what` to the word, wrapping; returns the new word.
    #[inline]
    fn add(&self, what: u64) -> AccountWord {
        // AcqRel: a sender answers a kick, then subtracts the buffers that it took (release); the next thread that adds
        // acquires that, sees the kick cleared, and can kick again (`Home::answer_kick`).
        AccountWord(self.0.fetch_add(what, AcqRel).wrapping_add(what))
    }

    /// Sets `SLEEPS` and returns the word. The sender must not sleep if that word has credit for it; each free after it
    /// finds the bit, and wakes the sender once its credit suffices.
    pub(super) fn sleep(&self) -> AccountWord {
        // Relaxed: another thread may read a stale `Home::waits_for`. Under the same limit the last sleep's target is
        // smaller, so it wakes the sender early, and the sender checks again.
        AccountWord(self.0.fetch_or(SLEEPS, Relaxed))
    }

    /// Clears `SLEEPS`; returns whether this call cleared it. Of several callers one gets true.
    pub(super) fn rouse(&self) -> bool {
        self.0.fetch_and(!SLEEPS, Relaxed) & SLEEPS != 0
    }

    /// Marks the home vacant: its sender is gone.
    pub(super) fn vacate(&self) {
        // Release: the sender's writes to the home; pairs with the acquire in `occupy`.
        self.0.fetch_or(VACANT, Release);
    }

    /// Occupies the home if it is vacant; returns the word after that, or `None` if the home was occupied.
    pub(super) fn occupy(&self) -> Option<AccountWord> {
        // Acquire: the last sender's writes to the home; pairs with the release in `vacate`.
        let was = self.0.fetch_and(!VACANT, Acquire);
        (was & VACANT != 0).then_some(AccountWord(was & !VACANT))
    }
}
