//! The part of a scheduler that does not depend on the program's values, compiled once.

use std::mem;

use txq_core::arch::Native;
use txq_core::clock::Clock;
use txq_core::drop::{DropCounts, DropReason};
use txq_core::flow::Link;
use txq_core::packet::{Packet, PacketList};
use txq_core::pool::{Backing, Cache, Pool, PoolConfig, PoolError};

use super::item::Meta;
use super::{Config, SchedulerError};
use crate::Instant;
use crate::generic::PacketScheduler;
use crate::generic::qdisc::{Budget, Cx, Verdict};
use crate::tc::ParseError;

/// Takes the copies of packets that a call made, before they are enqueued, and counts those that it drops.
pub(super) type Copied<'f> = dyn FnMut(&mut PacketList, &mut DropCounts) + 'f;

/// The buffers of a scheduler's first pool, if it may hold as many.
const FIRST_POOL_BUFFERS: u32 = 65_536;

/// The length of an IPv4 header without options.
const BARE: usize = 20;

/// A tree over packets of pools of its own.
pub(super) struct Tree {
    pub(super) packets: PacketScheduler,
    /// The stock of the pool that had a buffer last.
    cache: Cache,
    /// The stocks of the other pools.
    others: Vec<Cache>,
    /// Buffers of all pools, and the most that they may have.
    pub(super) buffers: u32,
    most: u32,
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
        let most = config.packets;
        // A number that is out of range is refused as that of a pool.
        let buffers = if most > i32::MAX as u32 { most } else { most.min(FIRST_POOL_BUFFERS) };
        let cache = stock(buffers, header)?;
        let (others, out) = (Vec::new(), PacketList::new());
        Ok(Self { packets, cache, others, buffers, most, out, waits: false, header })
    }

    /// Allocates a packet of `len` bytes.
    fn alloc(&mut self, len: usize) -> Option<Packet> {
        self.cache.alloc(len).ok().or_else(|| self.alloc_elsewhere(len))
    }

    /// Allocates from another pool than the last one, or from a new one as large as all others together.
    #[cold]
    fn alloc_elsewhere(&mut self, len: usize) -> Option<Packet> {
        for other in &mut self.others {
            if let Ok(packet) = other.alloc(len) {
                mem::swap(&mut self.cache, other);
                return Some(packet);
            }
        }
        let more = self.buffers.min(self.most - self.buffers);
        if more == 0 {
            return None;
        }
        let stock = stock(more, self.header).ok()?;
        self.buffers += more;
        self.others.push(mem::replace(&mut self.cache, stock));
        self.cache.alloc(len).ok()
    }

    /// Returns a warning if the qdiscs may queue more packets than the pools may hold.
    pub(super) fn warning(&mut self) -> Option<String> {
        let most = self.most;
        let queued = self.read(|packets, _| packets.max_packets());
        (queued > most.into()).then(|| {
            format!(
                "Warning: the qdiscs may queue {queued} packets, and the scheduler holds {most}: give Config::packets a \
                 greater number, or the qdiscs lower limits."
            )
        })
    }

    /// Returns a packet that says what `meta` says; `None`, counted as `NOMEM`, if there are too many packets.
    pub(super) fn packet(&mut self, meta: &Meta<'_>) -> Option<Packet> {
        let bare = meta.tos.filter(|_| meta.header.is_empty()).map(bare_header);
        let (header, link) = match &bare {
            Some(header) => (&header[..], Link::Ip),
            None => (&meta.header[..meta.header.len().min(self.header)], meta.link),
        };
        let header = &header[..header.len().min(meta.len as usize)];
        let Some(mut packet) = self.alloc(header.len()) else {
            self.packets.count_drop(DropReason::NoMem);
            return None;
        };
        if !header.is_empty() {
            packet.data_mut().copy_from_slice(header);
            packet.set_link(link);
            super::values::find_headers(&mut packet);
        }
        packet.set_len_beyond(meta.len);
        packet.set_priority(meta.priority);
        packet.set_mark(meta.mark);
        packet.set_hash(meta.hash);
        packet.set_departure(meta.departure.as_nanos());
        packet.set_gso(0, meta.segments);
        Some(packet)
    }

    pub(super) fn enqueue(&mut self, now: Instant, packet: Packet, copied: &mut Copied<'_>) -> Verdict {
        self.call(now, copied, |qdisc, cx| qdisc.qdisc.enqueue(packet, cx))
    }

    /// Dequeues to `out`.
    pub(super) fn dequeue(&mut self, now: Instant, budget: Budget, copied: &mut Copied<'_>) {
        let mut out = mem::take(&mut self.out);
        self.call(now, copied, |top, cx| top.qdisc.dequeue_batch(budget, &mut out, cx));
        self.waits = out.is_empty();
        self.out = out;
    }

    pub(super) fn reset(&mut self, now: Instant, copied: &mut Copied<'_>) {
        self.call(now, copied, |top, cx| top.qdisc.reset(cx));
    }

    pub(super) fn command(
        &mut self,
        now: Instant,
        command: &str,
        copied: &mut Copied<'_>,
    ) -> Result<Vec<String>, ParseError> {
        let mut warnings = self.call(now, copied, |top, cx| top.command(command, cx))?;
        // A sum over all classes for each command would make commands slow.
        if has_limit_above(command, self.most) {
            warnings.extend(self.warning());
        }
        Ok(warnings)
    }

    /// Calls `f` with the tree at the time `now`.
    fn call<R>(
        &mut self,
        now: Instant,
        copied: &mut Copied<'_>,
        f: impl FnOnce(&mut crate::generic::Top<Native>, &mut Cx<'_, Native>) -> R,
    ) -> R {
        self.waits = false;
        self.packets.call(&mut Clock::at(now.as_nanos()), &mut self.cache, copied, f)
    }

    /// Returns when to dequeue next, as [`Scheduler::next_event`](super::Scheduler::next_event) does.
    pub(super) fn next_event(&self) -> Option<Instant> {
        match (self.packets.qdisc().qlen(), self.waits) {
            (0, _) => None,
            (_, false) => Some(Instant::ZERO),
            (_, true) => self.packets.next_event().map(Instant::from_nanos),
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

/// Returns an IPv4 header of which only the TOS is known.
fn bare_header(tos: u8) -> [u8; BARE] {
    let mut header = [0; BARE];
    (header[0], header[1]) = (0x45, tos);
    let sum = !u16::from_be_bytes([0x45, tos]);
    header[10..12].copy_from_slice(&sum.to_be_bytes());
    header
}

/// Returns the stock of a new pool.
fn stock(buffers: u32, header: usize) -> Result<Cache, PoolError> {
    let pool = Pool::new(&PoolConfig {
        name: "scheduler".into(),
        buffers,
        room: header.max(BARE),
        headroom: 0,
        backing: Backing::Heap,
        ..PoolConfig::default()
    })?;
    Ok(pool.cache("scheduler", 0))
}

/// Returns whether a command has a limit above `most`.
fn has_limit_above(command: &str, most: u32) -> bool {
    let words = || command.split_ascii_whitespace();
    let mut limits = words().zip(words().skip(1)).filter(|&(word, _)| word == "limit");
    limits.any(|(_, limit)| limit.parse::<u64>().is_ok_and(|limit| limit > most.into()))
}
