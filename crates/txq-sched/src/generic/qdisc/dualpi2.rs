//! dualpi2: two coupled queues, one for traffic that keeps delays short by itself, one for the classic rest (RFC 9332).
//!
//! A packet of ECT(1) or CE joins the L queue, every other packet the C queue. A packet whose priority names a class of this
//! qdisc, or for which a filter names one, joins the L queue for class 1 and 2, and the C queue for every other; packets of
//! class 2 are never marked or dropped by the law. One base probability follows the delay of both queues (`law`). A packet of the C
//! queue is marked or dropped with the square of it, one of the L queue with `coupling_factor` times it, so that classic and
//! scalable senders get about the same rate. Packets of the L queue are also marked from the delay `step_thresh` on.
//!
//! The L queue goes first, but the C queue gets `classic_protection` percent of the bytes while both have packets. Marks replace
//! drops for ECN-capable packets. A packet that the law drops is a `QDISC_CONGESTED`, one beyond `limit` or `memlimit` a
//! `QDISC_OVERLIMIT`. Nothing is dropped or marked by probability while less than two of the longest packets wait.
//!
//! When the probability of the L queue would exceed 1, the senders do not respond. With `drop_on_overload` packets of both
//! queues are then dropped with the square of the base probability, whatever their ECN field. With `overflow` the base
//! probability ends there, and the queues grow to their limit.
//!
//! | option | default | meaning |
//! |---|---|---|
//! | `limit PACKETS` | 10000 | packets of both queues |
//! | `memlimit BYTES` | 10000 of the longest packets | bytes of both queues, with 128 bytes more for each packet; without units |
//! | `target TIME` | 15 ms | the delay that the C queue may have |
//! | `tupdate TIME` | 16 ms | how often the base probability is computed |
//! | `alpha HZ` | 0.16 | weight of the delay's distance from `target` |
//! | `beta HZ` | 3.2 | weight of the delay's change |
//! | `max_rtt TIME`, `typical_rtt TIME` | | compute the four values above for these round trips |
//! | `coupling_factor NUMBER` | 2 | 1 to 255 |
//! | `step_thresh TIME` or `PACKETS` | 1 ms | packets of the L queue are marked that waited longer, or with so many behind them (`5p`) |
//! | `min_qlen_step PACKETS` | 0 | the step holds for packets that arrive when the L queue, with them, is longer than this |
//! | `drop_on_overload`, `overflow` | `drop_on_overload` | see above |
//! | `drop_enqueue`, `drop_dequeue` | `drop_dequeue` | when the law decides about a packet |
//! | `l4s_ect`, `any_ect` | `l4s_ect` | `any_ect`: packets of ECT(0) join the L queue as well |
//! | `classic_protection PERCENT` | 10 | the least share of the C queue |
//! | `split_gso`, `no_split_gso` | `split_gso` | cuts GSO packets into their segments |
//!
//! A bare time is in microseconds. A 0 leaves a limit or a time as it is.
//!
//! ```text
//! tc qdisc add dev eth0 root dualpi2
//! tc qdisc add dev eth0 root dualpi2 max_rtt 5ms typical_rtt 1ms any_ect
//! ```
//!
//! Source: RFC 9332, appendix A.1, and tc-dualpi2(8) for words, defaults and output. The kernel's counterpart is `sch_dualpi2`
//! (Linux 6.17). No such kernel was there to compare with. Differences:
//! - tc's note about the values that `max_rtt` gives is left out.
//! - A packet takes its bytes and 128 more of `memlimit`, whatever the size of its buffer.
//! - A GSO packet that cannot be cut leaves whole.

mod law;
mod params;

use std::collections::VecDeque;

use txq_core::arch::{Arch, Nanos};
use txq_core::clock::Clock;
use txq_core::drop::DropReason;
use txq_core::packet::{Packet, PacketList};
use txq_core::stats::QdiscStats;

use crate::generic::filter::{Choice, Filters};
use crate::generic::qdisc::flows::DESCRIPTOR;
use crate::generic::qdisc::random::{Rng, seed};
use crate::generic::qdisc::segment::enqueue_segments;
use crate::generic::qdisc::{Arrival, Budget, Built, Cx, Env, Full, Qdisc, Verdict, ecn};
use crate::tc::{Handle, Options, ParseError, Style, Words, general_json};

use law::{Law, happens};
use params::{Params, Step};

