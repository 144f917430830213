//! Long lists are read in portions: no hold of the queue reads many qdiscs or filters.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicUsize};

use crate::device::{Wires, assert_conserved, pool};
use txq::NetDev;
use txq::filter::Filters;
use txq::packet::{Packet, PacketList};
use txq::qdisc::{Budget, Child, Classes, Cx, Env, Qdisc, Shortcuts, Total, Verdict, register};
use txq::stats::QdiscStats;
use txq::tc::{Handle, Options, ParseError, Style, Words};

/// The leaves of the wide qdisc.
const LEAVES: u16 = 5000;
/// The most objects that one hold of the queue may read.
const MOST: usize = 64;

/// Holds of the queue, leaves written down in this hold, and the most leaves of a hold.
static HOLDS: AtomicUsize = AtomicUsize::new(0);
static READ: AtomicUsize = AtomicUsize::new(0);
static LONGEST: AtomicUsize = AtomicUsize::new(0);

/// A root with thousands of leaves. All packets go to the first one.
struct Wide {
    leaves: Vec<Child>,
    filters: Filters,
    total: Total,
}

/// A leaf without packets that counts how often it is written down.
struct Counted;

impl Qdisc for Wide {
    fn kind(&self) -> &'static str {
        "wide"
    }

    fn enqueue(&mut self, packet: Packet, cx: &mut Cx<'_>) -> Verdict {
        self.leaves[0].enqueue(packet, &mut self.total, cx)
    }

    fn dequeue_batch(&mut self, mut budget: Budget, out: &mut PacketList, cx: &mut Cx<'_>) {
        self.leaves[0].dequeue(&mut budget, out, &mut self.total, cx);
    }

    fn reset(&mut self, cx: &mut Cx<'_>) {
        self.leaves[0].reset(&mut self.total, cx);
    }

    /// Names all leaves but the first.
    fn change(&mut self, _: &mut Words<'_>, _: &Env, cx: &mut Cx<'_>) -> Result<(), ParseError> {
        for (leaf, major) in self.leaves.iter_mut().zip(0x1000..).skip(1) {
            leaf.replace(Child::new(Box::new(Counted)), Handle::new(major, 0), &mut self.total, cx);
        }
        Ok(())
    }

    fn qlen(&self) -> usize {
        self.total.qlen
    }

    fn stats(&self) -> QdiscStats {
        let first = self.leaves[0].stats();
        QdiscStats { qlen: self.total.qlen as u64, backlog: self.total.backlog, ..first }
    }

    fn filters(&mut self, class: u16) -> Option<&mut Filters> {
        (class == 0).then_some(&mut self.filters)
    }

    fn classes(&mut self) -> Option<&mut dyn Classes> {
        Some(self)
    }
}

impl Shortcuts for Wide {
    /// The device asks for it at the end of each hold by a command.
    fn limit(&self) -> Option<usize> {
        HOLDS.fetch_add(1, Relaxed);
        LONGEST.fetch_max(READ.swap(0, Relaxed), Relaxed);
        None
    }
}

impl Classes for Wide {
    fn minors(&mut self) -> Vec<u16> {
        (1..=LEAVES).collect()
    }

    fn leaf(&mut self, minor: u16) -> Option<(&mut Child, &mut Total)> {
        Some((&mut self.leaves[usize::from(minor) - 1], &mut self.total))
    }

    fn default_leaf(&mut self, _: u16) -> Child {
        Child::new(Box::new(Counted))
    }
}

impl Qdisc for Counted {
    fn kind(&self) -> &'static str {
        "counted"
    }

    fn enqueue(&mut self, packet: Packet, cx: &mut Cx<'_>) -> Verdict {
        cx.drop(packet, txq::drop::DropReason::QdiscDrop);
        Verdict::Drop
    }

    fn dequeue_batch(&mut self, _: Budget, _: &mut PacketList, _: &mut Cx<'_>) {}

    fn reset(&mut self, _: &mut Cx<'_>) {}

    fn qlen(&self) -> usize {
        0
    }

    fn stats(&self) -> QdiscStats {
        QdiscStats::default()
    }

    fn options(&self, style: Style) -> Options {
        READ.fetch_add(1, Relaxed);
        Options::new(style)
    }
}

impl Shortcuts for Counted {}

/// Ends the sending thread, also when a check fails.
struct Stop<'s>(&'s AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// Sends meanwhile, so that portions and turns of senders alternate.
#[test]
fn no_hold_reads_many() {
    register("wide", |_, env| {
        let leaves = (0..LEAVES).map(|_| Child::fifo(env)).collect();
        Ok(Box::new(Wide { leaves, filters: Filters::new(), total: Total::default() }))
    })
    .unwrap();
    let dev = NetDev::builder(Wires::new(1, None)).qdisc("noqueue").pool_config(pool()).start().unwrap();
    dev.tc("qdisc add root handle 1: wide").unwrap();
    dev.tc("qdisc change root handle 1: wide").unwrap();
    for mark in 1..=1000 {
        dev.tc(&format!("filter add parent 1: pref 1 handle {mark} fw classid 1:1")).unwrap();
    }
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut sender = dev.sender("s");
            while !stop.load(Relaxed) {
                if let Ok(packet) = sender.packet(&[0; 60]) {
                    let _ = sender.xmit(packet);
                }
            }
        });
        let _stop = Stop(&stop);
        HOLDS.store(0, Relaxed);
        let qdiscs = dev.qdiscs(Style::default());
        assert_eq!(qdiscs.len(), usize::from(LEAVES), "the root and each leaf that has a name");
        assert!((1..=MOST).contains(&LONGEST.load(Relaxed)), "{} in one hold", LONGEST.load(Relaxed));
        let holds = HOLDS.swap(0, Relaxed);
        assert!(holds >= usize::from(LEAVES) / MOST, "{holds} holds for {LEAVES} qdiscs");
        let filters = dev.filters(None, Style::default());
        assert_eq!(filters.len(), 1001, "the pref and each rule");
        let holds = HOLDS.swap(0, Relaxed);
        assert!(holds >= filters.len() / MOST, "{holds} holds for {} filters", filters.len());
        let classes = dev.classes(Style::default());
        assert_eq!(classes.len(), usize::from(LEAVES));
        assert!(HOLDS.load(Relaxed) >= classes.len() / 128, "{} holds", HOLDS.load(Relaxed));
    });
    assert!(dev.drain(std::time::Duration::from_secs(10)));
    assert_conserved(&dev);
}
