//! pie: one FIFO that drops packets at random when they arrive, to keep the delay of the others near a target (RFC 8033).
//!
//! The probability follows the queue's delay (`law`). It is applied at enqueue, unlike codel's, so a dropped packet costs
//! no buffer. A packet dropped by it is a `QDISC_CONGESTED`; one that finds `limit` packets queued is a `QDISC_OVERLIMIT`.
//! Nothing is dropped during the first 150 ms of a burst, while the delay is below half of `target`, and while less than two
//! of the longest packets wait.
//!
//! | option | default | meaning |
//! |---|---|---|
//! | `limit PACKETS` | 1000 | packets queued at most |
//! | `target TIME` | 15 ms | the delay that the queue may have |
//! | `tupdate TIME` | 15 ms | how often the probability is computed, at least 1 ms |
//! | `alpha NUMBER` | 2 | weight of the delay's distance from `target`, 1 to 32, in sixteenths |
//! | `beta NUMBER` | 20 | weight of the delay's change, 1 to 32, in sixteenths |
//! | `ecn`, `noecn` | `noecn` | marks ECN-capable packets instead of dropping them, while the probability is at most 10 % |
//! | `bytemode`, `nobytemode` | `nobytemode` | drops long packets with a higher probability than short ones |
//! | `dq_rate_estimator`, `no_dq_rate_estimator` | off | computes the delay from the measured rate, not from times of packets |
//!
//! A bare time is in microseconds. A 0 leaves a value as it is, as in tc.
//!
//! Example: `tc qdisc add root handle 1: pie limit 500 target 20ms ecn`
//!
//! The kernel's counterpart is `sch_pie`. Differences:
//! - The probability is computed every `tupdate`; Linux rounds that up to its ticks, and begins half a second after the
//!   qdisc's creation. The default is 20 ms in a kernel with 100 ticks a second, and 16 ms with 250.
//! - A bare `avg_dq_rate` is in bytes a second.

pub(super) mod law;
pub(super) mod params;

use txq_core::arch::{Arch, Nanos};
use txq_core::drop::DropReason;
use txq_core::packet::{Packet, PacketList};
use txq_core::stats::QdiscStats;

use crate::generic::qdisc::random::{Rng, seed};
use crate::generic::qdisc::{Budget, Built, Cx, Env, Qdisc, Verdict, ecn};
use crate::tc::{Options, ParseError, Style, Syntax, Wording, Words, general, general_json};

use law::{Goal, Law, MAX};
use params::{Given, micros};

static SYNTAX: Syntax = Syntax {
    kind: "pie",
    words: &[
        "limit",
        "target",
        "tupdate",
        "alpha",
        "beta",
        "ecn",
        "noecn",
        "bytemode",
        "nobytemode",
        "dq_rate_estimator",
        "no_dq_rate_estimator",
    ],
    usage: "Usage: ... pie [ limit PACKETS ] [ target TIME ]\n\
            \x20              [ tupdate TIME ] [ alpha ALPHA ] [ beta BETA ]\n\
            \x20              [ bytemode | nobytemode ] [ ecn | noecn ]\n\
            \x20              [ dq_rate_estimator | no_dq_rate_estimator ]",
    wording: Wording::Plain,
};

/// The default limit, in packets.
const LIMIT: u32 = 1000;

/// Counters that tc shows.
#[derive(Debug, Clone, Copy, Default)]
struct Counts {
    packets_in: u32,
    overlimit: u32,
    dropped: u32,
    maxq: u32,
    ecn_mark: u32,
}

struct Pie<A: Arch> {
    queue: PacketList<A>,
    law: Law,
    goal: Goal,
    ecn: bool,
    limit: u32,
    random: Rng,
    stats: QdiscStats,
    counts: Counts,
}

pub(super) fn build<A: Arch>(words: &mut Words<'_>, env: &Env) -> Result<Built<A>, ParseError> {
    let (limit, given) = parse(words)?;
    let (mut goal, mut ecn) = (params::goal(env), false);
    given.apply(&mut goal, &mut ecn);
    Ok(Built::Qdisc(Box::new(Pie {
        queue: PacketList::new(),
        law: Law::default(),
        goal,
        ecn,
        limit: limit.unwrap_or(LIMIT),
        random: Rng::new(seed::<A>(env)),
        stats: QdiscStats::default(),
        counts: Counts::default(),
    })))
}

fn parse(words: &mut Words<'_>) -> Result<(Option<u32>, Given), ParseError> {
    let mut options = words.options(&SYNTAX);
    let (mut limit, mut given) = (None, Given::default());
    while let Some(word) = options.next_word() {
        match word {
            "limit" => limit = Some(options.value_u32("limit")?).filter(|&limit| limit > 0),
            other if given.read(other, &mut options)? => {}
            other => return Err(options.unknown(other)),
        }
    }
    Ok((limit, given))
}

