//! codel: one FIFO that drops packets early, to keep the delay of the others short (RFC 8289).
//!
//! The control law is in `law`; fq_codel and cake share it. The law drops packets at dequeue, as `QDISC_CONGESTED`. A
//! packet that finds `limit` packets queued is dropped as `QDISC_OVERLIMIT` and counted in `drop_overlimit`. A smaller
//! limit drops the oldest packets beyond it.
//!
//! | option | default | meaning |
//! |---|---|---|
//! | `limit PACKETS` | 1000 | packets queued at most |
//! | `target TIME` | 5 ms | standing delay that the queue may have |
//! | `interval TIME` | 100 ms | how long the delay may exceed `target` before the first drop; about the longest round trip |
//! | `ecn`, `noecn` | `noecn` | marks ECN-capable packets instead of dropping them |
//! | `ce_threshold TIME` | never | marks ECN-capable packets that waited longer than this |
//!
//! A bare time is in microseconds. A 0 for `limit`, `target` or `interval` leaves the value as it is, as in tc.
//!
//! Example: `tc qdisc add root handle 1: codel limit 500 target 2ms interval 50ms ecn`
//!
//! The kernel's counterpart is `sch_codel`. Difference: the root in the law is exact (`law`).

pub(super) mod law;
pub(super) mod params;

use txq_core::arch::{Arch, Nanos};
use txq_core::drop::DropReason;
use txq_core::packet::{Packet, PacketList};
use txq_core::stats::QdiscStats;

use crate::generic::qdisc::bypass::bypass_one_by_one;
use crate::generic::qdisc::{Budget, Built, Cx, Env, Qdisc, Verdict};
use crate::tc::{Options, ParseError, Style, Syntax, Wording, Words};

use law::{Counts, Goal, Head, Law};
use params::{Given, micros};

static SYNTAX: Syntax = Syntax {
    kind: "codel",
    words: &["limit", "target", "interval", "ecn", "noecn", "ce_threshold"],
    usage: "Usage: ... codel [ limit PACKETS ] [ target TIME ]\n\
            \t\t [ interval TIME ] [ ecn | noecn ]\n\
            \t\t [ ce_threshold TIME ]",
    wording: Wording::Plain,
};

/// The default limit, in packets.
const LIMIT: u32 = 1000;

struct Codel<A: Arch> {
    queue: PacketList<A>,
    law: Law,
    goal: Goal,
    limit: u32,
    stats: QdiscStats,
    counts: Counts,
    drop_overlimit: u32,
}

pub(super) fn build<A: Arch>(words: &mut Words<'_>, env: &Env) -> Result<Built<A>, ParseError> {
    let (limit, given) = parse(words)?;
    let mut goal = Goal::new(env, false);
    given.apply(&mut goal);
    Ok(Built::Qdisc(Box::new(Codel {
        queue: PacketList::new(),
        law: Law::default(),
        goal,
        limit: limit.unwrap_or(LIMIT),
        stats: QdiscStats::default(),
        counts: Counts::default(),
        drop_overlimit: 0,
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

impl<A: Arch> Codel<A> {
    fn over_limit(&mut self, packet: Packet<A>, cx: &mut Cx<'_, A>) {
        self.drop_overlimit = self.drop_overlimit.wrapping_add(1);
        self.stats.drops += 1;
        cx.drop(packet, DropReason::QdiscOverlimit);
    }
}

impl<A: Arch> Qdisc<A> for Codel<A> {
    fn kind(&self) -> &'static str {
        SYNTAX.kind
    }

    fn enqueue(&mut self, mut packet: Packet<A>, cx: &mut Cx<'_, A>) -> Verdict {
        if self.queue.len() >= self.limit as usize {
            self.over_limit(packet, cx);
            return Verdict::Drop;
        }
        packet.set_queued(cx.clock.now());
        self.queue.push_back(packet);
        Verdict::Success
    }

    fn dequeue_batch(&mut self, mut budget: Budget, out: &mut PacketList<A>, cx: &mut Cx<'_, A>) {
        let now = cx.clock.now();
        while budget.is_left() {
            let drop = |packet| {
                self.stats.drops += 1;
                cx.drop(packet, DropReason::QdiscCongested);
            };
            let mut head = Head { queue: &mut self.queue, drop };
            let Some(packet) = self.law.dequeue(&mut head, &self.goal, now, &mut self.counts) else { return };
            budget.send(packet, out, &mut self.stats);
        }
    }

    fn reset(&mut self, cx: &mut Cx<'_, A>) {
        while let Some(packet) = self.queue.pop_front() {
            cx.drop_queued(packet, DropReason::QueuePurge);
        }
        self.law = Law::default();
    }

    /// Drops the oldest packets beyond a smaller limit. `drop_overlimit` does not count them, as in the kernel.
    fn change(&mut self, words: &mut Words<'_>, _: &Env, cx: &mut Cx<'_, A>) -> Result<(), ParseError> {
        let (limit, given) = parse(words)?;
        given.apply(&mut self.goal);
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
        if self.goal.ecn {
            options.flag("ecn");
        }
        options.end_blank();
        options
    }

    fn xstats(&self, style: Style) -> Option<Options> {
        Some(self.xstats_at(A::now(), style))
    }

    fn can_bypass(&self) -> bool {
        true
    }

    fn bypassed(&mut self, packets: u64, bytes: u64) {
        self.stats.count_sent(packets, bytes);
    }

    fn bypass(&mut self, batch: &PacketList<A>) -> bool {
        bypass_one_by_one(self, batch)
    }
}

impl<A: Arch> Codel<A> {
    fn xstats_at(&self, now: Nanos, style: Style) -> Options {
        let Self { law, counts, .. } = self;
        let mut options = Options::new(style);
        options.put("count", law.count, format_args!("  count {}", law.count));
        options.number("lastcount", law.lastcount.into()).micros("ldelay", micros(law.ldelay));
        if law.dropping {
            options.flag("dropping");
        }
        let (sign, next) = match law.dropping {
            false => ("", micros(0)),
            true if law.drop_next < now => ("-", micros(now - law.drop_next)),
            true => ("", micros(law.drop_next - now)),
        };
        let signed = if sign.is_empty() { i64::from(next.0) } else { -i64::from(next.0) };
        options.put("drop_next", signed, format_args!("drop_next {sign}{next}"));
        options.put("maxpacket", counts.maxpacket, format_args!("\n  maxpacket {}", counts.maxpacket));
        options.number("ecn_mark", counts.ecn_mark.into());
        options.number("drop_overlimit", self.drop_overlimit.into());
        if counts.ce_mark != 0 {
            options.number("ce_mark", counts.ce_mark.into());
        }
        options
    }
}

#[cfg(test)]
pub(super) mod tests;
