//! One bucket of a class of htb_mq, as one part uses it.
//!
//! All parts take their tokens from the same bucket: nanoseconds that have passed, each for one part (`sync/bucket.rs`). No
//! part takes tokens of the future, so no tokens wait in one bucket while a packet waits for another one. Nothing is lost
//! but time.
//!
//! Time is kept in order by a second word beside the bucket, the line of turns: intervals again. A part that lacks tokens
//! takes the next turn, which begins where the last one ends, and comes back when it has begun. While tokens of its turn are
//! left, it takes them one packet after the other; the next part's turn then begins. A part that comes while others have
//! turns stands behind them. So parts that lack the same tokens have them in equal turns, and none waits for another's
//! timer: the tokens of a turn stay in the bucket while its part does not come, and once the bucket is three quarters full,
//! the others take half a bucket of them, the next in line first.

use std::sync::Arc;

use txq_core::arch::{Arch, Nanos};
use txq_core::sync::bucket::{Bucket, Tokens};

use super::buckets::{Demand, MBUFFER, Moment};
use super::params;
use crate::generic::qdisc::ahead::Ahead;
use crate::generic::qdisc::rate::Charge;

/// The length of a turn; that of one packet where it takes longer.
const TURN_TIME: Nanos = 100_000;
/// A part that waits asks for tokens of missed turns later by its own wait divided by this: little beside the time in which
/// they collect.
const BEHIND: Nanos = 64;

/// A bucket, and the turns of parts that lack tokens.
pub(super) struct Line<A: Arch> {
    tokens: Bucket<A>,
    /// The end of the last turn is the first nanosecond that no part has taken.
    turns: Bucket<A>,
}

impl<A: Arch> Line<A> {
    pub(super) fn new() -> Self {
        let line = Self { tokens: Bucket::new(), turns: Bucket::new() };
        line.tokens.name();
        line.turns.name();
        line
    }
}

pub(super) struct Gauge<A: Arch> {
    line: Arc<Line<A>>,
    held: Tokens,
    /// Whether `held` was taken for the next packet alone.
    is_exact: bool,
    /// The part's turn, if it has one.
    turn: Tokens,
    /// When it tries again.
    until: Nanos,
    /// Since when packets wait; there is no credit for the time before.
    since: Nanos,
    ahead: Ahead,
    /// What the rate's cut to nanoseconds leaves over.
    charge: Charge,
}

impl<A: Arch> Gauge<A> {
    pub(super) fn new(line: Arc<Line<A>>) -> Self {
        Self {
            line,
            held: Tokens::default(),
            is_exact: false,
            turn: Tokens::default(),
            until: 0,
            since: 0,
            ahead: Ahead::default(),
            charge: Charge::default(),
        }
    }

    /// Returns the price of a packet, and the charge after it.
    #[inline]
    fn price(&self, bucket: &params::Bucket, len: u64) -> (Nanos, Charge) {
        let mut charge = self.charge;
        (charge.time(&bucket.rate, bucket.rate.link.bytes(len)), charge)
    }

    /// Takes the tokens for a packet; returns whether it has them. If not, [`until`](Gauge::until) says when to try again.
    #[inline]
    pub(super) fn acquire(&mut self, bucket: &params::Bucket, demand: &Demand) -> bool {
        let price = self.price(bucket, demand.len).0;
        // A packet that is longer than the bucket needs a bucket of its length.
        let depth = bucket.time().max(price);
        self.held.age(demand.at.now.saturating_sub(depth + self.credit(demand.at)));
        self.held.len() >= price || self.take_or_wait(bucket, price, depth, demand)
    }

    /// Returns how much older than the bucket is deep tokens may be.
    #[inline]
    fn credit(&self, at: Moment) -> Nanos {
        at.credit.min(at.now.saturating_sub(self.since))
    }

    /// Says that a packet arrived and none waited before.
    pub(super) fn begin(&mut self, now: Nanos) {
        self.since = now;
    }

