//! [`Scheduler`]: a tree of qdiscs for a program that has its own event loop and its own buffers.
//!
//! It has no threads, sockets or clock. The program enqueues [`Item`]s, each with a value of its own such as a buffer or a
//! key. It polls at a time that it names, sends the packet that it gets, or sleeps until the time that it gets. tc's commands
//! build and change the tree ([`Scheduler::tc`]).
//!
//! A time is an [`Instant`], a [`std::time::Instant`], or nanoseconds on a clock of the program's own.
//!
//! ```
//! use txq_sched::{Instant, Item, Next, Scheduler};
//!
//! // 1 Mbit/s; packets with mark 7 go first.
//! let mut link = Scheduler::new("handle 1: tbf rate 1mbit burst 1600 latency 1s")?;
//! link.tc(0, "qdisc add parent 1:1 handle 10: prio bands 2 priomap 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1")?;
//! link.tc(0, "filter add parent 10: handle 7 fw classid 10:1")?;
//! for (value, mark) in [("bulk", 0), ("voice", 7)] {
//!     let _ = link.enqueue(0, Item::new(1500, value).mark(mark));
//! }
//! let mut now = Instant::ZERO;
//! let mut sent = Vec::new();
//! loop {
//!     match link.poll(now) {
//!         Next::Packet(packet) => sent.push((packet.value, now.as_nanos())),
//!         Next::Until(time) => now = time,
//!         Next::Idle => break,
//!     }
//! }
//! assert_eq!(sent, [("voice", 0), ("bulk", 11_200_000)]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod item;
mod native;
mod text;
mod values;

#[cfg(test)]
mod tests;

use std::fmt;

use txq_core::drop::{DropCounts, DropReason};
use txq_core::packet::PacketList;
use txq_core::stats::QdiscStats;

use crate::Instant;
use crate::filter::FilterInfo;
use crate::generic::qdisc::damage;
use crate::generic::{self, PacketScheduler};
use crate::qdisc::{Budget, Custom, Env, Qdisc, Verdict};
use crate::tc::{self, BatchError, ClassInfo, Handle, ParseError, QdiscInfo, Style};
use native::Tree;
use values::Values;

pub use item::{Departed, Dropped, Item, Next};
pub use txq_core::pool::PoolError;

/// The configuration of a [`Scheduler`]. Write `..Config::default()` last: a later version may have more fields.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Properties of the link on which qdiscs' defaults depend.
    pub env: Env,
    /// The most packets that are queued at a time, whatever the limits of the qdiscs. Further ones are dropped as `NOMEM`. A
    /// scheduler takes memory for the packets that were queued at one time, not for this number. A command that gives a qdisc
    /// a greater limit has a warning.
    pub packets: u32,
    /// The most bytes of a packet's header that are kept, up to 65,535.
    pub header: usize,
    /// The seed of all random decisions of all qdiscs. With the same seed, commands, packets and times the same packets leave at the
    /// same times, on every system. `None` for decisions that nobody can predict, as a link needs that strangers send to.
    pub seed: Option<u64>,
}

impl Default for Config {
    /// A length of 1000 packets (`txqueuelen`), packets of 1514 bytes, 1,048,576 packets at a time, 128 bytes of header,
    /// and no seed.
    fn default() -> Self {
        Self { env: Env::default(), packets: 1 << 20, header: 128, seed: None }
    }
}

impl Config {
    /// Returns the properties of the link with the seed.
    fn seeded(&self) -> Env {
        Env { seed: self.seed.or(self.env.seed), ..self.env }
    }
}

/// Why a scheduler cannot be built.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SchedulerError {
    /// tc's error, with a remedy.
    #[error(transparent)]
    Parse(#[from] ParseError),
    /// The error of a command in a text of several lines, and its line.
    #[error(transparent)]
    Batch(#[from] BatchError),
    /// No memory for the packets' descriptors, or a number that is out of range.
    #[error(transparent)]
    Pool(#[from] PoolError),
}

/// A tree of qdiscs over the program's own buffers, of type `T`. See the [module](self).
pub struct Scheduler<T> {
    tree: Tree,
    values: Values<T>,
    /// Packets dropped by the last call.
    dropped: Vec<Dropped<T>>,
    /// Clones a value, for qdiscs that duplicate packets.
    clone: Option<fn(&T) -> T>,
}

impl<T> fmt::Debug for Scheduler<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scheduler")
            .field("kind", &self.tree.packets.qdisc().kind())
            .field("len", &self.len())
            .finish_non_exhaustive()
    }
}

