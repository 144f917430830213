//! A class: its buckets, and where it stands in the lists of those that have something to send.

use super::lists::{Link, List, NIL, PRIOS};
use super::params::ClassParams;
use crate::arch::{Arch, Nanos};
use crate::filter::Filters;
use crate::qdisc::child::Child;
use crate::qdisc::wheel::Ticket;
use crate::stats::QdiscStats;

/// The most that a class saves or owes, as a time (`HTB_MBUFFER`): a minute.
const MOST: i64 = 60_000_000_000;
/// The most bytes that a class owes its siblings, where packets are longer than its quantum.
const MOST_OWED: i64 = 1 << 20;
/// Levels: 0 is a leaf's, and the root classes that have others below them are on the last.
pub(super) const LEVELS: usize = 8;

/// Whether a class may send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    /// By its own rate.
    Send,
    /// If its parent lends.
    Borrow,
    /// Not now.
    Wait,
}

/// A class that waits for its buckets, or for its leaf's next packet.
#[derive(Debug, Clone, Copy)]
pub(super) enum Event {
    Tokens(u32),
    Leaf(u32),
}

/// A class. What each packet needs is in front, in whole cache lines: what says whether and when it may send, its rates, its
/// neighbours, its turn, its leaf and its counters.
#[repr(C, align(64))]
pub(super) struct Class<A: Arch> {
    /// Time saved in the buckets at `at`.
    tokens: i64,
    ctokens: i64,
    at: Nanos,
    /// When its mode is looked at again.
    pub(super) due: Option<(Nanos, Ticket)>,
    /// [`NIL`](super::NIL) for a root class.
    pub(super) parent: u32,
    pub(super) quantum: u32,
    /// Its leaf has packets and yet gave none: until then it counts as empty.
    pub(super) nap: Option<Ticket>,
    pub(super) minor: u16,
    pub(super) mode: Mode,
    /// 0 if it has a leaf.
    pub(super) level: u8,
    /// For each priority, whether there is something to send; a leaf has one at most.
    pub(super) active: u8,
    /// The priorities for which it has left its parent's feed in its turn.
    pub(super) left_in_turn: u8,
    pub(super) params: ClassParams,
    /// Its neighbours, by priority.
    pub(super) links: [Link; PRIOS],
    /// Bytes that are left of its turn, by the level that lends.
    deficit: [i64; LEVELS],
    /// None where there are classes below it.
    pub(super) leaf: Option<Child<A>>,
    pub(super) stats: QdiscStats,
    pub(super) lent: u64,
    pub(super) borrowed: u64,
    /// How many classes are below it.
    pub(super) children: u32,
    /// The classes below it that borrow, by priority.
    pub(super) feeds: [List; PRIOS],
    /// Where a packet goes on that filters above have sent here.
    pub(super) filters: Filters<A>,
}

impl<A: Arch> Class<A> {
    pub(super) fn new(minor: u16, params: ClassParams, quantum: u32, parent: u32, leaf: Child<A>) -> Self {
        Self {
            minor,
            params,
            quantum,
            parent,
            children: 0,
            level: 0,
            mode: Mode::Send,
            active: 0,
            tokens: 0,
            ctokens: 0,
            at: 0,
            deficit: [0; LEVELS],
            links: [Link::default(); PRIOS],
            feeds: [List::default(); PRIOS],
            left_in_turn: 0,
            due: None,
            nap: None,
            leaf: Some(leaf),
            filters: Filters::new(),
            stats: QdiscStats::default(),
            lent: 0,
            borrowed: 0,
        }
    }

    /// Fills the buckets.
    pub(super) fn fill(&mut self, now: Nanos) {
        self.tokens = self.params.rate.time() as i64;
        self.ctokens = self.params.ceil.time() as i64;
        self.at = now;
    }

    /// What is in the buckets, in the kernel's units of 64 ns.
    pub(super) fn shown_tokens(&self) -> (i64, i64) {
        (self.tokens >> 6, self.ctokens >> 6)
    }

    #[inline]
    fn tokens(&self, now: Nanos) -> (i64, i64) {
        let passed = now.saturating_sub(self.at).min(MOST as u64) as i64;
        let room = |bucket: &super::params::Bucket| bucket.time() as i64;
        let tokens = (self.tokens + passed).min(room(&self.params.rate));
        (tokens, (self.ctokens + passed).min(room(&self.params.ceil)))
    }

    /// Pays for a packet that a class on `level` has lent the tokens for: from there on upwards all pay from both buckets,
    /// and below it, who borrowed, from that of the ceiling.
    /// Returns what [`mode_at`](Class::mode_at) says then.
    #[inline]
    pub(super) fn pay(&mut self, len: u64, segs: u64, level: u8, now: Nanos) -> (Mode, Nanos) {
        let (tokens, ctokens) = self.tokens(now);
        let cost = |bucket: &super::params::Bucket| bucket.rate.time(len).min(2 * MOST as u64) as i64;
        self.at = now;
        self.ctokens = (ctokens - cost(&self.params.ceil)).max(1 - MOST);
        self.tokens = match self.level >= level {
            true => (tokens - cost(&self.params.rate)).max(1 - MOST),
            false => tokens,
        };
        match self.level.cmp(&level) {
            std::cmp::Ordering::Less => self.borrowed += 1,
            std::cmp::Ordering::Equal => self.lent += 1,
            std::cmp::Ordering::Greater => {}
        }
        self.stats.count_sent(segs, len);
        mode_of(self.tokens, self.ctokens)
    }

    /// The mode, and for how long it stays if nobody sends.
    pub(super) fn mode_at(&self, now: Nanos) -> (Mode, Nanos) {
        let (tokens, ctokens) = self.tokens(now);
        mode_of(tokens, ctokens)
    }

    /// Takes a packet off its turn, and tells whether that has ended.
    pub(super) fn spend_turn(&mut self, len: u64, level: u8) -> bool {
        let deficit = &mut self.deficit[usize::from(level)];
        *deficit -= len as i64;
        let ended = *deficit < 0;
        if ended {
            *deficit = (*deficit + i64::from(self.quantum)).max(-MOST_OWED);
        }
        ended
    }

    /// Whether one of the lists has it when it has something to send.
    pub(super) fn is_linked(&self) -> bool {
        match self.mode {
            Mode::Send => true,
            Mode::Borrow => self.parent != NIL,
            Mode::Wait => false,
        }
    }
}

/// The mode of a class with so much in its buckets, and for how long it stays.
#[inline]
fn mode_of(tokens: i64, ctokens: i64) -> (Mode, Nanos) {
    if ctokens < 0 {
        (Mode::Wait, ctokens.unsigned_abs())
    } else if tokens < 0 {
        (Mode::Borrow, tokens.unsigned_abs())
    } else {
        (Mode::Send, Nanos::MAX)
    }
}
