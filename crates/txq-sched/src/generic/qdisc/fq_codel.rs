//! fq_codel: a queue for each flow, served in turns, with CoDel in each queue (RFC 8290).
//!
//! A packet whose priority names a class of this qdisc (`major:minor`, from 1 on) joins the queue of that number. Other
//! packets join the queue that their hash chooses or, if there are filters, the queue that a filter chooses. A packet that
//! no filter matches, or whose filter names a queue that does not exist, is dropped as `QDISC_DROP`.
//!
//! The queues are served by deficit round robin, `quantum` bytes in each round. A queue that was empty goes before those
//! that were not, so that a flow that sends little does not wait for the others. CoDel drops packets as `QDISC_CONGESTED`.
//! Beyond `limit` packets or `memory_limit` bytes, the queue with the most bytes loses half of its bytes, but at most
//! `drop_batch` packets, from its head, as `QDISC_OVERLIMIT`. If this was the packet's own queue, the verdict is
//! [`Verdict::Congested`].
//!
//! | option | default | meaning |
//! |---|---|---|
//! | `limit PACKETS` | 10240 | packets of all queues |
//! | `flows NUMBER` | 1024 | queues, 1 to 65536; cannot be changed |
//! | `memory_limit SIZE` | 32 MiB | bytes of all queues, with 128 bytes more for each packet |
//! | `target TIME` | 5 ms | CoDel's target: standing delay that a queue may have |
//! | `interval TIME` | 100 ms | CoDel's interval: about the longest round trip |
//! | `quantum BYTES` | the device's longest packet | bytes of a queue in each round, 256 to 1048576 |
//! | `ecn`, `noecn` | `ecn` | marks ECN-capable packets instead of dropping them by CoDel |
//! | `ce_threshold TIME` | never | marks ECN-capable packets that waited longer than this |
//! | `ce_threshold_selector VALUE/MASK` | all | applies `ce_threshold` where `DS field & MASK` is `VALUE` |
//! | `drop_batch SIZE` | 64 | packets dropped at once for a limit |
//!
//! A bare time is in microseconds. A 0 leaves a value as it is, as in tc, except for `memory_limit` and `ce_threshold`.
//!
//! Example: `tc qdisc add root handle 1: fq_codel limit 1000 flows 4096 target 2ms interval 40ms`
//!
//! The kernel's counterpart is `sch_fq_codel`. Differences:
//! - The root in the law is exact (`codel/law.rs`).
//! - A flow whose queue became empty forgets that its packets waited too long (RFC 8289, `dodequeue`). In Linux the next
//!   packets of the flow may be dropped for it.
//! - A packet takes its bytes and 128 more of `memory_limit`, whatever the size of its buffer, because buffers come from a
//!   pool that exists anyway.
//! - A smaller limit drops packets from the longest queues. Linux dequeues them, counts them as sent, and drops them.
//! - `tc class show` lists no queues. `new_flow_count`, `new_flows_len` and `old_flows_len` include packets that bypass the
//!   queue in Linux.
//! - A packet without a flow hash gets one with a public key. A program whose flows strangers choose sets the hashes by a
//!   [`FlowHasher`](txq_core::flow::FlowHasher) with a secret key.

mod options;

use txq_core::arch::{Arch, Nanos};
use txq_core::clock::Clock;
use txq_core::drop::DropReason;
use txq_core::flow::public_hash;
use txq_core::packet::{Packet, PacketList};
use txq_core::stats::QdiscStats;

use crate::generic::filter::Filters;
use crate::generic::qdisc::bypass::bypass_one_by_one;
use crate::generic::qdisc::codel::law::{Counts, Goal, Law};
use crate::generic::qdisc::flows::Flows;
use crate::generic::qdisc::{Arrival, Budget, Built, Cx, Env, Full, Qdisc, Verdict};
use crate::tc::{Handle, Options, ParseError, Style, Words};

/// The parameters that tc can change.
#[derive(Debug, Clone, Copy)]
struct Params {
    goal: Goal,
    /// Packets of all queues.
    limit: u32,
    /// Bytes of a queue in each round.
    quantum: u32,
    /// Bytes of all queues and of their packets' descriptors.
    memory_limit: u32,
    /// Packets dropped at once for a limit.
    drop_batch: u32,
}

