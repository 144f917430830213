//! trace: a link that follows a recording, of a mobile network for example.
//!
//! | option | unit | default | |
//! |---|---|---|---|
//! | the first word | | none | the file's path, which contains a `/`: `./lte.up` |
//! | `limit` | packets | 1000 | packets queued, and on their way |
//! | `once` | | off | the file is played once, and not again and again |
//! | `overhead` | bytes | 4; 0 for CSV | added to each packet's length; may be negative |
//! | `seed N` | | drawn | the seed of losses |
//!
//! ```text
//! tc qdisc add dev up root trace ./Verizon-LTE-driving.up limit 200
//! ```
//!
//! The recording starts with the first packet. A packet that comes waits until those before it have passed the link, and
//! leaves when its own last byte has passed. The time at which it leaves is known when it comes, so it does not depend on
//! when the queue is served. Packets keep their order. More packets than `limit` are dropped as `QDISC_OVERLIMIT`.
//!
//! # Files of Mahimahi
//!
//! Each line is a time in milliseconds, no earlier than the line before: an opportunity to deliver 1504 bytes. Opportunities are
//! counted in bytes: one delivers several short packets, and a packet may need several. What an opportunity does not use is
//! lost, and a packet that comes at its time is too late for it. The file begins again at its last time. The first `overhead` of
//! 4 bytes is that of Mahimahi, whose packets are those of a TUN interface with its header: an IP packet of 1500 bytes is one opportunity. On
//! Ethernet `overhead -10` has the same effect.
//!
//! After the end of a file that is played `once` nothing is delivered any more: packets are dropped as `QDISC_DROP`.
//!
//! # CSV
//!
//! The first line names the columns: `duration`, and `rate`, `delay`, `loss` in any order. Each line holds for its duration. Times
//! have units (`100ms`, `1.5s`), rates are tc's (`10mbit`), losses are percentages.
//!
//! ```text
//! duration,rate,delay,loss
//! 500ms,10mbit,20ms,0%
//! 1.5s,800kbit,120ms,2.5%
//! ```
//!
//! The rate is that of the bits that pass at each moment, so a packet may pass in several lines, and a rate of 0 is an
//! outage. The delay is that of the moment at which the packet has passed, and the loss that of the moment at which it comes. After
//! the end of a file that is played `once` the last line holds.
//!
//! Sources: the manual of mm-link and R. Netravali et al., Mahimahi: Accurate Record-and-Replay for HTTP (2015). The bandwidth
//! cell of rattan has the same rate of bits, and lets a packet go when its first bit may pass. Linux has no such qdisc.

mod csv;
mod file;
mod link;
mod params;

use txq_core::arch::{Arch, Nanos};
use txq_core::drop::DropReason;
use txq_core::packet::{Packet, PacketList};
use txq_core::stats::QdiscStats;

use crate::generic::qdisc::random::{Rng, seed};
use crate::generic::qdisc::timed::Timed;
use crate::generic::qdisc::{Budget, Built, Cx, Env, Qdisc, Verdict};
use crate::tc::{Options, ParseError, Style, Words};

use link::Link;
use params::Params;

/// The qdisc's parameters, state and packets.
struct Trace<A: Arch> {
    params: Params,
    link: Link,
    rng: Rng,
    /// Packets that wait for the time at which they leave.
    queue: Timed<A>,
    /// The latest time that a call has read. A thread that takes over the queue may have read the clock before the last one.
    now: Nanos,
    /// The time of the first packet, at which the recording starts.
    start: Option<Nanos>,
    /// The time at which the last packet leaves.
    last: Nanos,
    stats: QdiscStats,
}

pub(super) fn build<A: Arch>(words: &mut Words<'_>, env: &Env) -> Result<Built<A>, ParseError> {
    let params = Params::parse(words, None)?;
    Ok(Built::Qdisc(Box::new(Trace::<A> {
        link: Link::new(params.schedule.clone(), params.once),
        rng: Rng::new(params.seed.unwrap_or_else(|| seed::<A>(env))),
        params,
        queue: Timed::new(),
        now: 0,
        start: None,
        last: 0,
        stats: QdiscStats::default(),
    })))
}

