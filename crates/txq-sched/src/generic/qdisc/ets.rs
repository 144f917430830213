//! ets: enhanced transmission selection (IEEE 802.1Qaz). Strict bands go first, in order; the others share what is left by
//! deficit round robin. Each band is a class with a qdisc of its own.
//!
//! A packet's band is the class that its priority names, where the priority is a handle (`major:minor` of this qdisc); else
//! the class that the filters name; else the band that `priomap` gives to the priority modulo 16. Class 1 is band 0. A
//! sharing band sends up to its quantum in each round; a band whose qdisc holds its packets back lets the others pass.
//!
//! | option | default | meaning |
//! |---|---|---|
//! | `bands NUMBER` | as many as `strict` and `quanta` need | number of bands, up to 16 |
//! | `strict NUMBER` | 0 | how many bands are strict, from band 0 on |
//! | `quanta Q1 Q2...` | the device's longest packet | bytes of the sharing bands in each round, more than 0 |
//! | `priomap P1 P2...` | the last band | the band of each priority |
//!
//! One of `bands`, `strict` and `quanta` is required. The option of a class (`tc class change ... ets`) is `quantum Q1`, of a
//! sharing band. Each band has a pfifo of `tx_queue_len` packets until the user replaces it.
//!
//! ```text
//! tc qdisc add dev eth0 root handle 1: ets strict 3 quanta 3500 3000 2500 priomap 0 1 1 1 2 3 4 5
//! tc class change dev eth0 classid 1:4 ets quantum 4000
//! ```
//!
//! Sources: IEEE 802.1Qaz; Shreedhar and Varghese, "Efficient Fair Queueing using Deficit Round Robin" (1995). The kernel's
//! counterpart is `sch_ets`. Difference: a sharing band with a shaper (tbf) is not asked again before the shaper's time.

mod params;

use std::collections::VecDeque;

use txq_core::arch::{Arch, Nanos};
use txq_core::clock::Clock;
use txq_core::packet::{Packet, PacketList};
use txq_core::stats::QdiscStats;

use crate::generic::filter::Filters;
use crate::generic::qdisc::child::{Child, Classes, Total};
use crate::generic::qdisc::noop::Noop;
use crate::generic::qdisc::priomap;
use crate::generic::qdisc::runs::{self, refuse};
use crate::generic::qdisc::unknown::UnknownClass;
use crate::generic::qdisc::{Arrival, Budget, Built, Cx, Env, Full, Qdisc, Verdict, default_leaf};
use crate::tc::{ClassInfo, Handle, Options, ParseError, Style, Words};

use params::Params;

struct Band<A: Arch> {
    leaf: Child<A>,
    /// Bytes that a sharing band may send before its turn is over.
    deficit: u64,
    /// Whether the band is in [`Ets::active`].
    active: bool,
}

struct Ets<A: Arch> {
    params: Params,
    bands: Vec<Band<A>>,
    /// The sharing bands that have packets to send. The first has the turn.
    active: VecDeque<usize>,
    total: Total,
    sent: (u64, u64),
    handle: Handle,
    unknown: UnknownClass,
    filters: Filters<A>,
    env: Env,
}

pub(super) fn build<A: Arch>(words: &mut Words<'_>, env: &Env) -> Result<Built<A>, ParseError> {
    let params = Params::parse(words, env)?;
    let bands = params.quanta.iter().map(|_| Band::new(env)).collect();
    let (total, handle, filters) = (Total::default(), Handle::UNSPEC, Filters::new());
    let (active, unknown, sent, env) = (VecDeque::new(), UnknownClass::default(), (0, 0), *env);
    Ok(Built::Qdisc(Box::new(Ets { params, bands, active, total, sent, handle, unknown, filters, env })))
}

impl<A: Arch> Band<A> {
    fn new(env: &Env) -> Self {
        Self { leaf: Child::fifo(env), deficit: 0, active: false }
    }
}

impl<A: Arch> Ets<A> {
    /// Returns the packet's band; `None` if a filter drops it.
    fn band(&mut self, packet: &Packet<A>, clock: &mut Clock<A>) -> Option<usize> {
        let bands = (&self.params.map, self.bands.len());
        priomap::band(packet, clock, self.handle, &self.filters, bands, &mut self.unknown)
    }