impl<T> Scheduler<T> {
    /// Builds the qdisc that `text` describes in tc's words, such as `"fq_codel limit 1000"`, with the default [`Config`]. Further
    /// lines are commands, as those of [`tc_batch`](Scheduler::tc_batch), which are executed at the time 0: a text describes a whole
    /// tree. The first line may be a command, too.
    ///
    /// ```
    /// let tree = "qdisc add root handle 1: htb default 20
    ///             class add parent 1: classid 1:10 htb rate 2mbit
    ///             class add parent 1: classid 1:20 htb rate 8mbit
    ///             qdisc add parent 1:20 handle 20: fq_codel";
    /// let mut scheduler = txq_sched::Scheduler::<u32>::new(tree)?;
    /// assert_eq!(scheduler.classes(Default::default()).len(), 2);
    /// # Ok::<(), txq_sched::scheduler::SchedulerError>(())
    /// ```
    ///
    /// # Errors
    /// tc's error, with a remedy. Kinds that need a device are refused: mq, mqprio, noqueue and those whose names end with `_mq`.
    pub fn new(text: &str) -> Result<Self, SchedulerError> {
        Self::with_config(text, &Config::default())
    }

    /// As [`new`](Scheduler::new), with another configuration.
    ///
    /// # Errors
    /// As those of [`new`](Scheduler::new), and a number of packets or bytes that memory cannot hold.
    pub fn with_config(text: &str, config: &Config) -> Result<Self, SchedulerError> {
        let text::Text { root, commands, lines } = text::split(text)?;
        let mut scheduler = Self::from_packets(PacketScheduler::new(root, config.seeded())?, config)?;
        let warnings = scheduler.tc_batch(Instant::ZERO, commands);
        warnings.map_err(|BatchError { line, error }| BatchError { line: lines + line, error })?;
        Ok(scheduler)
    }

    /// Schedules with `qdisc`, whose handle is `1:`, for tests of a qdisc of your own. Values belong to packets by the
    /// packets' cookies, so the qdisc must not change those.
    ///
    /// # Errors
    /// A number of packets or bytes that memory cannot hold.
    pub fn of(qdisc: Box<dyn Qdisc>, config: &Config) -> Result<Self, SchedulerError> {
        Self::from_packets(PacketScheduler::of(Box::new(Custom(qdisc)), config.seeded()), config)
    }

    /// As [`of`](Scheduler::of), for a part of a qdisc in parts, which benchmarks run one by one.
    #[doc(hidden)]
    pub fn of_part(part: Box<dyn generic::qdisc::Qdisc>, config: &Config) -> Result<Self, SchedulerError> {
        Self::from_packets(PacketScheduler::of(part, config.seeded()), config)
    }

    fn from_packets(packets: PacketScheduler, config: &Config) -> Result<Self, SchedulerError> {
        let tree = Tree::new(packets, config)?;
        Ok(Self { tree, values: Values::new(), dropped: Vec::new(), clone: None })
    }

    /// Lets qdiscs duplicate packets (netem's `duplicate`) by cloning their values. Without this a duplicate is dropped as
    /// `NOMEM`, and has no value.
    pub fn cloning(mut self) -> Self
    where
        T: Clone,
    {
        self.clone = Some(T::clone);
        self
    }

    /// Queues a packet at the time `now`, or drops it. Packets that were dropped, this one or another in its place, are in
    /// [`dropped`](Scheduler::dropped) until the next call.
    #[inline]
    pub fn enqueue(&mut self, now: impl Into<Instant>, item: Item<'_, T>) -> Verdict {
        self.enqueue_at(now.into(), item)
    }

    fn enqueue_at(&mut self, now: Instant, item: Item<'_, T>) -> Verdict {
        self.dropped.clear();
        let (value, meta) = item.into_parts();
        let Some(mut packet) = self.tree.packet(&meta) else {
            self.dropped.push(Dropped { value, reason: DropReason::NoMem });
            return Verdict::Drop;
        };
        self.values.insert(value, &mut packet);
        self.call(|tree, copied| tree.enqueue(now, packet, copied))
    }

