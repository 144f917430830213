//! hfsc: a tree of classes with service curves, which give a class a rate and, apart from it, a delay.
//!
//! A leaf with a real-time curve (`rt`) has sent at least as much as its curve says at any time, as far as the link allows
//! and the curves of all leaves together are below the link's. Beyond that, the children of a class share by their
//! link-sharing curves (`ls`), and an upper-limit curve (`ul`) bounds a class. A curve has two slopes: `m1` for the time `d`
//! after the class became active, then `m2`. A class whose `m1` is above `m2` has a short delay at a low rate.
//!
//! | option of a class | meaning |
//! |---|---|
//! | `rt CURVE` | real-time curve of a leaf |
//! | `ls CURVE` | link-sharing curve |
//! | `sc CURVE` | both at once |
//! | `ul CURVE` | upper limit; needs `ls` |
//!
//! A curve is `[[m1 RATE] d TIME] m2 RATE`, or `[[umax SIZE] dmax TIME] rate RATE`: `umax` bytes are sent within `dmax`. A bare
//! rate is in bit/s, a bare time in microseconds. The option of the qdisc is `default MINOR` (hexadecimal), the class of
//! packets that nothing else gives one.
//!
//! A packet's class is the leaf that its priority names, where the priority is a handle (`major:minor` of this qdisc); else
//! the filters choose it, those of the qdisc and then those of the inner class that they choose; else it is the default. A
//! packet without a class is dropped as `QDISC_DROP`. Each leaf has a pfifo of `tx_queue_len` packets until the user
//! replaces it.
//!
//! ```text
//! tc qdisc add dev eth0 root handle 1: hfsc default 20
//! tc class add dev eth0 parent 1: classid 1:1 hfsc sc rate 100mbit ul rate 100mbit
//! tc class add dev eth0 parent 1:1 classid 1:10 hfsc rt umax 1500b dmax 5ms rate 2mbit ls rate 10mbit
//! tc class add dev eth0 parent 1:1 classid 1:20 hfsc ls rate 90mbit
//! ```
//!
//! Source: Stoica, Zhang, Ng, "A Hierarchical Fair Service Curve Algorithm for Link-Sharing, Real-Time and Priority Services"
//! (SIGCOMM 1997). The kernel's counterpart is `sch_hfsc`. Differences:
//! - Times are whole nanoseconds, and slopes are not rounded to multiples of a unit.
//! - A leaf that holds its packets back (a tbf) lets the others pass until its time. The kernel warns, and stalls.
//! - A change of a class's curves lets the leaves below it leave and come back.
//! - An inner class has no qdisc; the one that it had as a leaf returns, empty, with the deletion of its last child.

use std::collections::BTreeSet;

use txq_core::arch::{Arch, Nanos};
use txq_core::clock::Clock;
use txq_core::drop::DropReason;
use txq_core::packet::{Packet, PacketList};
use txq_core::stats::QdiscStats;

use crate::generic::filter::{Choice, Filters};
use crate::generic::qdisc::child::{Child, Classes, Total};
use crate::generic::qdisc::minors::Minors;
use crate::generic::qdisc::rates::{Rates, sent_by};
use crate::generic::qdisc::runs;
use crate::generic::qdisc::unknown::UnknownClass;
use crate::generic::qdisc::wheel::Wheel;
use crate::generic::qdisc::{Arrival, Budget, Built, Cx, Env, Full, Qdisc, Verdict};
use crate::tc::{Handle, Options, ParseError, Style, Words};

mod class;
mod classes;
mod curve;
mod params;
mod share;

use class::{Class, NIL, ROOT_ID};
use params::Curves;

/// The most steps from filter to filter, which ends a circle of them.
const STEPS: usize = 16;

struct Hfsc<A: Arch> {
    /// The minor number of the default class; 0 for none.
    default: u16,
    /// The classes; the root has the minor number 0.
    classes: Minors<Class<A>>,
    /// Active leaves with a real-time curve, by the time at which they become eligible.
    eligible: BTreeSet<(i64, u32)>,
    /// Leaves that hold their packets back, by their next event.
    wheel: Wheel<u32>,
    /// Leaves that a tc command has changed.
    changed: Vec<u32>,
    total: Total,
    /// The estimators of the classes.
    rates: Rates,
    stats: QdiscStats,
    /// When a leaf may send, if the last dequeue found none.
    next: Option<Nanos>,
    handle: Handle,
    unknown: UnknownClass,
    env: Env,
}

/// Returns a time as the curves compute with it.
fn time(now: Nanos) -> i64 {
    i64::try_from(now).unwrap_or(i64::MAX / 8).min(i64::MAX / 8)
}

