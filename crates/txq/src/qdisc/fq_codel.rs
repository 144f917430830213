//! fq_codel: a queue for each flow, all served in turn, and each kept short by CoDel (RFC 8290).
//!
//! A packet's hash says which of `flows` queues it joins, unless its priority names one as a class (`major:minor` of this
//! qdisc, from 1 on). Where there are filters they say it instead, and what none of them knows, or what they send to a
//! queue that is not there, is dropped. They are served by deficit round robin, a `quantum` of bytes at a
//! time; a queue that was empty goes in front of those that were not, so that a flow that sends little waits for
//! nobody. What CoDel drops from a queue is dropped as `QDISC_CONGESTED`. Beyond `limit` packets or `memory_limit` bytes,
//! the queue with the most bytes loses half of them, but no more than `drop_batch` packets, from its head, as
//! `QDISC_OVERLIMIT`; if that was the packet's own queue the sender hears of it.
//!
//! The kernel's counterpart is `sch_fq_codel`. Differences: the law's (`codel/law.rs`); a packet takes its bytes and its
//! descriptor of `memory_limit`, whatever its buffer's size, for buffers come from a pool that is there anyway; a smaller
//! limit takes packets from the longest queues, not by dequeuing, so none of them counts as sent, and all as
//! dropped.

mod flows;
mod options;

use crate::arch::Arch;
use crate::drop::DropReason;
use crate::filter::Filters;
use crate::flow::flow_hash;
use crate::packet::{Packet, PacketList};
use crate::qdisc::codel::law::{Counts, Goal};
use crate::qdisc::{Budget, Built, Cx, Env, Qdisc, Verdict};
use crate::stats::QdiscStats;
use crate::tc::{Handle, Options, ParseError, Style, Words};

use flows::Flows;

/// Bytes of `memory_limit` that a packet takes beside its own.
const DESCRIPTOR: u64 = 128;

/// What tc can change.
#[derive(Debug, Clone, Copy)]
struct Params {
    goal: Goal,
    limit: u32,
    quantum: u32,
    memory_limit: u32,
    drop_batch: u32,
}

struct FqCodel<A: Arch> {
    flows: Flows<A>,
    handle: Handle,
    filters: Filters<A>,
    params: Params,
    stats: QdiscStats,
    counts: Counts,
    drop_overlimit: u32,
    drop_overmemory: u32,
}

pub(super) fn build<A: Arch>(words: &mut Words<'_>, env: &Env) -> Result<Built<A>, ParseError> {
    let (params, flows) = options::parse(words, env)?;
    Ok(Built::Qdisc(Box::new(FqCodel {
        flows: Flows::new(flows),
        handle: Handle::UNSPEC,
        filters: Filters::new(),
        params,
        stats: QdiscStats::default(),
        counts: Counts::default(),
        drop_overlimit: 0,
        drop_overmemory: 0,
    })))
}

/// The packet's hash. One that nobody has asked for so far, where there was no txq to choose, is computed.
#[inline]
fn hash<A: Arch>(packet: &mut Packet<A>) -> u32 {
    if packet.hash() == 0 {
        let hash = flow_hash(packet.data());
        packet.set_hash(hash);
    }
    packet.hash()
}

impl<A: Arch> FqCodel<A> {
    /// The packet's flow, none if the filters have none for it.
    #[inline]
    fn flow_of(&self, packet: &mut Packet<A>) -> Option<usize> {
        let class = Handle(packet.priority());
        let own = class.major() == self.handle.major() && self.handle != Handle::UNSPEC;
        if let Some(flow) = self.flow_of_class(class).filter(|_| own) {
            return Some(flow);
        }
        if self.filters.is_empty() {
            return Some(self.flows.of_hash(hash(packet)));
        }
        self.flow_of_class(self.filters.classify(packet)?)
    }

    fn flow_of_class(&self, class: Handle) -> Option<usize> {
        usize::from(class.minor()).checked_sub(1).filter(|&flow| flow < self.flows.count())
    }

    fn memory(&self) -> u64 {
        self.flows.bytes() + self.flows.len() as u64 * DESCRIPTOR
    }

    fn memory_limited(&self) -> bool {
        self.memory() > self.params.memory_limit.into()
    }

    fn is_full(&self) -> bool {
        self.flows.len() > self.params.limit as usize || self.memory_limited()
    }

