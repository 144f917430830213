//! sfq: stochastic fairness queueing. Flows share the device by turns; a flow's queue is chosen by a hash.
//!
//! A packet's hash chooses one of `divisor` buckets, and a bucket in use has a queue. The queues take turns of `quantum`
//! bytes. Two flows in one bucket share its turns; with `perturb` the hash changes after so many seconds, and queued packets
//! move to the queues of the new hash.
//!
//! A packet whose priority names a class of this qdisc (`major:minor`, from 1 to `divisor`) belongs to the bucket of that
//! number. If there are filters, they choose the bucket of every other packet; a packet that no filter matches is dropped as
//! `QDISC_DROP`.
//!
//! Beyond `limit` packets the longest queue loses its last packet as `QDISC_OVERLIMIT`: the verdict is
//! [`Verdict::Congested`] if it was the packet's own queue. A packet for a queue with `depth` packets, or for a new queue
//! beyond `flows`, is refused.
//!
//! | option | default | meaning |
//! |---|---|---|
//! | `limit NUMBER` | 127 | packets of all flows, at least 2; at most `depth` times `flows` |
//! | `depth NUMBER` | 127 | packets of each flow, at most 127 |
//! | `flows NUMBER` | 128 | flows with packets, at most 65408 and at most `limit` |
//! | `divisor NUMBER` | 1024 | buckets: a power of two, up to 65536 |
//! | `quantum BYTES` | the device's longest packet | bytes of a flow in each turn |
//! | `perturb SECONDS` | 0 | changes the hash after so many seconds |
//! | `headdrop` | | drops a queue's first packet instead of its last |
//! | `redflowlimit BYTES` | no RED | turns RED on for each flow (as for red) |
//! | `max BYTES` | `redflowlimit` / 4 | from this average length of a flow on, its packets are dropped or marked |
//! | `min BYTES` | `max` / 3 | up to this average length, none is |
//! | `avpkt BYTES`, `burst PACKETS`, `probability P` | 1000, (2 `min` + `max`) / (3 `avpkt`), 0.02 | as for red |
//! | `ecn`, `harddrop` | | marks packets of ECN-capable flows; but drops them from `max` on |
//!
//! A 0 stands for the default. The options cannot be changed (`tc qdisc change`): replace the qdisc instead.
//!
//! Example: `tc qdisc add root handle 1: sfq perturb 10`
//!
//! Source: McKenney, "Stochastic Fairness Queueing" (1990); Shreedhar and Varghese's DRR for the turns. The kernel's
//! counterpart is `sch_sfq`. Differences:
//! - The first hash has a public key without `perturb`, and a secret one with it. A program whose flows strangers choose sets
//!   the hashes by a [`FlowHasher`](txq_core::flow::FlowHasher) with a secret key.
//! - The hash changes at the first packet after its time, not by a timer.
//! - Turns are counted in single bytes, not in units of 8.
//! - `tc class show` lists the queues only if there are filters, which name them.
//! - As in Linux, `redflowlimit` has no effect of its own beyond the default of `max`.

mod params;
mod slots;

use txq_core::arch::{Arch, Nanos};
use txq_core::clock::Clock;
use txq_core::drop::DropReason;
use txq_core::flow::public_hash;
use txq_core::packet::{Packet, PacketList};
use txq_core::stats::QdiscStats;

use crate::generic::filter::Filters;
use crate::generic::qdisc::bypass::bypass_one_by_one;
use crate::generic::qdisc::child::{Child, Classes, Total};
use crate::generic::qdisc::noop::Noop;
use crate::generic::qdisc::random::{Rng, seed};
use crate::generic::qdisc::red::law::{Curve, Decision};
use crate::generic::qdisc::{Arrival, Budget, Built, Cx, Env, Full, Qdisc, Verdict, ecn};
use crate::tc::{ClassInfo, Handle, Options, ParseError, Size, Style, Words};

use params::Params;
use slots::Slots;

/// Counters of RED, which tc shows.
#[derive(Debug, Clone, Copy, Default)]
struct RedCounts {
    prob_mark: u64,
    prob_mark_head: u64,
    prob_drop: u64,
    forced_mark: u64,
    forced_mark_head: u64,
    forced_drop: u64,
}

struct Sfq<A: Arch> {
    params: Params,
    slots: Slots<A>,
    handle: Handle,
    filters: Filters<A>,
    random: Rng,
    /// The key of the hash.
    key: u32,
    /// When the hash changes, if it does.
    rehash_at: Option<Nanos>,
    stats: QdiscStats,
    counts: RedCounts,
    env: Env,
}

