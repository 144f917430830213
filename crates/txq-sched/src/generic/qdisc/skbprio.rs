//! skbprio: a short queue in which a packet's priority is its rank. When it is full, the lowest packet goes.
//!
//! There are 64 priorities, 0 to 63; a higher one is 63. The packet with the highest priority leaves first; packets of one
//! priority leave in their order. A packet that finds `limit` packets queued drops the newest packet of the lowest priority
//! queued, if its own is higher, and is dropped otherwise. Each drop is a `QDISC_OVERLIMIT`.
//!
//! | option | default | meaning |
//! |---|---|---|
//! | `limit NUMBER` | 64 | packets queued at most |
//!
//! Example: `tc qdisc add root handle 1: skbprio limit 100`
//!
//! Source: tc-skbprio(8). The kernel's counterpart is `sch_skbprio`. Differences: a smaller limit drops the lowest packets
//! beyond it at once, and `tc class show` lists no priorities.

use std::collections::VecDeque;

use txq_core::arch::Arch;
use txq_core::drop::DropReason;
use txq_core::packet::{Packet, PacketList};
use txq_core::stats::QdiscStats;

use crate::generic::qdisc::{Arrival, Budget, Built, Cx, Env, Full, Qdisc, Verdict};
use crate::tc::{Options, ParseError, Style, Syntax, Wording, Words};

static SYNTAX: Syntax = Syntax {
    kind: "skbprio",
    words: &["limit"],
    usage: "Usage: ... <skbprio> [ limit NUMBER ]",
    wording: Wording::Named,
};

/// Number of priorities (`SKBPRIO_MAX_PRIORITY`).
const PRIORITIES: usize = 64;
const LIMIT: u32 = 64;

struct SkbPrio<A: Arch> {
    queues: Box<[VecDeque<Packet<A>>]>,
    /// The priorities with packets, as a bit mask.
    used: u64,
    len: usize,
    bytes: u64,
    limit: u32,
    stats: QdiscStats,
}

pub(super) fn build<A: Arch>(words: &mut Words<'_>, _: &Env) -> Result<Built<A>, ParseError> {
    let limit = parse(words)?.unwrap_or(LIMIT);
    let queues = (0..PRIORITIES).map(|_| VecDeque::new()).collect();
    let stats = QdiscStats::default();
    Ok(Built::Qdisc(Box::new(SkbPrio { queues, used: 0, len: 0, bytes: 0, limit, stats })))
}

fn parse(words: &mut Words<'_>) -> Result<Option<u32>, ParseError> {
    let mut options = words.options(&SYNTAX);
    let mut limit = None;
    while let Some(word) = options.next_word() {
        match word {
            "limit" => {
                let text = options.value(word)?;
                let number = crate::tc::c_number(text).ok_or_else(|| {
                    ParseError::new(format!("skbprio: Illegal \"limit\" value:\"{text}\""))
                        .with_remedy("use 0 to 4294967295")
                })?;
                limit = Some(number);
            }
            other => return Err(options.unknown(other)),
        }
    }
    Ok(limit)
}

impl<A: Arch> SkbPrio<A> {
    fn push(&mut self, priority: usize, packet: Packet<A>) {
        self.len += 1;
        self.bytes += packet.len() as u64;
        self.used |= 1 << priority;
        self.queues[priority].push_back(packet);
    }

    fn pop(&mut self, priority: usize, front: bool) -> Option<Packet<A>> {
        let queue = &mut self.queues[priority];
        let packet = if front { queue.pop_front() } else { queue.pop_back() }?;
        if queue.is_empty() {
            self.used &= !(1 << priority);
        }
        self.len -= 1;
        self.bytes -= packet.len() as u64;
        Some(packet)
    }

    fn highest(&self) -> Option<usize> {
        (self.used != 0).then(|| self.used.ilog2() as usize)
    }

    fn lowest(&self) -> Option<usize> {
        (self.used != 0).then(|| self.used.trailing_zeros() as usize)
    }

    fn refuse(&mut self, packet: Packet<A>, cx: &mut Cx<'_, A>) {
        self.stats.drops += 1;
        cx.drop(packet, DropReason::QdiscOverlimit);
    }
}

