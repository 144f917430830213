//! Lists of qdiscs and classes, as tc shows them.

use std::collections::{HashMap, VecDeque};

use txq_core::arch::Arch;
use txq_core::stats::QdiscStats;

use super::Trees;
use crate::generic::qdisc::child::{Child, WriteClass};
use crate::generic::qdisc::{Cx, Qdisc};
use crate::tc::{ClassInfo, Handle, QdiscInfo, SentRate, Style};

/// The most classes that are read in one hold of the queue, while packets wait. A long list is read in such portions.
const CLASSES_PER_HOLD: usize = 128;
/// The most qdiscs or filters that are read in one hold of the queue. There are fewer than of classes, since they are written down
/// meanwhile.
pub const PORTION: usize = 64;

impl<A: Arch> Trees<'_, A> {
    /// Returns the classes as `tc class show` lists them: those of each qdisc in the order of their numbers, followed by
    /// those of each leaf.
    #[inline(never)]
    pub fn classes(&mut self, style: Style) -> Vec<ClassInfo> {
        // In the order of the first visit, which is that of the list.
        let mut trees: Vec<(usize, Walk, Vec<Row>)> = Vec::new();
        let mut over = false;
        while !over {
            over = true;
            self.roots.any(&mut |root, own, qdisc, cx| {
                let at = trees.iter().position(|(index, ..)| *index == root).unwrap_or_else(|| {
                    trees.push((root, Walk::new(own), Vec::new()));
                    trees.len() - 1
                });
                let (_, walk, rows) = &mut trees[at];
                over &= walk.classes(qdisc, CLASSES_PER_HOLD, style, rows, cx);
                false
            });
        }
        let mut rows = trees.into_iter().map(|(.., rows)| rows);
        if !self.replicas {
            return rows.flatten().map(Row::write).collect();
        }
        let mut list: Vec<_> = rows.next().into_iter().flatten().map(Row::write).collect();
        // A replica's own classes count for all. Those of their leaves are summed here.
        let mut others = rows.flatten().filter(|row| row.own != self.root).map(Row::write).peekable();
        if others.peek().is_some() {
            let places: HashMap<_, _> = list.iter().enumerate().map(|(at, info)| (info.handle, at)).collect();
            for other in others {
                if let Some(&at) = places.get(&other.handle) {
                    let info = &mut list[at];
                    info.stats = info.stats.zip(other.stats).map(|(one, other)| one + other);
                    info.xstats = None;
                }
            }
        }
        list
    }
}

/// Computes a class's rate from what it has sent.
type ReadRate = Box<dyn FnOnce(&QdiscStats) -> SentRate + Send>;

/// A class that was read.
struct Row {
    /// The handle of its qdisc, and the qdisc's kind.
    own: Handle,
    kind: &'static str,
    minor: u16,
    write: WriteClass,
    /// The average of its rate, if it has an estimator.
    rate: Option<ReadRate>,
}

impl Row {
    fn write(self) -> ClassInfo {
        let info = (self.write)();
        let parent = match info.parent {
            Handle::ROOT => Handle::ROOT,
            parent => Handle::new(self.own.major(), parent.minor()),
        };
        let handle = Handle::new(self.own.major(), self.minor);
        let rate = self.rate.zip(info.stats).map(|(rate, stats)| rate(&stats));
        ClassInfo { kind: self.kind.to_owned(), handle, parent, rate, ..info }
    }
}

/// A walk through the tree of one queue, which goes on where it stopped. Commands, which alone change the tree's shape, wait until it is over.
#[derive(Debug)]
pub struct Walk(Vec<Frame>);

/// A qdisc on the way from the top.
#[derive(Debug)]
struct Frame {
    /// The class above it; 0 for the top.
    above: u16,
    own: Handle,
    /// The last class that the walk is through with.
    after: Option<u16>,
    /// The classes that were read and whose leaf has classes, too; these are next once all classes have been read.
    below: VecDeque<u16>,
    /// Whether all classes have been read.
    leaves: bool,
}

impl Walk {
    /// Returns a walk from the top of a tree whose handle is `own`.
    pub fn new(own: Handle) -> Self {
        Self(vec![Frame { above: 0, own, after: None, below: VecDeque::new(), leaves: false }])
    }