pub(super) fn build<A: Arch>(words: &mut Words<'_>, env: &Env) -> Result<Built<A>, ParseError> {
    let params = Params::parse(words, env)?;
    let mut random =
        Rng::new(if params.period().is_some() || params.red.is_some() { seed::<A>(env) } else { 0 });
    let key = if params.period().is_some() { random.next() } else { 0 };
    Ok(Built::Qdisc(Box::new(Sfq {
        params,
        slots: Slots::new(params.divisor, params.depth),
        handle: Handle::UNSPEC,
        filters: Filters::new(),
        random,
        key,
        rehash_at: None,
        stats: QdiscStats::default(),
        counts: RedCounts::default(),
        env: *env,
    })))
}

impl<A: Arch> Sfq<A> {
    /// Returns the packet's bucket; `None` if there are filters and none of them chooses one.
    fn bucket_of(&self, packet: &mut Packet<A>, clock: &mut Clock<A>) -> Option<u32> {
        let chosen = self.chosen(packet.priority(), |filters| filters.class_of(packet, clock));
        chosen.unwrap_or_else(|| Some(self.hash(packet)))
    }

    /// Returns the bucket that the priority names, or the filters choose, if they choose one; `None` if the hash decides. `choose`
    /// asks the filters.
    fn chosen(
        &self,
        priority: u32,
        choose: impl FnOnce(&Filters<A>) -> Option<Handle>,
    ) -> Option<Option<u32>> {
        let class = Handle(priority);
        let own = class.major() == self.handle.major() && self.handle != Handle::UNSPEC;
        if let Some(bucket) = self.bucket_of_class(class).filter(|_| own) {
            return Some(Some(bucket));
        }
        if self.filters.is_empty() {
            return None;
        }
        Some(choose(&self.filters).and_then(|class| self.bucket_of_class(class)))
    }

    /// Returns the bucket that a class's minor number names, if there is one.
    fn bucket_of_class(&self, class: Handle) -> Option<u32> {
        u32::from(class.minor()).checked_sub(1).filter(|&bucket| bucket < self.params.divisor)
    }

    /// Returns the bucket of a packet's hash under the present key.
    fn hash(&self, packet: &mut Packet<A>) -> u32 {
        packet.set_hash(hash_of(packet));
        self.bucket_of_hash(packet.hash())
    }

    fn bucket_of_hash(&self, hash: u32) -> u32 {
        let mixed = Rng::new(u64::from(self.key) << 32 | u64::from(hash)).next();
        mixed & (self.params.divisor - 1)
    }

    /// Changes the hash if its time has come: moves all packets to the queues of the new one.
    fn perturb(&mut self, cx: &mut Cx<'_, A>) {
        let Some(period) = self.params.period() else { return };
        let now = cx.clock.now();
        let at = *self.rehash_at.get_or_insert(now.saturating_add(period));
        if now < at {
            return;
        }
        self.rehash_at = Some(now.saturating_add(period));
        self.key = self.random.next();
        if !self.filters.is_empty() {
            return;
        }
        for mut packet in self.slots.take_all() {
            let bucket = self.hash(&mut packet);
            match self.slot(bucket) {
                Some(id) if self.slots.get(id).queue.len() < self.params.depth as usize => {
                    self.slots.push(id, packet, self.params.quantum);
                }
                _ => self.drop(packet, DropReason::QdiscOverlimit, cx),
            }
        }
    }

    /// Returns the slot of a bucket, or a new one; `None` if there are too many flows.
    fn slot(&mut self, bucket: u32) -> Option<u32> {
        if let Some(id) = self.slots.find(bucket) {
            return Some(id);
        }
        let curve = self.params.red.map_or(NO_CURVE, |red| red.curve);
        (self.slots.flows() < self.params.flows as usize).then(|| self.slots.open(bucket, &curve))
    }

    fn drop(&mut self, packet: Packet<A>, reason: DropReason, cx: &mut Cx<'_, A>) {
        self.stats.drops += 1;
        cx.drop(packet, reason);
    }

    /// Refuses a packet for a queue: drops it, or with `headdrop` the first packet of the queue in its place.
    fn refuse(&mut self, id: u32, packet: Packet<A>, reason: DropReason, cx: &mut Cx<'_, A>) -> Verdict {
        let first = if self.params.headdrop { self.slots.pop(id, true) } else { None };
        let Some(first) = first else {
            self.drop(packet, reason, cx);
            return Verdict::Drop;
        };
        let bucket = self.slots.get(id).bucket();
        self.drop(first, reason, cx);
        let curve = self.params.red.map_or(NO_CURVE, |red| red.curve);
        // The queue gave its slot up if that was its only packet.
        let id = self.slots.find(bucket).unwrap_or_else(|| self.slots.open(bucket, &curve));
        self.slots.push(id, packet, self.params.quantum);
        Verdict::Congested
    }

