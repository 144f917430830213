//! drr: classes that share the device by deficit round robin, each with a quantum of bytes.
//!
//! Classes with packets form a queue. The first class sends while its next packet is within its deficit. When the packet is
//! longer, the class gains its quantum and moves to the end. So classes share in proportion to their quanta, whatever the
//! length of their packets, and a packet costs constant time. If all quanta are much smaller than the packets, the rounds
//! in which no class can send are computed instead of walked.
//!
//! A packet's class is the one that its priority names (`major:minor` of this qdisc), else the one that the filters choose.
//! A packet without a class is dropped as `QDISC_DROP`. A class's leaf is a pfifo unless another qdisc is attached.
//!
//! | option of a class | default | meaning |
//! |---|---|---|
//! | `quantum SIZE` | the device's longest packet | bytes that the class gains in each round; 0 is refused |
//!
//! The qdisc itself has no options. Example:
//!
//! ```text tc qdisc add root handle 1: drr tc class add parent 1: classid 1:1 drr quantum 1500 tc class add parent 1:
//! classid 1:2 drr quantum 3000 ```
//!
//! Source: Shreedhar and Varghese, "Efficient Fair Queueing using Deficit Round Robin" (SIGCOMM 1995). The kernel's
//! counterpart is `sch_drr`. Differences:
//! - A leaf that holds its packets back (a tbf) lets the other classes pass. The kernel warns and sends nothing.
//! - No class may have the minor number 0, which names the qdisc.
//! - A class that a filter chooses cannot be deleted (`Error: DRR class is in use.`), even if the filter is older than the
//!   class.
//! - `dropped` of a class continues when the class gets a new leaf. In Linux it is the leaf's, and starts from 0.

use std::collections::VecDeque;

use txq_core::arch::{Arch, Nanos};
use txq_core::clock::Clock;
use txq_core::drop::DropReason;
use txq_core::packet::{Packet, PacketList};
use txq_core::stats::QdiscStats;

use crate::generic::filter::Filters;
use crate::generic::qdisc::child::{Child, Classes, Total};
use crate::generic::qdisc::minors::Minors;
use crate::generic::qdisc::noop::Noop;
use crate::generic::qdisc::rates::{Rates, sent_by};
use crate::generic::qdisc::runs;
use crate::generic::qdisc::unknown::UnknownClass;
use crate::generic::qdisc::wheel::{Ticket, Wheel};
use crate::generic::qdisc::{Arrival, Budget, Built, Cx, Env, Full, Qdisc, Verdict, default_leaf};
use crate::tc::{ClassInfo, Handle, Options, ParseError, Size, Style, Syntax, Wording, Words};

static SYNTAX: Syntax = Syntax { kind: "drr", words: &[], usage: "Usage: ... drr", wording: Wording::Plain };

static CLASS: Syntax = Syntax {
    kind: "drr",
    words: &["quantum"],
    usage: "Usage: ... drr quantum SIZE",
    wording: Wording::Plain,
};

struct Class<A: Arch> {
    /// Bytes that the class gains in each round.
    quantum: u32,
    /// Bytes that the class may send before its turn is over.
    deficit: u64,
    /// Whether the class is in [`Drr::active`].
    active: bool,
    /// Place on the wheel, while the leaf holds its packets back. The class counts as empty until the leaf's next event.
    nap: Option<Ticket>,
    leaf: Child<A>,
    stats: QdiscStats,
}

struct Drr<A: Arch> {
    classes: Minors<Class<A>>,
    /// The queue of classes that have packets to send. The first has the turn.
    active: VecDeque<u32>,
    /// Classes whose leaf holds its packets back, by the time of the leaf's next event.
    wheel: Wheel<u32>,
    filters: Filters<A>,
    total: Total,
    /// The estimators of the classes.
    rates: Rates,
    stats: QdiscStats,
    handle: Handle,
    unknown: UnknownClass,
    env: Env,
}