pub(super) fn build<A: Arch>(words: &mut Words<'_>, env: &Env) -> Result<Built<A>, ParseError> {
    let default = params::parse(words)?;
    let mut classes = Minors::new();
    let root = classes.insert(0, Class::new(0, NIL, Curves::default(), Child::fifo(env)));
    debug_assert_eq!(root, ROOT_ID);
    Ok(Built::Qdisc(Box::new(Hfsc {
        default,
        classes,
        eligible: BTreeSet::new(),
        wheel: Wheel::new(),
        changed: Vec::new(),
        total: Total::default(),
        rates: Rates::default(),
        stats: QdiscStats::default(),
        next: None,
        handle: Handle::UNSPEC,
        unknown: UnknownClass::default(),
        env: *env,
    })))
}

impl<A: Arch> Hfsc<A> {
    /// Returns the packet's leaf.
    fn classify(&mut self, packet: &Packet<A>, clock: &mut Clock<A>) -> Option<u32> {
        let class = Handle(packet.priority());
        let named = self.classes.named(class, self.handle);
        if named.is_none() {
            self.unknown.note(class, self.handle);
        }
        self.leaf_of(named, |filters| filters.classify(packet, clock))
    }

    /// Returns the leaf of a packet whose priority names the class `named`; `choose` asks filters.
    fn leaf_of(
        &self,
        named: Option<u32>,
        mut choose: impl FnMut(&Filters<A>) -> Option<Choice>,
    ) -> Option<u32> {
        let is_leaf = |id: &u32| *id != ROOT_ID && self.classes[*id].level == 0;
        if let Some(id) = named.filter(is_leaf) {
            return Some(id);
        }
        let mut filters = &self.classes[ROOT_ID].filters;
        for _ in 0..STEPS {
            let Some(choice) = choose(filters) else { break };
            let Choice::Class(class) = choice else { return None };
            let Some(id) = self.classes.named(class, self.handle) else { break };
            if is_leaf(&id) {
                return Some(id);
            }
            filters = &self.classes[id].filters;
        }
        if self.default == 0 {
            return None;
        }
        self.classes.get(self.default).filter(is_leaf)
    }

    /// Returns whether a class is `above`, or below it.
    fn is_below(&self, id: u32, above: u32) -> bool {
        let mut id = id;
        while id != NIL && id != above {
            id = self.classes[id].parent;
        }
        id == above
    }

    /// Calls `f` with a leaf, and updates the class. Returns the result of `f`.
    fn with_leaf<R>(
        &mut self,
        id: u32,
        cx: &mut Cx<'_, A>,
        f: impl FnOnce(&mut Child<A>, &mut Total, &mut Cx<'_, A>) -> R,
    ) -> R {
        let drops = self.total.drops;
        let class = &mut self.classes[id];
        let done = f(&mut class.leaf, &mut self.total, cx);
        class.stats.drops += self.total.drops - drops;
        let now = time(cx.clock.now());
        self.update_leaf(id, now, cx);
        done
    }

    /// Drops a packet without a class, and returns [`Verdict::Success`], as drr does.
    fn refuse(&mut self, packet: Packet<A>, cx: &mut Cx<'_, A>) -> Verdict {
        self.stats.drops += 1;
        cx.drop(packet, DropReason::QdiscDrop);
        Verdict::Success
    }

    /// Updates the leaves that a command has changed, and those whose time has come.
    fn pass_time(&mut self, now: i64, cx: &mut Cx<'_, A>) {
        for id in std::mem::take(&mut self.changed) {
            self.update_leaf(id, now, cx);
        }
        while let Some((_, id)) = self.wheel.pop(now as u64) {
            self.classes[id].nap = None;
            self.update_leaf(id, now, cx);
        }
    }

    /// Dequeues a packet from the leaf whose turn it is; returns its length, or `None` if no leaf may send.
    fn dequeue_one(&mut self, out: &mut PacketList<A>, now: i64, cx: &mut Cx<'_, A>) -> Option<u64> {
        loop {
            let deadline = self.earliest_deadline(now);
            let id = deadline.or_else(|| self.by_virtual_time(now))?;
            let (segs, bytes, drops) = (out.segs(), out.bytes(), self.total.drops);
            let class = &mut self.classes[id];
            class.leaf.dequeue(&mut Budget::packets(1), out, &mut self.total, cx);
            let (segs, len) = (out.segs() - segs, out.bytes() - bytes);
            class.stats.count_sent(segs, len);
            class.cumul += if deadline.is_some() { len } else { 0 };
            let next = class.leaf.peek(&mut self.total, cx).map(|packet| packet.len() as u64);
            class.stats.drops += self.total.drops - drops;
            self.served(id, len, next.is_none(), now);
            match next {
                Some(next) => self.update_deadline(id, next, deadline.is_some()),
                None => {
                    self.classes[id].active = false;
                    self.eligible.remove(&(self.classes[id].eligible_at, id));
                    self.sleep(id, now);
                }
            }
            if segs > 0 {
                return Some(len);
            }
        }
    }
}

impl<A: Arch> Qdisc<A> for Hfsc<A> {
    fn kind(&self) -> &'static str {
        params::SYNTAX.kind
    }

