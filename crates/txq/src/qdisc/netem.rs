//! netem: a bad network, for tests. Delays, loses, damages and reorders packets, and sends at a rate.
//!
//! A packet gets the time at which it leaves when it comes: after the delay, which may vary, and, with a rate, not before the
//! packets in front of it have been sent. Then it waits for its time ([`Timed`]), and with slots for the next slot. What
//! has waited passes through the qdisc of the one class, if somebody has put one there; what overtakes does not.
//! `limit` is for what waits here and there.
//!
//! The kernel's counterpart is `sch_netem`; the options are described in tc-netem(8). Differences:
//! - Correlated numbers are as evenly spread as others (`random.rs`), so that `loss 1% 25%` loses one packet of a hundred.
//!   The kernel averages with the number before, which makes rare things far rarer.
//! - A value of a table is found by the upper bits of its number, so that a correlation reaches the delay.
//! - A copy (`duplicate`) is queued at the root when the call that it was made in is over, not in the middle of it
//!   (`copying.rs`).
//! - A packet that is marked instead of dropped (`ecn`) does not count as dropped.
//! - `corrupt` changes one bit anywhere in the packet, of a GSO packet once.
//! - `seed` is newer than tc 6.1; it is shown where it was said. The counters of the latest
//!   kernels, which no tc of today's prints, are shown to who wants details.

mod loss;
mod params;
mod random;
mod slot;
mod table;

use crate::arch::{Arch, Nanos};
use crate::drop::DropReason;
use crate::packet::{Packet, PacketList};
use crate::qdisc::child::{Child, Classes, Total};
use crate::qdisc::ecn::set_ce;
use crate::qdisc::noop::Noop;
use crate::qdisc::random::Rng;
use crate::qdisc::timed::Timed;
use crate::qdisc::{Budget, Built, Cx, Env, Qdisc, Verdict};
use crate::stats::QdiscStats;
use crate::tc::{ClassInfo, Handle, Options, ParseError, Style, Words};

use loss::Lossy;
use params::Params;
use random::Correlated;
use slot::Opening;
use table::Table;

/// The qdisc.
struct Netem<A: Arch> {
    params: Params,
    state: State,
    /// Packets that wait for their time.
    queue: Timed<A>,
    /// Packets that overtake all others, the last to come first.
    ahead: PacketList<A>,
    /// What passes on what has waited; nothing while it has no handle.
    child: Child<A>,
    total: Total,
    /// The latest time that a packet has got.
    last: Nanos,
    stats: QdiscStats,
    counts: Counts,
}

/// What the next decisions depend on.
struct State {
    rng: Rng,
    lossy: Lossy,
    delay: Correlated,
    duplicate: Correlated,
    corrupt: Correlated,
    reorder: Correlated,
    /// Packets since the last one that overtook others.
    since: u32,
    slot: Opening,
}

impl State {
    fn new(rng: Rng) -> Self {
        let (lossy, slot) = Default::default();
        let (delay, duplicate, corrupt, reorder) = Default::default();
        Self { rng, lossy, delay, duplicate, corrupt, reorder, since: 0, slot }
    }
}

/// What happened to packets.
#[derive(Default)]
struct Counts {
    delayed: u64,
    dropped: u64,
    corrupted: u64,
    duplicated: u64,
    reordered: u64,
    ecn_marked: u64,
    /// Copies that there was no buffer for.
    alloc_errors: u64,
}

pub(super) fn build<A: Arch>(words: &mut Words<'_>, _: &Env) -> Result<Built<A>, ParseError> {
    let params = Params::parse(words, &Params::default())?;
    let state = State::new(Rng::new(params.seed.unwrap_or_else(A::random)));
    Ok(Built::Qdisc(Box::new(Netem::<A> {
        params,
        state,
        queue: Timed::new(),
        ahead: PacketList::new(),
        child: Child::new(Box::new(Noop)),
        total: Total::default(),
        last: 0,
        stats: QdiscStats::default(),
        counts: Counts::default(),
    })))
}

