//! What a thread brings along on a packet's way: the device, its own buffers, and one reading of the clock.

use crate::arch::Arch;
use crate::driver::Clock;
use crate::netdev::Shared;
use crate::packet::PacketList;
use crate::pool::Cache;
use crate::qdisc::Cx;
use crate::qdisc::copying::Copying;
use crate::run::CoreCounters;

/// A sender's or a worker's hands while it is in the data path.
pub(crate) struct Ctx<'a, A: Arch> {
    pub(crate) dev: &'a Shared<A>,
    pub(crate) cache: &'a mut Cache<A>,
    pub(crate) clock: Clock<A>,
    /// Dropped packets, to be freed when every lock is left.
    pub(crate) to_free: PacketList<A>,
    /// Copies of packets, on their way to the root of the queue that they were made in.
    pub(crate) copies: PacketList<A>,
}

impl<'a, A: Arch> Ctx<'a, A> {
    #[inline]
    pub(crate) fn new(dev: &'a Shared<A>, cache: &'a mut Cache<A>) -> Self {
        Self { dev, cache, clock: Clock::new(), to_free: PacketList::new(), copies: PacketList::new() }
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

    /// Frees what was dropped. No lock is held here.
    #[inline]
    pub(crate) fn free_dropped(&mut self) {
        if !self.to_free.is_empty() {
            self.cache.free(&mut self.to_free);
        }
    }
}
