//! netem: a bad network, for tests. It delays, loses, damages, copies and reorders packets, and sends at a rate.
//!
//! | option | unit | default | |
//! |---|---|---|---|
//! | `limit` | packets | 1000 | for packets in netem and in its child |
//! | `delay TIME [JITTER [CORRELATION]]` | time, bare: us | 0 0 0% | each packet's delay, also in `ns`; `latency` is the same |
//! | `distribution NAME` | | `uniform` | of the delay: `uniform`, `normal`, `pareto`, `paretonormal`; or a file in tc's format, by a path with a `/` |
//! | `loss [random] PERCENT [CORRELATION]` | | 0% 0% | independent or correlated losses; `drop` is the same |
//! | `loss state P13 [P31 [P32 [P23 [P14]]]]` | percent | P31 is 100% - P13; 0% 100% 0% | four states (`netem/loss.rs`) |
//! | `loss gemodel P [R [1-H [1-K]]]` | percent | R is 100% - P; 100% 0% | two states (`netem/loss.rs`) |
//! | `ecn` | | off | marks packets in place of losing them, where they can be marked |
//! | `corrupt PERCENT [CORRELATION]` | | 0% 0% | changes one bit |
//! | `duplicate PERCENT [CORRELATION]` | | 0% 0% | queues a copy at the root |
//! | `reorder PERCENT [CORRELATION]` | | 0% 0% | sends a packet at once, before all others; needs a `delay` |
//! | `gap N` | packets | 1 with `reorder` | at most one of N packets is reordered |
//! | `rate RATE [OVERHEAD [CELL [CELLOVERHEAD]]]` | bit/s, bytes | none | packets leave one after the other, at this rate |
//! | `slot MIN [MAX]` | time, bare: ns | none; MAX is MIN | a slot comes so long after a packet is due or a slot is full |
//! | `slot distribution NAME MEAN JITTER` | time, bare: ns | | the same, distributed |
//! | `packets N` and `bytes N` after `slot` | | 0: no limit | what leaves in one slot |
//! | `seed N` | | drawn | the seed of all random decisions |
//!
//! ```text
//! tc qdisc add dev eth0 root handle 1: netem delay 20ms 2ms distribution normal loss 1% rate 10mbit
//! ```
//!
//! When a packet comes, it gets the time at which it leaves: after the delay, which may vary, and with a rate not before the
//! packets in front of it have been sent. It waits for its time (`Timed`), and with slots for the next slot. Then it
//! passes through the qdisc of the one class, if the user has put one there. Packets that overtake others do not pass
//! through it.
//!
//! The kernel's counterpart is `sch_netem`; tc-netem(8) describes the options. Differences:
//! - Correlated numbers are as evenly spread as others (`random.rs`), so that `loss 1% 25%` loses one packet of a hundred.
//!   The kernel averages each number with the one before, which makes rare events far rarer.
//! - The upper bits of a number select the value of a table, so that a correlation reaches the delay.
//! - A copy (`duplicate`) is queued at the root after the call in which it was made, not in the middle of it (`copying.rs`).
//! - A copy is dropped where there is room for only one packet. In the kernel it goes in first, and its original exceeds
//!   `limit`.
//! - A netem with `duplicate` may replace another netem. The kernel refuses that.
//! - A packet that is marked instead of dropped (`ecn`) does not count as dropped.
//! - `corrupt` changes one bit anywhere in the packet, of a GSO packet once.
//! - A child that was added as `parent 1:5` is shown with the one class, `1:1`.
//! - JSON shows numbers below 0.0001 as decimals (`0.000099`, not `9.9e-05`).
//! - `seed` is newer than tc 6.1; it is shown if it was given. Details (`-d`) show the counters of the latest kernels, which
//!   no tc prints yet.

mod loss;
mod params;
mod random;
mod slot;
mod table;

use txq_core::arch::{Arch, Nanos};
use txq_core::drop::DropReason;
use txq_core::packet::{Packet, PacketList};
use txq_core::stats::QdiscStats;

use crate::generic::qdisc::child::{Child, Classes, Total, plain_class};
use crate::generic::qdisc::damage;
use crate::generic::qdisc::ecn::set_ce;
use crate::generic::qdisc::noop::Noop;
use crate::generic::qdisc::random::{Rng, seed};
use crate::generic::qdisc::timed::Timed;
use crate::generic::qdisc::{Budget, Built, Cx, Env, Qdisc, Verdict};
use crate::tc::{ClassInfo, Handle, Options, ParseError, Style, Words};

use loss::Lossy;
use params::Params;
use random::Correlated;
use slot::Opening;
use table::Table;

/// The qdisc's parameters, state and packets.
struct Netem<A: Arch> {
    params: Params,
    state: State,
    /// Packets that wait for their time.
    queue: Timed<A>,
    /// Packets that overtake all others; the last to come leaves first.
    ahead: PacketList<A>,
    /// The qdisc through which packets pass after their wait; unused while it has no handle.
    child: Child<A>,
    /// Packets and bytes queued in the child, and the packets that it has dropped.
    total: Total,
    /// The latest time that a call has read. A thread that takes over the queue may have read the clock before the last one.
    now: Nanos,
    /// The latest time at which a packet leaves, of all that have come.
    last: Nanos,
    stats: QdiscStats,
    counts: Counts,
}

