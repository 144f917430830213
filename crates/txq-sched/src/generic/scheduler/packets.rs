//! [`PacketScheduler`]: a tree of qdiscs for packets that the program allocates from a pool.

use std::fmt;

use txq_core::arch::{Arch, Nanos, Native};
use txq_core::clock::Clock;
use txq_core::drop::{DropCounts, DropReason};
use txq_core::packet::PacketList;
use txq_core::pool::Cache;

use super::top::Top;
use crate::generic::filter::{FilterInfo, Filters};
use crate::generic::qdisc::copying::Copying;
use crate::generic::qdisc::{Budget, Cx, Env, Qdisc};
use crate::generic::tree;
use crate::tc::{ClassInfo, Handle, ParseError, QdiscInfo, Style};

/// A tree of qdiscs over packets of a [`Pool`](txq_core::pool::Pool), without threads or devices. The time comes with each
/// call, as a [`Clock`].
///
/// A program that has buffers of its own uses [`Scheduler`](crate::Scheduler).
///
/// ```
/// use txq_core::clock::Clock;
/// use txq_core::packet::PacketList;
/// use txq_core::pool::{Pool, PoolConfig};
/// use txq_sched::generic::PacketScheduler;
/// use txq_sched::qdisc::{Budget, Env};
///
/// let mut fq: PacketScheduler = PacketScheduler::new("handle 1: fq flow_limit 10", Env::default())?;
/// let mut cache = Pool::new(&PoolConfig::default())?.cache("loop", 0);
/// let mut batch = PacketList::new();
/// batch.push_back(cache.alloc(64)?);
/// fq.enqueue(&mut batch, &mut Clock::at(1000), &mut cache);
/// fq.dequeue(Budget::packets(32), &mut batch, &mut Clock::at(2000), &mut cache);
/// assert_eq!(batch.len(), 1);
/// # cache.free(&mut batch);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct PacketScheduler<A: Arch = Native> {
    top: Top<A>,
    /// Packets dropped by a call, until its end.
    pub(crate) to_free: PacketList<A>,
    drops: DropCounts,
    copies: PacketList<A>,
    created: u64,
}

impl<A: Arch> fmt::Debug for PacketScheduler<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PacketScheduler")
            .field("kind", &self.qdisc().kind())
            .field("len", &self.qdisc().qlen())
            .finish_non_exhaustive()
    }
}

impl<A: Arch> PacketScheduler<A> {
    /// Builds the qdisc that `text` describes in tc's words, such as `"handle 1: fq limit 1000"`.
    ///
    /// # Errors
    /// Returns tc's error, with a remedy, for a wrong text. mq, mqprio and noqueue are refused, because they hold no
    /// packets.
    #[inline(never)]
    pub fn new(text: &str, env: Env) -> Result<Self, ParseError> {
        Ok(Self::with_top(Top::new(text, env)?))
    }

    /// Schedules with `qdisc`, whose handle is `1:`, for tests of a qdisc of your own.
    #[inline(never)]
    pub fn of(qdisc: Box<dyn Qdisc<A>>, env: Env) -> Self {
        Self::with_top(Top::of(qdisc, env))
    }

    fn with_top(top: Top<A>) -> Self {
        let (to_free, copies) = (PacketList::new(), PacketList::new());
        Self { top, to_free, drops: DropCounts::default(), copies, created: 0 }
    }

    /// Queues or drops each packet of `batch`, and leaves `batch` empty. Returns the buffers of dropped packets to `cache`.
    #[inline(never)]
    pub fn enqueue(&mut self, batch: &mut PacketList<A>, clock: &mut Clock<A>, cache: &mut Cache<A>) {
        while !batch.is_empty() {
            self.with(clock, cache, |qdisc, cx| qdisc.enqueue_batch(batch, cx));
        }
    }

    /// Dequeues packets within `budget` and appends them to `out`. Returns the buffers of dropped packets to `cache`.
    #[inline(never)]
    pub fn dequeue(
        &mut self,
        budget: Budget,
        out: &mut PacketList<A>,
        clock: &mut Clock<A>,
        cache: &mut Cache<A>,
    ) {
        self.with(clock, cache, |qdisc, cx| qdisc.dequeue_batch(budget, out, cx));
    }

    /// Executes a command in tc's words: `"class add parent 1: classid 1:10 htb rate 1mbit"`.
    ///
    /// # Errors
    /// tc's errors, with a remedy. Nothing has changed then.
    #[inline(never)]
    pub fn tc(
        &mut self,
        command: &str,
        clock: &mut Clock<A>,
        cache: &mut Cache<A>,
    ) -> Result<Vec<String>, ParseError> {
        self.call_and_free(clock, cache, |top, cx| top.command(command, cx))
    }

