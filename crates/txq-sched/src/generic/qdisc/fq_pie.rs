//! fq_pie: a queue for each flow, served in turns, with PIE in each queue (RFC 8033, and the turns of RFC 8290).
//!
//! A packet joins the queue that its hash chooses. The queues are served by deficit round robin, `quantum` bytes in each round.
//! A queue that was empty goes before those that were not. Each queue has a probability of its own, which follows the queue's
//! delay as in [`pie`](super::pie), and is applied when a packet arrives. A packet dropped by it is a `QDISC_CONGESTED`. One
//! that finds `limit` packets or `memory_limit` bytes queued is a `QDISC_OVERLIMIT`. The verdict on either is
//! [`Verdict::Congested`].
//!
//! | option | default | meaning |
//! |---|---|---|
//! | `limit PACKETS` | 10240 | packets of all queues |
//! | `flows NUMBER` | 1024 | queues, 1 to 65536; cannot be changed |
//! | `target TIME` | 15 ms | the delay that a queue may have |
//! | `tupdate TIME` | 15 ms | how often a probability is computed, at least 1 ms |
//! | `alpha NUMBER` | 2 | weight of the delay's distance from `target`, 1 to 32, in sixteenths |
//! | `beta NUMBER` | 20 | weight of the delay's change, 1 to 32, in sixteenths |
//! | `quantum BYTES` | the device's longest packet | bytes of a queue in each round |
//! | `memory_limit SIZE` | 32 MiB | bytes of all queues, with 128 bytes more for each packet |
//! | `ecn_prob PERCENT` | 10 | with `ecn`: up to this probability packets are marked, beyond it dropped |
//! | `ecn`, `noecn` | `noecn` | marks ECN-capable packets instead of dropping them |
//! | `bytemode`, `nobytemode` | `nobytemode` | drops long packets with a higher probability than short ones |
//! | `dq_rate_estimator`, `no_dq_rate_estimator` | off | computes the delay from the measured rate, not from times of packets |
//!
//! A bare time is in microseconds. A 0 leaves a value as it is, as in tc.
//!
//! Example: `tc qdisc add root handle 1: fq_pie limit 5000 target 10ms ecn`
//!
//! Source: RFC 8033, tc-fq_pie(8). The kernel's counterpart is `sch_fq_pie`. Differences, beside those of pie:
//! - A packet beyond `memory_limit` is dropped. Linux counts it in `overmemory` and queues it.
//! - A packet takes its bytes and 128 more of `memory_limit`, whatever the size of its buffer.
//! - A smaller limit drops packets from the longest queues. Linux dequeues them, counts them as sent, and drops them.

mod params;

use txq_core::arch::{Arch, Nanos};
use txq_core::drop::DropReason;
use txq_core::packet::{Packet, PacketList};
use txq_core::stats::QdiscStats;

use crate::generic::qdisc::codel::law::Queue;
use crate::generic::qdisc::flows::Flows;
use crate::generic::qdisc::fq_codel::hash;
use crate::generic::qdisc::pie::law::{Law, MAX};
use crate::generic::qdisc::random::{Rng, seed};
use crate::generic::qdisc::{Arrival, Budget, Built, Cx, Env, Full, Qdisc, Verdict, ecn};
use crate::tc::{Options, ParseError, Style, Words};

use params::Params;

/// Counters that tc shows.
#[derive(Debug, Clone, Copy, Default)]
struct Counts {
    packets_in: u32,
    overlimit: u32,
    overmemory: u32,
    dropped: u32,
    ecn_mark: u32,
}

struct FqPie<A: Arch> {
    flows: Flows<A, Law>,
    params: Params,
    random: Rng,
    stats: QdiscStats,
    counts: Counts,
}

pub(super) fn build<A: Arch>(words: &mut Words<'_>, env: &Env) -> Result<Built<A>, ParseError> {
    let (params, flows) = params::parse(words, env)?;
    Ok(Built::Qdisc(Box::new(FqPie {
        flows: Flows::new(flows),
        params,
        random: Rng::new(seed::<A>(env)),
        stats: QdiscStats::default(),
        counts: Counts::default(),
    })))
}

impl<A: Arch> FqPie<A> {
    fn drop(&mut self, flow: usize, packet: Packet<A>, reason: DropReason, cx: &mut Cx<'_, A>) -> Verdict {
        self.flows.law_of(flow).0.dropped();
        self.counts.dropped = self.counts.dropped.wrapping_add(1);
        self.stats.drops += 1;
        cx.drop(packet, reason);
        Verdict::Congested
    }

    /// Returns whether the law lets a packet join its flow, marked if the law says so.
    fn admits(&mut self, flow: usize, packet: &mut Packet<A>, now: Nanos) -> bool {
        let Params { goal, ecn, ecn_prob, .. } = &self.params;
        let (law, backlog) = self.flows.law_of(flow);
        law.pass_time(goal, backlog, now);
        if !law.drops(goal, backlog, packet.len(), &mut self.random) {
            return true;
        }
        let marks = *ecn && law.prob <= MAX / 100 * u64::from(*ecn_prob) && ecn::set_ce(packet);
        self.counts.ecn_mark = self.counts.ecn_mark.wrapping_add(u32::from(marks));
        marks
    }
}