    /// Puts a sharing band with packets into the round, and takes every other one out of it.
    fn update_round(&mut self, index: usize) {
        let quantum = self.params.quanta[index];
        let band = &mut self.bands[index];
        let takes_part = quantum > 0 && band.leaf.qlen() > 0;
        if takes_part && !band.active {
            (band.active, band.deficit) = (true, quantum.into());
            self.active.push_back(index);
        } else if !takes_part && band.active {
            band.active = false;
            self.active.retain(|&other| other != index);
        }
    }

    /// Dequeues from the strict bands, then from the sharing ones. Returns whether a packet left.
    fn dequeue_one(&mut self, budget: &mut Budget, out: &mut PacketList<A>, cx: &mut Cx<'_, A>) -> bool {
        let before = out.len();
        for index in 0..self.params.strict() {
            let leaf = &mut self.bands[index].leaf;
            if leaf.qlen() > 0 {
                leaf.dequeue(budget, out, &mut self.total, cx);
            }
            if !budget.is_left() {
                return true;
            }
        }
        if out.len() > before {
            return true;
        }
        // The number of bands in a row that could not send, and the fewest quanta that one of them needs.
        let (mut turned, mut nearest) = (0, u64::MAX);
        while let Some(&index) = self.active.front() {
            let quantum = u64::from(self.params.quanta[index]);
            let band = &mut self.bands[index];
            let Some(len) = band.leaf.peek(&mut self.total, cx).map(|packet| packet.len() as u64) else {
                // The leaf dropped its packets, or holds them back: the next call asks again.
                band.active = false;
                self.active.pop_front();
                continue;
            };
            if len <= band.deficit {
                band.deficit -= len;
                band.leaf.dequeue(&mut Budget::packets(1), out, &mut self.total, cx);
                budget.spend(1, len);
                self.update_round(index);
                return true;
            }
            nearest = nearest.min((len - band.deficit).div_ceil(quantum));
            band.deficit += quantum;
            self.active.rotate_left(1);
            turned += 1;
            if turned >= self.active.len() {
                // The rounds in which no band can send are computed instead of walked.
                for &index in &self.active {
                    self.bands[index].deficit += (nearest - 1) * u64::from(self.params.quanta[index]);
                }
                (turned, nearest) = (0, u64::MAX);
            }
        }
        false
    }
}

impl<A: Arch> Qdisc<A> for Ets<A> {
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
        let Some(band) = self.band(&packet, cx.clock) else { return refuse(packet, &mut self.total, cx) };
        let verdict = self.bands[band].leaf.enqueue(packet, &mut self.total, cx);
        self.update_round(band);
        verdict
    }

    fn enqueue_batch(&mut self, batch: &mut PacketList<A>, cx: &mut Cx<'_, A>) {
        let put = |ets: &mut Self, band: usize, run: &mut PacketList<A>, cx: &mut Cx<'_, A>| {
            ets.bands[band].leaf.enqueue_batch(run, &mut ets.total, cx);
            ets.update_round(band);
        };
        let drop = |ets: &mut Self, packet, cx: &mut Cx<'_, A>| refuse(packet, &mut ets.total, cx);
        runs::enqueue(self, batch, cx, Self::band, put, drop);
    }

    fn dequeue_batch(&mut self, mut budget: Budget, out: &mut PacketList<A>, cx: &mut Cx<'_, A>) {
        let (segs, bytes) = (out.segs(), out.bytes());
        // Bands whose leaves held their packets back may send now.
        (self.params.strict()..self.bands.len()).for_each(|band| self.update_round(band));
        while budget.is_left() && self.dequeue_one(&mut budget, out, cx) {}
        self.sent.0 += out.segs() - segs;
        self.sent.1 += out.bytes() - bytes;
    }

    fn reset(&mut self, cx: &mut Cx<'_, A>) {
        for index in 0..self.bands.len() {
            self.bands[index].leaf.reset(&mut self.total, cx);
            self.update_round(index);
        }
    }

    fn change(&mut self, words: &mut Words<'_>, _: &Env, cx: &mut Cx<'_, A>) -> Result<(), ParseError> {
        let params = Params::parse(words, &self.env)?;
        let bands = params.quanta.len();
        while self.bands.len() > bands {
            let Some(mut band) = self.bands.pop() else { break };
            let last = self.bands.len();
            self.active.retain(|&other| other != last);
            band.leaf.replace(Box::new(Noop), Handle::UNSPEC, &mut self.total, cx);
        }
        let env = self.env;
        self.bands.resize_with(bands, || Band::new(&env));
        self.params = params;
        (0..bands).for_each(|band| self.update_round(band));
        Ok(())
    }

    fn room_for(&self, arrival: Arrival<'_, A>) -> Result<(), Full> {
        let bands = (&self.params.map, self.bands.len());
        let band = priomap::foresee(arrival.packet, arrival.clock, self.handle, &self.filters, bands);
        band.map_or(Ok(()), |band| self.bands[band].leaf.room_for(arrival))
    }

    fn qlen(&self) -> usize {
        self.total.qlen
    }

    fn stats(&self) -> QdiscStats {
        let Total { qlen, backlog, drops } = self.total;
        let (packets, bytes) = self.sent;
        QdiscStats { bytes, packets, drops, backlog, qlen: qlen as u64, ..QdiscStats::default() }
    }

    fn xstats(&self, style: Style) -> Option<Options> {
        self.unknown.xstats(style)
    }

    fn options(&self, style: Style) -> Options {
        let strict = self.params.strict();
        let quanta: Vec<_> = self.params.quanta[strict..].iter().map(|&quantum| quantum.into()).collect();
        let mut options = Options::new(style);
        options.number("bands", self.bands.len() as u64);
        if strict > 0 {
            options.number("strict", strict as u64);
        }
        if !quanta.is_empty() {
            options.list("quanta", &quanta);
        }
        options.list("priomap", &self.params.map.map(u64::from)).end_blank();
        options
    }

    fn next_event(&self) -> Option<Nanos> {
        let bands = self.bands.iter().filter(|band| band.leaf.qlen() > 0);
        bands.filter_map(|band| band.leaf.qdisc().next_event()).min()
    }

    fn classes(&mut self) -> Option<&mut dyn Classes<A>> {
        Some(self)
    }
}