    /// Lets RED decide about a packet for a queue. Returns whether the packet may be queued.
    fn pass_red(&mut self, id: u32, packet: &mut Packet<A>, cx: &mut Cx<'_, A>) -> bool {
        let Some(red) = &self.params.red else { return true };
        let slot = self.slots.get_mut(id);
        slot.average.update(&red.curve, slot.bytes, cx.clock.now());
        let decision = slot.average.decide(&red.curve, &mut self.random);
        let forced = match decision {
            Decision::Pass => return true,
            Decision::Early => false,
            Decision::Forced => true,
        };
        self.stats.overlimits += 1;
        let may_mark = red.ecn && !(forced && red.harddrop);
        let counts = &mut self.counts;
        let (mark, mark_head, dropped) = match forced {
            false => (&mut counts.prob_mark, &mut counts.prob_mark_head, &mut counts.prob_drop),
            true => (&mut counts.forced_mark, &mut counts.forced_mark_head, &mut counts.forced_drop),
        };
        if may_mark && self.params.headdrop && slot.queue.front_mut().is_some_and(ecn::set_ce) {
            *mark_head += 1;
            return true;
        }
        if may_mark && ecn::set_ce(packet) {
            *mark += 1;
            return true;
        }
        *dropped += 1;
        false
    }

    /// Drops a packet of the longest queue.
    #[cold]
    fn shed(&mut self, cx: &mut Cx<'_, A>) {
        let Some(id) = self.slots.fattest() else { return };
        if let Some(packet) = self.slots.pop(id, self.params.headdrop) {
            self.drop(packet, DropReason::QdiscOverlimit, cx);
        }
    }
}

/// Returns the packet's hash, computed if it is not set.
fn hash_of<A: Arch>(packet: &Packet<A>) -> u32 {
    match packet.hash() {
        0 => public_hash(&packet.dissect().keys),
        hash => hash,
    }
}

/// The curve of slots without RED, which is never asked.
const NO_CURVE: Curve = Curve { min: 0, max: 0, ewma: 1, probability: 0, packet_time: 0, adaptive: false };

