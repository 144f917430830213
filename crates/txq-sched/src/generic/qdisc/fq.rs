//! fq: fair queueing of many flows, each paced.
//!
//! Every flow has a queue of its own. Three bands share the device by weight; a packet's priority chooses its band. The
//! flows of a band take turns by deficit round robin, and a flow that was idle goes first once. A packet does not leave
//! before its departure time ([`Packet::departure`]), and `maxrate` spaces the packets of each flow. Flows that wait for
//! their time are on a timing wheel (`qdisc/wheel.rs`). Without `maxrate`, packets take the fast path while no flow has a
//! packet to send now: one FIFO, without a flow lookup. Packets without a departure time bypass even that while no packet waits.
//!
//! | option | default | meaning |
//! |---|---|---|
//! | `limit PACKETS` | 10000 | packets of a band |
//! | `flow_limit PACKETS` | 100 | packets of a flow |
//! | `quantum BYTES` | 2 of the device's longest packets | bytes of a flow in each round, 1 to 1048576 |
//! | `initial_quantum BYTES` | 10 of the device's longest packets | bytes that a new flow may send at once |
//! | `maxrate RATE` | none | rate of each flow, below 34.3 Gbit/s |
//! | `buckets NUMBER` | 1024 | flows for which the table starts: 2 to 262144, rounded up to a power of two |
//! | `pacing`, `nopacing` | `pacing` | whether `maxrate` is kept |
//! | `refill_delay TIME` | 40 ms | a flow that was idle for longer has a quantum at least |
//! | `low_rate_threshold RATE` | 550 kbit | up to this `maxrate`, flows send one packet at a time |
//! | `orphan_mask MASK` | 1023 | bits of the hash that separate flows of frames other than IP |
//! | `timer_slack TIME` | 10 us | delay that lets several flows become due at once; a bare number is in ns |
//! | `ce_threshold TIME` | never | marks ECN-capable packets that leave later than this after their time |
//! | `horizon TIME` | 10 s | how far ahead a departure time may be |
//! | `horizon_drop`, `horizon_cap` | `horizon_drop` | drops a packet beyond the horizon, or sets its time to the horizon |
//! | `offload_horizon TIME` | 0 | how long before its time a packet may go to a device that keeps it until then |
//! | `bands 3 priomap P0 .. P15` | `1 2 2 2 1 2 0 0 1 1 1 1 1 1 1 1` | the band of each priority modulo 16 |
//! | `weights W0 W1 W2` | `589824 196608 65536` | bytes of each band's turn, 16384 to 2147483647 |
//!
//! A bare time is in microseconds, a bare rate in bit/s. `defrate` is accepted without effect, as in tc. Drop reasons:
//! `FQ_BAND_LIMIT`, `FQ_FLOW_LIMIT`, `FQ_HORIZON_LIMIT`, and `QDISC_OVERLIMIT` for packets beyond a smaller `limit`.
//!
//! Example: `tc qdisc add root handle 1: fq maxrate 20mbit flow_limit 200`
//!
//! Sources: Shreedhar and Varghese, "Efficient Fair Queuing using Deficit Round Robin" (SIGCOMM 1995); new and old flows as
//! in RFC 8290; earliest departure times as in Carousel (SIGCOMM 2017). The kernel's counterpart is `sch_fq`.
//!
//! **Which flow.** The kernel identifies a flow by its socket, and packets without a socket by `orphan_mask` bits of their
//! hash. Here the flow hash takes the socket's place: the program sets it, steering computes it, or fq computes it from the
//! headers. All 32 bits count, so that a million flows have a million queues. `orphan_mask` bounds the number of flows of
//! frames other than IP, which only their MAC addresses identify.
//!
//! Other differences from Linux:
//! - Bands and the fast path are those of kernels after 6.6. Packets of the fast path count for their band's limit.
//! - A waiting flow wakes earlier when a packet with an earlier time arrives; in Linux it waits on.
//! - A packet without a departure time gets its arrival time. With `horizon_cap`, a packet beyond the horizon gets the
//!   horizon.
//! - If the quantum is much smaller than a packet, the rounds in which no flow can send are computed instead of walked.
//! - When `change` leaves a band with too many packets, its flows lose their first packets in turns until the limit holds.
//! - Idle flows are forgotten in the order in which they became idle: when a new flow arrives, and when the queue is empty.
//!   `buckets` is the initial size of the flow table, which grows with the flows.
//! - A pause that took up to 1 ms too long is made up for in full, so that sleeping threads keep a rate. Linux makes up for
//!   at most half a pause.
//! - No socket sets a rate: `maxrate` is the only rate.
//! - A packet that goes to the device early (`offload_horizon`, up to the device's
//!   `Driver::pacing_horizon`) carries the departure time that its flow's rate
//!   gives it.
//! - `inactive` counts a flow as soon as it is empty; Linux counts it at the flow's next turn. In JSON the number of
//!   throttle events is `throttle_events`; Linux uses the key `throttled` twice.

