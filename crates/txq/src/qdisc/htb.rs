//! htb: a tree of classes, each sure of a rate and able to borrow, up to a ceiling, what its relatives leave unused.
//!
//! A leaf that has sent less than its `rate` sends before all that borrow; among those that may, the lower `prio` goes
//! first, and within one they take turns of `quantum` bytes. A class that has had its rate borrows from its parent, that one
//! from its own, and so on, so what a subtree is sure of is shared inside it first. What no class is meant for goes directly,
//! before everything and at no rate (`direct_qlen`).
//!
//! A class's tokens are time, in two buckets, for `rate` and for `ceil`. A packet may leave while neither is below 0, and
//! takes them there. When a class's bucket comes up to 0 again is known exactly, and a timing wheel holds it. It is not moved
//! each time the class pays: a class that has paid more meanwhile is looked at, and waits on. So a packet costs a few list
//! operations, whatever the number of classes (`lists.rs`).
//!
//! After M. Devera's description of HTB (2002), and Shreedhar and Varghese's DRR (SIGCOMM 1995). The kernel's counterpart is
//! `sch_htb`. Knowingly otherwise:
//! - Classes of one priority take turns in the order in which they got something to send, not in that of their numbers.
//! - A leaf that holds its packets back for itself (a tbf) is asked again when it says so. The kernel warns, and its class is
//!   asked again and again.
//! - A class may not have the minor number 0, which names the qdisc.
//! - There is no `offload`.

use std::collections::BTreeSet;

use crate::arch::{Arch, Nanos};
use crate::drop::DropReason;
use crate::filter::Filters;
use crate::packet::{Packet, PacketList};
use crate::qdisc::child::{Classes, Total};
use crate::qdisc::minors::Minors;
use crate::qdisc::runs;
use crate::qdisc::wheel::Wheel;
use crate::qdisc::{Budget, Built, Cx, Env, Qdisc, Verdict};
use crate::stats::QdiscStats;
use crate::tc::{Handle, Options, ParseError, Style, Words};

mod class;
mod classes;
mod lists;
mod params;

use class::{Class, Event, LEVELS, Mode};
use lists::{NIL, Rows};
use params::Params;

/// From so many classes on, a near cache does not hold them, and those of a batch's packets are fetched before the first is
/// queued.
const MANY: usize = 2048;
/// Packets whose classes are fetched together.
const TOGETHER: usize = 32;
/// Cache lines of a class that a packet needs.
const CLASS_LINES: usize = 6;

struct Htb<A: Arch> {
    params: Params,
    classes: Minors<Class<A>>,
    rows: Rows,
    /// What [`find_next`](Htb::find_next) says, until the lists change.
    next: Option<(u32, u8)>,
    wheel: Wheel<Event>,
    /// Those of the qdisc; a class has its own.
    filters: Filters<A>,
    /// The numbers of all classes that have filters, and of some that have none.
    filtered: BTreeSet<u16>,
    direct: PacketList<A>,
    /// Packets that have gone there.
    direct_packets: u64,
    total: Total,
    /// Sent, dropped from the direct queue or with a class, classes that have come to wait.
    stats: QdiscStats,
    handle: Handle,
    env: Env,
    warnings: Vec<String>,
}

pub(super) fn build<A: Arch>(words: &mut Words<'_>, env: &Env) -> Result<Built<A>, ParseError> {
    Ok(Built::Qdisc(Box::new(Htb {
        params: Params::parse(words, env.tx_queue_len)?,
        classes: Minors::new(),
        rows: Rows::default(),
        next: None,
        wheel: Wheel::new(),
        filters: Filters::new(),
        filtered: BTreeSet::new(),
        direct: PacketList::new(),
        direct_packets: 0,
        total: Total::default(),
        stats: QdiscStats::default(),
        handle: Handle::UNSPEC,
        env: *env,
        warnings: Vec::new(),
    })))
}

impl<A: Arch> Htb<A> {
    /// The leaf that a packet is for, or none: the one that its priority names, or else the filters, from those of the qdisc or
    /// of the class that the priority names downwards, or else the default.
    #[inline]
    fn classify(&self, packet: &Packet<A>) -> Option<u32> {
        let class = self.classes.named(Handle(packet.priority()), self.handle);
        class.filter(|&id| self.is_leaf(id)).or_else(|| self.filter(packet, class))
    }

    #[inline]
    fn is_leaf(&self, id: u32) -> bool {
        self.classes[id].level == 0
    }