impl<A: Arch> Qdisc<A> for Sfq<A> {
    fn kind(&self) -> &'static str {
        params::SYNTAX.kind
    }

    fn set_handle(&mut self, handle: Handle) {
        self.handle = handle;
    }

    fn filters(&mut self, class: u16) -> Option<&mut Filters<A>> {
        (class == 0).then_some(&mut self.filters)
    }

    fn enqueue(&mut self, mut packet: Packet<A>, cx: &mut Cx<'_, A>) -> Verdict {
        self.perturb(cx);
        let Some(bucket) = self.bucket_of(&mut packet, cx.clock) else {
            self.drop(packet, DropReason::QdiscDrop, cx);
            return Verdict::Success;
        };
        let Some(id) = self.slot(bucket) else {
            self.drop(packet, DropReason::QdiscOverlimit, cx);
            return Verdict::Drop;
        };
        if !self.pass_red(id, &mut packet, cx) {
            return self.refuse(id, packet, DropReason::QdiscCongested, cx);
        }
        if self.slots.get(id).queue.len() >= self.params.depth as usize {
            return self.refuse(id, packet, DropReason::QdiscOverlimit, cx);
        }
        self.slots.push(id, packet, self.params.quantum);
        if self.slots.len() <= self.params.limit as usize {
            return Verdict::Success;
        }
        let before = self.slots.get(id).queue.len();
        self.shed(cx);
        match self.slots.get(id).queue.len() == before {
            true => Verdict::Success,
            false => Verdict::Congested,
        }
    }

    fn dequeue_batch(&mut self, mut budget: Budget, out: &mut PacketList<A>, cx: &mut Cx<'_, A>) {
        self.perturb(cx);
        while budget.is_left() {
            let Some(id) = self.slots.turn(self.params.quantum) else { return };
            let Some(packet) = self.slots.pop(id, true) else { return };
            self.slots.get_mut(id).allot -= packet.len() as i64;
            budget.send(packet, out, &mut self.stats);
        }
    }

    fn reset(&mut self, cx: &mut Cx<'_, A>) {
        for packet in self.slots.take_all() {
            cx.drop(packet, DropReason::QueuePurge);
        }
    }

    /// Accepts a change without options; others are refused, as in Linux, after an error in the words.
    fn change(&mut self, words: &mut Words<'_>, _: &Env, _: &mut Cx<'_, A>) -> Result<(), ParseError> {
        let any = words.peek().is_some();
        let is_kernels = |error: &ParseError| {
            ["RTNETLINK", "Error: sch_sfq"].iter().any(|start| error.message().starts_with(start))
        };
        match Params::parse(words, &self.env) {
            Err(error) if !is_kernels(&error) => Err(error),
            _ if !any => Ok(()),
            _ => Err(ParseError::new("Error: Change operation not supported by specified qdisc.")
                .with_remedy("replace it instead")),
        }
    }

    fn room_for(&self, arrival: Arrival<'_, A>) -> Result<(), Full> {
        arrival.within(self.slots.len(), self.params.limit as usize)?;
        let chosen = self.chosen(arrival.packet.priority(), |filters| {
            filters.foresee_class(arrival.packet, arrival.clock)
        });
        let bucket = chosen.unwrap_or_else(|| Some(self.bucket_of_hash(hash_of(arrival.packet))));
        match bucket.map(|bucket| self.slots.find(bucket)) {
            // A filter drops it.
            None => Ok(()),
            Some(Some(id)) => arrival.within(self.slots.get(id).queue.len(), self.params.depth as usize),
            Some(None) => {
                // Those before it may be of the same flow.
                arrival.if_room(arrival.packets() <= self.params.depth as usize, self.slots.len())?;
                let flows = self.slots.flows() + arrival.packets();
                arrival.if_room(flows <= self.params.flows as usize, self.slots.len())
            }
        }
    }

    fn qlen(&self) -> usize {
        self.slots.len()
    }

    fn limit(&self) -> Option<usize> {
        Some(self.params.limit as usize)
    }

    fn stats(&self) -> QdiscStats {
        QdiscStats { backlog: self.slots.bytes(), qlen: self.slots.len() as u64, ..self.stats }
    }

    fn options(&self, style: Style) -> Options {
        self.params.options(style, |options| {
            let RedCounts { prob_mark, prob_mark_head, prob_drop, .. } = self.counts;
            let RedCounts { forced_mark, forced_mark_head, forced_drop, .. } = self.counts;
            options.put("prob_mark", prob_mark, format_args!("\n  prob_mark {prob_mark}"));
            options.number("prob_mark_head", prob_mark_head).number("prob_drop", prob_drop);
            options.put("forced_mark", forced_mark, format_args!("\n  forced_mark {forced_mark}"));
            options.number("forced_mark_head", forced_mark_head).number("forced_drop", forced_drop);
        })
    }

    fn can_bypass(&self) -> bool {
        self.filters.is_empty() && self.params.red.is_none()
    }

    fn bypassed(&mut self, packets: u64, bytes: u64) {
        self.stats.count_sent(packets, bytes);
    }

    fn bypass(&mut self, batch: &PacketList<A>) -> bool {
        bypass_one_by_one(self, batch)
    }

    fn classes(&mut self) -> Option<&mut dyn Classes<A>> {
        Some(self)
    }
}

/// The queues as classes, which no command can name.
impl<A: Arch> Classes<A> for Sfq<A> {
    fn minors(&mut self) -> Vec<u16> {
        if self.filters.is_empty() {
            return Vec::new();
        }
        self.slots.buckets().into_iter().filter_map(|bucket| u16::try_from(bucket + 1).ok()).collect()
    }

    fn find(&mut self, _: u16) -> Option<u16> {
        None
    }

    fn has_leaves(&self) -> bool {
        false
    }

    fn leaf(&mut self, _: u16) -> Option<(&mut Child<A>, &mut Total)> {
        None
    }

    fn default_leaf(&mut self, _: u16) -> Box<dyn Qdisc<A>> {
        Box::new(Noop)
    }

    fn class(&mut self, minor: u16, style: Style) -> ClassInfo {
        let slot = self.slots.find(u32::from(minor) - 1).map(|id| self.slots.get(id));
        let (qlen, bytes, allot) = slot.map_or((0, 0, 0), |slot| (slot.queue.len(), slot.bytes, slot.allot));
        let backlog = Size(u32::try_from(bytes).unwrap_or(u32::MAX));
        // A queue counts no packets that left, so its counters lack tc's `Sent`.
        let mut xstats = Options::new(style);
        xstats.text_only(" (dropped 0, overlimits 0 requeues 0) ");
        for counter in ["drops", "overlimits", "requeues"] {
            xstats.json_only(counter, 0);
        }
        xstats.put("backlog", bytes, format_args!("\n backlog {backlog} {qlen}p requeues 0"));
        xstats.json_only("qlen", qlen).put("allot", allot, format_args!("\n  allot {allot}"));
        ClassInfo {
            rate: None,
            kind: params::SYNTAX.kind.to_owned(),
            handle: Handle::new(0, minor),
            parent: Handle::UNSPEC,
            leaf: Handle::UNSPEC,
            options: Options::new(style),
            stats: None,
            xstats: Some(xstats),
        }
    }
}

#[cfg(test)]
mod tests;
