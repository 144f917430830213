//! Where senders put packets under `lockless`: a list for each band, and the rule that maps a packet to its band.

use std::array;
use std::sync::atomic::Ordering::Relaxed;

use crossbeam_utils::CachePadded;

use txq_core::arch::{Arch, Atomic};
use txq_core::packet::PacketList;
use txq_core::pool::slot::Slot;
use txq_core::stats::contention::{Retry, Site};
use txq_core::sync::contention::Retries;
use txq_core::sync::llist::LList;
use txq_core::sync::spinlock::SpinLock;
use txq_sched::generic::qdisc::{BANDS, NoLock};

use crate::generic::datapath::Core;
use crate::generic::panics::Panics;

/// The lists of a queue.
pub(super) struct Lists<A: Arch> {
    /// Written by senders and by the owner.
    pub(super) bands: [CachePadded<Band<A>>; BANDS],
    /// Read by senders, changed by an owner that changes the qdisc.
    pub(super) rule: CachePadded<Rule<A>>,
}

/// A band's line, which senders write.
pub(super) struct Band<A: Arch> {
    /// Batches that wait for the owner, newest first. Senders push (Release); the token holder takes the whole list
    /// (Acquire).
    pub(super) list: LList<A, Slot<A>>,
    /// Packets of the band: on the list, in the intake, and in the qdisc if it has bands. Senders add packets before they
    /// list them, and subtract those without room; the token holder subtracts packets that have left. Read by senders.
    /// Relaxed: a bound that orders nothing.
    pub(super) len: A::AtomicU32,
    /// Held by a sender while it lists packets (the ring's `producer_lock`).
    pub(super) producers: SpinLock<A, ()>,
}

/// Maps a packet to its band. Written by the token holder ([`follow`](Rule::follow)), read by senders and owners. Relaxed: a
/// sender may use old values for a while, and the owner takes packets from any list.
pub(super) struct Rule<A: Arch> {
    /// The band of each priority modulo 16, four bits each; 0 if there are no bands.
    map: A::AtomicU64,
    /// Packets that a band holds.
    limit: A::AtomicU32,
    /// 1 if the qdisc has bands, so that a band's limit drops packets; else 0.
    nolock: A::AtomicU32,
}

impl<A: Arch> Lists<A> {
    pub(super) fn new() -> Self {
        let band = || {
            let (len, producers) = (A::AtomicU32::new(0), SpinLock::new(()));
            CachePadded::new(Band { list: LList::new(), len, producers })
        };
        let rule =
            Rule { map: A::AtomicU64::new(0), limit: A::AtomicU32::new(0), nolock: A::AtomicU32::new(0) };
        Self { bands: array::from_fn(|_| band()), rule: CachePadded::new(rule) }
    }

    /// Names its lines ([`Arch::name`]).
    pub(super) fn name_lines(&self) {
        A::name(&self.bands, "lockless: a band's list");
        A::name(&self.rule, "lockless: the bands' rule");
    }

    /// Pushes a batch onto the lists of its bands. Appends packets without room there to `refused`.
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
            let _held = band.producers.lock_at(Site::Enqueue);
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

/// Returns the bands of a core's qdisc. One that panics has none. The panic goes no further, so that the qdisc can be replaced.
pub(super) fn bands<A: Arch>(core: &Core<A>) -> Option<NoLock> {
    Panics::default().catch(|| core.qdisc.as_ref().and_then(|q| q.nolock())).flatten()
}

impl<A: Arch> Rule<A> {
    /// Sets the rule to that of the qdisc's bands. Senders may use the old one for a while: the owner takes packets from
    /// any list.
    pub(super) fn follow(&self, bands: Option<NoLock>, max_burst: u32) {
        let map = bands
            .as_ref()
            .map_or(0, |b| b.priomap.iter().rev().fold(0, |map, &band| map << 4 | u64::from(band)));
        self.map.store(map, Relaxed);
        self.limit.store(bands.as_ref().map_or(max_burst, |b| b.limit), Relaxed);
        self.nolock.store(bands.is_some().into(), Relaxed);
    }

    /// Returns half of a band's limit, in packets.
    pub(super) fn half(&self) -> usize {
        self.limit.load(Relaxed) as usize / 2
    }

    /// Whether the qdisc has bands, so that a band's limit drops packets.
    #[inline]
    pub(super) fn is_banded(&self) -> bool {
        self.nolock.load(Relaxed) != 0
    }
}
