//! fq: fair queueing of many flows, each paced.
//!
//! Every flow has a queue of its own. Three bands, chosen by priority, share the device by weight; the flows of a band
//! take turns by deficit round robin, and a flow that comes back from being idle goes first once. A packet with a
//! departure time ([`Packet::departure`]) does not leave before it, and `maxrate` spaces the packets of each flow. Flows that
//! wait for their time are on a timing wheel (`qdisc/wheel.rs`). While there is nothing to be fair about, a packet goes through
//! one FIFO and no flow is looked up.
//!
//! Sources: Shreedhar and Varghese, "Efficient Fair Queuing using Deficit Round Robin" (SIGCOMM 1995); new and old flows as
//! in RFC 8290; earliest departure times as in Carousel (SIGCOMM 2017). The kernel's counterpart is `sch_fq`.
//!
//! **Which flow.** The kernel tells flows by socket, and packets without one by `orphan_mask` bits of their hash. Here the
//! flow hash is the socket: one that the program set, or that steering made, or that is made here from the headers. All 32
//! bits of it count, so that a million flows are a million queues. `orphan_mask` bounds the flows of frames that are not
//! IP, which have no ends that could be told apart but their MAC addresses.
//!
//! Other differences from Linux:
//! - Packets in the FIFO count for their band's limit.
//! - A flow that waits is given an earlier time when a packet with an earlier one comes; Linux lets it wait.
//! - A packet without a departure time is given its arrival's, and one beyond the horizon, with `horizon_cap`, the capped time.
//! - Rounds in which no flow could send, because the quantum is much smaller than a packet, are skipped at once.
//! - When `change` leaves a band with too many packets, each flow loses its first, in turns, until they fit.
//! - Idle flows are forgotten in the order in which they became idle, when new ones come and when the queue is empty.
//!   `buckets` is what the flow table begins with; it grows with the flows.
//! - A pause that took up to 1 ms too long is made good in full, so that a rate is kept by threads that sleep; Linux makes
//!   good half a pause.
//! - No socket tells a rate: `maxrate` is the only one.
//! - A packet that goes to the device before its time (`offload_horizon`, for devices that can keep it:
//!   [`Driver::pacing_horizon`](crate::driver::Driver::pacing_horizon)) is told the time that its flow's rate gives it.

#![forbid(unsafe_code)]

mod bands;
mod change;
mod chunks;
mod flow;
mod index;
mod key;
mod pace;
mod params;
mod show;
mod table;
mod turns;

use crate::arch::{Arch, Nanos};
use crate::drop::DropReason;
use crate::flow::FlowHasher;
use crate::packet::{Packet, PacketList};
use crate::qdisc::wheel::Wheel;
use crate::qdisc::{Budget, Built, Cx, Env, Qdisc, Verdict, ecn};
use crate::stats::QdiscStats;
use crate::tc::{Options, ParseError, Style, Words};

use bands::{Bands, MANY, Turn};
use flow::{NIL, Place};
use key::TOGETHER;
use params::{BANDS, Params};
use show::Xstats;
use table::Table;

/// Packets that the FIFO takes while flows wait for their time.
const FAST_PATH: usize = 8;

struct Fq<A: Arch> {
    params: Params,
    /// The latest time that was seen: owners' clocks may differ by a batch, and flows must not.
    now: Nanos,
    hasher: FlowHasher,
    /// Packets of the fast path.
    fifo: PacketList<A>,
    table: Table<A>,
    /// The flow that a packet was queued in last; the next one is often of the same.
    last: u32,
    bands: Bands,
    /// Flows that wait for their time.
    wheel: Wheel<u32>,
    /// Packets in the flows, and their bytes.
    queued: (usize, u64),
    /// Flows that have packets.
    busy: usize,
    /// Packets of each band.
    band_pkts: [usize; BANDS],
    stats: QdiscStats,
    xstats: Xstats,
}

pub(super) fn build<A: Arch>(words: &mut Words<'_>, env: &Env) -> Result<Built<A>, ParseError> {
    let params = Params::new(env).changed(words, env)?;
    let bands = Bands::new(&params.weights);
    Ok(Built::Qdisc(Box::new(Fq::<A> {
        params,
        now: 0,
        hasher: FlowHasher::new([A::random(), A::random()], false),
        fifo: PacketList::new(),
        table: Table::new(),
        last: NIL,
        bands,
        wheel: Wheel::new(),
        queued: (0, 0),
        busy: 0,
        band_pkts: [0; BANDS],
        stats: QdiscStats::default(),
        xstats: Xstats::default(),
    })))
}

impl<A: Arch> Fq<A> {
    fn tick(&mut self, cx: &mut Cx<'_, A>) -> Nanos {
        self.now = self.now.max(cx.clock.now());
        self.now
    }

    /// What is due until then may leave now.
    #[inline]
    fn reach(&self, now: Nanos) -> Nanos {
        now.saturating_add(self.params.offload_horizon())
    }

