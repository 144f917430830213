//! A qdisc below a class, and the counters that its ancestors keep of it.
//!
//! A parent counts the packets queued in all of its children. One place does this: a parent calls a child only through
//! [`Child`], and each call ends with [`Child::settle`], which adds the child's changes since the last call to the parent's
//! [`Total`]. So the parent's counts are exact after each call, even if the child drops a packet other than the one
//! enqueued, drops while dequeuing, or is changed or replaced. Each call comes down through all ancestors, so their counts
//! are exact as well. In the kernel each child updates its ancestors instead (`qdisc_tree_reduce_backlog`), each kind in
//! its own way, and sometimes twice.

use std::fmt;

use txq_core::arch::{Arch, Nanos, Native};
use txq_core::packet::{Packet, PacketList};
use txq_core::stats::latency::Latency;

use crate::generic::qdisc::limited::Limited;
use crate::generic::qdisc::pfifo::Packets;
use crate::generic::qdisc::rates::Rates;
use crate::generic::qdisc::{Arrival, Budget, Cx, Env, Full, Qdisc, Verdict};
use crate::tc::{ClassInfo, Handle, Options, ParseError, Style, Words};

/// The packets queued in a parent's children, and the packets that the children dropped.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Total {
    /// Packets queued.
    pub qlen: usize,
    /// Bytes queued.
    pub backlog: u64,
    /// Packets that the children dropped, and packets purged when a child was replaced.
    pub drops: u64,
}

/// The qdisc of a [`Child`]. A pfifo, the default and the most frequent one, is stored in place: it needs no cache line
/// beyond the class's own, and its calls need no vtable.
enum Leaf<A: Arch> {
    Fifo(Limited<A, Packets>),
    Boxed(Box<dyn Qdisc<A>>),
}

/// Calls a method of a leaf's qdisc; the call to a pfifo is static.
macro_rules! call {
    ($leaf:expr, $method:ident($($argument:expr),*)) => {
        match &mut $leaf {
            Leaf::Fifo(fifo) => fifo.$method($($argument),*),
            Leaf::Boxed(qdisc) => qdisc.$method($($argument),*),
        }
    };
}

/// The qdisc of a class that has no classes below it: the class's leaf.
pub struct Child<A: Arch = Native> {
    leaf: Leaf<A>,
    /// The qdisc's handle; [`Handle::UNSPEC`] if no user named it.
    handle: Handle,
    /// The minor number by which a command named the class; `None` if it is the class's own. A qdisc with one class takes any, and
    /// shows the one that was named.
    named: Option<u16>,
    /// The next packet, if [`peek`](Child::peek) had to dequeue it. It counts as queued.
    parked: PacketList<A>,
    /// The counts that the parent's [`Total`] includes: those of the last [`settle`](Child::settle).
    told: Total,
    /// Latency of sampled packets from xmit to this dequeue; `None` before the first sample.
    latency: Option<Box<Latency>>,
}

impl<A: Arch> fmt::Debug for Child<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Child")
            .field("kind", &self.qdisc().kind())
            .field("handle", &self.handle)
            .field("qlen", &self.qlen())
            .finish_non_exhaustive()
    }
}

impl<A: Arch> Child<A> {
    /// Takes an empty qdisc that no user has named.
    pub fn new(qdisc: Box<dyn Qdisc<A>>) -> Self {
        Self::of(Leaf::Boxed(qdisc))
    }

    /// Returns a pfifo without a handle: the leaf of a class for which no user named a qdisc.
    pub fn fifo(env: &Env) -> Self {
        Self::of(Leaf::Fifo(Limited::new(env)))
    }

    fn of(leaf: Leaf<A>) -> Self {
        Self {
            leaf,
            handle: Handle::UNSPEC,
            parked: PacketList::new(),
            told: Total::default(),
            latency: None,
            named: None,
        }
    }

    /// Returns the qdisc's handle; [`Handle::UNSPEC`] if no user named it.
    pub fn handle(&self) -> Handle {
        self.handle
    }

    /// Returns the qdisc, for a caller that does not change its packets.
    pub fn qdisc(&self) -> &dyn Qdisc<A> {
        match &self.leaf {
            Leaf::Fifo(fifo) => fifo,
            Leaf::Boxed(qdisc) => &**qdisc,
        }
    }