    /// Returns the next packet that may leave at the time `now`, or when to ask again.
    #[inline]
    pub fn poll(&mut self, now: impl Into<Instant>) -> Next<T> {
        self.poll_at(now.into())
    }

    fn poll_at(&mut self, now: Instant) -> Next<T> {
        match self.dequeue_at(now) {
            Some(packet) => Next::Packet(packet),
            None => self.next_event().map_or(Next::Idle, Next::Until),
        }
    }

    /// Returns the next packet that may leave at the time `now`, if there is one.
    #[inline]
    pub fn dequeue(&mut self, now: impl Into<Instant>) -> Option<Departed<T>> {
        self.dequeue_at(now.into())
    }

    fn dequeue_at(&mut self, now: Instant) -> Option<Departed<T>> {
        let mut one = None;
        self.dequeue_each(now, Budget::packets(1), |departed| one = Some(departed));
        one
    }

    /// Appends the packets that may leave at the time `now`, within the budget, to `out`. Returns their number.
    #[inline]
    pub fn dequeue_batch(
        &mut self,
        now: impl Into<Instant>,
        budget: Budget,
        out: &mut Vec<Departed<T>>,
    ) -> usize {
        self.dequeue_batch_at(now.into(), budget, out)
    }

    fn dequeue_batch_at(&mut self, now: Instant, budget: Budget, out: &mut Vec<Departed<T>>) -> usize {
        let before = out.len();
        self.dequeue_each(now, budget, |departed| out.push(departed));
        out.len() - before
    }

    /// Calls `f` with each packet that may leave at the time `now`, within the budget: for programs whose list is not a `Vec`.
    /// Packets left over by a panic of `f` are lost with their values.
    #[inline]
    pub fn dequeue_with(&mut self, now: impl Into<Instant>, budget: Budget, f: impl FnMut(Departed<T>)) {
        self.dequeue_each(now.into(), budget, f);
    }

    fn dequeue_each(&mut self, now: Instant, budget: Budget, mut f: impl FnMut(Departed<T>)) {
        self.dropped.clear();
        self.call(|tree, copied| tree.dequeue(now, budget, copied));
        let out = std::mem::take(&mut self.tree.out);
        for packet in out.iter() {
            let (len, damage) = (packet.len() as u32, damage::of(packet));
            let departure = Instant::from_nanos(packet.departure());
            if let Some((value, tos)) = self.values.remove(packet) {
                f(Departed { value, len, departure, tos, damage });
            }
        }
        self.tree.free(out);
    }

    /// Drops all queued packets as `QUEUE_PURGE`. Their values are in [`dropped`](Scheduler::dropped). Counters stay.
    #[inline]
    pub fn purge(&mut self, now: impl Into<Instant>) {
        self.purge_at(now.into());
    }

    fn purge_at(&mut self, now: Instant) {
        self.dropped.clear();
        self.call(|tree, copied| tree.reset(now, copied));
    }

    /// Returns when to dequeue next: [`Instant::ZERO`] for at once, or the time of the qdisc's next event if the last call was a
    /// dequeue that returned nothing. `None` while nothing is queued, and if the qdisc names no time.
    pub fn next_event(&self) -> Option<Instant> {
        self.tree.next_event()
    }