struct FqCodel<A: Arch> {
    flows: Flows<A, Law>,
    handle: Handle,
    filters: Filters<A>,
    params: Params,
    stats: QdiscStats,
    counts: Counts,
    /// Packets dropped for either limit.
    drop_overlimit: u32,
    /// Packets dropped for `memory_limit`, which are in `drop_overlimit` as well.
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

/// Returns the packet's hash. Computes and sets it if it is not set, as on a device with one txq, which needs no steering.
#[inline]
pub(super) fn hash<A: Arch>(packet: &mut Packet<A>) -> u32 {
    if packet.hash() == 0 {
        let hash = public_hash(&packet.dissect().keys);
        packet.set_hash(hash);
    }
    packet.hash()
}

impl<A: Arch> FqCodel<A> {
    /// Returns the packet's flow; `None` if there are filters and none of them chooses a queue that exists.
    #[inline]
    fn flow_of(&self, packet: &mut Packet<A>, clock: &mut Clock<A>) -> Option<usize> {
        let class = Handle(packet.priority());
        let own = class.major() == self.handle.major() && self.handle != Handle::UNSPEC;
        if let Some(flow) = self.flow_of_class(class).filter(|_| own) {
            return Some(flow);
        }
        if self.filters.is_empty() {
            return Some(self.flows.of_hash(hash(packet)));
        }
        self.flow_of_class(self.filters.class_of(packet, clock)?)
    }

    /// Returns the flow that a class's minor number names, if there is one.
    fn flow_of_class(&self, class: Handle) -> Option<usize> {
        usize::from(class.minor()).checked_sub(1).filter(|&flow| flow < self.flows.count())
    }

    fn memory_limited(&self) -> bool {
        self.flows.memory() > self.params.memory_limit.into()
    }

    fn is_full(&self) -> bool {
        self.flows.len() > self.params.limit as usize || self.memory_limited()
    }

    /// Drops a batch of packets from the head of the longest queue: `flow`, unless another is longer. Returns that queue.
    /// Stops early once `enough` is true.
    #[cold]
    fn shed(&mut self, flow: usize, enough: impl Fn(&Self) -> bool, cx: &mut Cx<'_, A>) -> usize {
        let memory_limited = self.memory_limited();
        let fat = self.flows.fattest(flow);
        let half = self.flows.bytes_of(fat) / 2;
        let (mut dropped, mut bytes) = (0, 0);
        while dropped < self.params.drop_batch && !enough(self) {
            let Some(packet) = self.flows.pop(fat) else { break };
            dropped += 1;
            bytes += packet.len() as u64;
            cx.drop_queued(packet, DropReason::QdiscOverlimit);
            if bytes >= half {
                break;
            }
        }
        self.flows.law_of(fat).0.dropped(dropped);
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
        let Some(flow) = self.flow_of(&mut packet, cx.clock) else {
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
            let take =
                self.flows.dequeue(quantum, &mut drop, |head, law| law.dequeue(head, goal, now, counts));
            let Some(packet) = take else { return };
            budget.send(packet, out, &mut self.stats);
        }
        if self.flows.len() == 0 {
            self.flows.retire();
        }
    }

    fn reset(&mut self, cx: &mut Cx<'_, A>) {
        self.flows.clear(|packet| cx.drop_queued(packet, DropReason::QueuePurge));
    }

    fn change(&mut self, words: &mut Words<'_>, _: &Env, cx: &mut Cx<'_, A>) -> Result<(), ParseError> {
        self.params = options::parse_change(words, self.params)?;
        while self.is_full() {
            let Some(flow) = self.flows.any() else { break };
            self.shed(flow, |q| !q.is_full(), cx);
        }
        Ok(())
    }

    fn room_for(&self, arrival: Arrival<'_, A>) -> Result<(), Full> {
        let memory = self.flows.memory_with(arrival.packets(), arrival.bytes());
        let has_room = memory <= self.params.memory_limit.into();
        arrival.within(self.flows.len(), self.params.limit as usize)?;
        arrival.if_room(has_room, self.flows.len())
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
        let memory = self.flows.memory();
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

    fn shrink(&mut self, now: Nanos) -> bool {
        self.flows.shrink(|law| law.remembers(&self.params.goal, now))
    }

    fn can_bypass(&self) -> bool {
        self.filters.is_empty()
    }

    fn bypassed(&mut self, packets: u64, bytes: u64) {
        self.stats.count_sent(packets, bytes);
    }

    fn bypass(&mut self, batch: &PacketList<A>) -> bool {
        bypass_one_by_one(self, batch)
    }
}

#[cfg(test)]
mod tests;