impl<A: Arch> Qdisc<A> for SkbPrio<A> {
    fn kind(&self) -> &'static str {
        SYNTAX.kind
    }

    fn enqueue(&mut self, packet: Packet<A>, cx: &mut Cx<'_, A>) -> Verdict {
        let priority = (packet.priority() as usize).min(PRIORITIES - 1);
        if self.len < self.limit as usize {
            self.push(priority, packet);
            return Verdict::Success;
        }
        match self.lowest().filter(|&lowest| lowest < priority) {
            None => {
                self.refuse(packet, cx);
                Verdict::Drop
            }
            Some(lowest) => {
                self.push(priority, packet);
                if let Some(last) = self.pop(lowest, false) {
                    self.refuse(last, cx);
                }
                Verdict::Congested
            }
        }
    }

    fn dequeue_batch(&mut self, mut budget: Budget, out: &mut PacketList<A>, _: &mut Cx<'_, A>) {
        while budget.is_left() {
            let Some(packet) = self.highest().and_then(|priority| self.pop(priority, true)) else { return };
            budget.send(packet, out, &mut self.stats);
        }
    }

    fn front(&self) -> Option<&Packet<A>> {
        self.queues[self.highest()?].front()
    }

    fn reset(&mut self, cx: &mut Cx<'_, A>) {
        while let Some(packet) = self.highest().and_then(|priority| self.pop(priority, true)) {
            cx.drop(packet, DropReason::QueuePurge);
        }
    }

    fn change(&mut self, words: &mut Words<'_>, _: &Env, cx: &mut Cx<'_, A>) -> Result<(), ParseError> {
        self.limit = parse(words)?.unwrap_or(self.limit);
        while self.len > self.limit as usize {
            let Some(packet) = self.lowest().and_then(|priority| self.pop(priority, false)) else { break };
            self.refuse(packet, cx);
        }
        Ok(())
    }

    fn room_for(&self, arrival: Arrival<'_, A>) -> Result<(), Full> {
        arrival.within(self.len, self.limit as usize)
    }

    fn qlen(&self) -> usize {
        self.len
    }

    fn max_packets(&self) -> Option<usize> {
        Some(self.limit as usize)
    }

    fn stats(&self) -> QdiscStats {
        QdiscStats { backlog: self.bytes, qlen: self.len as u64, ..self.stats }
    }

    fn options(&self, style: Style) -> Options {
        let mut options = Options::new(style);
        options.number("limit", self.limit.into()).end_blank();
        options
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generic::qdisc::testing::{ENV, Virtual, try_build};

    fn priorities(bench: &mut Virtual) -> Vec<u32> {
        bench.take(Budget::packets(100)).iter().map(Packet::priority).collect()
    }

    /// The highest leaves first, and the lowest pays; a packet as low as the lowest is refused.
    #[test]
    fn ranks_decide() {
        let mut bench = Virtual::new("skbprio limit 4");
        for (priority, verdict) in [
            (5, Verdict::Success),
            (1, Verdict::Success),
            (9, Verdict::Success),
            (1, Verdict::Success),
            (1, Verdict::Drop),
            (0, Verdict::Drop),
            (2, Verdict::Congested),
            (1000, Verdict::Congested),
            (2, Verdict::Drop),
        ] {
            assert_eq!(bench.enqueue(100, priority), verdict, "{priority}");
        }
        assert_eq!(bench.drops.get(DropReason::QdiscOverlimit), 5);
        assert_eq!(priorities(&mut bench), [1000, 9, 5, 2]);
        assert_eq!((bench.qdisc.stats().packets, bench.qdisc.stats().drops), (4, 5));
    }

    /// Of one priority the newest packet goes, so the others stay in order.
    #[test]
    fn the_newest_of_the_lowest_goes() {
        let mut bench = Virtual::new("skbprio limit 3");
        (0..3).for_each(|_| assert_eq!(bench.enqueue(100, 1), Verdict::Success));
        let _ = bench.enqueue(100, 2);
        let numbers: Vec<_> = bench.dequeue(9).into_iter().map(|(number, _)| number).collect();
        assert_eq!(numbers, [3, 0, 1]);
    }

    #[test]
    fn words_and_errors_are_tcs() {
        let mut bench = Virtual::new("skbprio");
        assert_eq!(bench.qdisc.options(Style::default()).text(), "limit 64 ");
        (0..9).for_each(|priority| assert_eq!(bench.enqueue(100, priority), Verdict::Success));
        bench.change("limit 2").unwrap();
        assert_eq!(priorities(&mut bench), [8, 7]);
        bench.change("limit 0").unwrap();
        assert_eq!(bench.enqueue(100, 3), Verdict::Drop);
        for (text, message) in [
            ("skbprio limit x", "skbprio: Illegal \"limit\" value:\"x\""),
            ("skbprio limit -1", "skbprio: Illegal \"limit\" value:\"-1\""),
            ("skbprio foo", "skbprio: unknown parameter \"foo\""),
            ("skbprio limit", "Command line is not complete. Try option \"help\""),
        ] {
            assert_eq!(try_build(text, &ENV).err().unwrap().message(), message);
        }
    }
}
