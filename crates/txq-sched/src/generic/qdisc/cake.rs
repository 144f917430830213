//! cake: one qdisc with a shaper, tins (classes of service), fair queues for flows and hosts, and COBALT in each queue.
//!
//! A packet's DS field chooses a tin (`cake/tins.rs`); its addresses and ports choose a queue of the tin (`cake/hash.rs`).
//! The shaper paces packets by a virtual time that includes the bytes that the link adds to each packet (`cake/shaper.rs`),
//! so that packets queue here and not in a modem. The next tin is the one of highest priority that keeps to its share of
//! the rate, else the one that is closest to its share. Without a rate the tins take turns by bytes. Within a tin sparse
//! flows go first and the others take turns (`cake/flows.rs`). COBALT drops packets from standing queues, or marks them
//! (`cake/cobalt.rs`); the drop reasons are `QDISC_CONGESTED` and `CAKE_FLOOD`. Beyond the memory limit the longest queue
//! loses packets from its head, as `QDISC_OVERLIMIT`.
//!
//! A filter may choose the flow and the hosts instead: the minor number of its class is the flow and the major number both
//! hosts, from 1 to 1024 (`classid 3:5`). A priority that names a class of this qdisc chooses the tin by its minor number,
//! from 1 on; the mark does so as well (`fwmark`), and goes first.
//!
//! | option | default | meaning |
//! |---|---|---|
//! | `bandwidth RATE`, `unlimited` | `unlimited` | rate of the shaper; a bare number is in bit/s |
//! | `autorate-ingress` | off | sets the rate by the arrivals (`cake/autorate.rs`) |
//! | `rtt TIME` | 100 ms | usual round trip: COBALT's interval, and 20 times its target; a bare number is in us |
//! | `besteffort`, `diffserv3`, `diffserv4`, `diffserv8`, `precedence` | `diffserv3` | 1, 3, 4, 8 or 8 tins |
//! | `flowblind`, `srchost`, `dsthost`, `hosts`, `flows` | | packets that share a queue |
//! | `dual-srchost`, `dual-dsthost`, `triple-isolate` | `triple-isolate` | as `flows`, and hosts share fairly |
//! | `nat`, `nonat` | `nonat` | accepted and shown, without effect |
//! | `wash`, `nowash` | `nowash` | clears the DS field, except ECN, once it has chosen the tin |
//! | `split-gso`, `no-split-gso` | `split-gso` | cuts GSO packets into their segments |
//! | `ack-filter`, `ack-filter-aggressive`, `no-ack-filter` | `no-ack-filter` | drops needless ACKs (`cake/ack.rs`) |
//! | `memlimit SIZE` | by the rate | bytes queued at most, with 128 bytes more for each packet |
//! | `fwmark MASK` | 0 | bits of the mark that choose the tin; 0 for none |
//! | `overhead N` | 0, `raw` | bytes that the link adds to each network packet, -64 to 256 |
//! | `mpu N` | 0 | bytes of the link's shortest packet, 0 to 256 |
//! | `atm`, `ptm`, `noatm` | `noatm` | cells or code words of the link |
//! | `raw`, `conservative` | `raw` | whole frames, no overhead, `noatm`; or `overhead 48 atm` |
//! | `ingress`, `egress` | `egress` | `ingress` charges dropped packets for the link as well |
//!
//! `datacentre` is `rtt` 100 us, `lan` 1 ms, `metro` 10 ms, `regional` 30 ms, `internet` 100 ms, `oceanic` 300 ms,
//! `satellite` 1 s and `interplanetary` 1000 s. tc-cake(8) lists the names of links, such as `ethernet` and `docsis`; each
//! adds to `overhead`, and may set cells and `mpu`. The default memory limit is the bytes of four round trips at the rate,
//! and 4 MiB at least, but at most 10240 of the device's longest packets. Without a rate it is those 10240 packets.
//!
//! Example: `tc qdisc add root handle 1: cake bandwidth 50mbit diffserv4 docsis ack-filter`
//!
//! Source: Høiland-Jørgensen, Täht, Morton: "Piece of CAKE", IEEE LANMAN 2018; RFC 8289. The kernel's counterpart is
//! `sch_cake`. Differences:
//! - CoDel's law has an exact root (`codel/law.rs`). A queue gets its first signal when an interval is over, not at the
//!   second packet that waited too long (RFC 8289). Bulk turns are exact to 2^-16 byte, where the kernel rounds at random.
//! - A GSO packet that cannot be cut (`segment.rs`), or for whose segments there are no buffers, leaves whole with
//!   `split-gso` instead of being dropped. The shaper charges it segment by segment in any case.
//! - `nat` has no effect, because there is no connection tracking. A program that knows the translations can choose hosts
//!   and flows by a classifier of its own (`NetDev::add_classifier`).
//! - A packet takes its bytes and 128 more of the memory limit, and a packet without a flow hash gets one with a public
//!   key, as in fq_codel.
//! - After a change of the rate, packets are paced by the new rate from now on; nothing is sent as a burst. After a change
//!   of the overhead, queued packets are charged with the new one.
//! - Without a rate a tin's first packet waits for the tin's quantum.
//! - An empty flow leaves `sp_flows` and `tc class show` at its next turn; in Linux it stays for an interval. `tc class
//!   show` does not count the ACKs that the filter drops among a flow's drops.
//! - A smaller number of tins drops the packets of the tins that no longer exist. Each tin's counters stay in their column.

