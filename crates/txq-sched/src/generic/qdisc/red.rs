//! red: random early detection. It drops or marks packets at random before the queue is full, the more the longer the queue
//! is on average.
//!
//! The decision is made at enqueue, by the average number of bytes queued (`law`). Below `min` every packet is queued.
//! Between `min` and `max` some packets are dropped or marked, at `max` or above all. A drop is a `QDISC_CONGESTED`, and the
//! sender learns of it as [`Verdict::Congested`]. A packet that the queue has no room for is a `QDISC_OVERLIMIT`.
//!
//! | option | unit | default | |
//! |---|---|---|---|
//! | `limit` | bytes | required | the limit of the queue |
//! | `avpkt` | bytes | required | the mean length of packets |
//! | `max` | bytes | `limit` / 4 | from this average on, all packets are dropped or marked |
//! | `min` | bytes | `max` / 3 | up to this average, none |
//! | `burst` | packets | (2 `min` + `max`) / (3 `avpkt`) | a burst of so many packets is not marked: sets the weight of the average |
//! | `probability` | 0 to 1 | 0.02 | the highest probability of a mark between `min` and `max` |
//! | `bandwidth` | bit/s | 10 Mbit/s | the link's rate: how fast the average falls while the queue is empty |
//! | `ecn` | | | marks packets of ECN-capable flows instead of dropping them |
//! | `harddrop` | | | with `ecn`: drops packets from `max` on |
//! | `nodrop` | | | with `ecn`: queues packets that cannot be marked |
//! | `adaptive` | | | adapts `probability` (1 to 50 %) so that the average stays between `min` and `max` |
//!
//! Packets wait in the qdisc of the one class, a bfifo of `limit` bytes unless the user replaces it.
//!
//! ```text
//! tc qdisc add dev eth0 root handle 1: red limit 400k min 30k max 90k avpkt 1000 burst 55 ecn bandwidth 10mbit
//! ```
//!
//! The counters `marked`, `early` and `pdrop` count packets that were marked, dropped by RED, and dropped by the queue.
//! `overlimits` counts every packet that RED marked or dropped.
//!
//! Source: Floyd and Jacobson, "Random Early Detection Gateways for Congestion Avoidance" (1993). The kernel's counterpart is
//! `sch_red`. Differences:
//! - A change keeps a qdisc that the user has attached, and all packets. Linux replaces it by a new bfifo.
//! - The average of an idle queue decays exactly, where Linux reads a table of 256 entries.
//! - A `probability` above 1 is refused. `qevent` is unknown. tc's note about the default of `bandwidth` is left out.

pub(super) mod law;
pub(super) mod params;

use txq_core::arch::{Arch, Nanos};
use txq_core::drop::DropReason;
use txq_core::packet::{Packet, PacketList};
use txq_core::stats::QdiscStats;

use crate::generic::qdisc::child::{Child, Classes, Total, plain_class};
use crate::generic::qdisc::noop::Noop;
use crate::generic::qdisc::random::{Rng, seed};
use crate::generic::qdisc::{Arrival, Budget, Built, Cx, Env, Full, Qdisc, Verdict, build_qdisc, ecn};
use crate::tc::{ClassInfo, Handle, Options, ParseError, Style, Words};

use law::{Average, Decision};
use params::Params;

struct Red<A: Arch> {
    params: Params,
    average: Average,
    random: Rng,
    /// The qdisc of the one class, in which packets wait.
    child: Child<A>,
    total: Total,
    /// Packets and bytes sent; packets that were dropped here; as `overlimits`, those that RED marked or dropped.
    stats: QdiscStats,
    marked: u64,
    /// Packets that RED dropped.
    early: u64,
    /// Packets that the child dropped.
    pdrop: u64,
}

pub(super) fn build<A: Arch>(words: &mut Words<'_>, env: &Env) -> Result<Built<A>, ParseError> {
    let params = Params::parse(words)?;
    Ok(Built::Qdisc(Box::new(Red {
        params,
        average: Average::new(&params.curve),
        random: Rng::new(seed::<A>(env)),
        child: Child::new(build_qdisc(&format!("bfifo limit {}", params.limit), env)),
        total: Total::default(),
        stats: QdiscStats::default(),
        marked: 0,
        early: 0,
        pdrop: 0,
    })))
}

impl<A: Arch> Red<A> {
    /// Marks a packet that was decided to be marked, if that is possible and allowed; returns whether the packet may be
    /// queued.
    fn mark(&mut self, packet: &mut Packet<A>, decision: Decision) -> bool {
        let Params { ecn, harddrop, nodrop, .. } = self.params;
        let may_mark = ecn && (decision == Decision::Early || !harddrop);
        self.stats.overlimits += 1;
        if may_mark && ecn::set_ce(packet) {
            self.marked += 1;
            return true;
        }
        may_mark && nodrop
    }
}

