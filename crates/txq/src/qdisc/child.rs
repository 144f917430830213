//! A qdisc below another, and what its ancestors know of it.
//!
//! A parent counts what is queued in all of its children. Here that is done in one place: a parent reaches a child only
//! through [`Child`], and each call ends with [`Child::settle`], which adds to the parent's [`Total`] what the child has more
//! or less than it had when it was last asked. Whatever a child does in a call (drop another packet than the one it was
//! given, drop while it dequeues, be changed or exchanged), the parent's counts are exact after it, and since each call
//! comes down through all ancestors, so are theirs. The kernel's children tell their ancestors instead
//! (`qdisc_tree_reduce_backlog`), each in its own way, and sometimes twice.

use crate::arch::Arch;
use crate::packet::{Packet, PacketList};
use crate::qdisc::limited::Limited;
use crate::qdisc::pfifo::Packets;
use crate::qdisc::{Budget, Cx, Env, Qdisc, Verdict};
use crate::stats::latency::Latency;
use crate::tc::{ClassInfo, Handle, Options, ParseError, Style, Words};

/// What is queued in a parent's children, and what they have dropped.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Total {
    /// Packets queued.
    pub qlen: usize,
    /// Bytes queued.
    pub backlog: u64,
    /// Packets dropped by the children, or purged from them.
    pub drops: u64,
}

/// What is in the place. A pfifo, which most classes have, is there itself: its packets need no line of memory more than the
/// class has, and no call goes through a table.
enum Leaf<A: Arch> {
    Fifo(Limited<A, Packets>),
    Boxed(Box<dyn Qdisc<A>>),
}

/// Calls a method of the qdisc that a leaf is, with the code of a pfifo in place.
macro_rules! call {
    ($leaf:expr, $method:ident($($argument:expr),*)) => {
        match &mut $leaf {
            Leaf::Fifo(fifo) => fifo.$method($($argument),*),
            Leaf::Boxed(qdisc) => qdisc.$method($($argument),*),
        }
    };
}

/// A qdisc in the place of a class's leaf.
pub struct Child<A: Arch> {
    leaf: Leaf<A>,
    /// [`Handle::UNSPEC`] for one that nobody named.
    handle: Handle,
    /// The next packet, if it was dequeued to be looked at. It counts as queued.
    parked: PacketList<A>,
    /// What the parent knows.
    told: Total,
    /// From xmit to the dequeue, of packets that are sampled; `None` before the first one.
    latency: Option<Box<Latency>>,
}

impl<A: Arch> Child<A> {
    /// An empty qdisc that nobody has named.
    pub fn new(qdisc: Box<dyn Qdisc<A>>) -> Self {
        Self::of(Leaf::Boxed(qdisc))
    }

    /// A pfifo that nobody has named: what a class gets when nobody names a qdisc for it.
    pub(crate) fn fifo(env: &Env) -> Self {
        Self::of(Leaf::Fifo(Limited::new(env)))
    }

    fn of(leaf: Leaf<A>) -> Self {
        Self {
            leaf,
            handle: Handle::UNSPEC,
            parked: PacketList::new(),
            told: Total::default(),
            latency: None,
        }
    }

    /// The handle.
    pub fn handle(&self) -> Handle {
        self.handle
    }

    /// The qdisc, for whoever does not change what it has queued.
    pub fn qdisc(&self) -> &dyn Qdisc<A> {
        match &self.leaf {
            Leaf::Fifo(fifo) => fifo,
            Leaf::Boxed(qdisc) => &**qdisc,
        }
    }

    /// The qdisc. [`settle`](Child::settle) afterwards.
    pub(crate) fn qdisc_mut(&mut self) -> &mut dyn Qdisc<A> {
        match &mut self.leaf {
            Leaf::Fifo(fifo) => fifo,
            Leaf::Boxed(qdisc) => &mut **qdisc,
        }
    }

    /// From xmit to the dequeue, of the packets that were sampled.
    pub(crate) fn latency(&self) -> Latency {
        self.latency.as_deref().cloned().unwrap_or_default()
    }

    /// Packets queued.
    #[inline]
    pub fn qlen(&self) -> usize {
        self.qdisc().qlen() + self.parked.len()
    }

    /// Packets queued when the parent was last told, which is after each call.
    #[inline]
    pub(crate) fn told_qlen(&self) -> usize {
        self.told.qlen
    }

    /// Bytes queued.
    pub fn backlog(&self) -> u64 {
        self.qdisc().stats().backlog + self.parked.bytes()
    }

    /// Adds to `total` what has changed since the last call.
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

    /// Queues or drops a packet.
    pub fn enqueue(&mut self, packet: Packet<A>, total: &mut Total, cx: &mut Cx<'_, A>) -> Verdict {
        let verdict = call!(self.leaf, enqueue(packet, cx));
        self.settle(total);
        verdict
    }

    /// Queues or drops each of `batch`.
    pub fn enqueue_batch(&mut self, batch: &mut PacketList<A>, total: &mut Total, cx: &mut Cx<'_, A>) {
        call!(self.leaf, enqueue_batch(batch, cx));
        self.settle(total);
    }