/// Shows the probability and the delay of a queue.
pub(super) fn show_law(law: &Law, goal: &Goal, options: &mut Options) {
    let share = law.prob as f64 / MAX as f64;
    options.put("prob", general_json(share), format_args!("  prob {}", general(share)));
    options.micros("delay", micros(law.delay));
    if goal.estimator {
        options.number("avg_dq_rate", law.rate);
    }
}

impl<A: Arch> Pie<A> {
    fn drop(&mut self, packet: Packet<A>, reason: DropReason, cx: &mut Cx<'_, A>) -> Verdict {
        self.law.dropped();
        self.counts.dropped = self.counts.dropped.wrapping_add(1);
        self.stats.drops += 1;
        cx.drop(packet, reason);
        Verdict::Drop
    }
}

impl<A: Arch> Qdisc<A> for Pie<A> {
    fn kind(&self) -> &'static str {
        SYNTAX.kind
    }

    fn enqueue(&mut self, mut packet: Packet<A>, cx: &mut Cx<'_, A>) -> Verdict {
        let (now, backlog) = (cx.clock.now(), self.queue.bytes());
        self.law.pass_time(&self.goal, backlog, now);
        if self.queue.len() >= self.limit as usize {
            self.counts.overlimit = self.counts.overlimit.wrapping_add(1);
            return self.drop(packet, DropReason::QdiscOverlimit, cx);
        }
        if self.law.drops(&self.goal, backlog, packet.len(), &mut self.random) {
            let may_mark = self.ecn && self.law.prob <= MAX / 10;
            if !(may_mark && ecn::set_ce(&mut packet)) {
                return self.drop(packet, DropReason::QdiscCongested, cx);
            }
            self.counts.ecn_mark = self.counts.ecn_mark.wrapping_add(1);
        }
        self.counts.packets_in = self.counts.packets_in.wrapping_add(1);
        // As in the kernel, without the packet itself.
        self.counts.maxq = self.counts.maxq.max(self.queue.len() as u32);
        packet.set_queued(now);
        self.queue.push_back(packet);
        Verdict::Success
    }

    fn dequeue_batch(&mut self, mut budget: Budget, out: &mut PacketList<A>, cx: &mut Cx<'_, A>) {
        let now = cx.clock.now();
        self.law.pass_time(&self.goal, self.queue.bytes(), now);
        while budget.is_left() {
            let backlog = self.queue.bytes();
            let Some(mut packet) = self.queue.pop_front() else { return };
            self.law.dequeued(&self.goal, packet.take_queued(), packet.len(), backlog, now);
            budget.send(packet, out, &mut self.stats);
        }
    }

    fn reset(&mut self, cx: &mut Cx<'_, A>) {
        while let Some(packet) = self.queue.pop_front() {
            cx.drop_queued(packet, DropReason::QueuePurge);
        }
        self.law = Law::default();
    }

    /// Drops the oldest packets beyond a smaller limit. `dropped` among pie's counters does not count them, as in the kernel.
    fn change(&mut self, words: &mut Words<'_>, _: &Env, cx: &mut Cx<'_, A>) -> Result<(), ParseError> {
        let (limit, given) = parse(words)?;
        given.apply(&mut self.goal, &mut self.ecn);
        self.limit = limit.unwrap_or(self.limit);
        while self.queue.len() > self.limit as usize {
            let Some(packet) = self.queue.pop_front() else { break };
            self.stats.drops += 1;
            cx.drop_queued(packet, DropReason::QdiscOverlimit);
        }
        Ok(())
    }

    fn has_one_limit(&self) -> bool {
        true
    }

    fn qlen(&self) -> usize {
        self.queue.len()
    }

    fn limit(&self) -> Option<usize> {
        Some(self.limit as usize)
    }

    fn stats(&self) -> QdiscStats {
        QdiscStats { backlog: self.queue.bytes(), qlen: self.queue.len() as u64, ..self.stats }
    }

    fn options(&self, style: Style) -> Options {
        let mut options = Options::new(style);
        options.packets("limit", self.limit.into());
        self.goal.show(&mut options);
        self.goal.show_flags(self.ecn, &mut options);
        options.end_blank();
        options
    }

    fn xstats(&self, style: Style) -> Option<Options> {
        Some(self.xstats_at(A::now(), style))
    }
}

impl<A: Arch> Pie<A> {
    fn xstats_at(&self, now: Nanos, style: Style) -> Options {
        let mut law = self.law;
        law.pass_time(&self.goal, self.queue.bytes(), now);
        let Counts { packets_in, overlimit, dropped, maxq, ecn_mark } = self.counts;
        let mut options = Options::new(style);
        show_law(&law, &self.goal, &mut options);
        options.put("pkts_in", packets_in, format_args!("\n  pkts_in {packets_in}"));
        options.number("overlimit", overlimit.into()).number("dropped", dropped.into());
        options.number("maxq", maxq.into()).number("ecn_mark", ecn_mark.into());
        options
    }
}

#[cfg(test)]
mod tests;
