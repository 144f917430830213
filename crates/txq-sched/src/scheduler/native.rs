//! The part of a scheduler that does not depend on the program's values, compiled once.

use txq_core::arch::Native;
use txq_core::clock::Clock;
use txq_core::drop::{DropCounts, DropReason};
use txq_core::packet::{Packet, PacketList};
use txq_core::pool::{Backing, Cache, Pool, PoolConfig};

use super::item::Meta;
use super::{Config, SchedulerError};
use crate::Nanos;
use crate::generic::PacketScheduler;
use crate::generic::qdisc::{Budget, Cx, Verdict};
use crate::tc::ParseError;

/// Takes the copies of packets that a call made, before they are enqueued, and counts those that it drops.
pub(super) type Copied<'f> = dyn FnMut(&mut PacketList, &mut DropCounts) + 'f;

/// A tree over packets of a pool of its own.
pub(super) struct Tree {
    pub(super) packets: PacketScheduler,
    cache: Cache,
    /// Packets dequeued by the last call.
    pub(super) out: PacketList,
    /// The last call was a dequeue that returned nothing.
    waits: bool,
    /// The most bytes of a header that are kept.
    header: usize,
}

impl Tree {
    pub(super) fn new(packets: PacketScheduler, config: &Config) -> Result<Self, SchedulerError> {
        let header = config.header.min(u16::MAX.into());
        let pool = Pool::new(&PoolConfig {
            name: "scheduler".into(),
            buffers: config.packets,
            room: header.max(1),
            headroom: 0,
            backing: Backing::Heap,
            ..PoolConfig::default()
        })?;
        let cache = pool.cache("scheduler", 0);
        Ok(Self { packets, cache, out: PacketList::new(), waits: false, header })
    }

    /// Returns a packet that says what `meta` says; `None`, counted as `NOMEM`, if there are too many packets.
    pub(super) fn packet(&mut self, meta: &Meta<'_>) -> Option<Packet> {
        let header = &meta.header[..meta.header.len().min(self.header).min(meta.len as usize)];
        let Ok(mut packet) = self.cache.alloc(header.len()) else {
            self.packets.count_drop(DropReason::NoMem);
            return None;
        };
        if !header.is_empty() {
            packet.data_mut().copy_from_slice(header);
            packet.set_link(meta.link);
            super::values::find_headers(&mut packet);
        }
        packet.set_len_beyond(meta.len);
        packet.set_priority(meta.priority);
        packet.set_mark(meta.mark);
        packet.set_hash(meta.hash);
        packet.set_departure(meta.departure);
        packet.set_gso(0, meta.segments);
        Some(packet)
    }

    pub(super) fn enqueue(&mut self, now: Nanos, packet: Packet, copied: &mut Copied<'_>) -> Verdict {
        self.call(now, copied, |qdisc, cx| qdisc.qdisc.enqueue(packet, cx))
    }

    /// Dequeues to `out`.
    pub(super) fn dequeue(&mut self, now: Nanos, budget: Budget, copied: &mut Copied<'_>) {
        let mut out = std::mem::take(&mut self.out);
        self.call(now, copied, |top, cx| top.qdisc.dequeue_batch(budget, &mut out, cx));
        self.waits = out.is_empty();
        self.out = out;
    }

    pub(super) fn reset(&mut self, now: Nanos, copied: &mut Copied<'_>) {
        self.call(now, copied, |top, cx| top.qdisc.reset(cx));
    }

    pub(super) fn command(
        &mut self,
        now: Nanos,
        command: &str,
        copied: &mut Copied<'_>,
    ) -> Result<Vec<String>, ParseError> {
        self.call(now, copied, |top, cx| top.command(command, cx))
    }

    /// Calls `f` with the tree at the time `now`.
    fn call<R>(
        &mut self,
        now: Nanos,
        copied: &mut Copied<'_>,
        f: impl FnOnce(&mut crate::generic::Top<Native>, &mut Cx<'_, Native>) -> R,
    ) -> R {
        self.waits = false;
        self.packets.call(&mut Clock::at(now), &mut self.cache, copied, f)
    }

    /// Returns when to dequeue next, as [`Scheduler::next_event`](super::Scheduler::next_event) does.
    pub(super) fn next_event(&self) -> Option<Nanos> {
        match (self.packets.qdisc().qlen(), self.waits) {
            (0, _) => None,
            (_, false) => Some(0),
            (_, true) => self.packets.next_event(),
        }
    }

    /// Frees packets whose values the program has taken.
    pub(super) fn free(&mut self, mut packets: PacketList) {
        self.cache.free(&mut packets);
    }

    /// Calls `f` with the tree's records and its stock of buffers.
    pub(super) fn read<R>(&mut self, f: impl FnOnce(&mut PacketScheduler, &mut Cache) -> R) -> R {
        f(&mut self.packets, &mut self.cache)
    }
}