    /// Returns the qdisc of the last frame; `None` if it is gone.
    fn here<'q, A: Arch>(&self, mut qdisc: &'q mut dyn Qdisc<A>) -> Option<&'q mut dyn Qdisc<A>> {
        for frame in self.0.iter().skip(1) {
            qdisc = qdisc.classes()?.leaf(frame.above)?.0.qdisc_mut();
        }
        Some(qdisc)
    }

    /// Appends about `most` classes to `rows`; returns whether there are no more.
    fn classes<A: Arch>(
        &mut self,
        top: &mut dyn Qdisc<A>,
        most: usize,
        style: Style,
        rows: &mut Vec<Row>,
        cx: &mut Cx<'_, A>,
    ) -> bool {
        let mut left = most;
        while left > 0 && !self.0.is_empty() {
            let Some(qdisc) = self.here(top) else {
                self.0.pop();
                continue;
            };
            let Some(frame) = self.0.last_mut() else { break };
            let kind = qdisc.kind();
            let Some(classes) = qdisc.classes() else {
                self.0.pop();
                continue;
            };
            if frame.leaves {
                left -= 1;
                let next = frame.below.pop_front();
                let leaf = next.and_then(|minor| Some((minor, classes.leaf(minor)?.0)));
                match leaf.and_then(|(minor, leaf)| frame_below(leaf, minor)) {
                    Some(below) => self.0.push(below),
                    None if next.is_none() => drop(self.0.pop()),
                    None => {}
                }
                continue;
            }
            let minors = classes.minors_after(frame.after, left);
            frame.leaves = minors.len() < left;
            left -= minors.len();
            frame.after = minors.last().copied().or(frame.after);
            for minor in minors {
                let write = classes.read_class(minor, style);
                let read = classes.rates().and_then(|rates| rates.read(minor));
                let rate = read.map(|read| {
                    let now = cx.clock.now();
                    Box::new(move |stats: &QdiscStats| read(stats, now)) as ReadRate
                });
                rows.push(Row { own: frame.own, kind, minor, write, rate });
                // Now, while the class is in the cache.
                if classes.leaf(minor).is_some_and(|(leaf, _)| leaf.qdisc_mut().classes().is_some()) {
                    frame.below.push_back(minor);
                }
            }
        }
        self.0.is_empty()
    }

    /// Appends the named qdiscs of about `most` classes to `list`, each after the one that it is below; returns whether there are
    /// no more.
    #[inline(never)]
    pub fn qdiscs<A: Arch>(
        &mut self,
        top: &mut dyn Qdisc<A>,
        most: usize,
        style: Style,
        list: &mut Vec<QdiscInfo>,
    ) -> bool {
        let mut left = most;
        while left > 0 && !self.0.is_empty() {
            let Some(qdisc) = self.here(top) else {
                self.0.pop();
                continue;
            };
            let Some(frame) = self.0.last_mut() else { break };
            let minors = qdisc
                .classes()
                .filter(|classes| classes.has_leaves())
                .map_or_else(Vec::new, |classes| classes.minors_after(frame.after, left));
            let is_last = minors.len() < left;
            let mut below = None;
            for minor in minors {
                (left, frame.after) = (left - 1, Some(minor));
                let Some((leaf, _)) = qdisc.classes().and_then(|classes| classes.leaf(minor)) else {
                    continue;
                };
                if leaf.handle() != Handle::UNSPEC {
                    list.push(info(
                        leaf.qdisc(),
                        leaf.handle(),
                        Handle::new(frame.own.major(), leaf.parent(minor)),
                        style,
                    ));
                }
                below = frame_below(leaf, minor);
                if below.is_some() {
                    break;
                }
            }
            match below {
                Some(below) => self.0.push(below),
                None if is_last => drop(self.0.pop()),
                None => {}
            }
        }
        self.0.is_empty()
    }
}

/// Returns the frame of a leaf that has classes.
fn frame_below<A: Arch>(leaf: &mut Child<A>, above: u16) -> Option<Frame> {
    let own = leaf.handle();
    leaf.qdisc_mut().classes().map(|_| Frame {
        above,
        own,
        after: None,
        below: VecDeque::new(),
        leaves: false,
    })
}

/// Returns how many packets a qdisc and those below its classes may queue: the sum of the limits that are counted in packets.
/// Adds the number of qdiscs without such a limit to `others`. One of them is a qdisc whose classes have no qdiscs, as cake's flows: it
/// queues the packets itself.
#[inline(never)]
pub fn max_packets<A: Arch>(qdisc: &mut dyn Qdisc<A>, others: &mut usize) -> u64 {
    if let Some(packets) = qdisc.max_packets() {
        return packets as u64;
    }
    let Some(classes) = qdisc.classes().filter(|classes| classes.has_leaves()) else {
        *others += 1;
        return 0;
    };
    let (mut sum, mut has_leaf) = (0_u64, false);
    for minor in classes.minors() {
        if let Some((leaf, _)) = classes.leaf(minor) {
            has_leaf = true;
            sum = sum.saturating_add(max_packets(leaf.qdisc_mut(), others));
        }
    }
    *others += usize::from(!has_leaf);
    sum
}

/// Returns what `tc qdisc show` lists of a qdisc.
#[inline(never)]
pub fn info<A: Arch>(qdisc: &dyn Qdisc<A>, handle: Handle, parent: Handle, style: Style) -> QdiscInfo {
    QdiscInfo {
        kind: qdisc.kind().to_owned(),
        handle,
        dev: None,
        parent,
        refcnt: 1,
        options: qdisc.options(style),
        stab: qdisc.stab(),
        stats: qdisc.stats(),
        rate: qdisc.rate(),
        xstats: qdisc.xstats(style),
    }
}