    /// Returns the time of the next dequeue, after a dequeue that returned nothing although packets are queued.
    pub fn next_event(&self) -> Option<Nanos> {
        self.top.qdisc.next_event()
    }

    /// Returns the qdisc at the top, to read its counters.
    pub fn qdisc(&self) -> &dyn Qdisc<A> {
        &*self.top.qdisc
    }

    /// Returns the number of dropped packets, by reason.
    pub fn drops(&self) -> &DropCounts {
        &self.drops
    }

    /// Counts a packet that was dropped before it reached the qdisc.
    pub(crate) fn count_drop(&mut self, reason: DropReason) {
        self.drops.add(reason, 1);
    }

    /// Returns how many packets the qdiscs may queue whose limits are counted in packets.
    pub(crate) fn max_packets(&mut self) -> u64 {
        tree::max_packets(&mut *self.top.qdisc, &mut 0)
    }

    /// Returns the number of packets that qdiscs have created: copies, and segments. Their buffers come from the `cache` of
    /// the call.
    pub fn created(&self) -> u64 {
        self.created
    }

    /// Returns the qdiscs as `tc qdisc show` lists them.
    #[inline(never)]
    pub fn qdiscs(&mut self, style: Style) -> Vec<QdiscInfo> {
        let own = self.top.handle();
        let mut list = vec![tree::info(&*self.top.qdisc, own, Handle::ROOT, style)];
        tree::Walk::new(own).qdiscs(&mut *self.top.qdisc, usize::MAX, style, &mut list);
        list
    }

    /// Returns the classes as `tc class show` lists them.
    #[inline(never)]
    pub fn classes(&mut self, style: Style, cache: &mut Cache<A>) -> Vec<ClassInfo> {
        self.call_and_free(&mut Clock::new(), cache, |top, cx| top.trees(cx, |trees| trees.classes(style)))
    }

    /// Returns the filters of a qdisc or class, or of the root, as `tc filter show` lists them. Empty if there can be none.
    #[inline(never)]
    pub fn filters(&mut self, parent: Option<Handle>, style: Style, cache: &mut Cache<A>) -> Vec<FilterInfo> {
        let show = |trees: &mut tree::Trees<'_, A>| {
            let read = |all: &Filters<A>, of| all.info(parent.is_none().then_some(of), style);
            trees.read_filters(parent, read, |sum, part| FilterInfo::add_parts(sum, part))
        };
        let shown = self.call_and_free(&mut Clock::new(), cache, |top, cx| top.trees(cx, show));
        shown.unwrap_or_default()
    }

    /// Calls `f` with the qdisc, to change it, and returns the result of `f`.
    pub fn with<R>(
        &mut self,
        clock: &mut Clock<A>,
        cache: &mut Cache<A>,
        f: impl FnOnce(&mut dyn Qdisc<A>, &mut Cx<'_, A>) -> R,
    ) -> R {
        self.call_and_free(clock, cache, |top, cx| f(&mut *top.qdisc, cx))
    }

    /// Calls `f`, then `copied` with the copies that the call made, and enqueues those that `copied` leaves. The dropped
    /// packets are in `to_free` afterwards.
    pub(crate) fn call<R>(
        &mut self,
        clock: &mut Clock<A>,
        cache: &mut Cache<A>,
        copied: impl FnOnce(&mut PacketList<A>, &mut DropCounts),
        f: impl FnOnce(&mut Top<A>, &mut Cx<'_, A>) -> R,
    ) -> R {
        let copying = Copying::new(cache, &mut self.copies, &mut self.created);
        let mut cx = Cx::new(clock, &mut self.to_free, &mut self.drops, copying);
        let result = f(&mut self.top, &mut cx);
        if cx.has_copies() {
            cx.with_copies(copied);
            cx.enqueue_copies(&mut *self.top.qdisc);
        }
        result
    }

    /// Calls `f`, and frees the packets that the call dropped.
    fn call_and_free<R>(
        &mut self,
        clock: &mut Clock<A>,
        cache: &mut Cache<A>,
        f: impl FnOnce(&mut Top<A>, &mut Cx<'_, A>) -> R,
    ) -> R {
        let result = self.call(clock, cache, |_, _| {}, f);
        if !self.to_free.is_empty() {
            cache.free(&mut self.to_free);
        }
        result
    }
}