    /// The leaf that the filters choose, for a packet whose priority names no leaf, but perhaps a class with others below.
    fn filter(&self, packet: &Packet<A>, class: Option<u32>) -> Option<u32> {
        let is_leaf = |id: u32| self.is_leaf(id);
        if Handle(packet.priority()) == self.handle && self.handle != Handle::UNSPEC {
            return None;
        }
        let mut filters = class.map_or(&self.filters, |id| &self.classes[id].filters);
        // Filters may name a class further up: nobody goes round for ever.
        for _ in 0..LEVELS {
            let Some(named) = filters.classify(packet) else { break };
            if named == self.handle {
                return None;
            }
            match self.classes.named(named, self.handle) {
                Some(id) if is_leaf(id) => return Some(id),
                Some(id) => filters = &self.classes[id].filters,
                None => break,
            }
        }
        self.classes.get(self.params.default as u16).filter(|&id| is_leaf(id))
    }

    fn enqueue_direct(&mut self, packet: Packet<A>, cx: &mut Cx<'_, A>) -> Verdict {
        if self.direct.len() >= self.params.direct_qlen as usize {
            self.stats.drops += 1;
            cx.drop(packet, DropReason::QdiscDrop);
            return Verdict::Drop;
        }
        self.direct_packets += 1;
        self.direct.push_back(packet);
        Verdict::Success
    }

    /// Calls `f` with a class that has a leaf, and looks at what the leaf has after it.
    fn with_leaf<R>(&mut self, id: u32, f: impl FnOnce(&mut super::Child<A>, &mut Total) -> R) -> Option<R> {
        let drops = self.total.drops;
        let class = &mut self.classes[id];
        let done = f(class.leaf.as_mut()?, &mut self.total);
        if self.total.drops != drops {
            class.stats.drops += self.total.drops - drops;
        }
        let queued = class.leaf.as_ref().map_or(0, super::Child::told_qlen);
        self.take_part(id, queued > 0);
        Some(done)
    }

    /// Has a leaf's class take part while it has packets.
    fn look_at_leaf(&mut self, id: u32) {
        if let Some(leaf) = &self.classes[id].leaf {
            let queued = leaf.qlen();
            self.take_part(id, queued > 0);
        }
    }

    /// Has the class of a leaf take part, or not, from now on.
    #[inline]
    fn take_part(&mut self, id: u32, has_packets: bool) {
        if let Some(nap) = self.classes[id].nap.take() {
            self.wheel.remove(nap);
        }
        match has_packets {
            true => self.activate(id),
            false => self.deactivate(id),
        }
    }

    /// Classes whose time has come.
    fn pass_time(&mut self, now: Nanos) {
        while let Some((_, event)) = self.wheel.pop(now) {
            match event {
                Event::Tokens(id) => {
                    self.classes[id].due = None;
                    self.look_at_mode(id, now);
                }
                Event::Leaf(id) => {
                    self.classes[id].nap = None;
                    self.look_at_leaf(id);
                }
            }
        }
    }

    /// Gives a class the mode that its tokens say, and has it looked at when they may say otherwise.
    fn look_at_mode(&mut self, id: u32, now: Nanos) {
        let (mode, time) = self.classes[id].mode_at(now);
        self.keep_mode(id, mode, time, now);
    }

    /// Gives a class a mode, which it has for `time` from now on.
    #[inline]
    fn keep_mode(&mut self, id: u32, mode: Mode, time: Nanos, now: Nanos) {
        let Class { due, mode: old, .. } = self.classes[id];
        // Too early is no harm: it is then looked at again.
        let at = now.saturating_add(time);
        let will_be = time == Nanos::MAX || due.is_some_and(|(due, _)| due <= at);
        if mode != old {
            self.set_mode(id, mode);
        }
        if !will_be {
            self.look_again_at(id, at);
        }
    }

    /// Has a class's mode looked at again at a time, and not at another that it has.
    fn look_again_at(&mut self, id: u32, at: Nanos) {
        if let Some((_, ticket)) = self.classes[id].due {
            self.wheel.remove(ticket);
        }
        self.classes[id].due = Some((at, self.wheel.insert(at, Event::Tokens(id))));
    }

    /// All classes from a leaf upwards pay for a packet.
    fn pay(&mut self, leaf: u32, len: u64, segs: u64, level: u8, now: Nanos) {
        let mut id = leaf;
        while id != NIL {
            let class = &mut self.classes[id];
            let parent = class.parent;
            let (mode, time) = class.pay(len, segs, level, now);
            self.keep_mode(id, mode, time, now);
            id = parent;
        }
    }

