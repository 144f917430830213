//! multiq: a band for each txq, served in turns, so that a txq without room does not hold up the packets of the others.
//!
//! A packet's band is the txq that it was steered to; a packet of a txq that has no band is in band 0. Class 1 is band 0. Each
//! turn dequeues one packet, and skips bands whose txq is stopped. Filters do not choose a band, but they may drop packets. A
//! filter of the device's egress hook (`clsact`) chooses the txq, and so the band, by `skbedit queue_mapping`.
//!
//! There are no options. Each band has a pfifo of `tx_queue_len` packets until the user replaces it. Packets of all txqs pass
//! through the one queue; [`mq`](super::mq) has a queue for each txq instead, and its senders share nothing. multiq is for
//! qdiscs above it: one rate for all txqs, and a band for each.
//!
//! ```text
//! tc qdisc add dev eth0 root handle 1: multiq
//! tc qdisc add dev eth0 parent 1:2 handle 20: fq_codel
//! ```
//!
//! The kernel's counterpart is `sch_multiq`. As there, a device with one txq takes no multiq. Differences:
//! - There is a band for each txq that the device was built with. Linux counts those that were in use when the qdisc was
//!   created or changed; the others' packets are in band 0.
//! - JSON has `bands` and `max_bands`. tc prints the text, which is no JSON.

use txq_core::arch::{Arch, Nanos};
use txq_core::clock::Clock;
use txq_core::packet::{Packet, PacketList};
use txq_core::stats::QdiscStats;

use crate::generic::filter::{Choice, Filters};
use crate::generic::qdisc::child::{Child, Classes, Total};
use crate::generic::qdisc::runs::{self, refuse};
use crate::generic::qdisc::{Arrival, Budget, Built, Cx, Env, Full, Qdisc, Verdict, default_leaf};
use crate::tc::{Options, ParseError, Style, Syntax, Wording, Words};

static SYNTAX: Syntax =
    Syntax { kind: "multiq", words: &[], usage: "Usage: ... multiq [help]", wording: Wording::Plain };

struct Multiq<A: Arch> {
    bands: Vec<Child<A>>,
    /// Of each band, whether the last dequeue skipped it because its txq was stopped.
    skipped: Vec<bool>,
    /// The band that sent last.
    turn: usize,
    total: Total,
    sent: (u64, u64),
    filters: Filters<A>,
    env: Env,
}

pub(super) fn build<A: Arch>(words: &mut Words<'_>, env: &Env) -> Result<Built<A>, ParseError> {
    words.options(&SYNTAX).end()?;
    if env.txqs < 2 {
        let error = ParseError::new("RTNETLINK answers: Operation not supported");
        return Err(error.with_remedy("multiq needs a device with at least 2 txqs"));
    }
    let bands: Vec<_> = (0..env.txqs).map(|_| Child::fifo(env)).collect();
    Ok(Built::Qdisc(Box::new(Multiq {
        skipped: vec![false; bands.len()],
        turn: 0,
        bands,
        total: Total::default(),
        sent: (0, 0),
        filters: Filters::new(),
        env: *env,
    })))
}

impl<A: Arch> Multiq<A> {
    /// Returns the packet's band; `None` if a filter drops it.
    fn band(&self, packet: &Packet<A>, clock: &mut Clock<A>) -> Option<usize> {
        self.band_of(packet, self.filters.classify(packet, clock))
    }

    /// Returns the band of a packet for which the filters have made this choice.
    fn band_of(&self, packet: &Packet<A>, choice: Option<Choice>) -> Option<usize> {
        match choice {
            None | Some(Choice::Class(_)) => {
                let band = usize::from(packet.txq());
                Some(if band < self.bands.len() { band } else { 0 })
            }
            Some(_) => None,
        }
    }
}

