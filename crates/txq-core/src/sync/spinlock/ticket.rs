//! The ticket lock, which Linux had on x86 from 2.6.25 to 4.1, for simulations of such kernels ([`Arch::ticket_locks`]).
//!
//! A taker draws a ticket and waits until the lock serves it. All waiters spin on the lock word, so each release takes the
//! line from all of them and each fetches it anew: a hand-over takes longer the more threads wait (Boyd-Wickizer, Kaashoek,
//! Morris and Zeldovich, Non-scalable locks are dangerous, Linux Symposium 2012).
//!
//! The lock word holds the number of the ticket that is served, times [`STEP`], and [`RECORD`](super::RECORD).

use std::sync::atomic::Ordering::{Acquire, Relaxed};

use super::{RECORD, SpinLock};
use crate::arch::{Arch, Atomic};
use crate::stats::contention::Site;
use crate::sync::contention::Wait;

/// What a release adds to the lock word: above its two flags.
const STEP: u32 = 4;

impl<A: Arch, T> SpinLock<A, T> {
    /// Waits for the lock. Returns the flags that the release stores: [`FREE`](super::FREE) or [`RECORD`].
    pub(super) fn acquire_ticket(&self, site: Site) -> u32 {
        let mine = self.turns.fetch_add(STEP, Relaxed);
        // Acquire, here and below: the last holder's writes; pairs with the store in `release`.
        let seen = self.locked.load(Acquire);
        if serves(seen, mine) {
            return self.taken(seen, site, None);
        }
        let behind = mine.wrapping_sub(seen) / STEP > 1;
        let began = if seen & RECORD == 0 { 0 } else { A::now() };
        let word = self.locked.wait_until(Acquire, |word| serves(word, mine));
        self.taken(word, site, Some(Wait { began, behind }))
    }

    /// Takes the lock if it is free, and returns the flags that the release stores.
    pub(super) fn try_ticket(&self, site: Site) -> Option<u32> {
        // Acquire: the last holder's writes; pairs with the store in `release`.
        let word = self.locked.load(Acquire);
        let mine = word & !(STEP - 1);
        // Relaxed: if nobody has drawn a ticket since, nobody has written the data since.
        self.turns.compare_exchange(mine, mine.wrapping_add(STEP), Relaxed, Relaxed).ok()?;
        Some(self.taken(word, site, None))
    }

    /// Records the acquisition, and the wait if there was one, if the lock is recorded.
    fn taken(&self, word: u32, site: Site, wait: Option<Wait>) -> u32 {
        if word & RECORD != 0 {
            self.note(|record| record.acquired(site, A::cpu(), A::now(), wait));
        }
        word & RECORD
    }

    /// Returns the word that a release stores, with the given flags. The caller holds the lock.
    pub(super) fn next_ticket(&self, free: u32) -> u32 {
        // Only the holder writes the word.
        (self.locked.load(Relaxed) & !(STEP - 1)).wrapping_add(STEP) | free
    }
}

/// Returns whether a lock word serves a ticket.
fn serves(word: u32, ticket: u32) -> bool {
    word & !(STEP - 1) == ticket
}