    /// Sends a packet of the leaf whose turn it is, or has its class take part no more. None where there is no leaf.
    fn dequeue_one(&mut self, out: &mut PacketList<A>, now: Nanos, cx: &mut Cx<'_, A>) -> Option<Budget> {
        let (id, level) = self.next_leaf()?;
        let class = &mut self.classes[id];
        let leaf = class.leaf.as_mut()?;
        let (packets, bytes, segs, drops) = (out.len(), out.bytes(), out.segs(), self.total.drops);
        leaf.dequeue(&mut Budget::packets(1), out, &mut self.total, cx);
        let (packets, bytes, segs) = (out.len() - packets, out.bytes() - bytes, out.segs() - segs);
        class.stats.drops += self.total.drops - drops;
        let is_empty = leaf.told_qlen() == 0;
        let next = if packets == 0 { leaf.qdisc().next_event() } else { None };
        if packets > 0 && class.spend_turn(bytes, level) {
            let prio = usize::from(class.params.prio);
            self.end_turn(id, prio);
        }
        if is_empty || packets == 0 {
            self.deactivate(id);
        }
        if packets > 0 {
            self.pay(id, bytes, segs, level, now);
        } else if !is_empty {
            let at = next.unwrap_or(0).max(now + 1);
            self.classes[id].nap = Some(self.wheel.insert(at, Event::Leaf(id)));
        }
        Some(Budget { packets, bytes })
    }
}

impl<A: Arch> Qdisc<A> for Htb<A> {
    fn kind(&self) -> &'static str {
        params::SYNTAX.kind
    }

    fn set_handle(&mut self, handle: Handle) {
        self.handle = handle;
    }

    fn filters(&mut self, class: u16) -> Option<&mut Filters<A>> {
        match class {
            0 => Some(&mut self.filters),
            _ => {
                let id = self.classes.get(class)?;
                self.filtered.insert(class);
                Some(&mut self.classes[id].filters)
            }
        }
    }

    fn enqueue(&mut self, packet: Packet<A>, cx: &mut Cx<'_, A>) -> Verdict {
        match self.classify(&packet) {
            None => self.enqueue_direct(packet, cx),
            Some(id) => {
                let verdict = self.with_leaf(id, |leaf, total| leaf.enqueue(packet, total, cx));
                verdict.unwrap_or(Verdict::Drop)
            }
        }
    }

    fn enqueue_batch(&mut self, batch: &mut PacketList<A>, cx: &mut Cx<'_, A>) {
        let put = |htb: &mut Self, id, run: &mut PacketList<A>, cx: &mut Cx<'_, A>| {
            htb.with_leaf(id, |leaf, total| leaf.enqueue_batch(run, total, cx));
        };
        let fetched = if self.classes.places() > MANY { TOGETHER } else { 0 };
        for packet in batch.iter().take(fetched) {
            if let Some(id) = self.classes.named(Handle(packet.priority()), self.handle) {
                self.classes.fetch(id, CLASS_LINES);
            }
        }
        runs::enqueue(self, batch, cx, Self::classify, put, Self::enqueue_direct);
    }

    fn dequeue_batch(&mut self, mut budget: Budget, out: &mut PacketList<A>, cx: &mut Cx<'_, A>) {
        let (segs, bytes) = (out.segs(), out.bytes());
        while budget.is_left() {
            let Some(packet) = self.direct.pop_front() else { break };
            budget.spend(1, packet.len() as u64);
            out.push_back(packet);
        }
        let now = cx.clock.now();
        self.pass_time(now);
        while budget.is_left() {
            let Some(sent) = self.dequeue_one(out, now, cx) else { break };
            budget.spend(sent.packets, sent.bytes);
        }
        self.stats.count_sent(out.segs() - segs, out.bytes() - bytes);
    }

    fn reset(&mut self, cx: &mut Cx<'_, A>) {
        while let Some(packet) = self.direct.pop_front() {
            cx.drop(packet, DropReason::QueuePurge);
        }
        for id in self.classes.ids() {
            self.with_leaf(id, |leaf, total| leaf.reset(total, cx));
        }
    }

    fn qlen(&self) -> usize {
        self.total.qlen + self.direct.len()
    }

    fn stats(&self) -> QdiscStats {
        let Total { backlog, drops, .. } = self.total;
        let backlog = backlog + self.direct.bytes();
        QdiscStats { backlog, qlen: self.qlen() as u64, drops: self.stats.drops + drops, ..self.stats }
    }

    fn options(&self, style: Style) -> Options {
        self.params.options(self.direct_packets, style)
    }

    fn next_event(&self) -> Option<Nanos> {
        self.wheel.next_time()
    }

    fn classes(&mut self) -> Option<&mut dyn Classes<A>> {
        Some(self)
    }
}

#[cfg(test)]
mod tests;
