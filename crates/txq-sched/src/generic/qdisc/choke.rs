//! choke: CHOose and Keep for responsive flows, CHOose and Kill for unresponsive ones. RED, in which a packet is also compared
//! with one that waits: packets of a flow that fills the queue meet each other, and go both.
//!
//! While the average number of packets is above `min`, an arriving packet is compared with a packet of the queue drawn at
//! random. If both are of one flow, both are dropped as `QDISC_CONGESTED`. Otherwise RED decides (as for red). So a
//! flow loses packets in proportion to the square of its share, without a queue or a counter for each flow.
//!
//! | option | unit | default | |
//! |---|---|---|---|
//! | `limit` | packets | required, up to 131071 | the limit of the queue |
//! | `bandwidth` | bit/s | required | the link's rate: how fast the average falls while the queue is empty |
//! | `max` | packets | `limit` / 4 | from this average on, all packets are dropped or marked |
//! | `min` | packets | `max` / 3 | up to this average, none |
//! | `burst` | packets | (2 `min` + `max`) / 3 | sets the weight of the average, as for red |
//! | `avpkt` | bytes | 1000 | the mean length of packets |
//! | `probability` | 0 to 1 | 0.02 | the highest probability of a mark between `min` and `max` |
//! | `ecn` | | | marks packets of ECN-capable flows instead of dropping them by RED |
//!
//! ```text
//! tc qdisc add dev eth0 root handle 1: choke limit 1000 bandwidth 10mbit ecn
//! ```
//!
//! Source: Pan, Prabhakar, Psounis, "CHOKe, a stateless active queue management scheme for approximating fair bandwidth
//! allocation" (INFOCOM 2000). The kernel's counterpart is `sch_choke`. Differences: the packet is drawn among all queued
//! ones, none of which is a hole; otherwise those of red.

use std::collections::VecDeque;

use txq_core::arch::Arch;
use txq_core::drop::DropReason;
use txq_core::packet::{Packet, PacketList};
use txq_core::stats::QdiscStats;

use crate::generic::qdisc::random::{Rng, seed};
use crate::generic::qdisc::red::law::{Average, Curve, Decision};
use crate::generic::qdisc::red::params::{is_probable, is_valid, packet_time, probability, share_json};
use crate::generic::qdisc::{Budget, Built, Cx, Env, Qdisc, Verdict, ecn};
use crate::tc::{Options, ParseError, Rate, Style, Syntax, Wording, Words, general};

static SYNTAX: Syntax = Syntax {
    kind: "choke",
    words: &["limit", "bandwidth", "ecn", "min", "max", "burst", "avpkt", "probability"],
    usage: "Usage: ... choke limit PACKETS bandwidth KBPS [ecn]\n\
            \t\t [ min PACKETS ] [ max PACKETS ] [ burst PACKETS ]",
    wording: Wording::Plain,
};

/// The highest limit (`CHOKE_MAX_QUEUE`).
const MAX_LIMIT: u32 = (128 << 10) - 1;

#[derive(Debug, Clone, Copy)]
struct Params {
    curve: Curve,
    limit: u32,
    ecn: bool,
    /// What `curve` was computed from, for a command that restores it.
    avpkt: u32,
    burst: u32,
    bandwidth: Rate,
}

struct Choke<A: Arch> {
    params: Params,
    queue: VecDeque<Packet<A>>,
    bytes: u64,
    average: Average,
    random: Rng,
    stats: QdiscStats,
    marked: u64,
    early: u64,
    pdrop: u64,
    matched: u64,
}

pub(super) fn build<A: Arch>(words: &mut Words<'_>, env: &Env) -> Result<Built<A>, ParseError> {
    let params = Params::parse(words)?;
    Ok(Built::Qdisc(Box::new(Choke {
        params,
        queue: VecDeque::new(),
        bytes: 0,
        average: Average::new(&params.curve),
        random: Rng::new(seed::<A>(env)),
        stats: QdiscStats::default(),
        marked: 0,
        early: 0,
        pdrop: 0,
        matched: 0,
    })))
}