impl<A: Arch> Trace<A> {
    /// Reads the clock; returns the time, which never goes back.
    fn tick(&mut self, cx: &mut Cx<'_, A>) -> Nanos {
        self.now = self.now.max(cx.clock.now());
        self.now
    }

    fn lose(&mut self, packet: Packet<A>, cx: &mut Cx<'_, A>) -> Verdict {
        self.stats.drops += 1;
        cx.drop(packet, DropReason::QdiscDrop);
        // The sender of a packet that the network loses does not learn of it.
        Verdict::Success
    }
}

impl<A: Arch> Qdisc<A> for Trace<A> {
    fn kind(&self) -> &'static str {
        params::SYNTAX.kind
    }

    fn enqueue(&mut self, packet: Packet<A>, cx: &mut Cx<'_, A>) -> Verdict {
        if self.queue.len() >= self.params.limit as usize {
            self.stats.drops += 1;
            cx.drop(packet, DropReason::QdiscOverlimit);
            return Verdict::Drop;
        }
        let now = self.tick(cx);
        let start = *self.start.get_or_insert(now);
        let loss = self.link.loss(now - start);
        if loss > 0 && self.rng.next() < loss {
            return self.lose(packet, cx);
        }
        let bytes = packet.len() as i64 + i64::from(self.params.overhead);
        let Some(passed) = self.link.pass(now - start, bytes.max(0) as u64) else {
            return self.lose(packet, cx);
        };
        self.last = self.last.max(start.saturating_add(passed));
        self.queue.push(self.last, packet);
        Verdict::Success
    }

    fn dequeue_batch(&mut self, mut budget: Budget, out: &mut PacketList<A>, cx: &mut Cx<'_, A>) {
        let now = self.tick(cx);
        while budget.is_left() && self.queue.next_time().is_some_and(|time| time <= now) {
            let Some((_, packet)) = self.queue.pop() else { break };
            budget.send(packet, out, &mut self.stats);
        }
    }

    /// Drops all packets. The recording starts anew with the next one.
    fn reset(&mut self, cx: &mut Cx<'_, A>) {
        while let Some((_, packet)) = self.queue.pop() {
            cx.drop(packet, DropReason::QueuePurge);
        }
        (self.start, self.last) = (None, 0);
        self.link = Link::new(self.params.schedule.clone(), self.params.once);
    }

    /// Changes the parameters; queued packets keep their times. A command that names a file, or `once`, starts the recording anew with the
    /// next packet.
    fn change(&mut self, words: &mut Words<'_>, _: &Env, _: &mut Cx<'_, A>) -> Result<(), ParseError> {
        let restarts = words.peek().is_some_and(|word| word.contains('/') || word == "once");
        let params = Params::parse(words, Some(&self.params))?;
        if let Some(seed) = params.seed.filter(|seed| Some(*seed) != self.params.seed) {
            self.rng = Rng::new(seed);
        }
        if restarts || params.once != self.params.once {
            self.start = None;
            self.link = Link::new(params.schedule.clone(), params.once);
        }
        self.params = params;
        Ok(())
    }

    fn qlen(&self) -> usize {
        self.queue.len()
    }

    fn limit(&self) -> Option<usize> {
        Some(self.params.limit as usize)
    }

    fn stats(&self) -> QdiscStats {
        QdiscStats { backlog: self.queue.bytes(), qlen: self.queue.len() as u64, ..self.stats }
    }

    fn options(&self, style: Style) -> Options {
        self.params.options(style)
    }

    fn next_event(&self) -> Option<Nanos> {
        self.queue.next_time()
    }
}

#[cfg(test)]
mod tests;