/// Not ECN-capable.
const NOT_ECT: u8 = 0;

/// How a packet is treated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Class {
    /// In the C queue.
    Classic,
    /// In the L queue.
    Scalable,
    /// In the L queue, and not marked or dropped by the law.
    Exempt,
}

/// A queued packet.
struct Held<A: Arch> {
    packet: Packet<A>,
    at: Nanos,
    class: Class,
    /// Whether the step holds for it.
    step: bool,
}

/// Counters that tc shows.
#[derive(Debug, Clone, Copy, Default)]
struct Counts {
    in_classic: u32,
    in_scalable: u32,
    maxq: u32,
    ecn_mark: u32,
    step_mark: u32,
    max_memory: u64,
}

struct DualPi2<A: Arch> {
    params: Params,
    classic: VecDeque<Held<A>>,
    scalable: VecDeque<Held<A>>,
    /// Bytes of both queues.
    bytes: u64,
    law: Law,
    /// The turn while both queues have packets: above 0 the C queue's. In bytes times percent.
    credit: i64,
    mtu: u32,
    random: Rng,
    handle: Handle,
    filters: Filters<A>,
    stats: QdiscStats,
    counts: Counts,
}

pub(super) fn build<A: Arch>(words: &mut Words<'_>, env: &Env) -> Result<Built<A>, ParseError> {
    Ok(Built::Qdisc(Box::new(DualPi2::new(Params::new(env).changed(words)?, env))))
}

impl<A: Arch> DualPi2<A> {
    fn new(params: Params, env: &Env) -> Self {
        let mut qdisc = Self {
            params,
            classic: VecDeque::new(),
            scalable: VecDeque::new(),
            bytes: 0,
            law: Law::default(),
            credit: 0,
            mtu: env.mtu,
            random: Rng::new(seed::<A>(env)),
            handle: Handle::UNSPEC,
            filters: Filters::new(),
            stats: QdiscStats::default(),
            counts: Counts::default(),
        };
        qdisc.restart_turns();
        qdisc
    }

    fn len(&self) -> usize {
        self.classic.len() + self.scalable.len()
    }

    fn memory(&self) -> u64 {
        self.bytes + self.len() as u64 * DESCRIPTOR
    }

    /// Lets the L queue go first, by one of the longest packets.
    fn restart_turns(&mut self) {
        let protection = i64::from(self.params.protection);
        self.credit = i64::from(self.mtu) * (2 * protection - 100);
    }

    /// Makes the law's updates whose time has come.
    fn pass_time(&mut self, now: Nanos) {
        let (goal, oldest) = (self.params.goal(), self.oldest());
        self.law.pass_time(&goal, oldest, now);
    }

    /// Returns when the packet was queued that has waited longest.
    fn oldest(&self) -> Option<Nanos> {
        self.classic.front().into_iter().chain(self.scalable.front()).map(|held| held.at).min()
    }

    /// Returns the packet's class; `None` if a filter drops it.
    fn class(&self, packet: &Packet<A>, clock: &mut Clock<A>) -> Option<Class> {
        let by_minor = |class: Handle| match class.minor() {
            1 => Class::Scalable,
            2 => Class::Exempt,
            _ => Class::Classic,
        };
        let class = Handle(packet.priority());
        if self.handle != Handle::UNSPEC && class.major() == self.handle.major() {
            return Some(by_minor(class));
        }
        match self.filters.classify(packet, clock) {
            Some(Choice::Class(class)) => Some(by_minor(class)),
            Some(_) => None,
            None => Some(match (ecn::field(packet), self.params.any_ect) {
                (1 | 3, _) | (2, true) => Class::Scalable,
                _ => Class::Classic,
            }),
        }
    }

    /// Marks a packet, if it is ECN-capable.
    fn mark(&mut self, packet: &mut Packet<A>) {
        let marked = ecn::set_ce(packet);
        self.counts.ecn_mark = self.counts.ecn_mark.wrapping_add(u32::from(marked));
    }

    /// Applies the law to a packet: marks it, or returns true if it is to be dropped.
    fn drops(&mut self, packet: &mut Packet<A>, class: Class) -> bool {
        if self.bytes < 2 * u64::from(self.mtu) || class == Class::Exempt {
            return false;
        }
        let base = self.law.prob;
        let coupled = base * f64::from(self.params.coupling);
        let random = &mut self.random;
        let overload = self.params.drop_overload && coupled > 1.0;
        if class == Class::Classic || overload {
            let hit = happens(base, random) && happens(base, random);
            if hit && (overload || ecn::field(packet) == NOT_ECT) {
                return true;
            }
            if !hit && class == Class::Classic {
                return false;
            }
        } else if !happens(coupled, random) {
            return false;
        } else if ecn::field(packet) == NOT_ECT {
            return true;
        }
        self.mark(packet);
        false
    }

