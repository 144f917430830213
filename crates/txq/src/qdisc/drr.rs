//! drr: classes that take turns, each with a quantum of bytes.
//!
//! A class that has packets waits in a queue of classes. The first one sends while its deficit lasts; when its next packet is
//! longer, it gets another quantum and goes to the end. So classes share in proportion to their quanta, whatever the length of
//! their packets, and a packet costs constant time. Where all quanta are small beside the packets, the rounds in which nobody
//! can send are counted and not walked. What names no class is dropped.
//!
//! After Shreedhar and Varghese, "Efficient Fair Queueing using Deficit Round Robin" (SIGCOMM 1995). The kernel's
//! counterpart is `sch_drr`. Knowingly otherwise: a leaf that holds its packets back for itself (a tbf) lets the others pass,
//! where the kernel warns and sends nothing; and a class may not have the minor number 0, which names the qdisc.

use std::collections::VecDeque;

use crate::arch::{Arch, Nanos};
use crate::drop::DropReason;
use crate::filter::Filters;
use crate::packet::{Packet, PacketList};
use crate::qdisc::child::{Child, Classes, Total};
use crate::qdisc::minors::Minors;
use crate::qdisc::noop::Noop;
use crate::qdisc::runs;
use crate::qdisc::wheel::{Ticket, Wheel};
use crate::qdisc::{Budget, Built, Cx, Env, Qdisc, Verdict, default_leaf};
use crate::stats::QdiscStats;
use crate::tc::{ClassInfo, Handle, Options, ParseError, Size, Style, Syntax, Wording, Words};

static SYNTAX: Syntax = Syntax { kind: "drr", words: &[], usage: "Usage: ... drr", wording: Wording::Plain };

static CLASS: Syntax = Syntax {
    kind: "drr",
    words: &["quantum"],
    usage: "Usage: ... drr quantum SIZE",
    wording: Wording::Plain,
};

struct Class<A: Arch> {
    quantum: u32,
    deficit: u64,
    /// Whether it is in the queue of classes.
    active: bool,
    /// Its leaf has packets and yet gave none: until then it counts as empty.
    nap: Option<Ticket>,
    leaf: Child<A>,
    stats: QdiscStats,
}

struct Drr<A: Arch> {
    classes: Minors<Class<A>>,
    /// Classes that have packets. Whose turn it is comes first.
    active: VecDeque<u32>,
    wheel: Wheel<u32>,
    filters: Filters<A>,
    total: Total,
    stats: QdiscStats,
    handle: Handle,
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
        stats: QdiscStats::default(),
        handle: Handle::UNSPEC,
        env: *env,
    })))
}

/// A class's quantum, if the words name one.
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
    fn classify(&self, packet: &Packet<A>) -> Option<u32> {
        let by_priority = self.classes.named(Handle(packet.priority()), self.handle);
        by_priority.or_else(|| self.classes.named(self.filters.classify(packet)?, self.handle))
    }

    /// Calls `f` with a class's leaf, and looks at what that has after it.
    fn with_leaf<R>(&mut self, id: u32, f: impl FnOnce(&mut Child<A>, &mut Total) -> R) -> R {
        let drops = self.total.drops;
        let class = &mut self.classes[id];
        let done = f(&mut class.leaf, &mut self.total);
        class.stats.drops += self.total.drops - drops;
        self.look_at_leaf(id);
        done
    }

    fn look_at_leaf(&mut self, id: u32) {
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

    /// Drops what names no class. Its sender is told of drops for want of room only, as by fq_codel.
    fn refuse(&mut self, packet: Packet<A>, cx: &mut Cx<'_, A>) -> Verdict {
        self.stats.drops += 1;
        cx.drop(packet, DropReason::QdiscDrop);
        Verdict::Success
    }

    /// The first class's next packet, if its deficit is enough for it. A class that gives none leaves the queue.
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

/// What came of asking the first class.
enum Step {
    /// It sent a packet of so many bytes.
    Sent(u64),
    /// It needs so many quanta first, and has had one.
    Turned(u64),
    /// It has nothing now.
    Left,
    /// There is none.
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
        match self.classify(&packet) {
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
        while let Some((_, id)) = self.wheel.pop(now) {
            self.classes[id].nap = None;
            self.look_at_leaf(id);
        }
        // How many classes in a row could not send, and how many quanta the nearest of them needs.
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
                    // All have had one quantum, and the rounds before one of them can send pass at once.
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

    /// It has no parameters, and tc takes a change to none.
    fn change(&mut self, words: &mut Words<'_>, _: &Env, _: &mut Cx<'_, A>) -> Result<(), ParseError> {
        words.options(&SYNTAX).end()
    }

    fn qlen(&self) -> usize {
        self.total.qlen
    }

    fn stats(&self) -> QdiscStats {
        let Total { qlen, backlog, drops } = self.total;
        QdiscStats { backlog, qlen: qlen as u64, drops: self.stats.drops + drops, ..self.stats }
    }

    fn next_event(&self) -> Option<Nanos> {
        self.wheel.next_time()
    }

    fn classes(&mut self) -> Option<&mut dyn Classes<A>> {
        Some(self)
    }
}

impl<A: Arch> Classes<A> for Drr<A> {
    fn minors(&self) -> Vec<u16> {
        self.classes.list()
    }

    fn find(&self, minor: u16) -> Option<u16> {
        self.classes.get(minor).map(|_| minor)
    }

    fn leaf(&mut self, minor: u16) -> Option<(&mut Child<A>, &mut Total)> {
        let id = self.classes.get(minor).expect("the class exists");
        Some((&mut self.classes[id].leaf, &mut self.total))
    }

    fn default_leaf(&self, _: u16) -> Box<dyn Qdisc<A>> {
        default_leaf(&self.env)
    }

    fn leaf_changed(&mut self, minor: u16) {
        if let Some(id) = self.classes.get(minor) {
            self.look_at_leaf(id);
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