impl<A: Arch> Qdisc<A> for Multiq<A> {
    fn kind(&self) -> &'static str {
        SYNTAX.kind
    }

    fn filters(&mut self, class: u16) -> Option<&mut Filters<A>> {
        (class == 0).then_some(&mut self.filters)
    }

    fn enqueue(&mut self, packet: Packet<A>, cx: &mut Cx<'_, A>) -> Verdict {
        let Some(band) = self.band(&packet, cx.clock) else { return refuse(packet, &mut self.total, cx) };
        self.bands[band].enqueue(packet, &mut self.total, cx)
    }

    fn enqueue_batch(&mut self, batch: &mut PacketList<A>, cx: &mut Cx<'_, A>) {
        let put = |multiq: &mut Self, band: usize, run: &mut PacketList<A>, cx: &mut Cx<'_, A>| {
            multiq.bands[band].enqueue_batch(run, &mut multiq.total, cx);
        };
        let drop = |multiq: &mut Self, packet, cx: &mut Cx<'_, A>| refuse(packet, &mut multiq.total, cx);
        let band = |multiq: &mut Self, packet: &_, clock: &mut _| multiq.band(packet, clock);
        runs::enqueue(self, batch, cx, band, put, drop);
    }

    fn dequeue_batch(&mut self, mut budget: Budget, out: &mut PacketList<A>, cx: &mut Cx<'_, A>) {
        let (segs, bytes, count) = (out.segs(), out.bytes(), self.bands.len());
        for (txq, skipped) in (0..).zip(&mut self.skipped) {
            *skipped = cx.is_stopped(txq);
        }
        // Bands in a row that had no packet to send now.
        let mut idle = 0;
        while budget.is_left() && idle < count {
            self.turn = (self.turn + 1) % count;
            idle += 1;
            let band = &mut self.bands[self.turn];
            if self.skipped[self.turn] || band.qlen() == 0 {
                continue;
            }
            let (packets, from) = (out.len(), out.bytes());
            band.dequeue(&mut Budget::packets(1), out, &mut self.total, cx);
            if out.len() > packets {
                budget.spend(out.len() - packets, out.bytes() - from);
                idle = 0;
            }
        }
        self.sent.0 += out.segs() - segs;
        self.sent.1 += out.bytes() - bytes;
    }

    fn reset(&mut self, cx: &mut Cx<'_, A>) {
        self.bands.iter_mut().for_each(|band| band.reset(&mut self.total, cx));
        self.turn = 0;
    }

    fn change(&mut self, words: &mut Words<'_>, _: &Env, _: &mut Cx<'_, A>) -> Result<(), ParseError> {
        words.options(&SYNTAX).end()
    }

    fn room_for(&self, arrival: Arrival<'_, A>) -> Result<(), Full> {
        let choice = self.filters.foresee(arrival.packet, arrival.clock);
        self.band_of(arrival.packet, choice).map_or(Ok(()), |band| self.bands[band].room_for(arrival))
    }

    fn qlen(&self) -> usize {
        self.total.qlen
    }

    fn stats(&self) -> QdiscStats {
        let Total { qlen, backlog, drops } = self.total;
        let (packets, bytes) = self.sent;
        QdiscStats { bytes, packets, drops, backlog, qlen: qlen as u64, ..QdiscStats::default() }
    }

    fn options(&self, style: Style) -> Options {
        let (mut options, bands) = (Options::new(style), self.bands.len());
        if !style.input {
            options.json_only("bands", bands).json_only("max_bands", bands);
            options.text_only(format_args!("bands {bands}/{bands}")).end_blank();
        }
        options
    }

    /// Returns the next event of a band that a dequeue does not skip. The wake of its txq runs the queue for one that it skips.
    fn next_event(&self) -> Option<Nanos> {
        let bands = self.bands.iter().zip(&self.skipped);
        let held = bands.filter(|(band, skipped)| band.qlen() > 0 && !**skipped);
        held.filter_map(|(band, _)| band.qdisc().next_event()).min()
    }

    fn passes_stopped(&self) -> bool {
        true
    }

    fn classes(&mut self) -> Option<&mut dyn Classes<A>> {
        Some(self)
    }
}

impl<A: Arch> Classes<A> for Multiq<A> {
    fn minors(&mut self) -> Vec<u16> {
        (1..=self.bands.len() as u16).collect()
    }

    fn leaf(&mut self, minor: u16) -> Option<(&mut Child<A>, &mut Total)> {
        Some((&mut self.bands[usize::from(minor) - 1], &mut self.total))
    }

    fn default_leaf(&mut self, _: u16) -> Box<dyn Qdisc<A>> {
        default_leaf(&self.env)
    }
}

#[cfg(test)]
mod tests;