    /// Applies the step to a packet that was taken from the L queue: marks it, or returns true if it is to be dropped.
    fn drops_at_step(&mut self, held: &mut Held<A>, now: Nanos) -> bool {
        let is_over = match self.params.step {
            Step::Time(limit) => now.saturating_sub(held.at) > Nanos::from(limit.0) * 1000,
            Step::Packets(limit) => self.scalable.len() >= limit as usize,
        };
        if !is_over || !held.step || held.class == Class::Exempt || ecn::field(&held.packet) == 3 {
            return false;
        }
        let marked = ecn::set_ce(&mut held.packet);
        self.counts.step_mark = self.counts.step_mark.wrapping_add(u32::from(marked));
        !marked
    }

    /// Takes the next packet.
    fn next(&mut self) -> Option<Held<A>> {
        let is_scalable = match (self.classic.is_empty(), self.scalable.is_empty()) {
            (true, true) => {
                self.restart_turns();
                return None;
            }
            (false, false) => self.credit <= 0,
            (_, is_empty) => !is_empty,
        };
        let (queue, other) = match is_scalable {
            true => (&mut self.scalable, &self.classic),
            false => (&mut self.classic, &self.scalable),
        };
        let held = queue.pop_front()?;
        let len = held.packet.len() as i64;
        if !other.is_empty() {
            let protection = i64::from(self.params.protection);
            self.credit += if is_scalable { protection * len } else { (protection - 100) * len };
        }
        self.bytes -= len as u64;
        Some(held)
    }

    fn drop(&mut self, packet: Packet<A>, reason: DropReason, cx: &mut Cx<'_, A>) -> Verdict {
        self.stats.drops += 1;
        cx.drop(packet, reason);
        Verdict::Drop
    }

    /// Queues or drops a packet that is not cut.
    fn queue(&mut self, mut packet: Packet<A>, cx: &mut Cx<'_, A>) -> Verdict {
        let Some(class) = self.class(&packet, cx.clock) else {
            return self.drop(packet, DropReason::QdiscDrop, cx);
        };
        let now = cx.clock.now();
        self.pass_time(now);
        let memory = self.memory() + packet.len() as u64 + DESCRIPTOR;
        if self.len() >= self.params.limit as usize || memory > self.params.memory_limit.into() {
            self.stats.overlimits += 1;
            return self.drop(packet, DropReason::QdiscOverlimit, cx);
        }
        if self.params.drop_enqueue && self.drops(&mut packet, class) {
            return self.drop(packet, DropReason::QdiscCongested, cx);
        }
        self.bytes += packet.len() as u64;
        let mut held = Held { packet, at: now, class, step: false };
        let counts = &mut self.counts;
        if class == Class::Classic {
            counts.in_classic = counts.in_classic.wrapping_add(1);
            self.classic.push_back(held);
        } else {
            counts.in_scalable = counts.in_scalable.wrapping_add(1);
            held.step = self.scalable.len() + 1 > self.params.min_qlen_step as usize;
            self.scalable.push_back(held);
        }
        self.counts.maxq = self.counts.maxq.max(self.len() as u32);
        self.counts.max_memory = self.counts.max_memory.max(self.memory());
        Verdict::Success
    }
}

