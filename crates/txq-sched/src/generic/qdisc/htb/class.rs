//! A class of htb: its parameters, its buckets and its place in the lists of active classes.

use txq_core::arch::{Arch, Nanos};
use txq_core::stats::QdiscStats;

use super::buckets::{Buckets, Moment};
use super::lists::{List, ListLink, NIL, PRIOS};
use super::params::ClassParams;
use crate::generic::filter::Filters;
use crate::generic::qdisc::child::Child;
use crate::generic::qdisc::idle::Warmth;
use crate::generic::qdisc::wheel::Ticket;

/// The most bytes that a class owes its siblings, where its packets are longer than its quantum.
const MOST_OWED: i64 = 1 << 20;
/// Number of levels. Leaves are on level 0, and root classes with classes below them on the last one.
pub(super) const CLASS_LEVELS: usize = 8;

/// Whether a class may send, by the tokens in its buckets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::generic::qdisc) enum Mode {
    /// The class may send by its own rate.
    Send,
    /// The class has used up its rate, and may send if its parent lends.
    Borrow,
    /// The class may not send: it has used up its ceiling.
    Wait,
}

/// An event on the wheel, with the id of its class.
#[derive(Debug, Clone, Copy)]
pub(super) enum Event {
    /// The class's mode may change.
    Tokens(u32),
    /// The class's leaf, which holds packets back, may have one to send.
    Leaf(u32),
}

/// A class. The fields that each packet needs are in front, in whole cache lines: mode, tokens, rates, neighbours, turn,
/// leaf and counters.
#[repr(C, align(64))]
pub(super) struct Class<A: Arch, B> {
    /// The buckets of `rate` and `ceil`.
    pub(super) buckets: B,
    /// The event that computes its mode again, and the time of that event.
    pub(super) due: Option<(Nanos, Ticket)>,
    /// [`NIL`](super::NIL) for a root class.
    pub(super) parent: u32,
    pub(super) quantum: u32,
    /// The event at which its leaf is asked again. Set while the leaf has packets and holds them back; the class is then
    /// inactive.
    pub(super) nap: Option<Ticket>,
    pub(super) minor: u16,
    pub(super) mode: Mode,
    /// 0 if it has a leaf.
    pub(super) level: u8,
    /// Whether its leaf may have memory to give back.
    pub(super) warmth: Warmth,
    /// The priorities for which it has packets to send, as a bit mask; a leaf has one at most.
    pub(super) active: u8,
    pub(super) params: ClassParams,
    /// Its neighbours, by priority.
    pub(super) links: [ListLink; PRIOS],
    /// Bytes left of its turn, by the level of the class that lends.
    deficit: [i64; CLASS_LEVELS],
    /// `None` while there are classes below it.
    pub(super) leaf: Option<Child<A>>,
    pub(super) stats: QdiscStats,
    pub(super) lent: u64,
    pub(super) borrowed: u64,
    /// Number of classes directly below it.
    pub(super) children: u32,
    /// The active classes directly below it that borrow, by priority.
    pub(super) feeds: [List; PRIOS],
    /// The filters for packets that a priority or a filter above sends to this class, while it is no leaf.
    pub(super) filters: Filters<A>,
}

impl<A: Arch, B: Buckets<A>> Class<A, B> {
    pub(super) fn new(
        minor: u16,
        params: ClassParams,
        quantum: u32,
        parent: u32,
        leaf: Child<A>,
        buckets: B,
    ) -> Self {
        Self {
            buckets,
            minor,
            params,
            quantum,
            parent,
            children: 0,
            level: 0,
            warmth: Warmth::Never,
            mode: Mode::Send,
            active: 0,
            deficit: [0; CLASS_LEVELS],
            links: [ListLink::default(); PRIOS],
            feeds: [List::default(); PRIOS],
            due: None,
            nap: None,
            leaf: Some(leaf),
            filters: Filters::new(),
            stats: QdiscStats::default(),
            lent: 0,
            borrowed: 0,
        }
    }

    /// Fills both buckets.
    pub(super) fn fill(&mut self, now: Nanos) {
        self.buckets.fill(&self.params, now);
    }

    /// Charges a packet for which a class on `level` lent the tokens. That class and those above it pay from both buckets;
    /// those below it have borrowed, and pay only from the bucket of `ceil`. Returns the new mode and how long it lasts, as
    /// [`mode_at`](Class::mode_at).
    #[inline]
    pub(super) fn pay(&mut self, len: u64, segs: u64, level: u8, at: Moment) -> (Mode, Nanos) {
        match self.level.cmp(&level) {
            std::cmp::Ordering::Less => self.borrowed += 1,
            std::cmp::Ordering::Equal => self.lent += 1,
            std::cmp::Ordering::Greater => {}
        }
        self.stats.count_sent(segs, len);
        self.buckets.pay(&self.params, len, self.level >= level, at)
    }

    /// Returns the mode then, and how long it lasts if the class sends nothing.
    pub(super) fn mode_at(&self, at: Moment) -> (Mode, Nanos) {
        self.buckets.mode_at(&self.params, at)
    }

    /// Subtracts a packet from the class's turn; returns whether the turn has ended. If it has, adds a quantum for the next
    /// turn.
    pub(super) fn spend_turn(&mut self, len: u64, level: u8) -> bool {
        let deficit = &mut self.deficit[usize::from(level)];
        *deficit -= len as i64;
        let ended = *deficit < 0;
        if ended {
            *deficit = (*deficit + i64::from(self.quantum)).max(-MOST_OWED);
        }
        ended
    }

    /// Returns whether the class is in a list while it is active.
    pub(super) fn is_linked(&self) -> bool {
        match self.mode {
            Mode::Send => true,
            Mode::Borrow => self.parent != NIL,
            Mode::Wait => false,
        }
    }
}
