//! A qdisc that costs more the more flows it has, like fq_codel and cake under overload, plus a configurable work for each
//! packet.
//!
//! Each flow has a queue, and flows take turns. Beyond the limit the qdisc drops the oldest packet of the fattest flow. It
//! searches all flows with packets for that flow, once for each excess packet, so the search grows with the number of
//! flows. On dequeue CoDel drops from flows whose packets have waited too long (RFC 8289). In addition each packet costs
//! the work of `--work-ns` at enqueue and at dequeue. Under this qdisc a queue that only enqueues sends nothing any more.

use std::collections::VecDeque;

use txq::drop::DropReason;
use txq::packet::{Packet, PacketList};
use txq::qdisc::{Budget, Cx, Qdisc, Shortcuts, Verdict};
use txq::stats::QdiscStats;

use super::work::Work;

/// The qdisc's name.
pub(super) const AQM: &str = "aqm";
/// Flows that the qdisc tells apart, by their hash (fq_codel's default).
const FLOWS: usize = 1024;
/// The qdisc's limit in packets: four for each flow. Senders without a bound fill it in milliseconds.
const QDISC_LIMIT: usize = 4096;
/// CoDel's target and interval, in nanoseconds: a fifth of RFC 8289's, because measurements are short.
const CODEL_TARGET: u64 = 1_000_000;
const CODEL_INTERVAL: u64 = 20_000_000;
/// A backlog of this many bytes or less may wait for any time.
const MTU: u64 = 1514;

/// CoDel's state of a flow.
#[derive(Default)]
struct Codel {
    /// The time at which packets will have waited longer than the target for a whole interval; 0 while they wait less.
    above_until: u64,
    next_drop: u64,
    drops: u32,
    dropping: bool,
}

impl Codel {
    /// Returns whether to drop the packet that waited for `waited` and leaves `backlog` bytes behind.
    fn drops(&mut self, waited: u64, backlog: u64, now: u64) -> bool {
        if waited < CODEL_TARGET || backlog <= MTU {
            (self.above_until, self.dropping) = (0, false);
            return false;
        }
        if self.above_until == 0 {
            self.above_until = now + CODEL_INTERVAL;
            return false;
        }
        if self.dropping {
            let due = now >= self.next_drop;
            if due {
                self.drops += 1;
                self.next_drop += self.gap();
            }
            return due;
        }
        if now < self.above_until {
            return false;
        }
        self.dropping = true;
        // A flow that was dropping a moment ago resumes at about the same pace.
        let recent = now.saturating_sub(self.next_drop) < 16 * CODEL_INTERVAL;
        self.drops = if recent { self.drops.saturating_sub(2).max(1) } else { 1 };
        self.next_drop = now + self.gap();
        true
    }

    /// Returns the time to the next drop: it shrinks with the square root of the number of drops.
    fn gap(&self) -> u64 {
        (CODEL_INTERVAL as f64 / f64::from(self.drops).sqrt()) as u64
    }
}

#[derive(Default)]
struct Flow {
    queue: PacketList,
    codel: Codel,
    /// Whether the flow is in `turns`. A flow whose last packet was dropped stays there until its turn comes.
    listed: bool,
}

/// The qdisc `aqm`.
pub(super) struct Aqm {
    work: Work,
    limit: usize,
    flows: Box<[Flow]>,
    /// Backlog of each flow in bytes, in one array for the search.
    backlogs: Box<[u32]>,
    /// Flows that take turns, the next one in front.
    turns: VecDeque<u16>,
    qlen: usize,
    stats: QdiscStats,
}

impl Aqm {
    pub(super) fn new(work: Work) -> Self {
        Self {
            work,
            limit: QDISC_LIMIT,
            flows: (0..FLOWS).map(|_| Flow::default()).collect(),
            backlogs: vec![0; FLOWS].into(),
            // Never grows: a flow is in the queue once.
            turns: VecDeque::with_capacity(FLOWS),
            qlen: 0,
            stats: QdiscStats::default(),
        }
    }

    /// Drops the oldest packet of the fattest flow; returns that flow.
    fn drop_from_fattest(&mut self, cx: &mut Cx<'_>) -> Option<usize> {
        let fattest = self.turns.iter().map(|&id| usize::from(id)).max_by_key(|&id| self.backlogs[id])?;
        let packet = self.take(fattest)?;
        self.stats.drops += 1;
        cx.drop(packet, DropReason::QdiscOverlimit);
        Some(fattest)
    }

    /// Takes a flow's oldest packet.
    fn take(&mut self, id: usize) -> Option<Packet> {
        let packet = self.flows[id].queue.pop_front()?;
        self.backlogs[id] -= packet.len() as u32;
        self.stats.backlog -= packet.len() as u64;
        self.qlen -= 1;
        Some(packet)
    }

    /// Returns the flow whose turn it is.
    fn next_flow(&mut self) -> Option<usize> {
        loop {
            let id = usize::from(*self.turns.front()?);
            if !self.flows[id].queue.is_empty() {
                return Some(id);
            }
            self.turns.pop_front();
            self.flows[id].listed = false;
        }
    }

    fn dequeue(&mut self, cx: &mut Cx<'_>) -> Option<Packet> {
        loop {
            let id = self.next_flow()?;
            let packet = self.take(id)?;
            let now = cx.now().as_nanos();
            let waited = now.saturating_sub(packet.cookie());
            if self.flows[id].codel.drops(waited, self.backlogs[id].into(), now) {
                self.stats.drops += 1;
                cx.drop(packet, DropReason::QdiscDrop);
                continue;
            }
            self.turns.rotate_left(1);
            return Some(packet);
        }
    }
}

impl Qdisc for Aqm {
    fn kind(&self) -> &'static str {
        AQM
    }

    fn enqueue(&mut self, mut packet: Packet, cx: &mut Cx<'_>) -> Verdict {
        self.work.spend();
        packet.set_cookie(cx.now().as_nanos());
        let id = packet.hash() as usize % FLOWS;
        self.backlogs[id] += packet.len() as u32;
        self.stats.backlog += packet.len() as u64;
        self.qlen += 1;
        let flow = &mut self.flows[id];
        flow.queue.push_back(packet);
        if !flow.listed {
            flow.listed = true;
            self.turns.push_back(id as u16);
        }
        if self.qlen <= self.limit {
            return Verdict::Success;
        }
        match self.drop_from_fattest(cx) {
            Some(fattest) if fattest == id && self.flows[id].queue.is_empty() => Verdict::Drop,
            _ => Verdict::Congested,
        }
    }

    fn dequeue_batch(&mut self, mut budget: Budget, out: &mut PacketList, cx: &mut Cx<'_>) {
        while budget.is_left() {
            let Some(packet) = self.dequeue(cx) else { return };
            self.work.spend();
            budget.spend(1, packet.len() as u64);
            self.stats.bytes += packet.len() as u64;
            self.stats.packets += u64::from(packet.segs());
            out.push_back(packet);
        }
    }

    fn reset(&mut self, cx: &mut Cx<'_>) {
        while let Some(id) = self.next_flow() {
            while let Some(packet) = self.take(id) {
                cx.drop(packet, DropReason::QueuePurge);
            }
        }
    }

    fn qlen(&self) -> usize {
        self.qlen
    }

    fn stats(&self) -> QdiscStats {
        QdiscStats { qlen: self.qlen as u64, ..self.stats }
    }
}

impl Shortcuts for Aqm {}

#[cfg(test)]
mod tests;
