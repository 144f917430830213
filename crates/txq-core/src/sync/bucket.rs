//! A token bucket that many threads take tokens from.
//!
//! A token is a nanosecond at the bucket's rate, and each nanosecond of the clock is one token. The bucket is the first
//! nanosecond that no thread has taken. A thread takes an interval of nanoseconds, a lease. Intervals are disjoint, so no
//! token is spent twice, however many threads take and whatever each of them keeps.
//!
//! The spender obeys one rule: a token may be spent from its own nanosecond on, for as long as the bucket is deep
//! ([`Tokens::age`], [`Tokens::due`]). So all tokens spent between two times `t1` and `t2` lie between `t1 - depth` and
//! `t2`: never more than the time and one depth. A thread that keeps a lease and sleeps breaks nothing: its tokens grow old
//! and are void.
//!
//! An interval may lie in the future. Then it is a reservation: no other thread can take it, and threads that wait are
//! served in the order in which they took. So no thread starves.

use std::sync::atomic::Ordering::Relaxed;

use crossbeam_utils::CachePadded;

use crate::arch::{Arch, Atomic, Nanos};

/// Tokens that one thread owns: the nanoseconds from `from` to just before `to`.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Tokens {
    from: Nanos,
    to: Nanos,
}

impl Tokens {
    /// Returns how many there are.
    #[inline]
    pub fn len(&self) -> Nanos {
        self.to - self.from
    }

    /// Returns whether there are none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.from == self.to
    }

    /// Drops those that are older than `oldest`; returns whether there were any.
    #[inline]
    pub fn age(&mut self, oldest: Nanos) -> bool {
        let old = self.from < oldest && !self.is_empty();
        if old {
            self.from = oldest.min(self.to);
        }
        old
    }

    /// Returns the time from which the first `n` of them may be spent.
    #[inline]
    pub fn due(&self, n: Nanos) -> Nanos {
        self.from.saturating_add(n)
    }

    /// Spends the first `n`.
    ///
    /// # Panics
    /// There are fewer.
    #[inline]
    pub fn spend(&mut self, n: Nanos) {
        assert!(n <= self.len(), "{n} of {} tokens", self.len());
        self.from += n;
    }
}

/// The bucket.
pub struct Bucket<A: Arch> {
    /// The first nanosecond that is no thread's; those before it are taken, or void where no thread took them in time. A
    /// thread that takes moves it on ([`take`](Bucket::take)). A thread that returns the interval that ends here moves it
    /// back to the interval's start ([`give_back`](Bucket::give_back)). Both are compare-and-swaps, so an interval is taken
    /// once. Relaxed: the word publishes no other memory.
    next: CachePadded<A::AtomicU64>,
}

impl<A: Arch> Bucket<A> {
    /// Returns a full bucket.
    pub fn new() -> Self {
        Self { next: CachePadded::new(A::AtomicU64::new(0)) }
    }

    /// Names its memory for a simulator's report ([`Arch::name`]).
    pub fn name(&self) {
        A::name(&self.next, "the bucket of tokens");
    }

    /// Returns the first nanosecond that is no thread's. Another thread may have taken it since.
    #[inline]
    pub fn next(&self) -> Nanos {
        self.next.load(Relaxed)
    }

    /// Takes tokens that are not older than `oldest`, and adds them to `held`. `end` returns where the interval ends that
    /// begins at its first argument, behind `have` tokens that `held` keeps: all that it holds if the interval follows it
    /// directly; else none, and the tokens in `held` are void.
    #[inline]
    pub fn take(
        &self,
        held: &mut Tokens,
        oldest: Nanos,
        mut end: impl FnMut(Nanos, /* have: */ Nanos) -> Nanos,
    ) {
        let mut next = self.next.load_to_write(Relaxed);
        loop {
            let from = next.max(oldest);
            let have = if from == held.to { held.len() } else { 0 };
            let to = end(from, have).max(from);
            match self.next.compare_exchange_weak(next, to, Relaxed, Relaxed) {
                Ok(_) => {
                    *held = Tokens { from: from - have, to };
                    return;
                }
                Err(now) => next = now,
            }
        }
    }

    /// Returns all tokens of `held` if no thread has taken later ones; else they are void. Returns whether it did.
    pub fn give_back(&self, held: &mut Tokens) -> bool {
        let Tokens { from, to } = std::mem::take(held);
        from < to && self.next.compare_exchange(to, from, Relaxed, Relaxed).is_ok()
    }
}

impl<A: Arch> Default for Bucket<A> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arch::Native;

    fn take(bucket: &Bucket<Native>, held: &mut Tokens, oldest: Nanos, n: Nanos) {
        bucket.take(held, oldest, |from, have| from + n.saturating_sub(have));
    }

    #[test]
    fn intervals_follow_one_another() {
        let bucket = Bucket::<Native>::new();
        let [mut a, mut b] = [Tokens::default(), Tokens::default()];
        take(&bucket, &mut a, 1000, 10);
        take(&bucket, &mut b, 1000, 5);
        assert_eq!((a.due(10), b.due(5)), (1010, 1015));
        a.spend(10);
        take(&bucket, &mut a, 1000, 1);
        assert_eq!(a.due(1), 1016);
        // Nobody took the nanoseconds until 2000: they are void.
        take(&bucket, &mut b, 2000, 5);
        assert_eq!(b, Tokens { from: 2000, to: 2005 });
    }

    #[test]
    fn a_lease_grows_where_no_other_thread_took() {
        let bucket = Bucket::<Native>::new();
        let [mut a, mut b] = [Tokens::default(), Tokens::default()];
        take(&bucket, &mut a, 100, 10);
        a.spend(4);
        take(&bucket, &mut a, 100, 20);
        assert_eq!(a, Tokens { from: 104, to: 124 });
        take(&bucket, &mut b, 100, 1);
        take(&bucket, &mut a, 100, 30);
        assert_eq!(a, Tokens { from: 125, to: 155 });
    }

    #[test]
    fn only_the_last_interval_is_returned() {
        let bucket = Bucket::<Native>::new();
        let [mut a, mut b] = [Tokens::default(), Tokens::default()];
        take(&bucket, &mut a, 100, 10);
        take(&bucket, &mut b, 100, 10);
        assert!(!bucket.give_back(&mut a) && a.is_empty());
        assert!(bucket.give_back(&mut b) && b.is_empty());
        assert!(!bucket.give_back(&mut b));
        take(&bucket, &mut b, 100, 1);
        assert_eq!(b, Tokens { from: 110, to: 111 });
    }

    #[test]
    fn old_tokens_are_void() {
        let mut tokens = Tokens { from: 100, to: 110 };
        assert!(!tokens.age(100) && tokens.len() == 10);
        assert!(tokens.age(104) && tokens.len() == 6);
        assert!(tokens.age(500) && tokens.is_empty());
        assert!(!tokens.age(600));
    }
}
