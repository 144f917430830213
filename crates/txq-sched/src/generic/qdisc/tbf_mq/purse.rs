//! The tokens that one part has of a bucket that all parts share: when it takes which, and how many.
//!
//! A part takes tokens for the packets that it is about to send, all of them at once. If they lie in the past, the packets
//! leave now. If not, the part has a reservation, and the packets leave one after the other as their nanoseconds come.
//! Meanwhile the part does not touch the bucket.
//!
//! While the bucket is more than half full, a part takes tokens ahead (`qdisc/ahead.rs`).

use std::sync::Arc;

use txq_core::arch::{Arch, Nanos};
use txq_core::sync::bucket::{Bucket, Tokens};

use crate::generic::qdisc::ahead::Ahead;

/// How the price of a packet can be paid.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Payment {
    /// It is paid.
    Paid,
    /// The tokens are there and may be spent from this time on.
    Due(Nanos),
    /// The part must take more tokens first.
    Lacks,
}

pub(super) struct Purse<A: Arch> {
    bucket: Arc<Bucket<A>>,
    held: Tokens,
    /// How long a token may be spent: the time in which the bucket fills.
    depth: Nanos,
    ahead: Ahead,
}

impl<A: Arch> Purse<A> {
    pub(super) fn new(bucket: Arc<Bucket<A>>, depth: Nanos) -> Self {
        Self { bucket, held: Tokens::default(), depth, ahead: Ahead::default() }
    }

    pub(super) fn set_depth(&mut self, depth: Nanos) {
        self.depth = depth;
    }

    /// Drops the tokens that are too old at `now`. They are as much older as the `credit` for a late call.
    pub(super) fn age(&mut self, credit: Nanos, now: Nanos) {
        self.held.age(now.saturating_sub(self.depth + credit));
    }

    /// Spends `price` tokens, if there are as many and their time has come.
    #[inline]
    pub(super) fn pay(&mut self, price: Nanos, now: Nanos) -> Payment {
        if self.held.len() < price {
            return Payment::Lacks;
        }
        let due = self.held.due(price);
        if due > now {
            return Payment::Due(due);
        }
        self.held.spend(price);
        self.ahead.spent(price);
        Payment::Paid
    }

    /// Takes tokens until `need` are held.
    pub(super) fn take(&mut self, need: Nanos, credit: Nanos, now: Nanos) {
        let share = self.ahead.take(self.depth, credit, now);
        self.bucket.take(&mut self.held, share.oldest, |from, have| {
            let end = from.saturating_add(need.saturating_sub(have));
            share.ahead_of(end).unwrap_or(end)
        });
    }

    /// Returns tokens whose time has not come, if no other part has taken later ones.
    pub(super) fn give_back(&mut self, now: Nanos) {
        if !self.held.is_empty() && self.held.due(self.held.len()) > now {
            self.bucket.give_back(&mut self.held);
        }
    }
}

#[cfg(test)]
mod tests {
    use txq_core::arch::Native;

    use super::*;

    /// Parts that send a packet every microsecond each, at half of the rate together, take tokens about every half
    /// millisecond; parts that have the whole rate take those of each packet.
    #[test]
    fn tokens_are_taken_ahead_where_there_are_enough() {
        for (parts, price, most) in [(2, 250, 200), (16, 31, 1600), (2, 500, 40_000)] {
            let bucket = Arc::new(Bucket::<Native>::new());
            let mut purses: Vec<_> = (0..parts).map(|_| Purse::new(bucket.clone(), 10_000_000)).collect();
            let (mut takes, mut sent) = (0, 0);
            for now in (1_000_000_000..1_020_000_000).step_by(1000) {
                for purse in &mut purses {
                    purse.age(0, now);
                    if purse.pay(price, now) == Payment::Lacks {
                        takes += 1;
                        purse.take(price, 0, now);
                        if purse.pay(price, now) != Payment::Paid {
                            continue;
                        }
                    }
                    sent += 1;
                }
            }
            assert!(takes <= most, "{takes} takes of {parts} parts");
            assert_eq!(sent, 20_000 * parts, "held back at {price}");
        }
    }

    /// Tokens that were reserved and not used are there for the next part.
    #[test]
    fn a_reservation_is_returned() {
        let bucket = Arc::new(Bucket::<Native>::new());
        let [mut a, mut b] = [(); 2].map(|()| Purse::new(bucket.clone(), 1000));
        let now = 1_000_000;
        a.take(5000, 0, now);
        assert_eq!(a.pay(2000, now), Payment::Due(now + 1000));
        a.give_back(now);
        b.take(1000, 0, now);
        assert_eq!(b.pay(1000, now), Payment::Paid);
    }
}