pub(super) fn build<A: Arch>(words: &mut Words<'_>, env: &Env) -> Result<Built<A>, ParseError> {
    words.options(&SYNTAX).end()?;
    Ok(Built::Qdisc(Box::new(Drr {
        classes: Minors::new(),
        active: VecDeque::new(),
        wheel: Wheel::new(),
        filters: Filters::new(),
        total: Total::default(),
        rates: Rates::default(),
        stats: QdiscStats::default(),
        handle: Handle::UNSPEC,
        unknown: UnknownClass::default(),
        env: *env,
    })))
}

/// Reads a class's quantum; returns `None` if the words name none.
fn parse(words: &mut Words<'_>) -> Result<Option<u32>, ParseError> {
    let mut options = words.options(&CLASS);
    let mut quantum = None;
    while let Some(word) = options.next_word() {
        match word {
            "quantum" => quantum = Some(options.value_size(word)?.0),
            other => return Err(options.unknown(other)),
        }
    }
    if quantum == Some(0) {
        let error = ParseError::new("Error: Specified DRR quantum cannot be zero.");
        return Err(error.with_remedy("give a size, as quantum 1514, or none for the device's MTU"));
    }
    Ok(quantum)
}

impl<A: Arch> Drr<A> {
    /// Returns the packet's class: the one that its priority names, else the one that the filters choose.
    fn classify(&mut self, packet: &Packet<A>, clock: &mut Clock<A>) -> Option<u32> {
        let class = Handle(packet.priority());
        let by_priority = self.classes.named(class, self.handle);
        if by_priority.is_none() {
            self.unknown.note(class, self.handle);
        }
        by_priority.or_else(|| self.classes.named(self.filters.class_of(packet, clock)?, self.handle))
    }

    /// Calls `f` with a class's leaf, and updates the class's drops and its place in the queue of classes. Returns the
    /// result of `f`.
    fn with_leaf<R>(&mut self, id: u32, f: impl FnOnce(&mut Child<A>, &mut Total) -> R) -> R {
        let drops = self.total.drops;
        let class = &mut self.classes[id];
        let done = f(&mut class.leaf, &mut self.total);
        class.stats.drops += self.total.drops - drops;
        self.update_leaf(id);
        done
    }

    /// Puts a class whose leaf has packets into the queue of classes, and takes one without packets out of it.
    fn update_leaf(&mut self, id: u32) {
        let class = &mut self.classes[id];
        if let Some(nap) = class.nap.take() {
            self.wheel.remove(nap);
        }
        let has_packets = class.leaf.qlen() > 0;
        if has_packets && !class.active {
            (class.active, class.deficit) = (true, class.quantum.into());
            self.active.push_back(id);
        } else if !has_packets && class.active {
            class.active = false;
            self.active.retain(|&other| other != id);
        }
    }

    /// Drops a packet without a class, and returns [`Verdict::Success`]: a sender learns only of drops for want of room, as
    /// with fq_codel.
    fn refuse(&mut self, packet: Packet<A>, cx: &mut Cx<'_, A>) -> Verdict {
        self.stats.drops += 1;
        cx.drop(packet, DropReason::QdiscDrop);
        Verdict::Success
    }

    /// Dequeues the first class's next packet, if the class's deficit covers it. A class without a packet to send now
    /// leaves the queue.
    fn dequeue_one(&mut self, out: &mut PacketList<A>, now: Nanos, cx: &mut Cx<'_, A>) -> Step {
        let Some(&id) = self.active.front() else { return Step::Nobody };
        let drops = self.total.drops;
        let class = &mut self.classes[id];
        let len = class.leaf.peek(&mut self.total, cx).map(|packet| packet.len() as u64);
        let step = match len {
            Some(len) if len <= class.deficit => {
                class.deficit -= len;
                let segs = out.segs();
                class.leaf.dequeue(&mut Budget::packets(1), out, &mut self.total, cx);
                class.stats.count_sent(out.segs() - segs, len);
                Step::Sent(len)
            }
            Some(len) => {
                let lacks = len - class.deficit;
                class.deficit += u64::from(class.quantum);
                self.active.rotate_left(1);
                Step::Turned(lacks.div_ceil(u64::from(class.quantum)))
            }
            None => Step::Left,
        };
        class.stats.drops += self.total.drops - drops;
        let is_empty = class.leaf.qlen() == 0;
        if is_empty || matches!(step, Step::Left) {
            class.active = false;
            self.active.pop_front();
        }
        if !is_empty && matches!(step, Step::Left) {
            let at = class.leaf.qdisc().next_event().unwrap_or(0).max(now + 1);
            class.nap = Some(self.wheel.insert(at, id));
        }
        step
    }
}