mod ack;
mod autorate;
mod classes;
mod classify;
mod cobalt;
mod counters;
mod drops;
mod flows;
mod hash;
mod longest;
pub(super) mod params;
mod rounds;
mod shaper;
pub(super) mod shared;
mod show;
mod tins;

use txq_core::arch::{Arch, Nanos};
use txq_core::drop::DropReason;
use txq_core::flow::public_hash;
use txq_core::packet::{Packet, PacketList};
use txq_core::stats::QdiscStats;

use crate::generic::filter::{Choice, Filters};
use crate::generic::qdisc::cake_mq;
use crate::generic::qdisc::child::Classes;
use crate::generic::qdisc::random::{Rng, seed};
use crate::generic::qdisc::segment::segment;
use crate::generic::qdisc::{Arrival, Budget, Built, Cx, Env, Full, Qdisc, Verdict};
use crate::tc::{Handle, Options, ParseError, Style, Words};

use autorate::Arrivals;
use counters::Sizes;
use flows::{MAX_CHARGE, Tin};
use hash::{Keys, QUEUES, Said};
use longest::Longest;
use params::{AckFilter, Params};
use shaper::{Pace, Shaper, fine};
use shared::Shared;

/// Bytes of the memory limit that a packet takes beyond its length.
const DESCRIPTOR: u64 = 128;

/// The smallest default memory limit of a qdisc with a rate, in bytes.
const MIN_MEMORY: u64 = 4 << 20;

/// The largest default memory limit, in packets of the device's longest length.
const MAX_PACKETS: u64 = 10 * 1024;

pub(super) struct Cake<A: Arch> {
    params: Params,
    handle: Handle,
    /// In the order in which tc shows them.
    tins: Vec<Tin<A>>,
    /// The lengths of the queues of all tins.
    longest: Longest,
    shaper: Shaper,
    /// Its part of the rate, below a cake_mq.
    shared: Option<Shared<A>>,
    /// The tin that has the turn, without a rate.
    turn: usize,
    /// Packets queued, and their bytes.
    len: usize,
    bytes: u64,
    memory_limit: u64,
    /// The most memory used so far.
    memory_most: u64,
    /// The device's longest packet, in bytes.
    mtu: u32,
    sizes: Sizes,
    arrivals: Arrivals,
    stats: QdiscStats,
    filters: Filters<A>,
    random: Rng,
    /// When the next packet may leave, if the last dequeue held it back.
    next: Option<Nanos>,
}