#![forbid(unsafe_code)]

mod bands;
mod change;
mod chunks;
mod flow;
mod index;
mod key;
mod maxrate;
mod params;
mod show;
mod table;
mod turns;

use txq_core::arch::{Arch, Nanos};
use txq_core::drop::DropReason;
use txq_core::flow::FlowHasher;
use txq_core::packet::{Packet, PacketList};
use txq_core::stats::QdiscStats;

use crate::generic::qdisc::lateness::Lateness;
use crate::generic::qdisc::random::seed;
use crate::generic::qdisc::wheel::Wheel;
use crate::generic::qdisc::{Arrival, Budget, Built, Cx, Env, Full, Qdisc, Verdict, ecn};
use crate::tc::{Options, ParseError, Style, Words};

use bands::{Bands, FlowTurn, MANY_FLOWS};
use flow::{FlowState, NIL};
use key::PREFETCHED_FLOWS;
use params::{FQ_BANDS, Params};
use show::Xstats;
use table::Table;

/// The most packets in the fast path's FIFO while flows wait for their time.
const FAST_PATH: usize = 8;
/// Batches that bypass the queues before one is dequeued, while there are idle flows to forget.
const TIDY: u32 = 64;

struct Fq<A: Arch> {
    params: Params,
    /// The latest time read. Owners' clocks may differ by a batch; the time of the flows must not go back.
    now: Nanos,
    hasher: FlowHasher,
    /// The fast path's packets.
    fifo: PacketList<A>,
    /// Batches that have bypassed the queues since the last dequeue.
    bypassed: u32,
    table: Table<A>,
    /// The flow that the last packet was queued in; the next packet is often of the same flow. [`NIL`] if there is none.
    last: u32,
    bands: Bands,
    /// Flows that wait for their time.
    wheel: Wheel<u32>,
    lateness: Lateness,
    /// Packets in the flows, and their bytes: without those in `fifo`.
    queued: (usize, u64),
    /// The number of flows that have packets.
    busy: usize,
    /// Packets of each band, with those in `fifo`.
    band_pkts: [usize; FQ_BANDS],
    stats: QdiscStats,
    xstats: Xstats,
}

pub(super) fn build<A: Arch>(words: &mut Words<'_>, env: &Env) -> Result<Built<A>, ParseError> {
    let params = Params::new(env).changed(words, env)?;
    let bands = Bands::new(&params.weights);
    Ok(Built::Qdisc(Box::new(Fq::<A> {
        params,
        now: 0,
        hasher: FlowHasher::new([seed::<A>(env), seed::<A>(env)], false),
        fifo: PacketList::new(),
        bypassed: 0,
        table: Table::new(),
        last: NIL,
        bands,
        wheel: Wheel::new(),
        lateness: Lateness::default(),
        queued: (0, 0),
        busy: 0,
        band_pkts: [0; FQ_BANDS],
        stats: QdiscStats::default(),
        xstats: Xstats::default(),
    })))
}

impl<A: Arch> Fq<A> {
    /// Reads the clock; returns the time, which never goes back.
    fn tick(&mut self, cx: &mut Cx<'_, A>) -> Nanos {
        self.now = self.now.max(cx.clock.now());
        self.now
    }

    /// Returns the latest departure time that may leave at `now`.
    #[inline]
    fn reach(&self, now: Nanos) -> Nanos {
        now.saturating_add(self.params.offload_horizon())
    }

    /// Returns whether a packet that is due `at` may take the fast path: it overtakes no packet, and no flow has packets to
    /// send now.
    fn is_fast(&self, at: Nanos, now: Nanos) -> bool {
        let now = self.reach(now);
        at <= now
            && self.params.maxrate == u32::MAX
            && (self.qlen() == 0
                || (self.busy == self.wheel.len()
                    && self.fifo.len() < FAST_PATH
                    && self.wheel.next_time().is_none_or(|due| due > now)))
    }

    /// Drops a packet that was not queued, counts the drop and returns [`Verdict::Drop`].
    fn refuse(&mut self, packet: Packet<A>, reason: DropReason, cx: &mut Cx<'_, A>) -> Verdict {
        self.stats.drops += 1;
        cx.drop(packet, reason);
        Verdict::Drop
    }

    /// Queues or drops a packet. `guess` is the flow that it probably belongs to, or [`NIL`].
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