    /// Returns the qdisc. The caller calls [`settle`](Child::settle) afterwards.
    pub fn qdisc_mut(&mut self) -> &mut dyn Qdisc<A> {
        match &mut self.leaf {
            Leaf::Fifo(fifo) => fifo,
            Leaf::Boxed(qdisc) => &mut **qdisc,
        }
    }

    /// Returns the latency of sampled packets, from xmit to this dequeue.
    pub fn latency(&self) -> Latency {
        self.latency.as_deref().cloned().unwrap_or_default()
    }

    /// Returns the number of packets queued.
    #[inline]
    pub fn qlen(&self) -> usize {
        self.qdisc().qlen() + self.parked.len()
    }

    /// Returns the number of packets queued at the last [`settle`](Child::settle), which ends each call.
    #[inline]
    pub(crate) fn told_qlen(&self) -> usize {
        self.told.qlen
    }

    /// Returns the number of bytes queued at the last [`settle`](Child::settle).
    #[inline]
    pub(crate) fn told_backlog(&self) -> u64 {
        self.told.backlog
    }

    /// Returns the number of bytes queued.
    pub fn backlog(&self) -> u64 {
        self.qdisc().stats().backlog + self.parked.bytes()
    }

    /// Adds the changes of the child's counts since the last call to `total`, the parent's.
    #[inline]
    pub fn settle(&mut self, total: &mut Total) {
        let Total { qlen, backlog, drops } = call!(self.leaf, total());
        let now = Total {
            qlen: qlen + self.parked.len(),
            backlog: backlog + self.parked.bytes(),
            drops: self.told.drops.max(drops),
        };
        total.qlen = total.qlen + now.qlen - self.told.qlen;
        total.backlog = total.backlog + now.backlog - self.told.backlog;
        total.drops += now.drops - self.told.drops;
        self.told = now;
    }

    /// Queues or drops a packet, and returns the child's verdict.
    pub fn enqueue(&mut self, packet: Packet<A>, total: &mut Total, cx: &mut Cx<'_, A>) -> Verdict {
        let verdict = call!(self.leaf, enqueue(packet, cx));
        self.settle(total);
        verdict
    }

    /// Queues or drops each packet of `batch`, as [`Qdisc::enqueue_batch`] does.
    pub fn enqueue_batch(&mut self, batch: &mut PacketList<A>, total: &mut Total, cx: &mut Cx<'_, A>) {
        call!(self.leaf, enqueue_batch(batch, cx));
        self.settle(total);
    }

    /// As [`Qdisc::room_for`].
    pub(crate) fn room_for(&self, arrival: Arrival<'_, A>) -> Result<(), Full> {
        self.qdisc().room_for(arrival)
    }

    /// Returns the packet that the next dequeue returns first; `None` if the child has no packet to send now. If the qdisc
    /// cannot tell, the packet is dequeued and kept here.
    pub fn peek(&mut self, total: &mut Total, cx: &mut Cx<'_, A>) -> Option<&Packet<A>> {
        if self.parked.is_empty() && self.qdisc().front().is_none() && self.qdisc().qlen() > 0 {
            call!(self.leaf, dequeue_batch(Budget::packets(1), &mut self.parked, cx));
            self.settle(total);
        }
        self.parked.front().or_else(|| self.qdisc().front())
    }

    /// Dequeues packets within the budget, appends them to `out` and spends the budget.
    pub fn dequeue(
        &mut self,
        budget: &mut Budget,
        out: &mut PacketList<A>,
        total: &mut Total,
        cx: &mut Cx<'_, A>,
    ) {
        let before = out.len();
        let (packets, bytes) = (out.len(), out.bytes());
        out.append(&mut self.parked);
        budget.spend(out.len() - packets, out.bytes() - bytes);
        if budget.is_left() {
            let (packets, bytes) = (out.len(), out.bytes());
            call!(self.leaf, dequeue_batch(*budget, out, cx));
            budget.spend(out.len() - packets, out.bytes() - bytes);
        }
        if out.stamped() {
            out.record_times_behind(before, self.latency.get_or_insert_default());
        }
        self.settle(total);
    }