    /// Whether a packet may go through the FIFO: it overtakes nothing, and there is nobody to be fair to.
    fn is_fast(&self, at: Nanos, now: Nanos) -> bool {
        let now = self.reach(now);
        at <= now
            && self.params.maxrate == u32::MAX
            && (self.qlen() == 0
                || (self.busy == self.wheel.len()
                    && self.fifo.len() < FAST_PATH
                    && self.wheel.next_time().is_none_or(|due| due > now)))
    }

    /// Drops a packet that was not queued.
    fn refuse(&mut self, packet: Packet<A>, reason: DropReason, cx: &mut Cx<'_, A>) -> Verdict {
        self.stats.drops += 1;
        cx.drop(packet, reason);
        Verdict::Drop
    }

    /// Queues or drops a packet, whose flow is perhaps `guess`.
    #[inline]
    fn admit(&mut self, mut packet: Packet<A>, guess: u32, cx: &mut Cx<'_, A>) -> Verdict {
        let now = self.tick(cx);
        let band = self.params.band(&packet);
        if self.band_pkts[band] >= self.params.limit as usize {
            self.xstats.band_drops[band] += 1;
            return self.refuse(packet, DropReason::FqBandLimit, cx);
        }
        let horizon = now.saturating_add(self.params.horizon());
        match packet.departure() {
            0 => packet.set_departure(now),
            at if at <= horizon => {}
            _ if self.params.horizon_drop => {
                self.xstats.horizon_drops += 1;
                return self.refuse(packet, DropReason::FqHorizonLimit, cx);
            }
            _ => {
                self.xstats.horizon_caps += 1;
                packet.set_departure(horizon);
            }
        }
        if self.is_fast(packet.departure(), now) {
            self.xstats.fastpath += 1;
            self.fifo.push_back(packet);
        } else {
            if packet.hash() == 0 {
                self.dissect(&mut packet);
            }
            let key = self.key(&packet);
            if let Err(packet) = self.push(packet, key, band, guess) {
                self.xstats.flows_plimit += 1;
                return self.refuse(packet, DropReason::FqFlowLimit, cx);
            }
        }
        self.band_pkts[band] += 1;
        Verdict::Success
    }

    /// Queues a packet in its flow.
    fn push(&mut self, packet: Packet<A>, key: u64, band: usize, guess: u32) -> Result<(), Packet<A>> {
        let now = self.now;
        let guess = if guess == NIL { self.last } else { guess };
        let id = match self.table.find(key, guess) {
            Some(id) => id,
            None => {
                self.table.collect(now, 4);
                let credit = self.params.initial_quantum.into();
                self.table.create(key, credit, self.params.buckets as usize, now)
            }
        };
        self.last = id;
        let flow = self.table.flow_mut(id);
        if flow.len >= self.params.flow_limit {
            return Err(packet);
        }
        self.queued.0 += 1;
        self.queued.1 += packet.len() as u64;
        self.busy += usize::from(flow.len == 0);
        let (place, since) = (flow.place, flow.time);
        // Goes by it when it is put on a list next.
        flow.band = band as u8;
        self.table.push(id, packet);
        match place {
            Place::Idle => {
                if now.saturating_sub(since) > self.params.refill_delay() {
                    let flow = self.table.flow_mut(id);
                    flow.credit = flow.credit.max(self.params.quantum.into());
                }
                self.table.unset_idle(id);
                self.bands.append(&mut self.table, id, Place::New);
            }
            Place::Throttled => self.hasten(id),
            Place::New | Place::Old | Place::Free => {}
        }
        Ok(())
    }

    /// Has a flow that waits do so until its first packet's time, if that is earlier now.
    fn hasten(&mut self, id: u32) {
        let due = self.table.due(id);
        let Some(ticket) = self.table.flow(id).ticket else { return };
        if let (Some(due), Some(time)) = (due, self.wheel.time_of(ticket))
            && due < time
        {
            self.wheel.remove(ticket);
            self.table.flow_mut(id).ticket = Some(self.wheel.insert(due, id));
        }
    }

    /// Gives flows whose time has come a turn.
    fn wake(&mut self, now: Nanos) {
        while let Some((at, id)) = self.wheel.pop(self.reach(now)) {
            self.xstats.waked(now.saturating_sub(at));
            self.table.flow_mut(id).ticket = None;
            self.bands.append(&mut self.table, id, Place::Old);
        }
    }

    /// The next packet that may leave now.
    fn next(&mut self, now: Nanos) -> Option<Packet<A>> {
        if let Some(packet) = self.fifo.pop_front() {
            self.band_pkts[self.params.band(&packet)] -= 1;
            return Some(packet);
        }
        loop {
            let quantum = self.params.quantum.into();
            let turn = self.bands.turn(&mut self.table, quantum, &self.params.weights)?;
            match self.table.due(turn.flow) {
                Some(due) if due <= self.reach(now) => return self.send(turn, due, now),
                Some(due) => self.throttle(turn, due),
                None => {
                    self.bands.unlink(&self.table, turn);
                    // Behind the others once, or a flow that is idle after each packet would always go first.
                    if turn.is_new() && self.bands.has_old(turn.band) {
                        self.bands.append(&mut self.table, turn.flow, Place::Old);
                    } else {
                        self.table.set_idle(turn.flow, now);
                    }
                }
            }
        }
    }

