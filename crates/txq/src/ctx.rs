//! What a thread brings along on a packet's way: the device, its own buffers, and one reading of the clock.

use crate::arch::{Arch, Nanos};
use crate::driver::Clock;
use crate::netdev::Shared;
use crate::packet::PacketList;
use crate::pool::Cache;
use crate::qdisc::Cx;
use crate::qdisc::copying::Copying;
use crate::run::CoreCounters;

/// What a worker cannot do itself, for only the owner of a queue may.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Errand {
    /// Nothing.
    None,
    /// Reap a txq. Stays so when somebody else has the queue; that owner reaps after it has sent.
    Reap(u16),
    /// Reaped; when to look again, if the driver knows.
    Done(Option<Nanos>),
}

/// A sender's or a worker's hands while it is in the data path.
pub(crate) struct Ctx<'a, A: Arch> {
    pub(crate) dev: &'a Shared<A>,
    pub(crate) cache: &'a mut Cache<A>,
    pub(crate) clock: Clock<A>,
    /// What a worker wants done by the owner of a queue.
    pub(crate) errand: Errand,
    /// Dropped packets, to be freed when every lock is left.
    pub(crate) to_free: PacketList<A>,
    /// Copies of packets, on their way to the root of the queue that they were made in.
    pub(crate) copies: PacketList<A>,
    /// A turn ended because only another thread can make room: one that is in the driver, or reaps.
    pub(crate) held_up: bool,
}

impl<'a, A: Arch> Ctx<'a, A> {
    #[inline]
    pub(crate) fn new(dev: &'a Shared<A>, cache: &'a mut Cache<A>) -> Self {
        Self {
            dev,
            cache,
            clock: Clock::new(),
            errand: Errand::None,
            to_free: PacketList::new(),
            copies: PacketList::new(),
            held_up: false,
        }
    }

    /// What a qdisc's call needs of it.
    #[inline]
    pub(crate) fn for_qdisc<'c>(&'c mut self, counters: &'c mut CoreCounters) -> Cx<'c, A> {
        Cx {
            clock: &mut self.clock,
            to_free: &mut self.to_free,
            drops: &mut counters.drops,
            copying: Copying::new(self.cache, &mut self.copies, &mut counters.created),
        }
    }

    /// Frees what was dropped. No lock is held here. Where only another thread can make room, that thread gets the CPU:
    /// it may have been preempted for the caller.
    #[inline]
    pub(crate) fn free_dropped(&mut self) {
        if !self.to_free.is_empty() {
            self.free_all();
        }
    }

    #[cold]
    fn free_all(&mut self) {
        self.cache.free_dropped(&mut self.to_free);
        if std::mem::take(&mut self.held_up) {
            A::yield_cpu();
        }
    }
}