/// The result of [`Drr::dequeue_one`].
enum Step {
    /// The first class sent a packet of this many bytes.
    Sent(u64),
    /// The first class lacked this many quanta for its next packet. It gained one and moved to the end.
    Turned(u64),
    /// The first class had no packet to send now, and left the queue.
    Left,
    /// No class is in the queue.
    Nobody,
}

impl<A: Arch> Qdisc<A> for Drr<A> {
    fn kind(&self) -> &'static str {
        SYNTAX.kind
    }

    fn set_handle(&mut self, handle: Handle) {
        self.handle = handle;
    }

    fn filters(&mut self, class: u16) -> Option<&mut Filters<A>> {
        (class == 0).then_some(&mut self.filters)
    }

    fn enqueue(&mut self, packet: Packet<A>, cx: &mut Cx<'_, A>) -> Verdict {
        match self.classify(&packet, cx.clock) {
            None => self.refuse(packet, cx),
            Some(id) => self.with_leaf(id, |leaf, total| leaf.enqueue(packet, total, cx)),
        }
    }

    fn enqueue_batch(&mut self, batch: &mut PacketList<A>, cx: &mut Cx<'_, A>) {
        let put = |drr: &mut Self, id, run: &mut PacketList<A>, cx: &mut Cx<'_, A>| {
            drr.with_leaf(id, |leaf, total| leaf.enqueue_batch(run, total, cx));
        };
        runs::enqueue(self, batch, cx, Self::classify, put, Self::refuse);
    }

    fn dequeue_batch(&mut self, mut budget: Budget, out: &mut PacketList<A>, cx: &mut Cx<'_, A>) {
        let (segs, bytes) = (out.segs(), out.bytes());
        let now = cx.clock.now();
        if self.rates.is_due(now) {
            let mut rates = std::mem::take(&mut self.rates);
            rates.pass_time(now, |minor| sent_by(self, minor));
            self.rates = rates;
        }
        while let Some((_, id)) = self.wheel.pop(now) {
            self.classes[id].nap = None;
            self.update_leaf(id);
        }
        // The number of classes in a row that could not send, and the fewest quanta that one of them needs.
        let (mut turned, mut nearest) = (0, u64::MAX);
        while budget.is_left() {
            match self.dequeue_one(out, now, cx) {
                Step::Nobody => break,
                Step::Sent(len) => budget.spend(1, len),
                Step::Turned(quanta) => {
                    (turned, nearest) = (turned + 1, nearest.min(quanta));
                    if turned < self.active.len() {
                        continue;
                    }
                    // All classes have gained one quantum. They gain those of the rounds before one of them can send at
                    // once.
                    for &id in &self.active {
                        let class = &mut self.classes[id];
                        class.deficit += (nearest - 1) * u64::from(class.quantum);
                    }
                }
                Step::Left => {}
            }
            (turned, nearest) = (0, u64::MAX);
        }
        self.stats.count_sent(out.segs() - segs, out.bytes() - bytes);
    }

    fn reset(&mut self, cx: &mut Cx<'_, A>) {
        for id in self.classes.ids() {
            self.with_leaf(id, |leaf, total| leaf.reset(total, cx));
        }
    }

    /// Accepts a change without options, as tc does; there are none.
    fn change(&mut self, words: &mut Words<'_>, _: &Env, _: &mut Cx<'_, A>) -> Result<(), ParseError> {
        words.options(&SYNTAX).end()
    }

    fn room_for(&self, arrival: Arrival<'_, A>) -> Result<(), Full> {
        let class = self.classes.named(Handle(arrival.packet.priority()), self.handle).or_else(|| {
            let class = self.filters.foresee_class(arrival.packet, arrival.clock)?;
            self.classes.named(class, self.handle)
        });
        class.map_or(Ok(()), |id| self.classes[id].leaf.room_for(arrival))
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

    fn next_event(&self) -> Option<Nanos> {
        self.wheel.next_time()
    }

    fn classes(&mut self) -> Option<&mut dyn Classes<A>> {
        Some(self)
    }
}