    /// Has the flow whose turn it is wait.
    fn throttle(&mut self, turn: Turn, due: Nanos) {
        self.bands.unlink(&self.table, turn);
        let ticket = self.wheel.insert(due, turn.flow);
        let flow = self.table.flow_mut(turn.flow);
        (flow.place, flow.ticket) = (Place::Throttled, Some(ticket));
        self.xstats.throttled += 1;
    }

    /// Takes the first packet, which is due, of the flow whose turn it is.
    fn send(&mut self, turn: Turn, due: Nanos, now: Nanos) -> Option<Packet<A>> {
        let flow = self.table.flow_mut(turn.flow);
        let mut packet = if flow.is_late {
            self.table.pop_front(turn.flow)?
        } else {
            flow.len -= 1;
            flow.queue.pop_front()?
        };
        let bytes = packet.len();
        let flow = self.table.flow_mut(turn.flow);
        flow.credit -= bytes as i64;
        self.queued.0 -= 1;
        self.queued.1 -= bytes as u64;
        self.busy -= usize::from(flow.len == 0);
        self.band_pkts[self.params.band(&packet)] -= 1;
        self.bands.charge(turn.band, bytes as i64);
        if let Some(threshold) = self.params.ce_threshold()
            && now.saturating_sub(due) > threshold
        {
            self.xstats.ce_mark += u64::from(ecn::set_ce(&mut packet));
        }
        if due > now {
            packet.set_departure(due);
        }
        if let Some(rate) = self.params.rate() {
            self.pace(turn.flow, rate, bytes as u64, now.max(due));
        }
        Some(packet)
    }
}

impl<A: Arch> Qdisc<A> for Fq<A> {
    fn kind(&self) -> &'static str {
        params::SYNTAX.kind
    }

    fn enqueue(&mut self, packet: Packet<A>, cx: &mut Cx<'_, A>) -> Verdict {
        self.admit(packet, NIL, cx)
    }

    fn enqueue_batch(&mut self, batch: &mut PacketList<A>, cx: &mut Cx<'_, A>) {
        while !batch.is_empty() {
            let guesses = if self.table.len > MANY { self.fetch(batch) } else { [NIL; TOGETHER] };
            for guess in guesses {
                let Some(packet) = batch.pop_front() else { return };
                let _ = self.admit(packet, guess, cx);
            }
        }
    }

    fn dequeue_batch(&mut self, mut budget: Budget, out: &mut PacketList<A>, cx: &mut Cx<'_, A>) {
        let now = self.tick(cx);
        self.wake(now);
        while budget.is_left()
            && let Some(packet) = self.next(now)
        {
            budget.send(packet, out, &mut self.stats);
        }
        if self.qlen() == 0 {
            self.table.collect(now, 8);
        }
    }

    fn reset(&mut self, cx: &mut Cx<'_, A>) {
        while let Some(packet) = self.fifo.pop_front() {
            cx.drop(packet, DropReason::QueuePurge);
        }
        let flows: Vec<_> = self.table.backlogged().collect();
        for id in flows {
            while let Some(packet) = self.table.pop_front(id) {
                cx.drop(packet, DropReason::QueuePurge);
            }
        }
        self.table.clear();
        self.last = NIL;
        self.bands = Bands::new(&self.params.weights);
        drop(self.wheel.clear());
        (self.queued, self.busy, self.band_pkts) = ((0, 0), 0, [0; BANDS]);
    }

    fn change(&mut self, words: &mut Words<'_>, env: &Env, cx: &mut Cx<'_, A>) -> Result<(), ParseError> {
        let params = self.params.changed(words, env)?;
        self.go_by(params, cx);
        Ok(())
    }

    fn qlen(&self) -> usize {
        self.fifo.len() + self.queued.0
    }

    fn stats(&self) -> QdiscStats {
        let backlog = self.fifo.bytes() + self.queued.1;
        QdiscStats { backlog, qlen: self.qlen() as u64, ..self.stats }
    }

    fn options(&self, style: Style) -> Options {
        self.params.show(style)
    }

    fn xstats(&self, style: Style) -> Option<Options> {
        Some(self.show_xstats(style))
    }

    /// The first flow's time and the slack, in which others may become due, too.
    fn next_event(&self) -> Option<Nanos> {
        let at = self.wheel.next_time()?.saturating_sub(self.params.offload_horizon());
        Some(at.saturating_add(self.params.timer_slack.into()))
    }
}

#[cfg(test)]
mod tests;
