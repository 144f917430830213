//! prio: bands, the lower first, each a class with a qdisc of its own.
//!
//! A packet's band is the class that its priority names, where the priority is a handle (`major:minor` of this qdisc); else
//! the class that the filters name; else the band that `priomap` gives to the priority modulo 16. Class 1 is band 0. A band
//! is served only while all bands below it have nothing to send now, so a shaper in band 0 lets the others pass.
//!
//! | option | values | default | |
//! |---|---|---|---|
//! | `bands` | 2 to 16 | 3 | number of bands; with fewer, the packets of those that go are dropped |
//! | `priomap` | up to 16 bands | 1 2 2 2 1 2 0 0 1 1 1 1 1 1 1 1 | the band of each priority modulo 16, or the default |
//!
//! With `bands 2` a `priomap` must be given, since the default names band 2.
//!
//! Each band has a pfifo of `tx_queue_len` packets until the user replaces it.
//!
//! ```text
//! tc qdisc add dev eth0 root handle 1: prio bands 3
//! tc qdisc add dev eth0 parent 1:1 handle 10: tbf rate 10mbit burst 10k latency 50ms
//! ```
//!
//! The kernel's counterpart is `sch_prio`. `multiqueue` is refused.

use txq_core::arch::Arch;
use txq_core::clock::Clock;
use txq_core::packet::{Packet, PacketList};
use txq_core::stats::QdiscStats;

use crate::generic::filter::Filters;
use crate::generic::qdisc::child::{Child, Classes, Total};
use crate::generic::qdisc::pfifo_fast::PRIOMAP;
use crate::generic::qdisc::priomap;
use crate::generic::qdisc::runs::{self, refuse};
use crate::generic::qdisc::unknown::UnknownClass;
use crate::generic::qdisc::{Arrival, Budget, Built, Cx, Env, Full, Qdisc, Verdict, default_leaf};
use crate::tc::{Handle, Options, ParseError, Style, Syntax, Wording, Words};

static SYNTAX: Syntax = Syntax {
    kind: "prio",
    words: &["bands", "priomap"],
    usage: "Usage: ... prio bands NUMBER priomap P1 P2...[multiqueue]",
    wording: Wording::Plain,
};

/// The most bands (`TCQ_PRIO_BANDS`).
const PRIO_MAX_BANDS: usize = 16;
/// The fewest (`TCQ_MIN_PRIO_BANDS`).
const MIN_BANDS: usize = 2;

struct Prio<A: Arch> {
    bands: Vec<Child<A>>,
    map: [u8; 16],
    total: Total,
    sent: (u64, u64),
    handle: Handle,
    unknown: UnknownClass,
    filters: Filters<A>,
    env: Env,
}

pub(super) fn build<A: Arch>(words: &mut Words<'_>, env: &Env) -> Result<Built<A>, ParseError> {
    let (bands, map) = parse(words)?;
    let bands = (0..bands).map(|_| Child::fifo(env)).collect();
    let (total, handle, filters) = (Total::default(), Handle::UNSPEC, Filters::new());
    let (unknown, sent, env) = (UnknownClass::default(), (0, 0), *env);
    Ok(Built::Qdisc(Box::new(Prio { bands, map, total, sent, handle, unknown, filters, env })))
}

fn parse(words: &mut Words<'_>) -> Result<(usize, [u8; 16]), ParseError> {
    let mut options = words.options(&SYNTAX);
    let (mut bands, mut map) = (3, PRIOMAP);
    while let Some(word) = options.next_word() {
        match word {
            "bands" => bands = options.value_decimal("bands")?,
            "priomap" => {
                for (priority, place) in map.iter_mut().enumerate() {
                    let Some(band) = options.peek() else { break };
                    let Ok(number) = band.parse::<u32>() else {
                        // The map may be followed by other words, and must begin with a number.
                        if priority == 0 || !SYNTAX.words.contains(&band) {
                            let error = ParseError::new("Illegal \"priomap\" element");
                            return Err(error.with_remedy(format!("\"{band}\" is no number of a band")));
                        }
                        break;
                    };
                    if number >= bands {
                        return Err(out_of_bands(band, bands));
                    }
                    // A band beyond 255 is beyond the bands, which the check below refuses.
                    *place = u8::try_from(number).unwrap_or(u8::MAX);
                    options.next_word();
                }
            }
            other => return Err(options.unknown(other)),
        }
    }
    let range = MIN_BANDS as u32..=PRIO_MAX_BANDS as u32;
    if !range.contains(&bands) || map.iter().any(|&band| u32::from(band) >= bands) {
        let error = ParseError::new("RTNETLINK answers: Invalid argument");
        let remedy =
            format!("use {MIN_BANDS} to {PRIO_MAX_BANDS} bands, and a priomap that names only those");
        return Err(error.with_remedy(remedy));
    }
    Ok((bands as usize, map))
}