impl<A: Arch> Classes<A> for Drr<A> {
    fn minors(&mut self) -> Vec<u16> {
        self.classes.list()
    }

    fn minors_after(&mut self, after: Option<u16>, most: usize) -> Vec<u16> {
        self.classes.list_after(after, most)
    }

    fn find(&mut self, minor: u16) -> Option<u16> {
        self.classes.get(minor).map(|_| minor)
    }

    fn leaf(&mut self, minor: u16) -> Option<(&mut Child<A>, &mut Total)> {
        let id = self.classes.get(minor).expect("the class exists");
        Some((&mut self.classes[id].leaf, &mut self.total))
    }

    fn default_leaf(&mut self, _: u16) -> Box<dyn Qdisc<A>> {
        default_leaf(&self.env)
    }

    fn leaf_changed(&mut self, minor: u16) {
        if let Some(id) = self.classes.get(minor) {
            self.update_leaf(id);
        }
    }

    fn add(
        &mut self,
        _: u16,
        minor: u16,
        words: &mut Words<'_>,
        _: &Env,
        _: &mut Cx<'_, A>,
    ) -> Result<(), ParseError> {
        let quantum = parse(words)?.unwrap_or(self.env.mtu.max(1));
        self.classes.admit(minor)?;
        let leaf = Child::fifo(&self.env);
        let stats = QdiscStats::default();
        self.classes.insert(minor, Class { quantum, deficit: 0, active: false, nap: None, leaf, stats });
        Ok(())
    }

    fn change_class(
        &mut self,
        minor: u16,
        words: &mut Words<'_>,
        _: &mut Cx<'_, A>,
    ) -> Result<(), ParseError> {
        let quantum = parse(words)?;
        let id = self.classes.find(minor)?;
        let class = &mut self.classes[id];
        class.quantum = quantum.unwrap_or(class.quantum);
        Ok(())
    }

    fn rates(&mut self) -> Option<&mut Rates> {
        Some(&mut self.rates)
    }

    fn delete(&mut self, minor: u16, cx: &mut Cx<'_, A>) -> Result<(), ParseError> {
        let id = self.classes.find(minor)?;
        if self.filters.names(Handle::new(self.handle.major(), minor)) {
            let error = ParseError::new("Error: DRR class is in use.");
            return Err(error.with_remedy("delete the filters that choose it first"));
        }
        self.with_leaf(id, |leaf, total| leaf.replace(Box::new(Noop), Handle::UNSPEC, total, cx));
        self.classes.remove(minor);
        Ok(())
    }

    fn class(&mut self, minor: u16, style: Style) -> ClassInfo {
        let id = self.classes.get(minor).expect("the class exists");
        let Class { quantum, deficit, leaf, stats, .. } = &self.classes[id];
        let mut options = Options::new(style);
        options.size("quantum", Size(*quantum)).end_blank();
        let deficit = Size(u32::try_from(*deficit).unwrap_or(u32::MAX));
        let mut xstats = Options::new(style);
        xstats.put("deficit", deficit.0, format_args!(" deficit {deficit} "));
        ClassInfo {
            rate: None,
            kind: SYNTAX.kind.to_owned(),
            handle: Handle::new(0, minor),
            parent: Handle::ROOT,
            leaf: leaf.handle(),
            options,
            stats: Some(QdiscStats { qlen: leaf.qlen() as u64, backlog: leaf.backlog(), ..*stats }),
            xstats: Some(xstats),
        }
    }
}

#[cfg(test)]
mod tests;