/// The state on which the next decisions depend.
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

/// How often each thing happened to a packet.
#[derive(Default)]
struct Counts {
    delayed: u64,
    dropped: u64,
    corrupted: u64,
    duplicated: u64,
    reordered: u64,
    ecn_marked: u64,
    /// Copies that were not made, for want of a buffer.
    alloc_errors: u64,
}

pub(super) fn build<A: Arch>(words: &mut Words<'_>, env: &Env) -> Result<Built<A>, ParseError> {
    let params = Params::parse(words, &Params::default())?;
    let state = State::new(Rng::new(params.seed.unwrap_or_else(|| seed::<A>(env))));
    Ok(Built::Qdisc(Box::new(Netem::<A> {
        params,
        state,
        queue: Timed::new(),
        ahead: PacketList::new(),
        child: Child::new(Box::new(Noop)),
        total: Total::default(),
        now: 0,
        last: 0,
        stats: QdiscStats::default(),
        counts: Counts::default(),
    })))
}

/// Returns the delay for an evenly distributed number: distributed around `mean`, and never below 0.
fn delay(mean: u64, deviation: u64, table: Option<&Table>, number: u32) -> Nanos {
    let off = match table {
        Some(table) => table.value(number, deviation),
        None => ((i128::from(deviation) * 2 * i128::from(number)) >> 32) - i128::from(deviation),
    };
    let time = (i128::from(mean) + off).max(0);
    Nanos::try_from(time).unwrap_or(Nanos::MAX)
}

impl<A: Arch> Netem<A> {
    /// Reads the clock; returns the time, which never goes back.
    fn tick(&mut self, cx: &mut Cx<'_, A>) -> Nanos {
        self.now = self.now.max(cx.clock.now());
        self.now
    }

    /// Returns when a packet of that length leaves.
    fn time(&mut self, bytes: usize, now: Nanos) -> Nanos {
        let Params { delay: mean, jitter, correlation, table, .. } = &self.params;
        let mut wait = mean.0;
        if jitter.0 > 0 {
            let number = self.state.delay.next(*correlation, &mut self.state.rng);
            wait = delay(wait, jitter.0, table.as_deref(), number);
        }
        let mut time = now.saturating_add(wait);
        if let Some(link) = &self.params.rate {
            time = time.max(self.last).saturating_add(link.nanos(bytes));
        }
        self.last = self.last.max(time);
        time
    }

    /// Decides whether the next packet overtakes the others.
    fn overtakes(&mut self) -> bool {
        let Params { gap, reorder, .. } = self.params;
        let overtakes = gap > 0
            && self.state.since >= gap - 1
            && self.state.reorder.happens(reorder, &mut self.state.rng);
        self.state.since = if overtakes { 0 } else { self.state.since.saturating_add(1) };
        overtakes
    }

    /// Returns how many packets wait here, not in the child.
    fn waiting(&self) -> usize {
        self.queue.len() + self.ahead.len()
    }

    fn has_child(&self) -> bool {
        self.child.handle() != Handle::UNSPEC
    }
}

/// Changes one bit of a packet, at random; of a packet whose program keeps the bytes, notes it for the program.
fn corrupt<A: Arch>(packet: &mut Packet<A>, rng: &mut Rng) {
    let bits = packet.own_len() as u64 * 8;
    if bits == 0 {
        return;
    }
    if packet.is_beyond() {
        damage::note(packet, rng.below(bits));
    } else {
        let bit = rng.below(bits) as usize;
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
                // Of the packet and its copy one is lost.
                twice = false;
            } else {
                self.stats.drops += 1;
                self.counts.dropped += 1;
                cx.drop(packet, DropReason::QdiscDrop);
                // The sender of a packet that the network loses does not learn of it.
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
        let now = self.tick(cx);
        let time = self.time(packet.len(), now);
        self.counts.delayed += u64::from(time > now);
        self.queue.push(time, packet);
        Verdict::Success
    }

    fn dequeue_batch(&mut self, mut budget: Budget, out: &mut PacketList<A>, cx: &mut Cx<'_, A>) {
        let now = self.tick(cx);
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

    /// Changes the parameters; queued packets keep their times. Correlations, corruption, the chance of reordering, rate,
    /// slots, ecn and the distribution stay as they are unless they are given. All else is as in a new qdisc: without
    /// `reorder` the gap is 0, so no packet is reordered.
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

    fn has_one_limit(&self) -> bool {
        true
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
    /// Returns the one class while it has a qdisc.
    fn minors(&mut self) -> Vec<u16> {
        if self.has_child() { vec![1] } else { Vec::new() }
    }

    /// Returns the one class, whatever number the user names.
    fn find(&mut self, _: u16) -> Option<u16> {
        Some(1)
    }

    fn leaf(&mut self, _: u16) -> Option<(&mut Child<A>, &mut Total)> {
        Some((&mut self.child, &mut self.total))
    }

    /// Returns a placeholder, which is not used: without its own handle netem ignores the child.
    fn default_leaf(&mut self, _: u16) -> Box<dyn Qdisc<A>> {
        Box::new(Noop)
    }

    fn class(&mut self, minor: u16, style: Style) -> ClassInfo {
        plain_class(minor, self.child.handle(), style)
    }
}

#[cfg(test)]
mod tests;