pub(super) fn build<A: Arch>(words: &mut Words<'_>, env: &Env) -> Result<Built<A>, ParseError> {
    let params = params::parse(words, Params::default())?;
    Ok(Built::Qdisc(Box::new(Cake::new(params, env, None))))
}

impl<A: Arch> Cake<A> {
    /// Returns an empty cake; below a cake_mq with its part of the rate.
    pub(super) fn new(params: Params, env: &Env, shared: Option<Shared<A>>) -> Self {
        let mut cake = Cake {
            params,
            handle: Handle::UNSPEC,
            tins: Vec::new(),
            longest: Longest::new(0),
            shaper: Shaper::default(),
            shared,
            turn: 0,
            len: 0,
            bytes: 0,
            memory_limit: 0,
            memory_most: 0,
            mtu: env.mtu,
            sizes: Sizes::NONE,
            arrivals: Arrivals::default(),
            stats: QdiscStats::default(),
            filters: Filters::new(),
            random: Rng::new(seed::<A>(env)),
            next: None,
        };
        cake.arrivals.estimate = cake.params.bandwidth;
        cake.configure();
        cake
    }

    /// Derives tins, rates and limits from the parameters. Tins beyond the new number must be empty.
    fn configure(&mut self) {
        let shares = tins::shares(&self.params, 0, self.mtu);
        self.tins.truncate(shares.len());
        for share in &shares[self.tins.len()..] {
            self.tins.push(Tin::new(*share));
        }
        self.longest = Longest::new(self.tins.len() * QUEUES);
        for (number, tin) in self.tins.iter().enumerate() {
            tin.sizes().enumerate().for_each(|(queue, size)| self.longest.set(number * QUEUES + queue, size));
        }
        self.turn = 0;
        self.set_rate(self.params.bandwidth);
    }

    /// Sets the shaper's rate, in bytes a second; 0 for none.
    fn set_rate(&mut self, rate: u64) {
        self.params.bandwidth = rate;
        let shares = tins::shares(&self.params, rate, self.mtu);
        self.tins.iter_mut().zip(shares).for_each(|(tin, share)| tin.share = share);
        let most = u64::from(self.mtu) * MAX_PACKETS;
        let fits = u128::from(rate) * u128::from(self.params.rtt) * 4 / 1_000_000;
        self.memory_limit = match (self.params.memlimit, rate) {
            (0, 0) => most,
            (0, _) => u64::try_from(fits).unwrap_or(u64::MAX).max(MIN_MEMORY).min(most),
            (memlimit, _) => memlimit.into(),
        };
        self.set_pace();
    }

    /// Sets the pace of the shaper and the tins: that of the rate, or of the cake's part of it.
    fn set_pace(&mut self) {
        let shared = self.shared.as_ref();
        let pace = |rate| Pace::new(shared.map_or(rate, |shared| shared.of(rate)));
        self.shaper.pace = pace(self.params.bandwidth);
        self.tins.iter_mut().for_each(|tin| tin.share.pace = pace(tin.share.rate));
    }

    /// Tells the cakes that share the rate whether this one has packets.
    fn note(&mut self, now: Nanos) {
        if let Some(shared) = &mut self.shared {
            shared.note(self.len > 0, now);
        }
    }

    /// Returns the bytes of the memory limit in use.
    fn memory(&self) -> u64 {
        self.bytes + self.len as u64 * DESCRIPTOR
    }

