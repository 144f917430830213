//! Which queues senders enter: one for each txq, one for all, or none.
//!
//! A device has the queues of all three rules from the start. Queues that are not in force hand arriving packets on
//! (`run/relay.rs`). So a change of the rule is a store to one word, and no queue is allocated or freed under traffic.
//! Senders compare the word with their own copy at each call.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use txq_core::arch::inside::Entered;
use txq_core::arch::{Arch, Atomic};
use txq_core::packet::PacketList;
use txq_sched::generic::qdisc::Verdict;

use super::{Ctx, Datapath, Root};

/// Which txqs share a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shape {
    /// Each txq has its own (mq); also for a single txq.
    PerTxq = 0,
    /// All txqs share one (`TCQ_F_ONETXQUEUE` is not set).
    Shared = 1,
    /// There is none: senders call the driver.
    NoQueue = 2,
}

/// A shape (the low 2 bits), whether the device is traced ([`TRACED`]), whether its egress hook has filters ([`HOOKED`]), and
/// the number of changes of the shape so far (the other 28 bits, wrapping). The number distinguishes two rules of the same shape.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RootSelector(u32);

/// The device is traced. The bit is here because each call of xmit compares this word anyway.
const TRACED: u32 = 4;
/// The egress hook has filters. The bit is here for the same reason.
const HOOKED: u32 = 8;
/// The bits that are no part of the rule.
const RULE_FLAGS: u32 = TRACED | HOOKED;
/// The bits below the number of changes.
const FLAG_BITS: u32 = 4;

impl RootSelector {
    pub(crate) fn first(shape: Shape) -> Self {
        Self(shape as u32)
    }

    pub(crate) fn next(self, shape: Shape) -> Self {
        Self((self.0 >> FLAG_BITS).wrapping_add(1) << FLAG_BITS | self.0 & RULE_FLAGS | shape as u32)
    }

    pub(crate) fn word(self) -> u32 {
        self.0
    }

    pub(crate) fn shape(self) -> Shape {
        match self.0 & 3 {
            0 => Shape::PerTxq,
            1 => Shape::Shared,
            _ => Shape::NoQueue,
        }
    }

    /// Returns whether the rule was never changed.
    fn is_first(self) -> bool {
        self.0 >> FLAG_BITS == 0
    }

    /// Returns whether the device is traced.
    #[inline]
    pub(crate) fn is_traced(self) -> bool {
        self.0 & TRACED != 0
    }

    /// Returns whether the egress hook has filters.
    #[inline]
    pub(crate) fn is_hooked(self) -> bool {
        self.0 & HOOKED != 0
    }

    /// Returns the same rule, traced and hooked if `other` is.
    pub(crate) fn traced_as(self, other: Self) -> Self {
        Self(self.0 & !RULE_FLAGS | other.0 & RULE_FLAGS)
    }
}

impl<A: Arch> Datapath<A> {
    /// Returns the rule in force.
    #[inline]
    pub(crate) fn rule(&self) -> RootSelector {
        // Acquire: a thread that reads the rule finds its queues open. Pairs with the store in `put_in_force`.
        RootSelector(self.rule.load(Acquire))
    }

    /// Stores the rule in force; a trace may begin or end meanwhile. Release: the caller has opened the queues of the rule;
    /// pairs with the load in `rule`.
    pub(crate) fn put_in_force(&self, rule: RootSelector) {
        let mut now = self.rule.load(Relaxed);
        loop {
            let next = rule.traced_as(RootSelector(now));
            match self.rule.compare_exchange(now, next.0, Release, Relaxed) {
                Ok(_) => return,
                Err(other) => now = other,
            }
        }
    }

    /// Sets whether the device is traced. Release: the caller has put its trace on the list; pairs with the load in `rule`.
    pub(crate) fn set_traced(&self, traced: bool) {
        match traced {
            true => self.rule.fetch_or(TRACED, Release),
            false => self.rule.fetch_and(!TRACED, Release),
        };
    }

    /// Sets whether the egress hook has filters. Relaxed: the hook's lock orders the filters.
    pub(crate) fn set_hooked(&self, hooked: bool) {
        match hooked {
            true => self.rule.fetch_or(HOOKED, Relaxed),
            false => self.rule.fetch_and(!HOOKED, Relaxed),
        };
    }

    /// Returns the number of the root that a txq's packets enter under `rule`. First come the roots of the txqs, then the
    /// one for all txqs if there are several, and last the roots without a qdisc, one for each txq.
    #[inline]
    pub(crate) fn root_at(&self, rule: RootSelector, txq: u16) -> usize {
        match rule.shape() {
            Shape::PerTxq => txq.into(),
            Shape::Shared => self.txqs.len(),
            Shape::NoQueue => self.roots.len() - self.txqs.len() + usize::from(txq),
        }
    }

    /// Returns the number of the root that a txq's packets enter now.
    #[inline]
    pub(crate) fn root_of(&self, txq: u16) -> usize {
        self.root_at(self.rule(), txq)
    }

    /// Returns whether packets enter a root under `rule`.
    pub(crate) fn has(&self, rule: RootSelector, root: usize) -> bool {
        let at = |txq| self.root_at(rule, txq);
        (at(0)..=at(self.txqs.len() as u16 - 1)).contains(&root)
    }

    /// Returns whether packets enter a root now.
    pub(crate) fn is_in_force(&self, root: usize) -> bool {
        self.has(self.rule(), root)
    }

    /// Returns the roots that packets enter now.
    pub(crate) fn roots_in_force(&self) -> &[Root<A>] {
        let rule = self.rule();
        &self.roots[self.root_at(rule, 0)..=self.root_at(rule, self.txqs.len() as u16 - 1)]
    }

    /// Returns the roots that packets have entered, or may have.
    pub(crate) fn roots_used(&self) -> &[Root<A>] {
        if self.rule().is_first() { self.roots_in_force() } else { &self.roots }
    }

    /// Hands packets of a txq to a root; returns the verdict. The thread is inside the device's data path meanwhile.
    #[inline]
    pub(crate) fn enter(
        &self,
        root: usize,
        txq: u16,
        batch: &mut PacketList<A>,
        cx: &mut Ctx<'_, A>,
    ) -> Verdict {
        let _inside = Entered::<A>::new(self);
        self.submit(root, txq, batch, cx)
    }

    /// As [`enter`](Datapath::enter), for a thread that is already inside the device's data path.
    #[inline]
    pub(crate) fn submit(
        &self,
        root: usize,
        txq: u16,
        batch: &mut PacketList<A>,
        cx: &mut Ctx<'_, A>,
    ) -> Verdict {
        let root = &self.roots[root];
        cx.note_root(root.index);
        if root.txq.is_none() {
            // The qdisc serves several txqs, so each packet carries the number of its own.
            batch.for_each_mut(|p| p.set_txq(txq));
        }
        root.submit(self, batch, cx)
    }

    /// Waits until no packet is on its way through a root that is not in force; returns the rule in force. So packets that a
    /// sender then hands to a root of this rule overtake none of its own.
    #[cold]
    pub(crate) fn follow(&self, cx: &mut Ctx<'_, A>) -> RootSelector {
        loop {
            let rule = self.rule();
            let busy = |root: &&Root<A>| !self.has(rule, root.index) && !root.is_idle(self);
            match self.roots.iter().find(busy) {
                None if self.rule() == rule => return rule,
                None => {}
                Some(root) => {
                    root.run(self, cx);
                    A::relax();
                }
            }
        }
    }
}
