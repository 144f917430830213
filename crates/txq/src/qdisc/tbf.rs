//! tbf: a token bucket. Packets leave at a rate, and after a pause a burst of them at once.
//!
//! Tokens are time: a packet of `len` bytes costs as long as it takes at the rate, and the bucket holds as much as a burst
//! takes. With a `peakrate` there is a second, small bucket that both must be paid from, so that a burst does not leave at the
//! link's speed. A packet that is longer than the bucket can never leave: a GSO packet is cut into its segments
//! (`segment.rs`), and what is still too long is dropped at once.
//!
//! Packets wait in the qdisc of the one class, a bfifo of `limit` bytes unless another is put there.
//!
//! The kernel's counterpart is `sch_tbf`.

use crate::arch::{Arch, Nanos};
use crate::drop::DropReason;
use crate::packet::{Packet, PacketList};
use crate::qdisc::child::{Child, Classes, Total};
use crate::qdisc::noop::Noop;
use crate::qdisc::segment::segment;
use crate::qdisc::{Budget, Built, Cx, Env, Qdisc, Verdict, build_qdisc};
use crate::stats::QdiscStats;
use crate::tc::{ClassInfo, Handle, Options, ParseError, Style, Words};

mod params;

use params::Params;

struct Tbf<A: Arch> {
    params: Params,
    child: Child<A>,
    total: Total,
    /// Sent: packets, bytes. Dropped because they were too long. Held back.
    stats: QdiscStats,
    /// Time saved in the bucket at `at`; below 0 never when it is kept.
    tokens: i64,
    peak_tokens: i64,
    at: Nanos,
    /// When the packet that was held back may leave.
    next: Option<Nanos>,
}

pub(super) fn build<A: Arch>(words: &mut Words<'_>, env: &Env) -> Result<Built<A>, ParseError> {
    let params = params::parse(words)?;
    let mut tbf = Tbf {
        params,
        child: Child::new(bfifo(params.limit, env)),
        total: Total::default(),
        stats: QdiscStats::default(),
        tokens: 0,
        peak_tokens: 0,
        at: 0,
        next: None,
    };
    tbf.fill();
    Ok(Built::Qdisc(Box::new(tbf)))
}

fn bfifo<A: Arch>(limit: u32, env: &Env) -> Box<dyn Qdisc<A>> {
    build_qdisc(&format!("bfifo limit {limit}"), env)
}

impl<A: Arch> Tbf<A> {
    fn fill(&mut self) {
        self.tokens = self.params.bucket.time() as i64;
        self.peak_tokens = self.params.peak.map_or(0, |peak| peak.time() as i64);
    }

    /// Whether a packet may leave now; if it may, it is paid for.
    fn pay(&mut self, len: u64, now: Nanos) -> Result<(), Nanos> {
        let Params { bucket, peak, .. } = &self.params;
        let room = bucket.time() as i64;
        let passed = i64::try_from(now.saturating_sub(self.at)).unwrap_or(i64::MAX).min(room);
        let tokens = (self.tokens + passed).min(room) - bucket.rate.time(len) as i64;
        let peak_tokens = peak.map_or(0, |peak| {
            (self.peak_tokens.saturating_add(passed)).min(peak.time() as i64) - peak.rate.time(len) as i64
        });
        let lacks = tokens.min(peak_tokens);
        if lacks < 0 {
            return Err(now.saturating_add(lacks.unsigned_abs()));
        }
        (self.tokens, self.peak_tokens, self.at) = (tokens, peak_tokens, now);
        Ok(())
    }

    /// Queues the segments of a packet that is too long, or drops it where that is no help.
    #[cold]
    fn enqueue_cut(&mut self, packet: Packet<A>, cx: &mut Cx<'_, A>) -> Verdict {
        let mut segments = segment(packet, cx);
        let (all, mut queued) = (segments.len(), 0);
        while let Some(segment) = segments.pop_front() {
            let verdict = match segment.len() as u64 > self.longest() {
                true => self.refuse(segment, cx),
                false => self.child.enqueue(segment, &mut self.total, cx),
            };
            queued += usize::from(verdict != Verdict::Drop);
        }
        match queued {
            0 => Verdict::Drop,
            n if n == all => Verdict::Success,
            _ => Verdict::Congested,
        }
    }

    fn refuse(&mut self, packet: Packet<A>, cx: &mut Cx<'_, A>) -> Verdict {
        self.stats.drops += 1;
        cx.drop(packet, DropReason::QdiscDrop);
        Verdict::Drop
    }

    /// The longest packet that can ever leave, in bytes.
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
                break;
            };
            if len > self.longest() {
                // It came before a change: it would wait for ever, and all behind it.
                let mut late = PacketList::new();
                self.child.dequeue(&mut Budget::packets(1), &mut late, &mut self.total, cx);
                while let Some(packet) = late.pop_front() {
                    let _ = self.refuse(packet, cx);
                }
                continue;
            }
            let now = cx.clock.now();
            if let Err(at) = self.pay(len, now) {
                self.stats.overlimits += 1;
                self.next = Some(at);
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
    }

    fn change(&mut self, words: &mut Words<'_>, env: &Env, cx: &mut Cx<'_, A>) -> Result<(), ParseError> {
        let params = params::parse(words)?;
        if self.child.handle() == Handle::UNSPEC && self.child.qdisc().kind() == "bfifo" {
            let limit = format!("limit {}", params.limit);
            self.child.qdisc_mut().change(&mut Words::split(&limit), env, cx)?;
            self.child.settle(&mut self.total);
        }
        self.params = params;
        self.fill();
        Ok(())
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
    fn minors(&self) -> Vec<u16> {
        vec![1]
    }

    /// Whatever a user names is the one class.
    fn find(&self, _: u16) -> Option<u16> {
        Some(1)
    }

    fn leaf(&mut self, _: u16) -> Option<(&mut Child<A>, &mut Total)> {
        Some((&mut self.child, &mut self.total))
    }

    fn default_leaf(&self, _: u16) -> Box<dyn Qdisc<A>> {
        Box::new(Noop)
    }

    fn class(&mut self, minor: u16, style: Style) -> ClassInfo {
        ClassInfo {
            kind: String::new(),
            handle: Handle::new(0, minor),
            parent: Handle::UNSPEC,
            leaf: self.child.handle(),
            options: Options::new(style),
            stats: None,
            xstats: Some(Options::new(style)),
        }
    }
}

#[cfg(test)]
mod tests;