/// The time that an evenly distributed number stands for: around `mean`, and never below 0.
fn delay(mean: u64, deviation: u64, table: Option<&Table>, number: u32) -> Nanos {
    let off = match table {
        Some(table) => table.value(number, deviation),
        None => ((i128::from(deviation) * 2 * i128::from(number)) >> 32) - i128::from(deviation),
    };
    let time = (i128::from(mean) + off).max(0);
    Nanos::try_from(time).unwrap_or(Nanos::MAX)
}

impl<A: Arch> Netem<A> {
    /// When a packet of that length leaves.
    fn time(&mut self, bytes: usize, now: Nanos) -> Nanos {
        let Params { delay: mean, jitter, correlation, table, .. } = &self.params;
        let mut wait = u64::from(mean.0) * 1000;
        if jitter.0 > 0 {
            let number = self.state.delay.next(*correlation, &mut self.state.rng);
            wait = delay(wait, u64::from(jitter.0) * 1000, table.as_deref(), number);
        }
        let mut time = now.saturating_add(wait);
        if let Some(link) = &self.params.rate {
            time = time.max(self.last).saturating_add(link.nanos(bytes));
        }
        self.last = self.last.max(time);
        time
    }

    /// Whether the packet overtakes the others.
    fn overtakes(&mut self) -> bool {
        let Params { gap, reorder, .. } = self.params;
        let overtakes = gap > 0
            && self.state.since >= gap - 1
            && self.state.reorder.happens(reorder, &mut self.state.rng);
        self.state.since = if overtakes { 0 } else { self.state.since.saturating_add(1) };
        overtakes
    }

    /// Packets that wait here, not in the child.
    fn waiting(&self) -> usize {
        self.queue.len() + self.ahead.len()
    }

    fn has_child(&self) -> bool {
        self.child.handle() != Handle::UNSPEC
    }
}

/// Changes one bit.
fn corrupt<A: Arch>(packet: &mut Packet<A>, rng: &mut Rng) {
    if packet.len() > 0 {
        let bit = rng.below(packet.len() as u64 * 8) as usize;
        packet.data_mut()[bit / 8] ^= 1 << (bit % 8);
    }
}