impl Params {
    fn parse(words: &mut Words<'_>) -> Result<Self, ParseError> {
        let mut options = words.options(&SYNTAX);
        let (mut limit, mut min, mut max, mut burst, mut avpkt) = (0, 0, 0, 0, 1000);
        let (mut share, mut bandwidth, mut ecn) = (0.02, Rate(0), false);
        while let Some(word) = options.next_word() {
            match word {
                "limit" => limit = options.value_u32(word)?,
                "bandwidth" => bandwidth = options.value_rate(word)?,
                "min" => min = options.value_u32(word)?,
                "max" => max = options.value_u32(word)?,
                "burst" => burst = options.value_u32(word)?,
                "avpkt" => avpkt = options.value_u32(word)?,
                "probability" => share = probability(&mut options, word)?,
                "ecn" => ecn = true,
                other => return Err(options.unknown(other)),
            }
        }
        if limit == 0 || bandwidth.0 == 0 || avpkt == 0 {
            return Err(ParseError::new("Required parameter (bandwidth, limit) is missing")
                .with_remedy("give both, as limit 1000 bandwidth 10mbit"));
        }
        max = if max == 0 { limit / 4 } else { max };
        min = if min == 0 { max / 3 } else { min };
        if max > limit {
            return Err(ParseError::new("\"max\" is larger than \"limit\"").with_remedy("raise limit"));
        }
        if min >= max {
            return Err(ParseError::new("\"min\" is not smaller than \"max\"").with_remedy("raise max"));
        }
        burst = if burst == 0 { (2 * min + max) / 3 } else { burst };
        let ewma = Curve::ewma(min.into(), burst).ok_or_else(|| {
            ParseError::new("CHOKE: failed to calculate EWMA constant.")
                .with_remedy(format!("a burst of {burst} packets is too small or too large"))
        })?;
        if !is_probable(min, max, share) {
            return Err(ParseError::new("CHOKE: failed to calculate probability.")
                .with_remedy("let probability be more than 0"));
        }
        let probability = Curve::share(share).unwrap_or(u32::MAX);
        let packet_time = packet_time(avpkt, bandwidth);
        let curve = Curve { min, max, ewma, probability, packet_time, adaptive: false };
        if limit > MAX_LIMIT || !is_valid(&curve) {
            return Err(ParseError::new("RTNETLINK answers: Invalid argument")
                .with_remedy(format!("use a limit up to {MAX_LIMIT}, and a smaller burst than {burst}")));
        }
        Ok(Self { curve, limit, ecn, avpkt, burst, bandwidth })
    }
}

impl<A: Arch> Choke<A> {
    /// Takes a packet of the same flow out of the queue, if one drawn at random is of that flow.
    fn take_match(&mut self, packet: &Packet<A>) -> Option<Packet<A>> {
        let at = self.random.below(self.queue.len().max(1) as u64) as usize;
        let other = self.queue.get(at)?;
        (other.dissect().keys == packet.dissect().keys).then(|| self.take(at)).flatten()
    }

    fn take(&mut self, at: usize) -> Option<Packet<A>> {
        let packet = if at == 0 { self.queue.pop_front() } else { self.queue.remove(at) }?;
        self.bytes -= packet.len() as u64;
        Some(packet)
    }

    fn drop(&mut self, packet: Packet<A>, reason: DropReason, cx: &mut Cx<'_, A>) {
        self.stats.drops += 1;
        cx.drop(packet, reason);
    }
}

