//! The classes of a program's own qdisc, and their qdiscs.

use std::fmt;

use txq_core::stats::QdiscStats;
use txq_core::stats::latency::Latency;

use crate::Instant;
use crate::generic::qdisc::{self as generic, Budget, Built, Env, Total, Verdict};
use crate::packet::{Packet, PacketList};
use crate::qdisc::custom::Custom;
use crate::qdisc::{Cx, Qdisc};
use crate::tc::{ClassInfo, Handle, ParseError, Style, Words};

/// The qdisc of a class that has no classes below it: the class's leaf.
#[repr(transparent)]
pub struct Child(#[doc(hidden)] pub generic::Child);

txq_core::transparent!(pub Child, generic::Child);

impl Child {
    /// Takes an empty qdisc that no user has named.
    pub fn new(qdisc: Box<dyn Qdisc>) -> Self {
        Self(generic::Child::new(Box::new(Custom(qdisc))))
    }

    /// Returns a pfifo without a handle: the leaf of a class for which no user named a qdisc.
    pub fn fifo(env: &Env) -> Self {
        Self(generic::Child::fifo(env))
    }

    /// Returns the qdisc that a text in tc's words describes, such as `"fq_codel limit 1000"`.
    ///
    /// # Errors
    /// tc's error, with a remedy. A kind that holds no packets itself is refused.
    pub fn build(text: &str, env: &Env) -> Result<Self, ParseError> {
        match generic::build(text, env)?.1 {
            Built::Qdisc(qdisc) => Ok(Self(generic::Child::new(qdisc))),
            _ => Err(ParseError::new("RTNETLINK answers: Operation not supported")
                .with_remedy("it holds no packets by itself: name a qdisc that does")),
        }
    }

    /// Returns the kind's name.
    pub fn kind(&self) -> &'static str {
        self.0.qdisc().kind()
    }

    /// Returns the qdisc's handle; [`Handle::UNSPEC`] if no user named it.
    pub fn handle(&self) -> Handle {
        self.0.handle()
    }

    /// Returns the qdisc's counters.
    pub fn stats(&self) -> QdiscStats {
        self.0.qdisc().stats()
    }

    /// Returns the time of the qdisc's next event ([`Qdisc::next_event`]).
    pub fn next_event(&self) -> Option<Instant> {
        self.0.qdisc().next_event().map(Instant::from_nanos)
    }

    /// Returns the latency of sampled packets, from xmit to this dequeue.
    pub fn latency(&self) -> Latency {
        self.0.latency()
    }

    /// Returns the number of packets queued.
    #[inline]
    pub fn qlen(&self) -> usize {
        self.0.qlen()
    }

    /// Returns the number of bytes queued.
    pub fn backlog(&self) -> u64 {
        self.0.backlog()
    }

    /// Queues or drops a packet, updates `total`, the sums of the parent, and returns the child's verdict.
    pub fn enqueue(&mut self, packet: Packet, total: &mut Total, cx: &mut Cx<'_>) -> Verdict {
        self.0.enqueue(packet.0, total, &mut cx.0)
    }

    /// Queues or drops each packet of `batch`, as [`Qdisc::enqueue_batch`] does.
    pub fn enqueue_batch(&mut self, batch: &mut PacketList, total: &mut Total, cx: &mut Cx<'_>) {
        self.0.enqueue_batch(&mut batch.0, total, &mut cx.0);
    }

    /// Returns the packet that the next dequeue returns first; `None` if the child has no packet to send now. If the qdisc
    /// cannot tell, the packet is dequeued and kept here.
    pub fn peek(&mut self, total: &mut Total, cx: &mut Cx<'_>) -> Option<&Packet> {
        self.0.peek(total, &mut cx.0).map(Packet::from_ref)
    }

    /// Dequeues packets within the budget, appends them to `out` and spends the budget.
    pub fn dequeue(&mut self, budget: &mut Budget, out: &mut PacketList, total: &mut Total, cx: &mut Cx<'_>) {
        self.0.dequeue(budget, &mut out.0, total, &mut cx.0);
    }

    /// Replaces the qdisc by `new`. Drops all packets queued in the old one, and counts them in the parent's drops
    /// (`qdisc_purge_queue`).
    pub fn replace(&mut self, new: Child, handle: Handle, total: &mut Total, cx: &mut Cx<'_>) {
        self.0.replace(new.0.into_qdisc(), handle, total, &mut cx.0);
    }

    /// Drops all queued packets as `QUEUE_PURGE`. The counters stay.
    pub fn reset(&mut self, total: &mut Total, cx: &mut Cx<'_>) {
        self.0.reset(total, &mut cx.0);
    }
}

impl fmt::Debug for Child {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The classes of a qdisc (`struct Qdisc_class_ops`). A class without classes below it has a qdisc, its leaf.
pub trait Classes {
    /// Returns the minor numbers of all classes, in ascending order.
    fn minors(&mut self) -> Vec<u16>;

    /// Returns the first `most` of the minor numbers above `after`, or of all without `after`, in ascending order: a portion of
    /// a list that is read in portions.
    fn minors_after(&mut self, after: Option<u16>, most: usize) -> Vec<u16> {
        let above = |minor: &u16| after.is_none_or(|after| *minor > after);
        self.minors().into_iter().filter(above).take(most).collect()
    }

    /// Returns the class that a user means by `minor`, or `None`.
    fn find(&mut self, minor: u16) -> Option<u16> {
        self.minors().contains(&minor).then_some(minor)
    }

    /// Returns a class's leaf, and the sums of the qdisc that the leaf's calls update; `None` if the class has no qdisc,
    /// because it has classes below it.
    ///
    /// # Panics
    /// The class does not exist.
    fn leaf(&mut self, minor: u16) -> Option<(&mut Child, &mut Total)>;

    /// Returns the qdisc that becomes a class's leaf when its own is deleted.
    fn default_leaf(&mut self, minor: u16) -> Child;

    /// Adds the class `minor` below the class `parent`, or below the qdisc if `parent` is 0 (`tc class add`). No class
    /// `minor` exists yet. On an error nothing has changed.
    fn add(
        &mut self,
        _parent: u16,
        _minor: u16,
        _words: &mut Words<'_>,
        _env: &Env,
        _cx: &mut Cx<'_>,
    ) -> Result<(), ParseError> {
        Err(generic::fixed_classes())
    }

    /// Changes a class's parameters (`tc class change`). On an error nothing has changed.
    fn change_class(
        &mut self,
        _minor: u16,
        _words: &mut Words<'_>,
        _cx: &mut Cx<'_>,
    ) -> Result<(), ParseError> {
        Err(generic::fixed_classes())
    }

    /// Deletes a class (`tc class del`). Its queued packets are dropped and counted. On an error nothing has changed.
    fn delete(&mut self, _minor: u16, _cx: &mut Cx<'_>) -> Result<(), ParseError> {
        Err(generic::fixed_classes())
    }

    /// Returns a class as `tc class show` prints it. The caller adds the major numbers to the handles; a parent of 0 is the
    /// qdisc.
    ///
    /// # Panics
    /// The class does not exist.
    fn class(&mut self, minor: u16, style: Style) -> ClassInfo {
        let leaf = self.leaf(minor).map(|(leaf, _)| leaf);
        let handle = leaf.as_ref().map_or(Handle::UNSPEC, |leaf| leaf.handle());
        ClassInfo { stats: leaf.map(|leaf| leaf.stats()), ..generic::plain_class(minor, handle, style) }
    }
}
