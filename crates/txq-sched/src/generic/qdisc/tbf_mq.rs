//! tbf_mq: one token bucket for all txqs of a device, so that threads of different txqs send at one rate and share no lock.
//!
//! A tbf at the root is one queue: all senders meet there. tbf_mq has a part for each txq, as mq has a qdisc, and the parts
//! take tokens from one bucket. Packets of all txqs together leave at `rate`, with bursts of `burst`: in any time `t` at
//! most `rate * t + burst`, exactly, whatever the threads do; and as much more as leaves in the time by which they are late, up to
//! 16 ms (`lateness.rs`). A part without packets takes nothing, so all others have its share at once.
//!
//! | option | unit | default | |
//! |---|---|---|---|
//! | `rate` | bit/s | required | the rate of all txqs together |
//! | `burst` | bytes | required | the size of the bucket, so the most that leaves at once |
//! | `limit` | bytes | this or `latency` is required | the limit of each txq's queue |
//! | `latency` | time, bare: us | this or `limit` is required | how long a packet may wait if only its txq sends: sets `limit` |
//! | `mpu`, `overhead`, `linklayer` | | | as tbf |
//!
//! ```text
//! tc qdisc add dev eth0 root handle 1: tbf_mq rate 10gbit burst 1m latency 5ms
//! tc qdisc replace dev eth0 parent 1:1 fq_codel
//! ```
//!
//! Class `1:1` is the first txq's, and so on. A class's qdisc is where the packets of its txq wait: a bfifo of `limit`
//! bytes unless the user replaces it. There is no `peakrate`.
//!
//! Tokens are nanoseconds, and the bucket is one word: the first nanosecond that no part has taken (`sync/bucket.rs`). A
//! part takes an interval that pays for the packets that it has, 100 us of them at most, in the past or in the future. So
//! parts with packets take turns, in the order in which they took: each waits for one turn of each other part at most, and
//! all have equal shares. If the link is not full, a part takes tokens ahead (`tbf_mq/purse.rs`), and other CPUs write the
//! word seldom.
//!
//! The design divides nothing by the number of txqs: neither the rate, nor the burst, as shapers do that give each worker a
//! part of the burst. One busy txq has all of both.
//!
//! The kernel has no tbf_mq; the words are those of its `cake_mq`, which divides the rate by the number of busy txqs
//! instead.

use std::sync::Arc;

use txq_core::arch::{Arch, Nanos};
use txq_core::drop::DropReason;
use txq_core::packet::{Packet, PacketList};
use txq_core::stats::QdiscStats;
use txq_core::sync::bucket::Bucket;

use crate::generic::qdisc::child::{Child, Classes, Total};
use crate::generic::qdisc::lateness::Lateness;
use crate::generic::qdisc::noop::Noop;
use crate::generic::qdisc::rate::Charge;
use crate::generic::qdisc::segment::enqueue_segments;
use crate::generic::qdisc::tbf::params::{Params, SHARED_SYNTAX, parse};
use crate::generic::qdisc::{Arrival, Budget, Built, Cx, Env, Full, Qdisc, Verdict, build_qdisc};
use crate::tc::{Handle, Options, ParseError, Style, Words};

mod purse;

use purse::{Payment, Purse};

/// How long the packets take at the rate for which a part takes tokens at once.
const TAKEN_TIME: u128 = 100_000;

/// The part of one txq.
struct Part<A: Arch> {
    /// The minor number of its class: the txq's number and 1.
    minor: u16,
    params: Params,
    purse: Purse<A>,
    /// What the rate's cut to nanoseconds leaves over.
    charge: Charge,
    /// The qdisc of the class.
    child: Child<A>,
    total: Total,
    /// Packets that the child gave up, for which tokens are taken.
    ready: PacketList<A>,
    /// Packets and bytes sent; packets dropped because they were too long; as `overlimits`, how often a packet was held
    /// back.
    stats: QdiscStats,
    /// When the packet that the last dequeue held back may leave.
    next: Option<Nanos>,
    lateness: Lateness,
}

