//! Which queues senders enter: one for each txq, one for all, or none.
//!
//! A device has the queues of all three rules from the start; those that are not in force hand on what comes to them
//! (`run/relay.rs`). So the rule is a word that is stored, senders compare it with their own copy at each call, and nothing
//! is allocated or freed under them.

use std::sync::atomic::Ordering::{Acquire, Release};

use super::{Root, Shared};
use crate::arch::inside::Entered;
use crate::arch::{Arch, Atomic};
use crate::ctx::Ctx;
use crate::packet::PacketList;
use crate::qdisc::Verdict;

/// Who has a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shape {
    /// Each txq (mq), or the only one.
    PerTxq = 0,
    /// All txqs together (`TCQ_F_ONETXQUEUE` is not set).
    Shared = 1,
    /// Nobody: senders go to the driver.
    NoQueue = 2,
}

/// A shape, and the number of the change that brought it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Rule(u32);

impl Rule {
    pub(super) fn first(shape: Shape) -> Self {
        Self(shape as u32)
    }

    pub(super) fn next(self, shape: Shape) -> Self {
        Self((self.0 >> 2).wrapping_add(1) << 2 | shape as u32)
    }

    pub(super) fn word(self) -> u32 {
        self.0
    }

    pub(super) fn shape(self) -> Shape {
        match self.0 & 3 {
            0 => Shape::PerTxq,
            1 => Shape::Shared,
            _ => Shape::NoQueue,
        }
    }

    /// Whether there was never another.
    fn is_first(self) -> bool {
        self.0 >> 2 == 0
    }
}

impl<A: Arch> Shared<A> {
    /// The rule in force.
    #[inline]
    pub(crate) fn rule(&self) -> Rule {
        // Acquire: who knows the rule finds its queues open. Pairs with the store in `put_in_force`.
        Rule(self.rule.load(Acquire))
    }

    pub(super) fn put_in_force(&self, rule: Rule) {
        self.rule.store(rule.0, Release);
    }

    /// The root that a txq's packets enter under `rule`. The roots of the txqs come first, then the one for all where
    /// there are several, and last the ways past any qdisc.
    #[inline]
    pub(crate) fn root_at(&self, rule: Rule, txq: u16) -> usize {
        match rule.shape() {
            Shape::PerTxq => txq.into(),
            Shape::Shared => self.txqs.len(),
            Shape::NoQueue => self.roots.len() - self.txqs.len() + usize::from(txq),
        }
    }

    /// The root that a txq's packets enter now.
    #[inline]
    pub(crate) fn root_of(&self, txq: u16) -> usize {
        self.root_at(self.rule(), txq)
    }

    pub(super) fn has(&self, rule: Rule, root: usize) -> bool {
        let at = |txq| self.root_at(rule, txq);
        (at(0)..=at(self.txqs.len() as u16 - 1)).contains(&root)
    }

    /// Whether packets enter a root now.
    pub(crate) fn is_in_force(&self, root: usize) -> bool {
        self.has(self.rule(), root)
    }

    /// The roots that packets enter now.
    pub(super) fn roots_in_force(&self) -> &[Root<A>] {
        let rule = self.rule();
        &self.roots[self.root_at(rule, 0)..=self.root_at(rule, self.txqs.len() as u16 - 1)]
    }

    /// The roots that packets have ever entered, or may have.
    pub(super) fn roots_used(&self) -> &[Root<A>] {
        if self.rule().is_first() { self.roots_in_force() } else { &self.roots }
    }

    /// Hands packets of a txq to a root. The thread is in the device's data path meanwhile.
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

    /// As [`enter`](Shared::enter), for a thread that is in the device's data path.
    #[inline]
    pub(crate) fn submit(
        &self,
        root: usize,
        txq: u16,
        batch: &mut PacketList<A>,
        cx: &mut Ctx<'_, A>,
    ) -> Verdict {
        let root = &self.roots[root];
        if root.txq.is_none() {
            // The qdisc serves several txqs: each packet says which is its own.
            batch.for_each_mut(|p| p.set_txq(txq));
        }
        root.discipline.submit(root, batch, cx)
    }

    /// The rule in force, when nothing is on its way any more through a root that is not: whoever enters a root of this
    /// rule next overtakes nothing of its own.
    #[cold]
    pub(crate) fn follow(&self, cx: &mut Ctx<'_, A>) -> Rule {
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
