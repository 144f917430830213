//! The context of a thread in the data path: the device, the thread's own buffers, and one clock reading.

use txq_core::arch::{Arch, Nanos};
use txq_core::clock::Clock;
use txq_core::packet::PacketList;
use txq_core::pool::Cache;
use txq_sched::generic::qdisc::Cx;
use txq_sched::generic::qdisc::copying::Copying;

use crate::generic::datapath::CoreCounters;
use crate::generic::datapath::Datapath;
use crate::generic::datapath::RootSelector;

/// Work that a worker needs from the owner of a queue, because only the owner may do it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Errand {
    /// No work.
    None,
    /// Reap this txq. Stays so if another thread owns the queue; that owner reaps after it has sent.
    Reap(u16),
    /// The txq was reaped; holds the time of the next poll, if the driver knows it.
    Done(Option<Nanos>),
}

/// State of a sender or a worker while it is in the data path.
pub(crate) struct Ctx<'a, A: Arch> {
    pub(crate) dev: &'a Datapath<A>,
    pub(crate) cache: &'a mut Cache<A>,
    pub(crate) clock: Clock<A>,
    /// Work for the owner of the queue that a worker runs.
    pub(crate) errand: Errand,
    /// Dropped packets. They are freed after every lock is released.
    pub(crate) to_free: PacketList<A>,
    /// Copies of packets, not yet enqueued at the root of the queue in which they were made.
    pub(crate) copies: PacketList<A>,
    /// Whether a turn ended because only another thread can make room: a thread that is in the driver, or that reaps.
    pub(crate) held_up: bool,
    /// How long the thread has waited for room on a list in front of a queue.
    pub(crate) waited: Nanos,
    /// Whether the device is traced.
    pub(super) traced: bool,
    /// The queue that the thread works for, if the device is traced; [`NO_ROOT`] if there is none.
    pub(super) root: u32,
}

/// No queue.
pub(super) const NO_ROOT: u32 = u32::MAX;

impl<'a, A: Arch> Ctx<'a, A> {
    /// Creates the context of a thread that follows the rule in force.
    pub(crate) fn new(dev: &'a Datapath<A>, cache: &'a mut Cache<A>) -> Self {
        Self::under(dev.rule(), dev, cache)
    }

    /// Creates the context of a sender that follows `rule`.
    #[inline]
    pub(crate) fn under(rule: RootSelector, dev: &'a Datapath<A>, cache: &'a mut Cache<A>) -> Self {
        Self {
            dev,
            cache,
            clock: Clock::new(),
            errand: Errand::None,
            to_free: PacketList::new(),
            copies: PacketList::new(),
            held_up: false,
            waited: 0,
            traced: rule.is_traced(),
            root: NO_ROOT,
        }
    }

    /// Returns the part of the context that a call of a qdisc needs; the call counts its drops and copies in `counters`.
    #[inline]
    pub(crate) fn for_qdisc<'c>(&'c mut self, counters: &'c mut CoreCounters) -> Cx<'c, A> {
        let copying = Copying::new(self.cache, &mut self.copies, &mut counters.created);
        Cx::new(&mut self.clock, &mut self.to_free, &mut counters.drops, copying)
    }

    /// Frees the dropped packets. The caller holds no lock. If packets were dropped and only another thread can make room,
    /// yields the CPU: that thread may have been preempted in favour of the caller.
    #[inline]
    pub(crate) fn free_dropped(&mut self) {
        if !self.to_free.is_empty() {
            self.free_all();
        }
    }

    #[cold]
    fn free_all(&mut self) {
        let mut dropped = std::mem::take(&mut self.to_free);
        self.free_list(&mut dropped);
        if std::mem::take(&mut self.held_up) {
            A::yield_cpu();
        }
    }
}