pub(super) fn build<A: Arch>(words: &mut Words<'_>, env: &Env) -> Result<Built<A>, ParseError> {
    let params = parse(words, &SHARED_SYNTAX)?;
    if env.txqs < 2 {
        let error = ParseError::new("RTNETLINK answers: Operation not supported");
        return Err(error.with_remedy("tbf_mq needs a device with at least 2 txqs: use tbf"));
    }
    let bucket = Arc::new(Bucket::new());
    bucket.name();
    let part = |minor| -> Box<dyn Qdisc<A>> {
        Box::new(Part {
            minor,
            params,
            purse: Purse::new(bucket.clone(), params.bucket.time()),
            charge: Charge::default(),
            child: Child::new(build_qdisc(&format!("bfifo limit {}", params.limit), env)),
            total: Total::default(),
            ready: PacketList::new(),
            stats: QdiscStats::default(),
            next: None,
            lateness: Lateness::default(),
        })
    };
    Ok(Built::Parts((1..=env.txqs).map(part).collect()))
}

impl<A: Arch> Part<A> {
    /// Returns the length of the longest packet that can ever leave, in bytes.
    fn longest(&self) -> u64 {
        self.params.bucket.bytes
    }

    /// Returns the price of a packet, and the charge after it.
    fn price(&self, len: u64) -> (Nanos, Charge) {
        let (rate, mut charge) = (&self.params.bucket.rate, self.charge);
        (charge.time(rate, rate.link.bytes(len)), charge)
    }

    /// Returns the price of all packets that are ready, and the charge after them.
    fn price_of_all(&self) -> (Nanos, Charge) {
        let (rate, mut charge) = (&self.params.bucket.rate, self.charge);
        let bytes = match rate.link.is_bare() {
            true => self.ready.bytes(),
            false => self.ready.iter().map(|packet| rate.link.bytes(packet.len() as u64)).sum(),
        };
        (charge.time(rate, bytes), charge)
    }

    /// Gets packets from the child if none are ready; returns whether any are.
    fn fill(&mut self, budget: &Budget, cx: &mut Cx<'_, A>) -> bool {
        let turn = u128::from(self.params.bucket.rate.rate) * TAKEN_TIME / 1_000_000_000;
        let bytes = budget.bytes.min(u64::try_from(turn).unwrap_or(u64::MAX));
        while self.ready.is_empty() {
            self.child.dequeue(&mut Budget::new(budget.packets, bytes), &mut self.ready, &mut self.total, cx);
            if self.ready.is_empty() {
                return false;
            }
            self.refuse_long(cx);
        }
        true
    }

    /// Drops packets that came before a change, and that are too long since.
    fn refuse_long(&mut self, cx: &mut Cx<'_, A>) {
        let longest = self.longest();
        if self.ready.bytes() <= longest || self.ready.iter().all(|packet| packet.len() as u64 <= longest) {
            return;
        }
        let mut all = std::mem::take(&mut self.ready);
        while let Some(packet) = all.pop_front() {
            if packet.len() as u64 <= longest {
                self.ready.push_back(packet);
            } else {
                let _ = self.refuse(packet, cx);
            }
        }
    }

    /// Drops a packet that is too long.
    fn refuse(&mut self, packet: Packet<A>, cx: &mut Cx<'_, A>) -> Verdict {
        self.stats.drops += 1;
        cx.drop(packet, DropReason::QdiscDrop);
        Verdict::Drop
    }

    /// Cuts a packet that is too long and queues its segments; drops those that are still too long.
    #[cold]
    fn enqueue_cut(&mut self, packet: Packet<A>, cx: &mut Cx<'_, A>) -> Verdict {
        let longest = self.longest();
        enqueue_segments(packet, cx, |segment, cx| match segment.len() as u64 > longest {
            true => self.refuse(segment, cx),
            false => self.child.enqueue(segment, &mut self.total, cx),
        })
    }

    /// Appends all ready packets to `out` if the budget allows and they can be paid now; returns whether it did.
    fn send_all(&mut self, budget: &mut Budget, out: &mut PacketList<A>, now: Nanos) -> bool {
        let (packets, bytes) = (self.ready.len(), self.ready.bytes());
        if packets > budget.packets || bytes > budget.bytes {
            return false;
        }
        let (price, charge) = self.price_of_all();
        let paid = self.purse.pay(price, now) == Payment::Paid;
        if paid {
            self.charge = charge;
            budget.spend(packets, bytes);
            out.append(&mut self.ready);
        }
        paid
    }

