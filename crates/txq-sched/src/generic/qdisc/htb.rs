//! htb: a tree of classes. Each class has a guaranteed rate, and borrows what its relatives leave unused, up to a ceiling.
//!
//! A leaf below its `rate` sends before all leaves that borrow. Leaves that send by classes of one level go in the order of
//! `prio`, the lowest first; leaves of one `prio` take turns of `quantum` bytes. A class that has used up its rate borrows
//! from its parent, and the parent from its own parent. So a subtree shares its guaranteed rate among its own classes first.
//! A packet without a class goes to the direct queue, which is served before all classes and at no rate limit.
//!
//! A packet's class is the leaf that its priority names, where the priority is a handle (`major:minor` of this qdisc). Else
//! the filters choose it: those of the inner class that the priority names, or those of the qdisc. Else it is the `default`.
//! The qdisc's own handle, as a priority or from a filter, chooses the direct queue.
//!
//! Options of the qdisc:
//!
//! | option | unit | default | |
//! |---|---|---|---|
//! | `default` | minor number, hexadecimal | 0: direct queue | the leaf for packets that nothing else gives a class |
//! | `r2q` | | 10 | a leaf's default `quantum` is its rate in bytes per second divided by this |
//! | `direct_qlen` | packets | the device's `tx_queue_len` | the limit of the direct queue |
//!
//! Options of a class:
//!
//! | option | unit | default | |
//! |---|---|---|---|
//! | `rate` | bit/s | required | the guaranteed rate |
//! | `ceil` | bit/s | `rate` | the highest rate, with what the class borrows |
//! | `burst`, `cburst` | bytes | `mtu`, and 1 ns of `rate` or `ceil` | what the class saves in a pause |
//! | `prio` | 0 to 7 | 0 | leaves with a lower `prio` send first |
//! | `quantum` | bytes | `rate` / `r2q`, within 1000 to 200000 | what a leaf sends in its turn |
//! | `mtu` | bytes | 1600 | used only for the default `burst` and `cburst` |
//! | `mpu` | bytes | 0 | the shortest packet on the link |
//! | `overhead` | bytes | 0 | added to each packet |
//! | `linklayer` | `ethernet`, `atm`, `adsl` | `ethernet` | with the last two, packets take whole ATM cells |
//!
//! `buffer` and `maxburst` also name `burst`; `cbuffer` and `cmaxburst` also name `cburst`.
//! Each leaf has a pfifo of `tx_queue_len` packets until the user replaces it.
//!
//! ```text
//! tc qdisc add dev eth0 root handle 1: htb default 20
//! tc class add dev eth0 parent 1: classid 1:1 htb rate 100mbit
//! tc class add dev eth0 parent 1:1 classid 1:10 htb rate 60mbit ceil 100mbit prio 0
//! tc class add dev eth0 parent 1:1 classid 1:20 htb rate 40mbit ceil 100mbit prio 1
//! ```
//!
//! Tokens are time. A class has two buckets of them, for `rate` and for `ceil`. It sends by its own rate while neither is
//! below 0, borrows while only that of `rate` is, and waits while that of `ceil` is. A packet may take a bucket below 0. The
//! time at which the bucket is back at 0 is exact, and a timing wheel keeps it. A later payment does not move this event:
//! when it comes too early, the class's mode is computed anew and the next event is scheduled. So a packet costs a few list
//! operations, whatever the number of classes (`lists.rs`).
//!
//! After M. Devera's description of HTB (2002), and Shreedhar and Varghese's DRR (SIGCOMM 1995). The kernel's counterpart is
//! `sch_htb`. Differences:
//! - Classes of one priority take turns in the order in which they got something to send, not in that of their numbers.
//! - A leaf that holds its packets back for itself (a tbf) is asked again at the time that it gives. The kernel warns, and
//!   asks its class again and again.
//! - A class with packets that wait saves tokens beyond its buckets while the dequeue is late, up to 16 ms: threads wake later than the
//!   kernel's timers fire (`lateness.rs`).
//! - A class cannot have the minor number 0, which names the qdisc.
//! - A class that a filter names cannot be deleted, even if the filter is older than the class.
//! - Warnings and errors are those of newer kernels (`Warning: sch_htb: ...`, `Error: HTB class in use.`).
//! - `offload` is refused.

