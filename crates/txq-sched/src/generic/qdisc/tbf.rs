//! tbf: a token bucket. Packets leave at a rate, and after a pause a burst of them leaves at once.
//!
//! | option | unit | default | |
//! |---|---|---|---|
//! | `rate` | bit/s | required | the rate |
//! | `burst` | bytes | required | the size of the bucket, so the most that leaves at once |
//! | `limit` | bytes | this or `latency` is required | the limit of the queue |
//! | `latency` | time, bare: us | this or `limit` is required | how long a packet may wait: sets `limit` |
//! | `peakrate` | bit/s, above `rate` | none | the rate at which a burst leaves |
//! | `mtu` | bytes | required with `peakrate` | the size of the bucket for `peakrate` |
//! | `mpu` | bytes | 0 | the shortest packet on the link |
//! | `overhead` | bytes, 16 bits | 0 | added to each packet |
//! | `linklayer` | `ethernet`, `atm`, `adsl` | `ethernet` | with the last two, packets take whole ATM cells |
//!
//! `buffer` and `maxburst` also name `burst`; `minburst` also names `mtu`. Both take a cell size behind a slash, as tc does
//! (`10k/8`), which is only shown. `latency` sets `limit` to `rate` times the latency plus `burst`, or to `peakrate` times
//! the latency plus `mtu` where that is less.
//!
//! ```text
//! tc qdisc add dev eth0 root handle 1: tbf rate 10mbit burst 10k latency 50ms
//! ```
//!
//! Tokens are time: a packet of `len` bytes costs as long as it takes at the rate, and the bucket holds as much as a burst
//! takes. With a `peakrate` a packet must be paid for from the second, small bucket, too, so that a burst does not leave at
//! the link's speed. A packet that is longer than a bucket can never leave: a GSO packet is cut into its segments
//! (`segment.rs`), and what is still too long is dropped at once.
//!
//! Packets wait in the qdisc of the one class, a bfifo of `limit` bytes unless the user replaces it. Once that qdisc is
//! deleted, all packets are dropped.
//!
//! The kernel's counterpart is `sch_tbf`. Differences:
//! - After a change to a bucket that is shorter than a queued packet, that packet is dropped and counted. In the kernel it waits
//!   for ever, and all packets behind it.
//! - The buckets are deeper by the time by which the dequeue is late, up to 16 ms (`lateness.rs`).

use txq_core::arch::{Arch, Nanos};
use txq_core::drop::DropReason;
use txq_core::packet::{Packet, PacketList};
use txq_core::stats::QdiscStats;

use crate::generic::qdisc::child::{Child, Classes, Total, plain_class};
use crate::generic::qdisc::lateness::Lateness;
use crate::generic::qdisc::noop::Noop;
use crate::generic::qdisc::segment::enqueue_segments;
use crate::generic::qdisc::{Arrival, Budget, Built, Cx, Env, Full, Qdisc, Verdict, build_qdisc};
use crate::tc::{ClassInfo, Handle, Options, ParseError, Style, Words};

pub(super) mod params;

use params::Params;

struct Tbf<A: Arch> {
    params: Params,
    /// The qdisc of the one class, in which packets wait.
    child: Child<A>,
    total: Total,
    /// Packets and bytes sent; packets dropped because they were too long; as `overlimits`, how often a packet was held
    /// back.
    stats: QdiscStats,
    /// Nanoseconds saved in the bucket at the time `at`; never below 0.
    tokens: i64,
    /// The same for the bucket of `peakrate`; 0 without one.
    peak_tokens: i64,
    /// When both buckets were last computed.
    at: Nanos,
    /// When the packet that the last dequeue held back may leave.
    next: Option<Nanos>,
    lateness: Lateness,
}

pub(super) fn build<A: Arch>(words: &mut Words<'_>, env: &Env) -> Result<Built<A>, ParseError> {
    let params = params::parse(words, &params::SYNTAX)?;
    let mut tbf = Tbf {
        params,
        child: Child::new(bfifo(params.limit, env)),
        total: Total::default(),
        stats: QdiscStats::default(),
        tokens: 0,
        peak_tokens: 0,
        at: 0,
        next: None,
        lateness: Lateness::default(),
    };
    tbf.fill();
    Ok(Built::Qdisc(Box::new(tbf)))
}

fn bfifo<A: Arch>(limit: u32, env: &Env) -> Box<dyn Qdisc<A>> {
    build_qdisc(&format!("bfifo limit {limit}"), env)
}

impl<A: Arch> Tbf<A> {
    /// Fills both buckets.
    fn fill(&mut self) {
        self.tokens = self.params.bucket.time() as i64;
        self.peak_tokens = self.params.peak.map_or(0, |peak| peak.time() as i64);
    }