impl<A: Arch> Classes<A> for Ets<A> {
    fn minors(&mut self) -> Vec<u16> {
        (1..=self.bands.len() as u16).collect()
    }

    fn leaf(&mut self, minor: u16) -> Option<(&mut Child<A>, &mut Total)> {
        Some((&mut self.bands[usize::from(minor) - 1].leaf, &mut self.total))
    }

    fn default_leaf(&mut self, _: u16) -> Box<dyn Qdisc<A>> {
        default_leaf(&self.env)
    }

    fn leaf_changed(&mut self, minor: u16) {
        self.update_round(usize::from(minor) - 1);
    }

    fn add(
        &mut self,
        _: u16,
        _: u16,
        words: &mut Words<'_>,
        _: &Env,
        _: &mut Cx<'_, A>,
    ) -> Result<(), ParseError> {
        Params::parse_class(words)?;
        let error = ParseError::new("Error: Fine-grained class addition and removal is not supported.");
        Err(error.with_remedy("change the number of bands instead"))
    }

    fn change_class(
        &mut self,
        minor: u16,
        words: &mut Words<'_>,
        _: &mut Cx<'_, A>,
    ) -> Result<(), ParseError> {
        let Some(quantum) = Params::parse_class(words)? else { return Ok(()) };
        let band = usize::from(minor) - 1;
        if band < self.params.strict() {
            let error = ParseError::new("Error: Strict bands do not have a configurable quantum.");
            return Err(error.with_remedy("name a sharing band"));
        }
        self.params.quanta[band] = quantum;
        Ok(())
    }

    fn class(&mut self, minor: u16, style: Style) -> ClassInfo {
        let index = usize::from(minor) - 1;
        let (leaf, quantum) = (&self.bands[index].leaf, self.params.quanta[index]);
        let mut options = Options::new(style);
        if quantum > 0 {
            options.number("quantum", quantum.into()).end_blank();
        }
        let stats = leaf.qdisc().stats();
        ClassInfo {
            rate: None,
            kind: params::SYNTAX.kind.to_owned(),
            handle: Handle::new(0, minor),
            parent: Handle::ROOT,
            leaf: leaf.handle(),
            options,
            stats: Some(QdiscStats { qlen: leaf.qlen() as u64, backlog: leaf.backlog(), ..stats }),
            xstats: None,
        }
    }
}

#[cfg(test)]
mod tests;