    /// Drops all queued packets as `QUEUE_PURGE`. The counters stay.
    pub fn reset(&mut self, total: &mut Total, cx: &mut Cx<'_, A>) {
        self.purge(cx);
        self.settle(total);
    }

    /// Replaces the qdisc by `new`. Drops all packets queued in the old one, and counts them in the parent's drops
    /// (`qdisc_purge_queue`).
    pub fn replace(&mut self, new: Box<dyn Qdisc<A>>, handle: Handle, total: &mut Total, cx: &mut Cx<'_, A>) {
        let purged = self.qlen() as u64;
        self.purge(cx);
        self.settle(total);
        total.drops += purged;
        *self = Self { handle, ..Self::new(new) };
    }

    /// Returns the minor number by which a command named the class `minor`.
    pub(crate) fn parent(&self, minor: u16) -> u16 {
        self.named.unwrap_or(minor)
    }

    /// Notes by which minor number a command named the class `minor`.
    pub(crate) fn set_parent(&mut self, minor: u16, named: u16) {
        self.named = (named != minor).then_some(named);
    }

    /// Returns whether the qdisc is the pfifo that is stored in place.
    pub(super) fn is_fifo(&self) -> bool {
        matches!(self.leaf, Leaf::Fifo(_))
    }

    /// As [`Qdisc::shrink`].
    pub(super) fn shrink(&mut self, now: Nanos) -> bool {
        match &mut self.leaf {
            Leaf::Fifo(_) => true,
            Leaf::Boxed(qdisc) => self.parked.is_empty() && qdisc.shrink(now),
        }
    }

    /// Returns the qdisc of a child without packets.
    pub fn into_qdisc(self) -> Box<dyn Qdisc<A>> {
        match self.leaf {
            Leaf::Fifo(fifo) => Box::new(fifo),
            Leaf::Boxed(qdisc) => qdisc,
        }
    }

    fn purge(&mut self, cx: &mut Cx<'_, A>) {
        while let Some(packet) = self.parked.pop_front() {
            cx.drop(packet, txq_core::drop::DropReason::QueuePurge);
        }
        call!(self.leaf, reset(cx));
    }
}

/// The classes of a qdisc (`struct Qdisc_class_ops`). A class without classes below it has a qdisc, its leaf.
pub trait Classes<A: Arch = Native> {
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

    /// Returns whether a class can have a qdisc. A search for a qdisc skips the classes of a kind whose classes are flows: it
    /// runs for each command, and there may be thousands of flows.
    fn has_leaves(&self) -> bool {
        true
    }

    /// Returns a class's leaf, and the [`Total`] for [`Child::settle`]; `None` if the class has no qdisc, because it has
    /// classes below it.
    ///
    /// # Panics
    /// The class does not exist.
    fn leaf(&mut self, minor: u16) -> Option<(&mut Child<A>, &mut Total)>;

    /// Returns the qdisc that becomes a class's leaf when its own is deleted.
    fn default_leaf(&mut self, minor: u16) -> Box<dyn Qdisc<A>>;

    /// Updates the qdisc's own records of a class's leaf, after a tc command changed or replaced the leaf.
    fn leaf_changed(&mut self, _minor: u16) {}

    /// Adds the class `minor` below the class `parent`, or below the qdisc if `parent` is 0 (`tc class add`). No class
    /// `minor` exists yet. On an error nothing has changed.
    fn add(
        &mut self,
        _parent: u16,
        _minor: u16,
        _words: &mut Words<'_>,
        _env: &Env,
        _cx: &mut Cx<'_, A>,
    ) -> Result<(), ParseError> {
        Err(fixed_classes())
    }

    /// Changes a class's parameters (`tc class change`). On an error nothing has changed.
    fn change_class(
        &mut self,
        _minor: u16,
        _words: &mut Words<'_>,
        _cx: &mut Cx<'_, A>,
    ) -> Result<(), ParseError> {
        Err(fixed_classes())
    }

    /// Deletes a class (`tc class del`). Its queued packets are dropped and counted. On an error nothing has changed.
    fn delete(&mut self, _minor: u16, _cx: &mut Cx<'_, A>) -> Result<(), ParseError> {
        Err(fixed_classes())
    }