    /// Queues a packet in its flow, and creates the flow if it is new. Returns the packet if the flow is full.
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
        // Takes effect when the flow is next put on a list.
        flow.band = band as u8;
        self.table.push(id, packet);
        match place {
            FlowState::Idle => {
                if now.saturating_sub(since) > self.params.refill_delay() {
                    let flow = self.table.flow_mut(id);
                    flow.credit = flow.credit.max(self.params.quantum.into());
                }
                self.table.unset_idle(id);
                self.bands.append(&mut self.table, id, FlowState::New);
            }
            FlowState::Throttled => self.hasten(id),
            FlowState::New | FlowState::Old | FlowState::Free => {}
        }
        Ok(())
    }

    /// Moves a waiting flow to its first packet's time on the wheel, if that is earlier now.
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

    /// Returns the time from which the first flow that waits may send.
    fn first_time(&self) -> Option<Nanos> {
        Some(self.wheel.next_time()?.saturating_sub(self.params.offload_horizon()))
    }

    /// Moves flows whose time has come from the wheel to their band.
    fn wake(&mut self, now: Nanos) {
        while let Some((at, id)) = self.wheel.pop(self.reach(now)) {
            self.xstats.waked(now.saturating_sub(at));
            self.table.flow_mut(id).ticket = None;
            self.bands.append(&mut self.table, id, FlowState::Old);
        }
    }

    /// Dequeues the next packet that may leave at `now`.
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
                    // Goes behind the old flows once. Otherwise a flow that is idle after each packet would always go
                    // first.
                    if turn.is_new() && self.bands.has_old(turn.band) {
                        self.bands.append(&mut self.table, turn.flow, FlowState::Old);
                    } else {
                        self.table.set_idle(turn.flow, now);
                    }
                }
            }
        }
    }

    /// Moves the flow that has the turn to the wheel, until `due`.
    fn throttle(&mut self, turn: FlowTurn, due: Nanos) {
        self.bands.unlink(&self.table, turn);
        let ticket = self.wheel.insert(due, turn.flow);
        let flow = self.table.flow_mut(turn.flow);
        (flow.place, flow.ticket) = (FlowState::Throttled, Some(ticket));
        self.xstats.throttled += 1;
    }

    /// Dequeues the first packet of the flow that has the turn. The packet may leave now; `due` is its departure time.
    fn send(&mut self, turn: FlowTurn, due: Nanos, now: Nanos) -> Option<Packet<A>> {
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
            self.pace(turn.flow, rate, bytes as u64, due, now.max(due));
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
            let guesses =
                if self.table.len > MANY_FLOWS { self.fetch(batch) } else { [NIL; PREFETCHED_FLOWS] };
            for guess in guesses {
                let Some(packet) = batch.pop_front() else { return };
                let _ = self.admit(packet, guess, cx);
            }
        }
    }

    fn dequeue_batch(&mut self, mut budget: Budget, out: &mut PacketList<A>, cx: &mut Cx<'_, A>) {
        let now = self.tick(cx);
        self.bypassed = 0;
        self.lateness.begin(now);
        self.wake(now);
        while budget.is_left() {
            let Some(packet) = self.next(now) else {
                self.lateness.wait(self.first_time());
                break;
            };
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
        self.lateness.wait(None);
        (self.queued, self.busy, self.band_pkts) = ((0, 0), 0, [0; FQ_BANDS]);
    }

    fn change(&mut self, words: &mut Words<'_>, env: &Env, cx: &mut Cx<'_, A>) -> Result<(), ParseError> {
        let params = self.params.changed(words, env)?;
        self.go_by(params, cx);
        Ok(())
    }

    fn room_for(&self, arrival: Arrival<'_, A>) -> Result<(), Full> {
        let in_band = self.band_pkts[self.params.band(arrival.packet)];
        arrival.within(in_band, self.params.limit as usize)?;
        let flow = self.table.find(self.foreseen_key(arrival.packet), self.last);
        let queued = flow.map_or(0, |id| self.table.flow(id).len as usize);
        arrival.within(queued, self.params.flow_limit as usize)
    }

    fn qlen(&self) -> usize {
        self.fifo.len() + self.queued.0
    }

    fn max_packets(&self) -> Option<usize> {
        Some(self.params.limit as usize * self.band_pkts.len())
    }

    /// Lets packets without a departure time bypass the empty queues, as if they came one after another: each would take the
    /// fast path.
    fn bypass(&mut self, batch: &PacketList<A>) -> bool {
        let n = batch.len();
        let may = self.qlen() == 0
            && self.params.maxrate == u32::MAX
            && n <= self.params.limit as usize
            && (self.bypassed < TIDY || self.table.len == 0)
            && batch.iter().all(|packet| packet.departure() == 0);
        if may {
            self.bypassed = self.bypassed.saturating_add(1);
            self.xstats.fastpath += n as u64;
            self.stats.count_sent(batch.segs(), batch.bytes());
        }
        may
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

    /// Returns the first flow's time plus `timer_slack`, in which more flows may become due.
    fn next_event(&self) -> Option<Nanos> {
        Some(self.first_time()?.saturating_add(self.params.timer_slack.into()))
    }
}

#[cfg(test)]
mod tests;