    /// Queues a packet without cutting it, and returns the verdict.
    fn queue(&mut self, mut packet: Packet<A>, cx: &mut Cx<'_, A>) -> Verdict {
        let now = cx.clock.now();
        let found = packet.dissect();
        if packet.hash() == 0 {
            packet.set_hash(public_hash(&found.keys));
        }
        let number = classify::tin_of(&self.params, self.handle, self.tins.len(), &packet, &found);
        let hash = packet.hash();
        let said = match self.filters.is_empty() {
            true => Said::default(),
            false => match self.filters.classify(&packet, cx.clock) {
                None => Said::default(),
                Some(Choice::Class(class)) => Said::of(class),
                Some(_) => {
                    self.stats.drops += 1;
                    cx.drop(packet, DropReason::QdiscDrop);
                    return Verdict::Drop;
                }
            },
        };
        if self.params.wash {
            classify::wash(&mut packet, &found);
            packet.set_hash(hash);
        }
        if packet.protocol_offsets().is_none() {
            packet.set_protocol_offsets(found.network_offset, found.transport_offset, found.ethertype);
        }
        let keys = Keys::new(self.params.flows, hash, &found.keys.hosts, said);
        let wire = self.params.link.wire(&packet);
        self.sizes.see(&wire);
        if self.params.autorate
            && let Some(rate) = self.arrivals.see(wire.bytes, now)
        {
            if self.shaper.pace.is_unlimited() {
                self.shaper.restart(now);
            }
            self.set_rate(rate);
        }
        if self.len == 0 {
            self.shaper.wake(now);
        }
        let tin = &mut self.tins[number];
        if tin.len == 0 {
            tin.next = tin.next.max(fine(now));
        }
        let index = tin.of(&keys);
        packet.set_queued(now);
        self.len += 1;
        self.bytes += packet.len() as u64;
        tin.push(index, packet, now);
        let own = number * QUEUES + index;
        self.longest.set(own, tin.size_of(index));
        if self.params.ack_filter != AckFilter::Off {
            self.filter(number, index, cx);
        }
        self.note(now);
        self.memory_most = self.memory_most.max(self.memory());
        if self.memory() > self.memory_limit && self.shed(own, now, cx) {
            return Verdict::Congested;
        }
        Verdict::Success
    }

    /// Returns the tin to dequeue from. At least one tin has packets.
    #[inline]
    fn choose(&mut self, now: Nanos) -> usize {
        if self.tins.len() == 1 {
            return 0;
        }
        if self.shaper.pace.is_unlimited() {
            loop {
                let tin = &mut self.tins[self.turn];
                if tin.len > 0 && tin.deficit > 0 {
                    return self.turn;
                }
                tin.deficit = if tin.len > 0 { tin.deficit + tin.share.weight } else { 0 };
                self.turn = (self.turn + 1) % self.tins.len();
            }
        }
        let now = fine(now);
        let order = self.params.diffserv.order().iter().rev();
        let waiting = || order.clone().copied().filter(|&number| self.tins[number].len > 0);
        waiting()
            .find(|&number| self.tins[number].next <= now)
            .or_else(|| waiting().min_by_key(|&number| self.tins[number].next))
            .unwrap_or(0)
    }

    /// Dequeues the next packet, if it may leave now. With `ingress`, the packets that COBALT drops on the way are charged
    /// to the shaper.
    fn take(&mut self, now: Nanos, cx: &mut Cx<'_, A>) -> Option<Packet<A>> {
        while self.len > 0 {
            if let Some(at) = self.shaper.wait(now) {
                self.stats.overlimits += 1;
                self.next = Some(at);
                return None;
            }
            let number = self.choose(now);
            let tin = &mut self.tins[number];
            let before = (tin.len, tin.bytes);
            let (link, ingress) = (self.params.link, self.params.ingress);
            let (mut dropped, mut lost) = (0, 0);
            let drop = |packet: Packet<A>, reason| {
                dropped += 1;
                if ingress {
                    lost += link.wire(&packet).bytes;
                }
                cx.drop(packet, reason);
            };
            let longest = &mut self.longest;
            let touched = |index, size| longest.set(number * QUEUES + index, size);
            let packet = tin.dequeue(&link, now, &mut self.random, touched, drop);
            tin.stats.drops += dropped;
            self.stats.drops += dropped;
            self.len -= before.0 - tin.len;
            self.bytes -= before.1 - tin.bytes;
            let used = lost + packet.as_ref().map_or(0, |&(_, bytes)| bytes);
            tin.next = tin.next.saturating_add(tin.share.pace.time(used));
            tin.deficit = tin.deficit.saturating_sub_unsigned(used.clamp(1, MAX_CHARGE));
            self.shaper.lost(lost);
            if let Some((packet, bytes)) = packet {
                self.shaper.sent(bytes);
                return Some(packet);
            }
        }
        None
    }