    /// Returns the estimators of its classes, if the kind has any.
    fn rates(&mut self) -> Option<&mut Rates> {
        None
    }

    /// Returns the warnings about changes since the last call, in tc's words (`Warning: ...`).
    fn take_warnings(&mut self) -> Vec<String> {
        Vec::new()
    }

    /// Returns a class as `tc class show` prints it. The caller adds the major numbers to the handles; a parent of 0 is the
    /// qdisc.
    ///
    /// # Panics
    /// The class does not exist.
    fn class(&mut self, minor: u16, style: Style) -> ClassInfo {
        let leaf = self.leaf(minor).map(|(leaf, _)| leaf);
        let handle = leaf.as_ref().map_or(Handle::UNSPEC, |leaf| leaf.handle());
        ClassInfo { stats: leaf.map(|leaf| leaf.qdisc().stats()), ..plain_class(minor, handle, style) }
    }

    /// Reads a class; the returned function writes down what [`class`](Classes::class) returns. Packets wait while a class is
    /// read, and not while it is written down: a kind with many classes copies here what it shows.
    ///
    /// # Panics
    /// The class does not exist.
    fn read_class(&mut self, minor: u16, style: Style) -> WriteClass {
        let info = self.class(minor, style);
        Box::new(move || info)
    }
}

/// Returns a class without parameters and counters, whose leaf has the handle `leaf`.
pub(crate) fn plain_class(minor: u16, leaf: Handle, style: Style) -> ClassInfo {
    ClassInfo {
        rate: None,
        kind: String::new(),
        handle: Handle::new(0, minor),
        parent: Handle::UNSPEC,
        leaf,
        options: Options::new(style),
        stats: None,
        xstats: None,
    }
}

/// Writes down a class that was read.
pub type WriteClass = Box<dyn FnOnce() -> ClassInfo + Send>;

pub(crate) fn fixed_classes() -> ParseError {
    let error = ParseError::new("RTNETLINK answers: Operation not supported");
    error.with_remedy("this kind's classes are there by themselves: give them qdiscs instead")
}

/// Calls `f` with the qdisc that has `handle`: `qdisc`, whose handle is `own`, or one below it. Returns the result of `f`,
/// or `None` if no qdisc has the handle. The counts of all ancestors are exact afterwards.
pub fn find<A: Arch, R>(
    qdisc: &mut dyn Qdisc<A>,
    own: Handle,
    handle: Handle,
    f: &mut dyn FnMut(&mut dyn Qdisc<A>) -> R,
) -> Option<R> {
    if own == handle {
        return Some(f(qdisc));
    }
    let classes = qdisc.classes().filter(|classes| classes.has_leaves())?;
    classes.minors().into_iter().find_map(|minor| {
        let (child, total) = classes.leaf(minor)?;
        let below = child.handle;
        if below == Handle::UNSPEC {
            // A qdisc without a handle has no named qdisc below it.
            return None;
        }
        if below != handle && !has_leaves(child.qdisc_mut()) {
            // The most frequent leaf of a large tree, which is searched for each command.
            return None;
        }
        let found = find(child.qdisc_mut(), below, handle, f);
        child.settle(total);
        if found.is_some() {
            classes.leaf_changed(minor);
        }
        found
    })
}

/// Returns whether there can be qdiscs below a qdisc's classes.
pub fn has_leaves<A: Arch>(qdisc: &mut dyn Qdisc<A>) -> bool {
    qdisc.classes().is_some_and(|classes| classes.has_leaves())
}

/// Returns the number of qdiscs from `qdisc`, whose handle is `own`, down to the one with `handle`, both included; `None`
/// if no qdisc has it.
pub fn levels<A: Arch>(qdisc: &mut dyn Qdisc<A>, own: Handle, handle: Handle) -> Option<usize> {
    if own == handle {
        return Some(1);
    }
    let classes = qdisc.classes().filter(|classes| classes.has_leaves())?;
    classes.minors().into_iter().find_map(|minor| {
        let (child, _) = classes.leaf(minor)?;
        let below = child.handle;
        if below == Handle::UNSPEC {
            return None;
        }
        levels(child.qdisc_mut(), below, handle).map(|levels| levels + 1)
    })
}

#[cfg(test)]
mod tests;