impl<A: Arch> Qdisc<A> for FqPie<A> {
    fn kind(&self) -> &'static str {
        params::SYNTAX.kind
    }

    fn enqueue(&mut self, mut packet: Packet<A>, cx: &mut Cx<'_, A>) -> Verdict {
        let now = cx.clock.now();
        let flow = self.flows.of_hash(hash(&mut packet));
        if self.flows.len() >= self.params.limit as usize {
            self.counts.overlimit = self.counts.overlimit.wrapping_add(1);
            return self.drop(flow, packet, DropReason::QdiscOverlimit, cx);
        }
        if self.flows.memory() >= self.params.memory_limit.into() {
            self.counts.overmemory = self.counts.overmemory.wrapping_add(1);
            return self.drop(flow, packet, DropReason::QdiscOverlimit, cx);
        }
        if !self.admits(flow, &mut packet, now) {
            return self.drop(flow, packet, DropReason::QdiscCongested, cx);
        }
        self.counts.packets_in = self.counts.packets_in.wrapping_add(1);
        packet.set_queued(now);
        self.flows.push(flow, packet, self.params.quantum);
        Verdict::Success
    }

    fn dequeue_batch(&mut self, mut budget: Budget, out: &mut PacketList<A>, cx: &mut Cx<'_, A>) {
        let now = cx.clock.now();
        let Params { goal, quantum, .. } = &self.params;
        while budget.is_left() {
            let taken = self.flows.dequeue(
                *quantum,
                |_| {},
                |head, law| {
                    let backlog = head.own_bytes();
                    law.pass_time(goal, backlog, now);
                    let mut packet = head.pop()?;
                    law.dequeued(goal, packet.take_queued(), packet.len(), backlog, now);
                    Some(packet)
                },
            );
            let Some(packet) = taken else { return };
            budget.send(packet, out, &mut self.stats);
        }
        if self.flows.len() == 0 {
            self.flows.retire();
        }
    }

    fn reset(&mut self, cx: &mut Cx<'_, A>) {
        self.flows.clear(|packet| cx.drop_queued(packet, DropReason::QueuePurge));
    }

    /// Drops the oldest packets of the longest queues beyond a smaller limit. `dropped` among the kind's counters does not count
    /// them, as in the kernel.
    fn change(&mut self, words: &mut Words<'_>, _: &Env, cx: &mut Cx<'_, A>) -> Result<(), ParseError> {
        self.params = params::parse_change(words, self.params)?;
        while self.flows.len() > self.params.limit as usize {
            let fattest = self.flows.any().map(|flow| self.flows.fattest(flow));
            let Some(packet) = fattest.and_then(|flow| self.flows.pop(flow)) else { break };
            self.stats.drops += 1;
            cx.drop_queued(packet, DropReason::QdiscOverlimit);
        }
        Ok(())
    }

    fn room_for(&self, arrival: Arrival<'_, A>) -> Result<(), Full> {
        let memory = self.flows.memory_with(arrival.packets(), arrival.bytes());
        let has_room = memory <= self.params.memory_limit.into();
        arrival.within(self.flows.len(), self.params.limit as usize)?;
        arrival.if_room(has_room, self.flows.len())
    }

    fn qlen(&self) -> usize {
        self.flows.len()
    }

    fn limit(&self) -> Option<usize> {
        Some(self.params.limit as usize)
    }

    fn stats(&self) -> QdiscStats {
        QdiscStats { backlog: self.flows.bytes(), qlen: self.flows.len() as u64, ..self.stats }
    }

    fn options(&self, style: Style) -> Options {
        params::show(&self.params, self.flows.count(), style)
    }

    fn xstats(&self, style: Style) -> Option<Options> {
        let Counts { packets_in, overlimit, overmemory, dropped, ecn_mark } = self.counts;
        let mut options = Options::new(style);
        options.put("pkts_in", packets_in, format_args!("  pkts_in {packets_in}"));
        options.number("overlimit", overlimit.into()).number("overmemory", overmemory.into());
        options.number("dropped", dropped.into()).number("ecn_mark", ecn_mark.into());
        let (count, (new, old)) = (self.flows.new_flow_count, self.flows.list_lens());
        options.put("new_flow_count", count, format_args!("\n  new_flow_count {count}"));
        options.number("new_flows_len", new.into()).number("old_flows_len", old.into());
        options.number("memory_used", self.flows.memory());
        Some(options)
    }

    fn shrink(&mut self, now: Nanos) -> bool {
        self.flows.shrink(|law| law.remembers(&self.params.goal, now))
    }
}

#[cfg(test)]
mod tests;
