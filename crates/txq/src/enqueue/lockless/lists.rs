//! Where senders put packets under `lockless`: a list for each band, and the rule by which a packet comes by its band.

use std::array;
use std::sync::atomic::Ordering::Relaxed;

use crossbeam_utils::CachePadded;

use crate::arch::{Arch, Atomic};
use crate::packet::PacketList;
use crate::pool::slot::Slot;
use crate::qdisc::BANDS;
use crate::run::Core;
use crate::sync::contention::{Retries, Retry};
use crate::sync::llist::LList;

/// What senders write.
pub(super) struct Lists<A: Arch> {
    pub(super) bands: [CachePadded<Band<A>>; BANDS],
    /// What senders read and an owner changes with the qdisc.
    pub(super) rule: CachePadded<Rule<A>>,
}

/// The line of a band that senders write.
pub(super) struct Band<A: Arch> {
    pub(super) list: LList<A, Slot<A>>,
    /// Packets of the band: on the list, and in the qdisc if it has bands.
    pub(super) len: A::AtomicU32,
}

/// How a packet comes by its band.
pub(super) struct Rule<A: Arch> {
    /// The band of each priority modulo 16, four bits each.
    map: A::AtomicU64,
    /// Packets that a band holds.
    limit: A::AtomicU32,
    /// 1 where the qdisc has bands, and it is the band's limit that drops.
    nolock: A::AtomicU32,
}

impl<A: Arch> Lists<A> {
    pub(super) fn new() -> Self {
        let band = || CachePadded::new(Band { list: LList::new(), len: A::AtomicU32::new(0) });
        let rule =
            Rule { map: A::AtomicU64::new(0), limit: A::AtomicU32::new(0), nolock: A::AtomicU32::new(0) };
        Self { bands: array::from_fn(|_| band()), rule: CachePadded::new(rule) }
    }

    /// Names its lines ([`Arch::name`]).
    pub(super) fn name_lines(&self) {
        A::name(&self.bands, "lockless: a band's list");
        A::name(&self.rule, "lockless: the bands' rule");
    }

    /// Puts a batch on the lists of its bands, and what has no room there on `refused`.
    pub(super) fn put(&self, batch: &mut PacketList<A>, refused: &mut PacketList<A>, retries: &Retries<A>) {
        let map = self.rule.map.load(Relaxed);
        let limit = self.rule.limit.load(Relaxed);
        let mut parts = [const { PacketList::new() }; BANDS];
        if map == 0 {
            parts[0].append(batch);
        }
        while let Some(packet) = batch.pop_front() {
            let band = map >> (4 * (packet.priority() & 15)) & 15;
            parts[band as usize].push_back(packet);
        }
        for (band, part) in self.bands.iter().zip(&mut parts).filter(|(_, part)| !part.is_empty()) {
            let n = part.len() as u32;
            let before = band.len.fetch_add(n, Relaxed);
            let room = limit.saturating_sub(before);
            if n > room {
                band.len.fetch_add((n - room).wrapping_neg(), Relaxed);
                let mut fit = PacketList::new();
                part.move_front(room as usize, &mut fit);
                refused.append(part);
                part.append(&mut fit);
            }
            if let Some(chain) = part.take_chain() {
                // SAFETY: the chain was just given up by its list, and descriptors live as long as the pool.
                unsafe { band.list.push_or(chain.as_ptr(), || retries.note(Retry::DeferList)) };
            }
        }
    }
}

impl<A: Arch> Rule<A> {
    /// Makes the rule that of the qdisc in `core`. Senders may go by the old one for a while: the owner takes their packets
    /// from whichever list they are on.
    pub(super) fn follow(&self, core: &Core<A>, max_burst: u32) {
        let bands = core.qdisc.as_ref().and_then(|q| q.nolock());
        let map = bands
            .as_ref()
            .map_or(0, |b| b.priomap.iter().rev().fold(0, |map, &band| map << 4 | u64::from(band)));
        self.map.store(map, Relaxed);
        self.limit.store(bands.as_ref().map_or(max_burst, |b| b.limit), Relaxed);
        self.nolock.store(bands.is_some().into(), Relaxed);
    }

    /// Half of what a band holds.
    pub(super) fn half(&self) -> usize {
        self.limit.load(Relaxed) as usize / 2
    }

    /// Whether the qdisc has bands, and their limit drops.
    #[inline]
    pub(super) fn is_banded(&self) -> bool {
        self.nolock.load(Relaxed) != 0
    }
}