    /// Returns the packets that the last call dropped, each with its reason. The next call discards those not taken.
    pub fn dropped(&mut self) -> impl Iterator<Item = Dropped<T>> + '_ {
        self.dropped.drain(..)
    }

    /// Executes a command in tc's words at the time `now`: `"class add parent 1: classid 1:10 htb rate 1mbit"`. Its object
    /// is `qdisc`, `class` or `filter`; a leading `tc` and a `dev NAME` make no difference. Packets dropped by it are in
    /// [`dropped`](Scheduler::dropped). Returns tc's warnings: `Warning: ...`.
    ///
    /// # Errors
    /// tc's errors, with a remedy. Nothing has changed then.
    #[inline]
    pub fn tc(&mut self, now: impl Into<Instant>, command: &str) -> Result<Vec<String>, ParseError> {
        self.tc_at(now.into(), command)
    }

    fn tc_at(&mut self, now: Instant, command: &str) -> Result<Vec<String>, ParseError> {
        self.dropped.clear();
        self.command(now, command)
    }

    /// As [`tc`](Scheduler::tc), and keeps the packets that earlier commands dropped.
    fn command(&mut self, now: Instant, command: &str) -> Result<Vec<String>, ParseError> {
        self.call(|tree, copied| tree.command(now, command, copied))
    }

    /// Executes the commands of `text` at the time `now`, one a line, as [`tc`](Scheduler::tc) does. Empty lines and comments
    /// (`#`) are skipped. Packets dropped by any of them are in [`dropped`](Scheduler::dropped). Returns the warnings of all.
    ///
    /// # Errors
    /// The first error, and its line. The commands before it have been executed.
    #[inline]
    pub fn tc_batch(&mut self, now: impl Into<Instant>, text: &str) -> Result<Vec<String>, BatchError> {
        self.tc_batch_at(now.into(), text)
    }

    fn tc_batch_at(&mut self, now: Instant, text: &str) -> Result<Vec<String>, BatchError> {
        self.dropped.clear();
        tc::batch(text, |command| self.command(now, command))
    }

    /// Returns a warning if the limits of the qdiscs allow more packets than [`Config::packets`]. Qdiscs whose limit is not
    /// counted in packets are not in the sum.
    pub fn warning(&mut self) -> Option<String> {
        self.tree.warning()
    }

    /// Returns the number of packets queued.
    pub fn len(&self) -> usize {
        self.tree.packets.qdisc().qlen()
    }

    /// Returns whether no packet is queued.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the counters of the root.
    pub fn stats(&self) -> QdiscStats {
        self.tree.packets.qdisc().stats()
    }

    /// Returns the number of packets dropped, by reason.
    pub fn drops(&self) -> &DropCounts {
        self.tree.packets.drops()
    }

    /// Returns the qdiscs as `tc qdisc show` lists them ([`show_text`](crate::tc::show_text),
    /// [`show_json`](crate::tc::show_json)).
    pub fn qdiscs(&mut self, style: Style) -> Vec<QdiscInfo> {
        self.tree.read(|packets, _| packets.qdiscs(style))
    }

    /// Returns the classes as `tc class show` lists them ([`class_text`](crate::tc::class_text)).
    pub fn classes(&mut self, style: Style) -> Vec<ClassInfo> {
        self.tree.read(|packets, cache| packets.classes(style, cache))
    }

    /// Returns the filters of a qdisc or class, or of the root, as `tc filter show` lists them.
    pub fn filters(&mut self, parent: Option<Handle>, style: Style) -> Vec<FilterInfo> {
        self.tree.read(|packets, cache| packets.filters(parent, style, cache))
    }

    /// Calls `f` with the tree. Copies get values of their own, and `dropped` those of dropped packets.
    fn call<R>(&mut self, f: impl FnOnce(&mut Tree, &mut native::Copied<'_>) -> R) -> R {
        let Self { tree, values, clone, .. } = self;
        let mut copied =
            |copies: &mut PacketList, drops: &mut DropCounts| adopt(values, *clone, copies, drops);
        let result = f(tree, &mut copied);
        if !self.tree.packets.to_free.is_empty() {
            self.collect_dropped();
        }
        result
    }

    /// Moves the values of dropped packets to `dropped`, and frees the packets.
    #[cold]
    fn collect_dropped(&mut self) {
        let packets = std::mem::take(&mut self.tree.packets.to_free);
        for packet in packets.iter() {
            if let Some((value, _)) = self.values.remove(packet) {
                self.dropped.push(Dropped { value, reason: packet.drop_reason() });
            }
        }
        self.tree.free(packets);
    }
}

/// Gives each copy of a packet a clone of the packet's value. Without `clone`, frees the copies and counts them as drops.
fn adopt<T>(
    values: &mut Values<T>,
    clone: Option<fn(&T) -> T>,
    copies: &mut PacketList,
    drops: &mut DropCounts,
) {
    let mut adopted = PacketList::new();
    while let Some(mut copy) = copies.pop_front() {
        match clone.and_then(|clone| values.get(&copy).map(clone)) {
            Some(value) => {
                values.insert(value, &mut copy);
                adopted.push_back(copy);
            }
            None => drops.add(DropReason::NoMem, 1),
        }
    }
    copies.append(&mut adopted);
}
