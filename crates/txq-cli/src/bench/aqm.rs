//! A qdisc that costs more the more flows it has: what fq_codel and cake do under overload, with the work that it takes.
//!
//! Each flow has a queue, and flows take turns. Beyond the limit the oldest packet of the fattest flow goes, which is
//! looked for among all that have packets, once for each packet too many: as long a search as there are flows. At the
//! other end CoDel drops from flows whose packets have waited for too long (RFC 8289). Beside that each packet costs the
//! work of `--work-ns` at both ends. It is the qdisc under which a queue that only enqueues sends nothing any more.

use std::collections::VecDeque;

use txq::arch::Nanos;
use txq::drop::DropReason;
use txq::packet::{Packet, PacketList};
use txq::qdisc::{Budget, Cx, Qdisc, Verdict};
use txq::stats::QdiscStats;

use super::work::Work;

/// Its name.
pub(super) const AQM: &str = "aqm";
/// Flows it tells apart, by their hash (fq_codel's default).
const FLOWS: usize = 1024;
/// Packets it holds. Four of each flow: senders without a bound fill it in milliseconds.
const LIMIT: usize = 4096;
/// CoDel's target and interval, in nanoseconds: a fifth of RFC 8289's, as measurements are short.
const TARGET: Nanos = 1_000_000;
const INTERVAL: Nanos = 20_000_000;
/// Bytes that may wait for any time.
const MTU: u64 = 1514;

/// What CoDel knows of a flow.
#[derive(Default)]
struct Codel {
    /// When packets will have waited for too long all of an interval; 0 while they do not.
    above_until: Nanos,
    next_drop: Nanos,
    drops: u32,
    dropping: bool,
}

impl Codel {
    /// Whether the packet that `waited` and leaves `backlog` bytes behind is to be dropped.
    fn drops(&mut self, waited: Nanos, backlog: u64, now: Nanos) -> bool {
        if waited < TARGET || backlog <= MTU {
            (self.above_until, self.dropping) = (0, false);
            return false;
        }
        if self.above_until == 0 {
            self.above_until = now + INTERVAL;
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
        // Who was dropping a moment ago goes on at about the same pace.
        let recent = now.saturating_sub(self.next_drop) < 16 * INTERVAL;
        self.drops = if recent { self.drops.saturating_sub(2).max(1) } else { 1 };
        self.next_drop = now + self.gap();
        true
    }

    /// Time to the next drop: it shrinks with the root of their number.
    fn gap(&self) -> Nanos {
        (INTERVAL as f64 / f64::from(self.drops).sqrt()) as Nanos
    }
}

#[derive(Default)]
struct Flow {
    queue: PacketList,
    codel: Codel,
    /// Whether it is among those that take turns. One whose last packet was dropped stays until its turn comes.
    listed: bool,
}

/// The qdisc.
pub(super) struct Aqm {
    work: Work,
    limit: usize,
    flows: Box<[Flow]>,
    /// Bytes of each flow, close together for the search.
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
            limit: LIMIT,
            flows: (0..FLOWS).map(|_| Flow::default()).collect(),
            backlogs: vec![0; FLOWS].into(),
            // Never grows: a flow is in it once.
            turns: VecDeque::with_capacity(FLOWS),
            qlen: 0,
            stats: QdiscStats::default(),
        }
    }

    /// Drops the oldest packet of the fattest flow, and returns which that was.
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

    /// The flow whose turn it is.
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
            let now = cx.clock.now();
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
        packet.set_cookie(cx.clock.now());
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

#[cfg(test)]
mod tests;