    /// Appends the first ready packet to `out` if it can be paid now, or takes tokens for all that are ready. Returns when
    /// it may leave if that is later.
    fn send_one(&mut self, budget: &mut Budget, out: &mut PacketList<A>, now: Nanos) -> Option<Nanos> {
        let len = self.ready.front()?.len() as u64;
        let (price, charge) = self.price(len);
        match self.purse.pay(price, now) {
            Payment::Paid => {
                self.charge = charge;
                budget.spend(1, len);
                if let Some(packet) = self.ready.pop_front() {
                    out.push_back(packet);
                }
            }
            Payment::Due(at) => return Some(at),
            Payment::Lacks => self.purse.take(self.price_of_all().0, self.lateness.credit(), now),
        }
        None
    }
}

impl<A: Arch> Qdisc<A> for Part<A> {
    fn kind(&self) -> &'static str {
        SHARED_SYNTAX.kind
    }

    fn enqueue(&mut self, packet: Packet<A>, cx: &mut Cx<'_, A>) -> Verdict {
        if packet.len() as u64 > self.longest() {
            return if packet.segs() > 1 { self.enqueue_cut(packet, cx) } else { self.refuse(packet, cx) };
        }
        self.child.enqueue(packet, &mut self.total, cx)
    }

    fn dequeue_batch(&mut self, mut budget: Budget, out: &mut PacketList<A>, cx: &mut Cx<'_, A>) {
        let (segs, bytes) = (out.segs(), out.bytes());
        self.next = None;
        if self.qlen() == 0 {
            return;
        }
        let now = cx.clock.now();
        let credit = self.lateness.begin(now);
        self.purse.age(credit, now);
        while budget.is_left() {
            if !self.fill(&budget, cx) {
                self.lateness.wait(None);
                break;
            }
            if self.send_all(&mut budget, out, now) {
                continue;
            }
            self.next = self.send_one(&mut budget, out, now);
            if self.next.is_some() {
                self.stats.overlimits += 1;
                self.lateness.wait(self.next);
                break;
            }
        }
        if self.qlen() == 0 {
            self.purse.give_back(now);
        }
        self.stats.count_sent(out.segs() - segs, out.bytes() - bytes);
    }

    fn reset(&mut self, cx: &mut Cx<'_, A>) {
        while let Some(packet) = self.ready.pop_front() {
            cx.drop(packet, DropReason::QueuePurge);
        }
        self.child.reset(&mut self.total, cx);
        let now = cx.clock.now();
        self.purse.give_back(now);
        self.next = None;
        self.lateness.wait(None);
    }

    fn change(&mut self, words: &mut Words<'_>, env: &Env, cx: &mut Cx<'_, A>) -> Result<(), ParseError> {
        let params = parse(words, &SHARED_SYNTAX)?;
        if self.child.handle() == Handle::UNSPEC && self.child.qdisc().kind() == "bfifo" {
            let limit = format!("limit {}", params.limit);
            self.child.qdisc_mut().change(&mut Words::split(&limit), env, cx)?;
            self.child.settle(&mut self.total);
        }
        self.params = params;
        self.charge = Charge::default();
        self.purse.set_depth(params.bucket.time());
        self.refuse_long(cx);
        Ok(())
    }

    fn room_for(&self, arrival: Arrival<'_, A>) -> Result<(), Full> {
        let is_long = arrival.packet.len() as u64 > self.longest();
        match is_long && arrival.packet.segs() <= 1 {
            true => Ok(()),
            false => self.child.room_for(if is_long { arrival.cut() } else { arrival }),
        }
    }

    fn qlen(&self) -> usize {
        self.total.qlen + self.ready.len()
    }

    fn limit(&self) -> Option<usize> {
        self.child.qdisc().limit()
    }

    fn stats(&self) -> QdiscStats {
        QdiscStats {
            backlog: self.total.backlog + self.ready.bytes(),
            qlen: self.qlen() as u64,
            drops: self.stats.drops + self.total.drops,
            ..self.stats
        }
    }

    fn options(&self, style: Style) -> Options {
        self.params.options(style)
    }

    fn next_event(&self) -> Option<Nanos> {
        self.next.or_else(|| self.child.qdisc().next_event())
    }

    fn classes(&mut self) -> Option<&mut dyn Classes<A>> {
        Some(self)
    }
}

impl<A: Arch> Classes<A> for Part<A> {
    fn minors(&mut self) -> Vec<u16> {
        vec![self.minor]
    }

    fn leaf(&mut self, _: u16) -> Option<(&mut Child<A>, &mut Total)> {
        Some((&mut self.child, &mut self.total))
    }

    fn default_leaf(&mut self, _: u16) -> Box<dyn Qdisc<A>> {
        Box::new(Noop)
    }
}

#[cfg(test)]
mod tests;