    /// Charges a packet of `len` bytes, or returns the time at which it may leave if there are too few tokens. Each bucket may
    /// hold `credit` beyond its depth.
    fn pay(&mut self, len: u64, credit: Nanos, now: Nanos) -> Result<(), Nanos> {
        let Params { bucket, peak, .. } = &self.params;
        let room = (bucket.time() + credit) as i64;
        let passed = i64::try_from(now.saturating_sub(self.at)).unwrap_or(i64::MAX).min(room);
        let tokens = (self.tokens + passed).min(room) - bucket.rate.time(len) as i64;
        let peak_tokens = peak.map_or(0, |peak| {
            (self.peak_tokens.saturating_add(passed)).min((peak.time() + credit) as i64)
                - peak.rate.time(len) as i64
        });
        let lacks = tokens.min(peak_tokens);
        if lacks < 0 {
            return Err(now.saturating_add(lacks.unsigned_abs()));
        }
        (self.tokens, self.peak_tokens, self.at) = (tokens, peak_tokens, now);
        Ok(())
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

    /// Drops a packet that is too long.
    fn refuse(&mut self, packet: Packet<A>, cx: &mut Cx<'_, A>) -> Verdict {
        self.stats.drops += 1;
        cx.drop(packet, DropReason::QdiscDrop);
        Verdict::Drop
    }

    /// Returns the length of the longest packet that can ever leave, in bytes.
    fn longest(&self) -> u64 {
        self.params.peak.map_or(self.params.bucket.bytes, |peak| peak.bytes.min(self.params.bucket.bytes))
    }
}

impl<A: Arch> Qdisc<A> for Tbf<A> {
    fn kind(&self) -> &'static str {
        params::SYNTAX.kind
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
        while budget.is_left() {
            let Some(len) = self.child.peek(&mut self.total, cx).map(|packet| packet.len() as u64) else {
                self.lateness.wait(None);
                break;
            };
            if len > self.longest() {
                // The packet came before a change. It could never leave, nor could any packet behind it.
                let mut late = PacketList::new();
                self.child.dequeue(&mut Budget::packets(1), &mut late, &mut self.total, cx);
                while let Some(packet) = late.pop_front() {
                    let _ = self.refuse(packet, cx);
                }
                continue;
            }
            let now = cx.clock.now();
            let credit = self.lateness.begin(now);
            if let Err(at) = self.pay(len, credit, now) {
                self.stats.overlimits += 1;
                self.next = Some(at);
                self.lateness.wait(self.next);
                break;
            }
            let mut one = Budget::packets(1);
            let before = out.len();
            self.child.dequeue(&mut one, out, &mut self.total, cx);
            budget.spend(out.len() - before, len);
        }
        self.stats.count_sent(out.segs() - segs, out.bytes() - bytes);
    }

    fn reset(&mut self, cx: &mut Cx<'_, A>) {
        self.child.reset(&mut self.total, cx);
        self.fill();
        self.at = cx.clock.now();
        self.next = None;
        self.lateness.wait(None);
    }

    fn change(&mut self, words: &mut Words<'_>, env: &Env, cx: &mut Cx<'_, A>) -> Result<(), ParseError> {
        let params = params::parse(words, &params::SYNTAX)?;
        if self.child.handle() == Handle::UNSPEC && self.child.qdisc().kind() == "bfifo" {
            let limit = format!("limit {}", params.limit);
            self.child.qdisc_mut().change(&mut Words::split(&limit), env, cx)?;
            self.child.settle(&mut self.total);
        }
        self.params = params;
        self.fill();
        Ok(())
    }

    fn room_for(&self, arrival: Arrival<'_, A>) -> Result<(), Full> {
        let is_long = arrival.packet.len() as u64 > self.longest();
        // A packet that is too long and cannot be cut is dropped, whatever the room.
        match is_long && arrival.packet.segs() <= 1 {
            true => Ok(()),
            false => self.child.room_for(if is_long { arrival.cut() } else { arrival }),
        }
    }

    fn qlen(&self) -> usize {
        self.total.qlen
    }

    fn limit(&self) -> Option<usize> {
        self.child.qdisc().limit()
    }

    fn stats(&self) -> QdiscStats {
        let Total { qlen, backlog, drops } = self.total;
        QdiscStats { backlog, qlen: qlen as u64, drops: self.stats.drops + drops, ..self.stats }
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

impl<A: Arch> Classes<A> for Tbf<A> {
    fn minors(&mut self) -> Vec<u16> {
        vec![1]
    }

    /// Returns the one class, whatever number the user names.
    fn find(&mut self, _: u16) -> Option<u16> {
        Some(1)
    }

    fn leaf(&mut self, _: u16) -> Option<(&mut Child<A>, &mut Total)> {
        Some((&mut self.child, &mut self.total))
    }

    fn default_leaf(&mut self, _: u16) -> Box<dyn Qdisc<A>> {
        Box::new(Noop)
    }

    fn class(&mut self, minor: u16, style: Style) -> ClassInfo {
        ClassInfo { xstats: Some(Options::new(style)), ..plain_class(minor, self.child.handle(), style) }
    }
}

#[cfg(test)]
mod tests;