impl<A: Arch> Qdisc<A> for DualPi2<A> {
    fn kind(&self) -> &'static str {
        params::SYNTAX.kind
    }

    fn set_handle(&mut self, handle: Handle) {
        self.handle = handle;
    }

    fn filters(&mut self, class: u16) -> Option<&mut Filters<A>> {
        (class == 0).then_some(&mut self.filters)
    }

    fn enqueue(&mut self, packet: Packet<A>, cx: &mut Cx<'_, A>) -> Verdict {
        if self.params.split_gso && packet.segs() > 1 {
            return enqueue_segments(packet, cx, |segment, cx| self.queue(segment, cx));
        }
        self.queue(packet, cx)
    }

    fn dequeue_batch(&mut self, mut budget: Budget, out: &mut PacketList<A>, cx: &mut Cx<'_, A>) {
        let now = cx.clock.now();
        self.pass_time(now);
        while budget.is_left() {
            let Some(mut held) = self.next() else { return };
            let by_law = !self.params.drop_enqueue && self.drops(&mut held.packet, held.class);
            if by_law || (held.class != Class::Classic && self.drops_at_step(&mut held, now)) {
                let _ = self.drop(held.packet, DropReason::QdiscCongested, cx);
                continue;
            }
            budget.send(held.packet, out, &mut self.stats);
        }
    }

    fn reset(&mut self, cx: &mut Cx<'_, A>) {
        for held in self.classic.drain(..).chain(self.scalable.drain(..)) {
            cx.drop(held.packet, DropReason::QueuePurge);
        }
        self.bytes = 0;
        self.law = Law::default();
        self.restart_turns();
    }

    /// Drops the oldest packets beyond a smaller limit, those of the C queue first.
    fn change(&mut self, words: &mut Words<'_>, _: &Env, cx: &mut Cx<'_, A>) -> Result<(), ParseError> {
        self.params = self.params.changed(words)?;
        self.restart_turns();
        while self.len() > self.params.limit as usize || self.memory() > self.params.memory_limit.into() {
            let Some(held) = self.classic.pop_front().or_else(|| self.scalable.pop_front()) else { break };
            self.bytes -= held.packet.len() as u64;
            let _ = self.drop(held.packet, DropReason::QdiscOverlimit, cx);
        }
        Ok(())
    }

    fn room_for(&self, arrival: Arrival<'_, A>) -> Result<(), Full> {
        let arrival = if self.params.split_gso { arrival.cut() } else { arrival };
        let memory = self.memory() + arrival.bytes() + arrival.packets() as u64 * DESCRIPTOR;
        arrival.within(self.len(), self.params.limit as usize)?;
        arrival.if_room(memory <= self.params.memory_limit.into(), self.len())
    }

    fn qlen(&self) -> usize {
        self.len()
    }

    fn limit(&self) -> Option<usize> {
        Some(self.params.limit as usize)
    }

    fn stats(&self) -> QdiscStats {
        QdiscStats { backlog: self.bytes, qlen: self.len() as u64, ..self.stats }
    }

    fn options(&self, style: Style) -> Options {
        self.params.show(style)
    }

    fn xstats(&self, style: Style) -> Option<Options> {
        Some(self.xstats_at(A::now(), style))
    }
}

impl<A: Arch> DualPi2<A> {
    fn xstats_at(&self, now: Nanos, style: Style) -> Options {
        let mut law = self.law;
        law.pass_time(&self.params.goal(), self.oldest(), now);
        let delay = |queue: &VecDeque<Held<A>>| {
            queue.front().map_or(0, |held| now.saturating_sub(held.at) / 1000).min(u32::MAX.into())
        };
        let (classic, scalable) = (delay(&self.classic), delay(&self.scalable));
        let Counts { in_classic, in_scalable, maxq, ecn_mark, step_mark, max_memory } = self.counts;
        let (memory, limit, credit) = (self.memory(), self.params.memory_limit, self.credit);
        let mut options = Options::new(style);
        options.put("prob", general_json(law.prob), format_args!("prob {:.6}", law.prob));
        options.put("delay-c", classic, format_args!("delay_c {classic}us"));
        options.put("delay-l", scalable, format_args!("delay_l {scalable}us"));
        options.put("pkts-in-c", in_classic, format_args!("\npkts_in_c {in_classic}"));
        options.put("pkts-in-l", in_scalable, format_args!("pkts_in_l {in_scalable}"));
        options.put("maxq", maxq, format_args!("maxq {maxq}"));
        options.put("ecn-mark", ecn_mark, format_args!("\necn_mark {ecn_mark}"));
        options.put("step-mark", step_mark, format_args!("step_mark {step_mark}"));
        let queue = if credit > 0 { "C-queue" } else { "L-queue" };
        options.put("credit", credit, format_args!("\ncredit {credit} ({queue})"));
        options.put("memory-used", memory, format_args!("\nmemory_used {memory}"));
        options.put("max-memory-used", max_memory, format_args!("(max {max_memory})"));
        options.put("memory-limit", limit, format_args!("of memory limit {limit}"));
        // tc ends these lines with one that is empty.
        options.text_only("\n");
        options
    }
}

#[cfg(test)]
mod tests;