    /// Drops from the longest queue, which is `flow` unless another is longer, and returns which one it was. Stops before
    /// the batch is complete once `enough`.
    #[cold]
    fn shed(&mut self, flow: usize, enough: impl Fn(&Self) -> bool, cx: &mut Cx<'_, A>) -> usize {
        let memory_limited = self.memory_limited();
        let fat = self.flows.fattest(flow);
        let half = self.flows.bytes_of(fat) / 2;
        let (mut dropped, mut bytes) = (0, 0);
        while dropped < self.params.drop_batch && !enough(self) {
            let Some(mut packet) = self.flows.pop(fat) else { break };
            packet.take_queued();
            dropped += 1;
            bytes += packet.len() as u64;
            cx.drop(packet, DropReason::QdiscOverlimit);
            if bytes >= half {
                break;
            }
        }
        self.flows.law_of(fat).dropped(dropped);
        self.stats.drops += u64::from(dropped);
        self.drop_overlimit = self.drop_overlimit.wrapping_add(dropped);
        if memory_limited {
            self.drop_overmemory = self.drop_overmemory.wrapping_add(dropped);
        }
        fat
    }
}

impl<A: Arch> Qdisc<A> for FqCodel<A> {
    fn kind(&self) -> &'static str {
        options::SYNTAX.kind
    }

    fn set_handle(&mut self, handle: Handle) {
        self.handle = handle;
    }

    fn filters(&mut self, class: u16) -> Option<&mut Filters<A>> {
        (class == 0).then_some(&mut self.filters)
    }

    fn enqueue(&mut self, mut packet: Packet<A>, cx: &mut Cx<'_, A>) -> Verdict {
        let Some(flow) = self.flow_of(&mut packet) else {
            self.stats.drops += 1;
            cx.drop(packet, DropReason::QdiscDrop);
            return Verdict::Success;
        };
        packet.set_queued(cx.clock.now());
        self.flows.push(flow, packet, self.params.quantum);
        if !self.is_full() {
            return Verdict::Success;
        }
        match self.shed(flow, |_| false, cx) == flow {
            true => Verdict::Congested,
            false => Verdict::Success,
        }
    }

    fn dequeue_batch(&mut self, mut budget: Budget, out: &mut PacketList<A>, cx: &mut Cx<'_, A>) {
        let now = cx.clock.now();
        let (quantum, goal, counts) = (self.params.quantum, &self.params.goal, &mut self.counts);
        while budget.is_left() {
            let mut drop = |packet| {
                self.stats.drops += 1;
                cx.drop(packet, DropReason::QdiscCongested);
            };
            let Some(packet) = self.flows.dequeue(quantum, goal, now, counts, &mut drop) else { return };
            budget.send(packet, out, &mut self.stats);
        }
        if self.flows.len() == 0 {
            self.flows.retire();
        }
    }

    fn reset(&mut self, cx: &mut Cx<'_, A>) {
        self.flows.clear(|mut packet| {
            packet.take_queued();
            cx.drop(packet, DropReason::QueuePurge);
        });
    }

    fn change(&mut self, words: &mut Words<'_>, _: &Env, cx: &mut Cx<'_, A>) -> Result<(), ParseError> {
        self.params = options::parse_change(words, self.params)?;
        while self.is_full() {
            let Some(flow) = self.flows.any() else { break };
            self.shed(flow, |q| !q.is_full(), cx);
        }
        Ok(())
    }

    fn qlen(&self) -> usize {
        self.flows.len()
    }

    fn limit(&self) -> Option<usize> {
        Some(self.params.limit as usize)
    }

    fn stats(&self) -> QdiscStats {
        QdiscStats { backlog: self.flows.bytes(), qlen: self.flows.len() as u64, ..self.stats }
    }

    fn options(&self, style: Style) -> Options {
        options::show(&self.params, self.flows.count(), style)
    }

    fn xstats(&self, style: Style) -> Option<Options> {
        let Counts { maxpacket, ecn_mark, ce_mark } = self.counts;
        let mut options = Options::new(style);
        options.put("maxpacket", maxpacket, format_args!("  maxpacket {maxpacket}"));
        options.number("drop_overlimit", self.drop_overlimit.into());
        options.number("new_flow_count", self.flows.new_flow_count.into());
        options.number("ecn_mark", ecn_mark.into());
        let memory = self.memory();
        let more = [
            ("ce_mark", ce_mark.into()),
            ("memory_used", memory),
            ("drop_overmemory", self.drop_overmemory.into()),
        ];
        for (key, value) in more.into_iter().filter(|&(_, value)| value != 0) {
            options.number(key, value);
        }
        let (new, old) = self.flows.list_lens();
        options.put("new_flows_len", new, format_args!("\n  new_flows_len {new}"));
        options.number("old_flows_len", old.into());
        Some(options)
    }

    fn can_bypass(&self) -> bool {
        self.filters.is_empty()
    }

    fn bypassed(&mut self, packets: u64, bytes: u64) {
        self.stats.count_sent(packets, bytes);
    }
}

#[cfg(test)]
mod tests;
