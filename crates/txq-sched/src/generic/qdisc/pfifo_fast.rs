//! pfifo_fast: three bands, each a FIFO, the lower first; the kernel's default qdisc, and txq's.
//!
//! A packet's priority modulo 16 selects its band by the kernel's fixed map: 1 2 2 2 1 2 0 0 1 1 1 1 1 1 1 1. A band is
//! served only while all bands below it are empty. Each band holds as many packets as the device's `tx_queue_len` (1000
//! unless set), and drops what exceeds a smaller one. There are no options, and nothing to change.
//!
//! ```text
//! tc qdisc replace dev eth0 root pfifo_fast
//! ```
//!
//! The kernel's counterpart is `pfifo_fast_ops` in `sch_generic`. Differences:
//! - Several CPUs may enter the kernel's at once. This one has one owner, as every qdisc here; with the discipline
//!   `lockless` senders sort packets into bands in front of it (`enqueue/lockless.rs`).
//! - A packet that the driver refuses goes back to its band, not in front of all bands, so a later packet of a lower band
//!   number goes first.

use txq_core::arch::Arch;
use txq_core::packet::{Packet, PacketList};
use txq_core::stats::QdiscStats;
use txq_core::stats::latency::Latency;

use crate::generic::qdisc::fifo::Fifo;
use crate::generic::qdisc::{Arrival, BANDS, Band, Budget, Built, Cx, Env, Full, NoLock, Qdisc, Verdict};
use crate::tc::{Options, ParseError, Style, Syntax, Wording, Words};

static SYNTAX: Syntax =
    Syntax { kind: "pfifo_fast", words: &[], usage: "Usage: ... pfifo_fast", wording: Wording::NoOptions };

/// `sch_default_prio2band`: the band of each priority modulo 16.
pub(super) const PRIOMAP: [u8; 16] = [1, 2, 2, 2, 1, 2, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1];

struct PfifoFast<A: Arch> {
    bands: [Fifo<A>; BANDS],
    /// Packets and bytes that bypassed the queue, by band. The last entry is not used: with four of them an index of two
    /// bits needs no bounds check.
    past: [(u64, u64); 4],
    /// Packets that a band holds at most.
    limit: u32,
    /// The time from xmit to the dequeue, by band; `None` before the first sample.
    latency: Option<Box<[Latency; BANDS]>>,
}

pub(super) fn build<A: Arch>(words: &mut Words<'_>, env: &Env) -> Result<Built<A>, ParseError> {
    words.options(&SYNTAX).end()?;
    let bands = std::array::from_fn(|_| Fifo::new());
    Ok(Built::Qdisc(Box::new(PfifoFast { bands, past: [(0, 0); 4], limit: env.tx_queue_len, latency: None })))
}

/// [`PRIOMAP`] with two bits for each priority, so that the band of a lone packet is found without reading memory.
const PACKED: u32 = {
    let (mut packed, mut priority) = (0, 0);
    while priority < 16 {
        packed |= (PRIOMAP[priority] as u32) << (2 * priority);
        priority += 1;
    }
    packed
};

fn band<A: Arch>(packet: &Packet<A>) -> usize {
    PRIOMAP[(packet.priority() & 15) as usize].into()
}

/// Returns the latencies of the bands, and creates them for the first sample.
#[cold]
fn sampled(latency: &mut Option<Box<[Latency; BANDS]>>) -> &mut [Latency; BANDS] {
    latency.get_or_insert_with(|| Box::new(std::array::from_fn(|_| Latency::new())))
}

impl<A: Arch> PfifoFast<A> {
    fn band_stats(&self, band: usize) -> QdiscStats {
        let mut stats = self.bands[band].stats();
        stats.count_sent(self.past[band].0, self.past[band].1);
        stats
    }
}