impl<A: Arch> Qdisc<A> for Red<A> {
    fn kind(&self) -> &'static str {
        params::SYNTAX.kind
    }

    fn enqueue(&mut self, mut packet: Packet<A>, cx: &mut Cx<'_, A>) -> Verdict {
        let curve = &self.params.curve;
        self.average.update(curve, self.total.backlog, cx.clock.now());
        let decision = self.average.decide(curve, &mut self.random);
        if decision != Decision::Pass && !self.mark(&mut packet, decision) {
            (self.early, self.stats.drops) = (self.early + 1, self.stats.drops + 1);
            cx.drop(packet, DropReason::QdiscCongested);
            if self.total.qlen == 0 {
                self.average.empty(cx.clock.now());
            }
            return Verdict::Congested;
        }
        let drops = self.total.drops;
        let verdict = self.child.enqueue(packet, &mut self.total, cx);
        if verdict != Verdict::Success && self.total.drops == drops {
            // A deleted qdisc (noop) counts nothing.
            self.stats.drops += 1;
        }
        self.pdrop += u64::from(verdict != Verdict::Success);
        verdict
    }

    fn dequeue_batch(&mut self, mut budget: Budget, out: &mut PacketList<A>, cx: &mut Cx<'_, A>) {
        let (segs, bytes) = (out.segs(), out.bytes());
        self.child.dequeue(&mut budget, out, &mut self.total, cx);
        if self.total.qlen == 0 {
            self.average.empty(cx.clock.now());
        }
        self.stats.count_sent(out.segs() - segs, out.bytes() - bytes);
    }

    fn reset(&mut self, cx: &mut Cx<'_, A>) {
        self.child.reset(&mut self.total, cx);
        self.average.restart(&self.params.curve);
    }

    fn change(&mut self, words: &mut Words<'_>, env: &Env, cx: &mut Cx<'_, A>) -> Result<(), ParseError> {
        let params = Params::parse(words)?;
        if self.child.handle() == Handle::UNSPEC && self.child.qdisc().kind() == "bfifo" {
            let limit = format!("limit {}", params.limit);
            self.child.qdisc_mut().change(&mut Words::split(&limit), env, cx)?;
            self.child.settle(&mut self.total);
        }
        self.params = params;
        self.average = Average::new(&params.curve);
        if self.total.qlen == 0 {
            self.average.empty(cx.clock.now());
        }
        Ok(())
    }

    fn room_for(&self, arrival: Arrival<'_, A>) -> Result<(), Full> {
        self.child.room_for(arrival)
    }

    fn qlen(&self) -> usize {
        self.total.qlen
    }

    fn limit(&self) -> Option<usize> {
        self.child.qdisc().limit()
    }

    fn stats(&self) -> QdiscStats {
        let Total { qlen, backlog, drops } = self.total;
        QdiscStats { backlog, qlen: qlen as u64, drops: self.stats.drops + drops, ..self.stats }
    }

    fn options(&self, style: Style) -> Options {
        self.params.options(self.average.probability, style)
    }

    fn xstats(&self, style: Style) -> Option<Options> {
        let mut options = Options::new(style);
        options.put("marked", self.marked, format_args!("  marked {}", self.marked));
        options.number("early", self.early).number("pdrop", self.pdrop).number("other", 0);
        options.end_blank();
        Some(options)
    }

    fn next_event(&self) -> Option<Nanos> {
        self.child.qdisc().next_event()
    }

    fn classes(&mut self) -> Option<&mut dyn Classes<A>> {
        Some(self)
    }
}

impl<A: Arch> Classes<A> for Red<A> {
    fn minors(&mut self) -> Vec<u16> {
        vec![1]
    }

    /// Returns the one class, whatever number the user names.
    fn find(&mut self, _: u16) -> Option<u16> {
        Some(1)
    }

    fn leaf(&mut self, _: u16) -> Option<(&mut Child<A>, &mut Total)> {
        Some((&mut self.child, &mut self.total))
    }

    fn default_leaf(&mut self, _: u16) -> Box<dyn Qdisc<A>> {
        Box::new(Noop)
    }

    fn class(&mut self, minor: u16, style: Style) -> ClassInfo {
        ClassInfo { xstats: Some(Options::new(style)), ..plain_class(minor, self.child.handle(), style) }
    }
}

#[cfg(test)]
mod tests;