    /// Drops all packets of a tin as `QUEUE_PURGE`.
    fn purge(&mut self, number: usize, cx: &mut Cx<'_, A>) {
        let tin = &mut self.tins[number];
        self.len -= tin.len;
        self.bytes -= tin.bytes;
        tin.clear(|index, packet| {
            self.longest.set(number * QUEUES + index, 0);
            cx.drop(packet, DropReason::QueuePurge);
        });
    }
}

impl<A: Arch> Qdisc<A> for Cake<A> {
    fn kind(&self) -> &'static str {
        params::SYNTAX.kind
    }

    fn set_handle(&mut self, handle: Handle) {
        self.handle = handle;
    }

    fn enqueue(&mut self, packet: Packet<A>, cx: &mut Cx<'_, A>) -> Verdict {
        if !self.params.split_gso || packet.segs() == 1 {
            return self.queue(packet, cx);
        }
        let mut verdict = Verdict::Success;
        let mut segments = segment(packet, cx);
        while let Some(segment) = segments.pop_front() {
            if self.queue(segment, cx) != Verdict::Success {
                verdict = Verdict::Congested;
            }
        }
        verdict
    }

    fn dequeue_batch(&mut self, mut budget: Budget, out: &mut PacketList<A>, cx: &mut Cx<'_, A>) {
        let now = cx.clock.now();
        self.next = None;
        if self.shared.as_mut().is_some_and(|shared| shared.count(now)) {
            self.set_pace();
        }
        while budget.is_left() {
            let Some(packet) = self.take(now, cx) else { break };
            budget.send(packet, out, &mut self.stats);
        }
        self.note(now);
    }

    fn reset(&mut self, cx: &mut Cx<'_, A>) {
        (0..self.tins.len()).for_each(|number| self.purge(number, cx));
        self.shaper.reset();
        let now = cx.clock.now();
        self.note(now);
        self.next = None;
    }

    fn change(&mut self, words: &mut Words<'_>, _: &Env, cx: &mut Cx<'_, A>) -> Result<(), ParseError> {
        let params = params::parse(words, self.params)?;
        if self.shared.is_some() {
            cake_mq::check(&params)?;
        }
        let old = std::mem::replace(&mut self.params, params);
        if (old.link.raw, old.link.overhead) != (self.params.link.raw, self.params.link.overhead) {
            self.sizes = Sizes { offset: self.sizes.offset, ..Sizes::NONE };
        }
        let now = cx.clock.now();
        (self.params.diffserv.count()..self.tins.len()).for_each(|number| self.purge(number, cx));
        self.configure();
        // Queued packets are paced by the new rate from now on.
        self.shaper.restart(now);
        self.tins.iter_mut().for_each(|tin| tin.next = fine(now));
        self.shed(0, now, cx);
        Ok(())
    }

    fn room_for(&self, arrival: Arrival<'_, A>) -> Result<(), Full> {
        let arrival = if self.params.split_gso { arrival.cut() } else { arrival };
        let memory = self.memory() + arrival.bytes() + arrival.packets() as u64 * DESCRIPTOR;
        arrival.if_room(memory <= self.memory_limit, self.len)
    }

    fn qlen(&self) -> usize {
        self.len
    }

    fn stats(&self) -> QdiscStats {
        QdiscStats { backlog: self.bytes, qlen: self.len as u64, ..self.stats }
    }

    fn options(&self, style: Style) -> Options {
        show::options(&self.params, style)
    }

    fn xstats(&self, style: Style) -> Option<Options> {
        Some(show::xstats(self, style))
    }

    fn next_event(&self) -> Option<Nanos> {
        self.next
    }

    fn classes(&mut self) -> Option<&mut dyn Classes<A>> {
        Some(self)
    }

    fn filters(&mut self, class: u16) -> Option<&mut Filters<A>> {
        (class == 0).then_some(&mut self.filters)
    }
}

#[cfg(test)]
mod tests;