    fn set_handle(&mut self, handle: Handle) {
        self.handle = handle;
    }

    fn filters(&mut self, class: u16) -> Option<&mut Filters<A>> {
        let id = self.classes.get(class)?;
        Some(&mut self.classes[id].filters)
    }

    fn enqueue(&mut self, packet: Packet<A>, cx: &mut Cx<'_, A>) -> Verdict {
        match self.classify(&packet, cx.clock) {
            None => self.refuse(packet, cx),
            Some(id) => self.with_leaf(id, cx, |leaf, total, cx| leaf.enqueue(packet, total, cx)),
        }
    }

    fn enqueue_batch(&mut self, batch: &mut PacketList<A>, cx: &mut Cx<'_, A>) {
        let put = |hfsc: &mut Self, id, run: &mut PacketList<A>, cx: &mut Cx<'_, A>| {
            hfsc.with_leaf(id, cx, |leaf, total, cx| leaf.enqueue_batch(run, total, cx));
        };
        runs::enqueue(self, batch, cx, Self::classify, put, Self::refuse);
    }

    fn dequeue_batch(&mut self, mut budget: Budget, out: &mut PacketList<A>, cx: &mut Cx<'_, A>) {
        let (segs, bytes) = (out.segs(), out.bytes());
        let now = time(cx.clock.now());
        if self.rates.is_due(now.unsigned_abs()) {
            let mut rates = std::mem::take(&mut self.rates);
            rates.pass_time(now.unsigned_abs(), |minor| sent_by(self, minor));
            self.rates = rates;
        }
        self.pass_time(now, cx);
        self.next = None;
        while budget.is_left() {
            let Some(len) = self.dequeue_one(out, now, cx) else {
                if self.total.qlen > 0 {
                    self.stats.overlimits += 1;
                    self.next = self.next_time().map(|at| at.max(now + 1).unsigned_abs());
                }
                break;
            };
            budget.spend(1, len);
        }
        self.stats.count_sent(out.segs() - segs, out.bytes() - bytes);
    }

    fn reset(&mut self, cx: &mut Cx<'_, A>) {
        for id in self.classes.ids() {
            self.with_leaf(id, cx, |leaf, total, cx| leaf.reset(total, cx));
        }
    }

    /// Changes the default class; without the word there is none.
    fn change(&mut self, words: &mut Words<'_>, _: &Env, _: &mut Cx<'_, A>) -> Result<(), ParseError> {
        self.default = params::parse(words)?;
        Ok(())
    }

    fn room_for(&self, arrival: Arrival<'_, A>) -> Result<(), Full> {
        let named = self.classes.named(Handle(arrival.packet.priority()), self.handle);
        let leaf = self.leaf_of(named, |filters| filters.foresee(arrival.packet, arrival.clock));
        leaf.map_or(Ok(()), |id| self.classes[id].leaf.room_for(arrival))
    }

    fn qlen(&self) -> usize {
        self.total.qlen
    }

    fn stats(&self) -> QdiscStats {
        let Total { qlen, backlog, drops } = self.total;
        QdiscStats { backlog, qlen: qlen as u64, drops: self.stats.drops + drops, ..self.stats }
    }

    fn xstats(&self, style: Style) -> Option<Options> {
        self.unknown.xstats(style)
    }

    fn options(&self, style: Style) -> Options {
        let mut options = Options::new(style);
        if self.default != 0 {
            options.put(
                "default",
                format!("{:x}", self.default),
                format_args!("default {:x} ", self.default),
            );
        }
        options
    }

    fn next_event(&self) -> Option<Nanos> {
        let changed = if self.changed.is_empty() { None } else { Some(0) };
        [self.next, self.wheel.next_time(), changed].into_iter().flatten().min()
    }

    fn classes(&mut self) -> Option<&mut dyn Classes<A>> {
        Some(self)
    }
}

#[cfg(test)]
mod tests;