use std::collections::BTreeSet;

use txq_core::arch::{Arch, Nanos};
use txq_core::clock::Clock;
use txq_core::drop::DropReason;
use txq_core::packet::{Packet, PacketList};
use txq_core::stats::QdiscStats;

use crate::generic::filter::{Choice, Filters};
use crate::generic::qdisc::child::{Classes, Total};
use crate::generic::qdisc::idle::Idle;
use crate::generic::qdisc::lateness::{Lateness, MOST_LATE};
use crate::generic::qdisc::minors::Minors;
use crate::generic::qdisc::rates::{Rates, sent_by};
use crate::generic::qdisc::runs::{self, refuse};
use crate::generic::qdisc::unknown::UnknownClass;
use crate::generic::qdisc::wheel::Wheel;
use crate::generic::qdisc::{Arrival, Budget, Built, Cx, Env, Full, Qdisc, Verdict};
use crate::tc::{Handle, Options, ParseError, Style, Words};

mod buckets;
mod class;
mod classes;
mod gauge;
mod lists;
mod params;
mod shared;

use buckets::{Buckets, Demand, Moment, Own};
use class::{CLASS_LEVELS, Class, Event, Mode};
use lists::{NIL, Rows};
pub(super) use params::Params;
pub(super) use shared::{Shared, Source};

/// Above this number of classes a near cache does not hold them all. Then the classes of a batch's first packets are
/// prefetched before the first packet is queued.
const MANY_CLASSES: usize = 2048;
/// Packets at the front of a batch whose classes are prefetched.
const PREFETCHED_CLASSES: usize = 32;
/// Cache lines at the front of a class that a packet needs.
const CLASS_LINES: usize = 6;

pub(super) struct Htb<A: Arch, B: Buckets<A>> {
    params: Params,
    source: B::Source,
    classes: Minors<Class<A, B>>,
    rows: Rows,
    /// The result of [`find_next`](Htb::find_next); `None` once the lists have changed.
    next: Option<(u32, u8)>,
    wheel: Wheel<Event>,
    /// How late the last events were handled, where that matters ([`Buckets::ACQUIRES`]): the most of late, which each event halves.
    late: Nanos,
    lateness: Lateness,
    /// The classes whose leaves may have memory to give back.
    idle: Idle,
    /// The qdisc's filters; each class has its own as well.
    filters: Filters<A>,
    /// Minor numbers of all classes that have filters, and of some that have none.
    filtered: BTreeSet<u16>,
    /// Packets without a class.
    direct: PacketList<A>,
    /// Packets that were queued in `direct`.
    direct_packets: u64,
    /// The estimators of the classes.
    rates: Rates,
    /// Packets and bytes queued in all leaves, and what the leaves dropped.
    total: Total,
    /// Packets and bytes sent, packets that the direct queue dropped, and as `overlimits` how often a class began to wait.
    stats: QdiscStats,
    handle: Handle,
    unknown: UnknownClass,
    env: Env,
    warnings: Vec<String>,
}

pub(super) fn build<A: Arch>(words: &mut Words<'_>, env: &Env) -> Result<Built<A>, ParseError> {
    let params = Params::parse(words, env.tx_queue_len)?;
    Ok(Built::Qdisc(Box::new(Htb::<A, Own>::new(params, env, ()))))
}

impl<A: Arch, B: Buckets<A>> Htb<A, B> {
    /// Returns an htb without classes, whose classes get their buckets from `source`.
    pub(super) fn new(params: Params, env: &Env, source: B::Source) -> Self {
        Self {
            params,
            source,
            classes: Minors::new(),
            rows: Rows::default(),
            next: None,
            wheel: Wheel::new(),
            late: 0,
            lateness: Lateness::default(),
            idle: Idle::default(),
            filters: Filters::new(),
            filtered: BTreeSet::new(),
            direct: PacketList::new(),
            direct_packets: 0,
            total: Total::default(),
            rates: Rates::default(),
            stats: QdiscStats::default(),
            handle: Handle::UNSPEC,
            unknown: UnknownClass::default(),
            env: *env,
            warnings: Vec::new(),
        }
    }