impl<A: Arch> Qdisc<A> for Netem<A> {
    fn kind(&self) -> &'static str {
        "netem"
    }

    fn enqueue(&mut self, mut packet: Packet<A>, cx: &mut Cx<'_, A>) -> Verdict {
        let State { rng, lossy, duplicate, .. } = &mut self.state;
        let mut twice = !cx.is_copy() && duplicate.happens(self.params.duplicate, rng);
        if lossy.is_next(&self.params.loss, rng) {
            if self.params.ecn && set_ce(&mut packet) {
                self.counts.ecn_marked += 1;
            } else if twice {
                // One of the two is lost.
                twice = false;
            } else {
                self.stats.drops += 1;
                self.counts.dropped += 1;
                cx.drop(packet, DropReason::QdiscDrop);
                // The network loses it, and its sender does not know.
                return Verdict::Success;
            }
        }
        let State { rng, corrupt: damage, .. } = &mut self.state;
        let damaged = damage.happens(self.params.corrupt, rng);
        self.counts.corrupted += u64::from(damaged);
        if self.qlen() >= self.params.limit as usize {
            self.stats.drops += 1;
            cx.drop(packet, DropReason::QdiscOverlimit);
            return Verdict::Drop;
        }
        if twice {
            match cx.duplicate(&packet) {
                true => self.counts.duplicated += 1,
                false => self.counts.alloc_errors += 1,
            }
        }
        if damaged {
            corrupt(&mut packet, &mut self.state.rng);
        }
        if self.overtakes() {
            self.counts.reordered += 1;
            self.ahead.push_front(packet);
            return Verdict::Success;
        }
        let now = cx.clock.now();
        let time = self.time(packet.len(), now);
        self.counts.delayed += u64::from(time > now);
        self.queue.push(time, packet);
        Verdict::Success
    }

    fn dequeue_batch(&mut self, mut budget: Budget, out: &mut PacketList<A>, cx: &mut Cx<'_, A>) {
        let now = cx.clock.now();
        while budget.is_left() {
            if let Some(packet) = self.ahead.pop_front() {
                budget.send(packet, out, &mut self.stats);
                continue;
            }
            let Some(due) = self.queue.next_time() else { break };
            let State { slot: opening, rng, .. } = &mut self.state;
            let opens = self.params.slot.as_ref().map_or(due, |slot| opening.of(due, slot, rng));
            if due.max(opens) > now {
                break;
            }
            let Some((_, packet)) = self.queue.pop() else { break };
            if let Some(slot) = &self.params.slot {
                opening.spend(packet.len() as u64, now, slot, rng);
            }
            if self.has_child() {
                let _ = self.child.enqueue(packet, &mut self.total, cx);
            } else {
                budget.send(packet, out, &mut self.stats);
            }
        }
        if budget.is_left() && self.child.qlen() > 0 {
            let (segs, bytes) = (out.segs(), out.bytes());
            self.child.dequeue(&mut budget, out, &mut self.total, cx);
            self.stats.count_sent(out.segs() - segs, out.bytes() - bytes);
        }
    }

    fn reset(&mut self, cx: &mut Cx<'_, A>) {
        while let Some(packet) = self.ahead.pop_front().or_else(|| Some(self.queue.pop()?.1)) {
            cx.drop(packet, DropReason::QueuePurge);
        }
        self.child.reset(&mut self.total, cx);
        self.last = 0;
        self.state.slot = Opening::default();
    }

    /// What is queued keeps its time. Correlations, corruption, reordering, rate, slots, ecn and the distribution stay unless they are said anew;
    /// everything else is as in a new qdisc.
    fn change(&mut self, words: &mut Words<'_>, _: &Env, cx: &mut Cx<'_, A>) -> Result<(), ParseError> {
        let mut params = Params::parse(words, &self.params)?;
        cx.copying.others.allow(params.duplicate.chance.0 > 0)?;
        let rng = match params.seed {
            Some(seed) => Rng::new(seed),
            None => std::mem::replace(&mut self.state.rng, Rng::new(0)),
        };
        params.seed = params.seed.or(self.params.seed);
        self.state = State::new(rng);
        self.params = params;
        Ok(())
    }

    fn qlen(&self) -> usize {
        self.waiting() + self.total.qlen
    }

    fn limit(&self) -> Option<usize> {
        Some(self.params.limit as usize)
    }

    fn stats(&self) -> QdiscStats {
        let backlog = self.queue.bytes() + self.ahead.bytes() + self.total.backlog;
        let drops = self.stats.drops + self.total.drops;
        QdiscStats { backlog, qlen: self.qlen() as u64, drops, ..self.stats }
    }

    fn options(&self, style: Style) -> Options {
        self.params.options(style)
    }

    fn xstats(&self, style: Style) -> Option<Options> {
        if !style.details {
            return None;
        }
        let Counts { delayed, dropped, corrupted, duplicated, reordered, ecn_marked, alloc_errors } =
            self.counts;
        let mut options = Options::new(style);
        options.put("delayed", delayed, format_args!("  delayed {delayed}"));
        options.number("dropped", dropped).number("corrupted", corrupted).number("duplicated", duplicated);
        options.number("reordered", reordered).number("ecn_marked", ecn_marked);
        if alloc_errors > 0 {
            options.number("alloc_errors", alloc_errors);
        }
        Some(options)
    }

    fn next_event(&self) -> Option<Nanos> {
        let due = self.queue.next_time();
        let due = due.map(|due| if self.params.slot.is_some() { due.max(self.state.slot.at) } else { due });
        let below = self.child.qdisc().next_event().filter(|_| self.child.qlen() > 0);
        due.into_iter().chain(below).min()
    }

    fn copies(&self) -> Option<bool> {
        Some(self.params.duplicate.chance.0 > 0)
    }

    fn classes(&mut self) -> Option<&mut dyn Classes<A>> {
        Some(self)
    }
}

impl<A: Arch> Classes<A> for Netem<A> {
    /// The class is there with its qdisc.
    fn minors(&self) -> Vec<u16> {
        if self.has_child() { vec![1] } else { Vec::new() }
    }

    /// Whatever a user names is the one class.
    fn find(&self, _: u16) -> Option<u16> {
        Some(1)
    }

    fn leaf(&mut self, _: u16) -> Option<(&mut Child<A>, &mut Total)> {
        Some((&mut self.child, &mut self.total))
    }

    /// Has nothing to do: it is not asked.
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
            xstats: None,
        }
    }
}

#[cfg(test)]
mod tests;