    /// The packet that the next dequeue returns first. A qdisc that cannot tell gives it up, and it is kept here.
    pub fn peek(&mut self, total: &mut Total, cx: &mut Cx<'_, A>) -> Option<&Packet<A>> {
        if self.parked.is_empty() && self.qdisc().front().is_none() && self.qdisc().qlen() > 0 {
            call!(self.leaf, dequeue_batch(Budget::packets(1), &mut self.parked, cx));
            self.settle(total);
        }
        self.parked.front().or_else(|| self.qdisc().front())
    }

    /// Appends the packets that are next to `out`, within the budget, and spends it.
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
            self.latency.get_or_insert_default().record_behind(before, out);
        }
        self.settle(total);
    }

    /// Drops what is queued as `QUEUE_PURGE`; counters stay.
    pub fn reset(&mut self, total: &mut Total, cx: &mut Cx<'_, A>) {
        self.purge(cx);
        self.settle(total);
    }

    /// Puts another qdisc in its place. What was queued is dropped, and the parent counts it (`qdisc_purge_queue`).
    pub fn replace(&mut self, new: Box<dyn Qdisc<A>>, handle: Handle, total: &mut Total, cx: &mut Cx<'_, A>) {
        let purged = self.qlen() as u64;
        self.purge(cx);
        self.settle(total);
        total.drops += purged;
        *self = Self { handle, ..Self::new(new) };
    }

    fn purge(&mut self, cx: &mut Cx<'_, A>) {
        while let Some(packet) = self.parked.pop_front() {
            cx.drop(packet, crate::drop::DropReason::QueuePurge);
        }
        call!(self.leaf, reset(cx));
    }
}

/// A qdisc's classes, each with a qdisc for a leaf (`struct Qdisc_class_ops`).
pub trait Classes<A: Arch> {
    /// The minor numbers of all classes, in order.
    fn minors(&self) -> Vec<u16>;

    /// The class that a user means by a minor number, or none.
    fn find(&self, minor: u16) -> Option<u16> {
        self.minors().contains(&minor).then_some(minor)
    }

    /// A class's leaf, and the total to settle it with; none for a class that has classes below it and so no qdisc.
    ///
    /// # Panics
    /// The class does not exist.
    fn leaf(&mut self, minor: u16) -> Option<(&mut Child<A>, &mut Total)>;

    /// What a class gets when its leaf is deleted.
    fn default_leaf(&self, minor: u16) -> Box<dyn Qdisc<A>>;

    /// The leaf of a class has been used in another way than by the qdisc itself: by who changed or exchanged it.
    fn leaf_changed(&mut self, _minor: u16) {}

    /// Adds the class `minor` below the class `parent`, or below the qdisc where that is 0 (`tc class add`). `minor` is no
    /// class yet. On an error nothing has changed.
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

    /// Takes a class away (`tc class del`). What it has queued is dropped and counted. On an error nothing has changed.
    fn delete(&mut self, _minor: u16, _cx: &mut Cx<'_, A>) -> Result<(), ParseError> {
        Err(fixed_classes())
    }

    /// What a user should know of the changes so far, in tc's words (`Warning: ...`).
    fn take_warnings(&mut self) -> Vec<String> {
        Vec::new()
    }

    /// A class as `tc class show` prints it. Handles have no major number yet, and a parent of 0 is the qdisc.
    ///
    /// # Panics
    /// The class does not exist.
    fn class(&mut self, minor: u16, style: Style) -> ClassInfo {
        let leaf = self.leaf(minor).map(|(leaf, _)| leaf);
        ClassInfo {
            kind: String::new(),
            handle: Handle::new(0, minor),
            parent: Handle::UNSPEC,
            leaf: leaf.as_ref().map_or(Handle::UNSPEC, |leaf| leaf.handle()),
            options: Options::new(style),
            stats: leaf.map(|leaf| leaf.qdisc().stats()),
            xstats: None,
        }
    }
}

fn fixed_classes() -> ParseError {
    let error = ParseError::new("RTNETLINK answers: Operation not supported");
    error.with_remedy("this kind's classes are there by themselves: give them qdiscs instead")
}

/// Calls `f` with the qdisc that has a handle: `qdisc`, whose own is `own`, or one below it. The ancestors' counts are exact
/// afterwards. Returns what `f` does, or none where no qdisc has the handle.
pub(crate) fn find<A: Arch, R>(
    qdisc: &mut dyn Qdisc<A>,
    own: Handle,
    handle: Handle,
    f: &mut dyn FnMut(&mut dyn Qdisc<A>) -> R,
) -> Option<R> {
    if own == handle {
        return Some(f(qdisc));
    }
    let classes = qdisc.classes()?;
    classes.minors().into_iter().find_map(|minor| {
        let (child, total) = classes.leaf(minor)?;
        let below = child.handle;
        if below == Handle::UNSPEC {
            // Below what nobody named, nobody has named anything.
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

/// Returns how many qdiscs there are from `qdisc`, whose own handle is `own`, down to the one with a handle; none where no
/// qdisc has it.
pub(crate) fn levels<A: Arch>(qdisc: &mut dyn Qdisc<A>, own: Handle, handle: Handle) -> Option<usize> {
    if own == handle {
        return Some(1);
    }
    let classes = qdisc.classes()?;
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