impl<A: Arch> Qdisc<A> for PfifoFast<A> {
    fn kind(&self) -> &'static str {
        SYNTAX.kind
    }

    fn enqueue(&mut self, packet: Packet<A>, cx: &mut Cx<'_, A>) -> Verdict {
        let band = &mut self.bands[band(&packet)];
        if band.len() < self.limit as usize { band.push(packet) } else { band.refuse(packet, cx) }
    }

    fn dequeue_batch(&mut self, mut budget: Budget, out: &mut PacketList<A>, _: &mut Cx<'_, A>) {
        for (index, band) in self.bands.iter_mut().enumerate().filter(|(_, b)| !b.is_empty()) {
            let before = out.len();
            band.pop(&mut budget, out);
            if out.stamped() {
                out.record_times_behind(before, &mut sampled(&mut self.latency)[index]);
            }
            if !budget.is_left() {
                return;
            }
        }
    }

    fn requeue(&mut self, batch: &mut PacketList<A>) {
        let mut back = [const { PacketList::new() }; BANDS];
        while let Some(packet) = batch.pop_front() {
            back[band(&packet)].push_back(packet);
        }
        for (band, back) in self.bands.iter_mut().zip(&mut back) {
            band.put_back(back);
        }
    }

    fn front(&self) -> Option<&Packet<A>> {
        self.bands.iter().find_map(Fifo::front)
    }

    fn reset(&mut self, cx: &mut Cx<'_, A>) {
        self.bands.iter_mut().for_each(|b| b.purge(cx));
    }

    fn change(&mut self, words: &mut Words<'_>, _: &Env, _: &mut Cx<'_, A>) -> Result<(), ParseError> {
        words.options(&SYNTAX).end()?;
        Err(ParseError::new("Error: Change operation not supported by specified qdisc."))
    }

    fn set_tx_queue_len(&mut self, packets: u32, cx: &mut Cx<'_, A>) {
        self.limit = packets;
        self.bands.iter_mut().for_each(|b| b.trim(packets as usize, cx));
    }

    fn room_for(&self, arrival: Arrival<'_, A>) -> Result<(), Full> {
        let queued = self.bands[band(arrival.packet)].len();
        arrival.and_back().within(queued, self.limit as usize)
    }

    fn qlen(&self) -> usize {
        self.bands.iter().map(Fifo::len).sum()
    }

    fn stats(&self) -> QdiscStats {
        (0..BANDS).map(|band| self.band_stats(band)).fold(QdiscStats::default(), |a, b| a + b)
    }

    fn options(&self, style: Style) -> Options {
        let mut options = Options::new(style);
        if style.input {
            return options;
        }
        options.number("bands", 3).list("priomap", &PRIOMAP.map(u64::from)).json_only("multiqueue", false);
        options
    }

    fn nolock(&self) -> Option<NoLock> {
        let len = std::array::from_fn(|band| self.bands[band].len() as u32);
        Some(NoLock { priomap: &PRIOMAP, limit: self.limit, len })
    }

    fn max_packets(&self) -> Option<usize> {
        Some(self.limit as usize * self.bands.len())
    }

    fn can_bypass(&self) -> bool {
        true
    }

    fn bypassed_by(&mut self, priority: u32, packets: u64, bytes: u64) {
        let past = &mut self.past[((PACKED >> (2 * (priority & 15))) & 3) as usize];
        *past = (past.0 + packets, past.1 + bytes);
    }

    /// Lets a batch bypass the empty queue if all of it is for one band that would take it: a band returns the same packets
    /// in the same order.
    fn bypass(&mut self, batch: &PacketList<A>) -> bool {
        let Some(first) = batch.front().filter(|_| self.qlen() == 0).map(band) else { return false };
        let n = batch.len();
        let may = n == 1 || (n <= self.limit as usize && batch.iter().all(|packet| band(packet) == first));
        if may {
            let past = &mut self.past[first];
            *past = (past.0 + batch.segs(), past.1 + batch.bytes());
        }
        may
    }

    fn bands(&self) -> Vec<Band> {
        let latency = |band: usize| self.latency.as_ref().map(|all| all[band].clone());
        let row = |band| Band {
            name: format!("band {band}"),
            stats: self.band_stats(band),
            latency: latency(band).unwrap_or_default(),
        };
        (0..BANDS).map(row).collect()
    }
}