fn out_of_bands(word: &str, bands: u32) -> ParseError {
    let error = ParseError::new("\"priomap\" element is out of bands");
    error.with_remedy(format!("\"{word}\" is no band from 0 to {}", bands.saturating_sub(1)))
}

impl<A: Arch> Prio<A> {
    /// Returns the packet's band; `None` if a filter drops it.
    fn band(&mut self, packet: &Packet<A>, clock: &mut Clock<A>) -> Option<usize> {
        let bands = (&self.map, self.bands.len());
        priomap::band(packet, clock, self.handle, &self.filters, bands, &mut self.unknown)
    }
}

impl<A: Arch> Qdisc<A> for Prio<A> {
    fn kind(&self) -> &'static str {
        SYNTAX.kind
    }

    fn set_handle(&mut self, handle: Handle) {
        self.handle = handle;
    }

    fn filters(&mut self, class: u16) -> Option<&mut Filters<A>> {
        (class == 0).then_some(&mut self.filters)
    }

    fn enqueue(&mut self, packet: Packet<A>, cx: &mut Cx<'_, A>) -> Verdict {
        let Some(band) = self.band(&packet, cx.clock) else { return refuse(packet, &mut self.total, cx) };
        self.bands[band].enqueue(packet, &mut self.total, cx)
    }

    fn enqueue_batch(&mut self, batch: &mut PacketList<A>, cx: &mut Cx<'_, A>) {
        let put = |prio: &mut Self, band: usize, run: &mut PacketList<A>, cx: &mut Cx<'_, A>| {
            prio.bands[band].enqueue_batch(run, &mut prio.total, cx);
        };
        let drop = |prio: &mut Self, packet, cx: &mut Cx<'_, A>| refuse(packet, &mut prio.total, cx);
        runs::enqueue(self, batch, cx, Self::band, put, drop);
    }

    fn dequeue_batch(&mut self, mut budget: Budget, out: &mut PacketList<A>, cx: &mut Cx<'_, A>) {
        let (segs, bytes) = (out.segs(), out.bytes());
        for band in &mut self.bands {
            if !budget.is_left() {
                break;
            }
            if band.qlen() > 0 {
                band.dequeue(&mut budget, out, &mut self.total, cx);
            }
        }
        self.sent.0 += out.segs() - segs;
        self.sent.1 += out.bytes() - bytes;
    }

    fn reset(&mut self, cx: &mut Cx<'_, A>) {
        self.bands.iter_mut().for_each(|band| band.reset(&mut self.total, cx));
    }

    fn change(&mut self, words: &mut Words<'_>, _: &Env, cx: &mut Cx<'_, A>) -> Result<(), ParseError> {
        let (bands, map) = parse(words)?;
        while self.bands.len() > bands {
            if let Some(mut band) = self.bands.pop() {
                band.replace(Box::new(super::noop::Noop), Handle::UNSPEC, &mut self.total, cx);
            }
        }
        let env = self.env;
        self.bands.resize_with(bands, || Child::fifo(&env));
        self.map = map;
        Ok(())
    }

    fn room_for(&self, arrival: Arrival<'_, A>) -> Result<(), Full> {
        let bands = (&self.map, self.bands.len());
        let band = priomap::foresee(arrival.packet, arrival.clock, self.handle, &self.filters, bands);
        band.map_or(Ok(()), |band| self.bands[band].room_for(arrival))
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
        let mut options = Options::new(style);
        options.number("bands", self.bands.len() as u64).list("priomap", &self.map.map(u64::from));
        options.json_only("multiqueue", false);
        options
    }

    fn next_event(&self) -> Option<txq_core::arch::Nanos> {
        self.bands.iter().filter(|band| band.qlen() > 0).filter_map(|band| band.qdisc().next_event()).min()
    }

    fn classes(&mut self) -> Option<&mut dyn Classes<A>> {
        Some(self)
    }
}

impl<A: Arch> Classes<A> for Prio<A> {
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