    /// Returns a packet's leaf: the one that its priority names, else the one that the filters choose, else the default.
    /// `None` is the direct queue, and [`NIL`] means that a filter drops the packet.
    #[inline]
    fn classify(&mut self, packet: &Packet<A>, clock: &mut Clock<A>) -> Option<u32> {
        let priority = Handle(packet.priority());
        let class = self.classes.named(priority, self.handle);
        if class.is_none() {
            self.unknown.note(priority, self.handle);
        }
        class
            .filter(|&id| self.is_leaf(id))
            .or_else(|| self.filter(packet, class, |filters| filters.classify(packet, clock)))
    }

    #[inline]
    fn is_leaf(&self, id: u32) -> bool {
        self.classes[id].level == 0
    }

    /// Returns the leaf that the filters choose, else the default leaf, for a packet whose priority names no leaf. `class`
    /// is the inner class that the priority names, if it names one: its filters are asked first, in place of the qdisc's. `choose`
    /// asks filters.
    fn filter(
        &self,
        packet: &Packet<A>,
        class: Option<u32>,
        mut choose: impl FnMut(&Filters<A>) -> Option<Choice>,
    ) -> Option<u32> {
        let is_leaf = |id: u32| self.is_leaf(id);
        if Handle(packet.priority()) == self.handle && self.handle != Handle::UNSPEC {
            return None;
        }
        let mut filters = class.map_or(&self.filters, |id| &self.classes[id].filters);
        // A filter may name a class further up: the bound ends such a circle.
        for _ in 0..CLASS_LEVELS {
            let named = match choose(filters) {
                None => break,
                Some(Choice::Class(named)) => named,
                Some(_) => return Some(NIL),
            };
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

    /// Queues a packet in the direct queue, or drops it if that is full.
    fn enqueue_direct(&mut self, packet: Packet<A>, cx: &mut Cx<'_, A>) -> Verdict {
        if self.direct.len() >= self.params.direct_qlen as usize {
            self.stats.drops += 1;
            cx.drop(packet, DropReason::QdiscDrop);
            return Verdict::Drop;
        }
        self.direct_packets += 1;
        B::count_direct(&self.source, self.direct_packets);
        self.direct.push_back(packet);
        Verdict::Success
    }

    /// Notes that a packet arrives for a leaf, where that matters: the next dequeue may be late, and no packet has waited in the
    /// leaf for it.
    #[inline]
    fn begin_backlog(&mut self, leaf: u32, clock: &mut Clock<A>) {
        let class = &self.classes[leaf];
        if self.lateness.may_credit() && class.active == 0 && class.nap.is_none() {
            self.begin_classes(leaf, clock.now());
        }
    }

    fn begin_classes(&mut self, mut id: u32, now: Nanos) {
        while id != NIL && self.classes[id].active == 0 {
            let class = &mut self.classes[id];
            class.buckets.begin(&class.params, now);
            id = class.parent;
        }
    }

    /// Calls `f` with the leaf of a class, then counts the leaf's drops and activates or deactivates the class. Returns what
    /// `f` returns, or `None` where the class has no leaf.
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

    /// Activates the class of a leaf if the leaf has packets, else deactivates it.
    fn update_leaf(&mut self, id: u32) {
        if let Some(leaf) = &self.classes[id].leaf {
            let queued = leaf.qlen();
            self.take_part(id, queued > 0);
        }
    }

    /// Cancels the event at which a leaf is asked again, then activates the leaf's class if it has packets, and deactivates
    /// it otherwise.
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

    /// Handles the events whose time has come.
    fn pass_time(&mut self, now: Nanos) {
        while let Some((at, event)) = self.wheel.pop(now) {
            if B::ACQUIRES {
                self.late = now.saturating_sub(at).min(MOST_LATE).max(self.late / 2);
            }
            match event {
                Event::Tokens(id) => {
                    self.classes[id].due = None;
                    self.update_mode(id, now);
                }
                Event::Leaf(id) => {
                    self.classes[id].nap = None;
                    self.update_leaf(id);
                }
            }
        }
    }

    /// Returns `now`, with the credit of the dequeue that runs.
    fn moment(&self, now: Nanos) -> Moment {
        Moment { now, credit: self.lateness.credit() }
    }

    /// Computes a class's mode from its tokens, sets it, and schedules the next computation.
    fn update_mode(&mut self, id: u32, now: Nanos) {
        let at = self.moment(now);
        let (mode, time) = self.classes[id].mode_at(at);
        self.keep_mode(id, mode, time, now);
    }

    /// Sets a class's mode, which lasts for `time` from `now`, and schedules the next computation for then at the latest.
    #[inline]
    fn keep_mode(&mut self, id: u32, mode: Mode, time: Nanos, now: Nanos) {
        let Class { due, mode: old, .. } = self.classes[id];
        // An event that comes too early does no harm: it computes the mode and schedules the next one.
        let at = now.saturating_add(time);
        let will_be = time == Nanos::MAX || due.is_some_and(|(due, _)| due <= at);
        if mode != old {
            self.set_mode(id, mode);
        }
        if !will_be {
            self.schedule_mode_at(id, at);
        }
    }

    /// Schedules the computation of a class's mode for `at`, in place of the time that was scheduled.
    fn schedule_mode_at(&mut self, id: u32, at: Nanos) {
        if let Some((_, ticket)) = self.classes[id].due {
            self.wheel.remove(ticket);
        }
        self.classes[id].due = Some((at, self.wheel.insert(at, Event::Tokens(id))));
    }

    /// Charges a packet to all classes from a leaf upwards and updates their modes. A class on `level` lent the tokens.
    fn pay(&mut self, leaf: u32, len: u64, segs: u64, level: u8, now: Nanos) {
        let (mut id, at) = (leaf, self.moment(now));
        while id != NIL {
            let class = &mut self.classes[id];
            let parent = class.parent;
            let (mode, time) = class.pay(len, segs, level, at);
            self.keep_mode(id, mode, time, now);
            id = parent;
        }
    }

    /// Takes the tokens for a leaf's next packet from all classes up to the one on `level`, which lends. Returns whether it has
    /// them; if not, a class that lacks some has another mode now.
    fn acquire(&mut self, leaf: u32, level: u8, now: Nanos, cx: &mut Cx<'_, A>) -> bool {
        let class = &mut self.classes[leaf];
        let Some(child) = class.leaf.as_mut() else { return true };
        let drops = self.total.drops;
        let len = child.peek(&mut self.total, cx).map(|packet| packet.len() as u64);
        class.stats.drops += self.total.drops - drops;
        let Some(len) = len else { return true };
        let (mut id, late) = (leaf, self.late);
        let queued = child.told_backlog();
        let mut demand = Demand { len, queued, late, at: self.moment(now) };
        loop {
            let class = &self.classes[id];
            let (lends, parent) = (class.level == level, class.parent);
            // Whatever conforms to the ceiling of the class above conforms to one that is no lower.
            let bounds = lends || !class.params.ceil.admits(&self.classes[parent].params.ceil);
            let class = &mut self.classes[id];
            if bounds && !class.buckets.acquire(&class.params, &demand, lends) {
                break;
            }
            if lends {
                return true;
            }
            (id, demand.queued) = (parent, self.total.backlog);
        }
        let (lacks, mut below) = (id, leaf);
        while below != lacks {
            self.classes[below].buckets.release();
            below = self.classes[below].parent;
        }
        self.update_mode(lacks, now);
        false
    }

    /// Lets the classes from a leaf upwards rest that have no active class below them any more.
    fn rest(&mut self, mut id: u32, now: Nanos) {
        while id != NIL && self.classes[id].active == 0 {
            self.classes[id].buckets.rest(now);
            id = self.classes[id].parent;
        }
    }

    /// Dequeues a packet from the leaf whose turn it is. Returns the packets and bytes that left, or `None` if no leaf may
    /// send. A leaf that is then empty, or gave nothing, is deactivated; one that holds packets back is asked again at its
    /// next event.
    fn dequeue_one(&mut self, out: &mut PacketList<A>, now: Nanos, cx: &mut Cx<'_, A>) -> Option<Budget> {
        let (id, level) = self.next_leaf()?;
        if B::ACQUIRES && !self.acquire(id, level, now, cx) {
            return Some(Budget { packets: 0, bytes: 0 });
        }
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
            if B::ACQUIRES {
                self.rest(id, now);
            }
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

impl<A: Arch, B: Buckets<A>> Qdisc<A> for Htb<A, B> {
    fn kind(&self) -> &'static str {
        B::KIND
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
        match self.classify(&packet, cx.clock) {
            None => self.enqueue_direct(packet, cx),
            Some(NIL) => refuse(packet, &mut self.total, cx),
            Some(id) => {
                self.begin_backlog(id, cx.clock);
                let verdict = self.with_leaf(id, |leaf, total| leaf.enqueue(packet, total, cx));
                verdict.unwrap_or(Verdict::Drop)
            }
        }
    }

    fn enqueue_batch(&mut self, batch: &mut PacketList<A>, cx: &mut Cx<'_, A>) {
        let put = |htb: &mut Self, id, run: &mut PacketList<A>, cx: &mut Cx<'_, A>| {
            if id == NIL {
                return runs::refuse_all(run, &mut htb.total, cx);
            }
            htb.begin_backlog(id, cx.clock);
            htb.with_leaf(id, |leaf, total| leaf.enqueue_batch(run, total, cx));
        };
        let fetched = if self.classes.places() > MANY_CLASSES { PREFETCHED_CLASSES } else { 0 };
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
        self.lateness.begin(now);
        if self.rates.is_due(now) {
            let mut rates = std::mem::take(&mut self.rates);
            rates.pass_time(now, |minor| sent_by(self, minor));
            self.rates = rates;
        }
        self.pass_time(now);
        if self.idle.is_due(now) {
            self.sweep_idle(now);
        }
        while budget.is_left() {
            let Some(sent) = self.dequeue_one(out, now, cx) else {
                self.lateness.wait(self.wheel.next_time().filter(|_| self.qlen() > 0));
                break;
            };
            budget.spend(sent.packets, sent.bytes);
        }
        self.stats.count_sent(out.segs() - segs, out.bytes() - bytes);
    }

    fn reset(&mut self, cx: &mut Cx<'_, A>) {
        while let Some(packet) = self.direct.pop_front() {
            cx.drop(packet, DropReason::QueuePurge);
        }
        let now = cx.clock.now();
        for id in self.classes.ids() {
            self.with_leaf(id, |leaf, total| leaf.reset(total, cx));
            self.classes[id].buckets.rest(now);
        }
        self.lateness.wait(None);
    }

    fn room_for(&self, arrival: Arrival<'_, A>) -> Result<(), Full> {
        let packet = arrival.packet;
        let class = self.classes.named(Handle(packet.priority()), self.handle);
        let choose = |filters: &Filters<A>| filters.foresee(packet, arrival.clock);
        let leaf = class.filter(|&id| self.is_leaf(id)).or_else(|| self.filter(packet, class, choose));
        match leaf {
            None => arrival.within(self.direct.len(), self.params.direct_qlen as usize),
            Some(NIL) => Ok(()),
            Some(id) => self.classes[id].leaf.as_ref().map_or(Ok(()), |leaf| leaf.room_for(arrival)),
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

    fn xstats(&self, style: Style) -> Option<Options> {
        self.unknown.xstats(style)
    }

    fn options(&self, style: Style) -> Options {
        self.params.options(B::direct(&self.source, self.direct_packets), style)
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
