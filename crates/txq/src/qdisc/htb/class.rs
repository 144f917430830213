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

pub(super) struct Class<A: Arch> {
    pub(super) minor: u16,
    pub(super) params: ClassParams,
    pub(super) quantum: u32,
    /// [`NIL`] for a root class.
    pub(super) parent: u32,
    /// How many classes are below it.
    pub(super) children: u32,
    pub(super) level: u8,
    pub(super) mode: Mode,
    /// For each priority, whether there is something to send; a leaf has one at most.
    pub(super) active: u8,
    /// Time saved in the buckets at `at`.
    tokens: i64,
    ctokens: i64,
    at: Nanos,
    /// Bytes that are left of its turn, by the level that lends.
    deficit: [i64; LEVELS],
    /// Its neighbours, by priority.
    pub(super) links: [Link; PRIOS],
    /// The classes below it that borrow, by priority.
    pub(super) feeds: [List; PRIOS],
    /// The priorities for which it has left its parent's feed in its turn.
    pub(super) left_in_turn: u8,
    /// When its mode is looked at again.
    pub(super) due: Option<(Nanos, Ticket)>,
    /// Its leaf has packets and yet gave none: until then it counts as empty.
    pub(super) nap: Option<Ticket>,
    /// None where there are classes below it.
    pub(super) leaf: Option<Child<A>>,
    /// Where a packet goes on that filters above have sent here.
    pub(super) filters: Filters<A>,
    pub(super) stats: QdiscStats,
    pub(super) lent: u64,
    pub(super) borrowed: u64,
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

    fn tokens(&self, now: Nanos) -> (i64, i64) {
        let passed = now.saturating_sub(self.at).min(MOST as u64) as i64;
        let room = |bucket: &super::params::Bucket| bucket.time() as i64;
        let tokens = (self.tokens + passed).min(room(&self.params.rate));
        (tokens, (self.ctokens + passed).min(room(&self.params.ceil)))
    }

    /// Pays for a packet that a class on `level` has lent the tokens for: from there on upwards all pay from both buckets,
    /// and below it, who borrowed, from that of the ceiling.
    pub(super) fn pay(&mut self, len: u64, segs: u64, level: u8, now: Nanos) {
        let (tokens, ctokens) = self.tokens(now);
        let cost = |bucket: &super::params::Bucket| bucket.rate.time(len).min(2 * MOST as u64) as i64;
        let (rate, ceil) = (cost(&self.params.rate), cost(&self.params.ceil));
        self.at = now;
        self.ctokens = (ctokens - ceil).max(1 - MOST);
        self.tokens = if self.level >= level { (tokens - rate).max(1 - MOST) } else { tokens };
        match self.level.cmp(&level) {
            std::cmp::Ordering::Less => self.borrowed += 1,
            std::cmp::Ordering::Equal => self.lent += 1,
            std::cmp::Ordering::Greater => {}
        }
        self.stats.count_sent(segs, len);
    }

    /// The mode, and for how long it stays if nobody sends.
    pub(super) fn mode_at(&self, now: Nanos) -> (Mode, Nanos) {
        match self.tokens(now) {
            (_, ctokens) if ctokens < 0 => (Mode::Wait, ctokens.unsigned_abs()),
            (tokens, _) if tokens < 0 => (Mode::Borrow, tokens.unsigned_abs()),
            _ => (Mode::Send, Nanos::MAX),
        }
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