impl<A: Arch> Qdisc<A> for Choke<A> {
    fn kind(&self) -> &'static str {
        SYNTAX.kind
    }

    fn enqueue(&mut self, mut packet: Packet<A>, cx: &mut Cx<'_, A>) -> Verdict {
        let Params { curve, limit, ecn, .. } = self.params;
        let now = cx.clock.now();
        self.average.update(&curve, self.queue.len() as u64, now);
        if self.average.length(&curve) > curve.min.into()
            && let Some(other) = self.take_match(&packet)
        {
            self.matched += 1;
            self.drop(other, DropReason::QdiscCongested, cx);
            self.drop(packet, DropReason::QdiscCongested, cx);
            if self.queue.is_empty() {
                self.average.empty(now);
            }
            return Verdict::Congested;
        }
        if self.average.decide(&curve, &mut self.random) != Decision::Pass {
            self.stats.overlimits += 1;
            if !(ecn && ecn::set_ce(&mut packet)) {
                self.early += 1;
                self.drop(packet, DropReason::QdiscCongested, cx);
                if self.queue.is_empty() {
                    self.average.empty(now);
                }
                return Verdict::Congested;
            }
            self.marked += 1;
        }
        if self.queue.len() >= limit as usize {
            self.pdrop += 1;
            self.drop(packet, DropReason::QdiscOverlimit, cx);
            return Verdict::Drop;
        }
        self.bytes += packet.len() as u64;
        self.queue.push_back(packet);
        Verdict::Success
    }

    fn dequeue_batch(&mut self, mut budget: Budget, out: &mut PacketList<A>, cx: &mut Cx<'_, A>) {
        while budget.is_left()
            && let Some(packet) = self.take(0)
        {
            budget.send(packet, out, &mut self.stats);
        }
        if self.queue.is_empty() {
            self.average.empty(cx.clock.now());
        }
    }

    fn front(&self) -> Option<&Packet<A>> {
        self.queue.front()
    }

    fn reset(&mut self, cx: &mut Cx<'_, A>) {
        while let Some(packet) = self.take(0) {
            cx.drop(packet, DropReason::QueuePurge);
        }
        self.average.restart(&self.params.curve);
    }

    fn change(&mut self, words: &mut Words<'_>, _: &Env, cx: &mut Cx<'_, A>) -> Result<(), ParseError> {
        self.params = Params::parse(words)?;
        self.average = Average::new(&self.params.curve);
        while self.queue.len() > self.params.limit as usize {
            let Some(packet) = self.take(self.queue.len() - 1) else { break };
            self.drop(packet, DropReason::QdiscOverlimit, cx);
        }
        if self.queue.is_empty() {
            self.average.empty(cx.clock.now());
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
        Some(self.params.limit as usize)
    }

    fn stats(&self) -> QdiscStats {
        QdiscStats { backlog: self.bytes, qlen: self.queue.len() as u64, ..self.stats }
    }

    fn options(&self, style: Style) -> Options {
        let Params { curve, limit, ecn, avpkt, burst, bandwidth } = self.params;
        let mut options = Options::new(style);
        for (name, packets) in [("limit", limit), ("min", curve.min), ("max", curve.max)] {
            options.packets(name, packets.into());
        }
        for (name, on) in [("ecn", ecn), ("harddrop", false), ("adaptive", false), ("nodrop", false)] {
            options.json_only(name, on);
            if on {
                options.text_only(name);
            }
        }
        if style.input {
            options.number("avpkt", avpkt.into()).number("burst", burst.into()).rate("bandwidth", bandwidth);
        }
        if style.details {
            options.number("ewma", curve.ewma.into());
        }
        if style.details || style.input {
            let share = general(Curve::shown(curve.probability));
            options.put("probability", share_json(curve.probability), format_args!("probability {share}"));
        }
        if style.details {
            options.number("Scell_log", curve.cell_log().into());
        } else {
            options.end_blank();
        }
        options
    }

    fn xstats(&self, style: Style) -> Option<Options> {
        let mut options = Options::new(style);
        options.put("marked", self.marked, format_args!("  marked {}", self.marked));
        options.number("early", self.early).number("pdrop", self.pdrop).number("other", 0);
        options.number("matched", self.matched);
        Some(options)
    }
}

#[cfg(test)]
mod tests;