    fn take_or_wait(&mut self, bucket: &params::Bucket, price: Nanos, depth: Nanos, demand: &Demand) -> bool {
        let (line, now) = (self.line.clone(), demand.at.now);
        let first = line.tokens.next();
        // Whether tokens of its turn are left.
        let has_turn = first < self.turn_end();
        let is_next = if has_turn { self.turn.due(0) <= now } else { line.turns.next() <= now };
        // A bucket that is half full has tokens for all. Its class lacks those of another one.
        let may = is_next || first.saturating_add(depth / 2) <= now;
        let oldest = now.saturating_sub(depth + self.credit(demand.at));
        let is_there = first.max(oldest).saturating_add(price) <= now;
        if may && is_there && self.take(price, depth, demand.at, is_next || !has_turn) {
            self.until = 0;
            return true;
        }
        if !has_turn {
            self.take_turn(bucket, price, first, demand);
        }
        let in_turn = self.turn.due(0).max(first).saturating_add(price);
        // When tokens have collected because the part that has the turn does not come. A part asks the later, the further
        // behind it stands, so the next in line comes first.
        let collected = first.saturating_add(price.max(depth - depth / 4)).max(now + TURN_TIME / 2);
        let out_of_turn = collected + self.turn.due(0).saturating_sub(now) / BEHIND;
        // A full bucket would lose tokens.
        let out_of_turn = out_of_turn.min(first.saturating_add(depth));
        self.until = in_turn.min(out_of_turn).max(now + 1);
        false
    }

    fn turn_end(&self) -> Nanos {
        self.turn.due(self.turn.len())
    }

    /// Takes the next turn, in place of one that is over. It is long enough for a packet after the part's timer.
    fn take_turn(&mut self, bucket: &params::Bucket, price: Nanos, first: Nanos, demand: &Demand) {
        let length = bucket.rate.time(demand.queued).min(TURN_TIME).max(demand.late + price);
        self.turn = Tokens::default();
        self.line.turns.take(&mut self.turn, first, |from, _| from.saturating_add(length));
    }

    /// Takes `price` tokens that are due; with `may_more`, more where there are enough. Returns whether it has them.
    fn take(&mut self, price: Nanos, depth: Nanos, at: Moment, may_more: bool) -> bool {
        let now = at.now;
        let share = self.ahead.take(depth, self.credit(at), now);
        let mut is_exact = false;
        self.line.tokens.take(&mut self.held, share.oldest, |from, have| {
            let end = from.saturating_add(price.saturating_sub(have));
            let ahead = share.ahead_of(end).filter(|_| may_more);
            is_exact = ahead.is_none();
            // Another part may have been quicker.
            if end > now { from } else { ahead.unwrap_or(end) }
        });
        self.is_exact = is_exact;
        self.held.len() >= price
    }

    /// Returns the tokens that were taken for a packet that does not leave now.
    pub(super) fn release(&mut self) {
        if std::mem::take(&mut self.is_exact) {
            self.line.tokens.give_back(&mut self.held);
        }
    }

    /// Charges a packet, also if its tokens are not due: those that no part has are the bucket's debt.
    #[inline]
    pub(super) fn pay(&mut self, bucket: &params::Bucket, len: u64, at: Moment) {
        let (price, charge) = self.price(bucket, len);
        self.charge = charge;
        self.is_exact = false;
        self.ahead.spent(price);
        if self.held.len() < price {
            self.owe(bucket, price, at);
        }
        self.held.spend(price.min(self.held.len()));
    }

    fn owe(&mut self, bucket: &params::Bucket, price: Nanos, at: Moment) {
        let now = at.now;
        let share = self.ahead.take(bucket.time().max(price), self.credit(at), now);
        self.line.tokens.take(&mut self.held, share.oldest, |from, have| {
            let end = from.saturating_add(price.saturating_sub(have));
            // The most that is owed.
            let end = if end > now.saturating_add(MBUFFER) { from } else { end };
            share.ahead_of(end).unwrap_or(end)
        });
    }

    /// Returns when to try again; the past if nothing lacks.
    #[inline]
    pub(super) fn until(&self) -> Nanos {
        self.until
    }

    /// Leaves the line of turns.
    pub(super) fn rest(&mut self, now: Nanos) {
        if !self.turn.is_empty() {
            if self.turn_end() > now {
                self.line.turns.give_back(&mut self.turn);
            }
            self.turn = Tokens::default();
        }
    }

    /// Returns the tokens at `now`, in the bucket that all parts share; below 0 those that are owed.
    pub(super) fn tokens(line: &Line<A>, depth: Nanos, now: Nanos) -> i64 {
        (now as i64).saturating_sub(line.tokens.next() as i64).min(depth as i64)
    }
}
