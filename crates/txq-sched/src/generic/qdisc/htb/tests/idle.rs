//! Leaves that stay idle give their memory back, and others keep theirs.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::*;
use crate::generic::qdisc::testing::{MS, try_build};

const BUSY: u32 = 0x1_0010;
const IDLE: u32 = 0x1_0020;

/// A pfifo that counts how often it is asked for its memory, and refuses the first times.
struct Asked {
    inner: Box<dyn Qdisc>,
    asked: Arc<AtomicU64>,
    refuses: u64,
}

impl Qdisc for Asked {
    fn kind(&self) -> &'static str {
        self.inner.kind()
    }

    fn enqueue(&mut self, packet: Packet, cx: &mut Cx<'_>) -> Verdict {
        self.inner.enqueue(packet, cx)
    }

    fn dequeue_batch(&mut self, budget: Budget, out: &mut PacketList, cx: &mut Cx<'_>) {
        self.inner.dequeue_batch(budget, out, cx);
    }

    fn reset(&mut self, cx: &mut Cx<'_>) {
        self.inner.reset(cx);
    }

    fn qlen(&self) -> usize {
        self.inner.qlen()
    }

    fn stats(&self) -> QdiscStats {
        self.inner.stats()
    }

    fn shrink(&mut self, _: Nanos) -> bool {
        assert_eq!(self.qlen(), 0, "a leaf with packets is asked");
        self.asked.fetch_add(1, Relaxed) >= self.refuses
    }
}

/// Replaces the leaf of a class by one that counts; returns the count.
fn attach_asked(htb: &mut Virtual, class: u32, refuses: u64) -> Arc<AtomicU64> {
    let asked = Arc::<AtomicU64>::default();
    let inner = try_build("pfifo limit 100", &ENV).unwrap();
    let leaf = Box::new(Asked { inner, asked: asked.clone(), refuses });
    htb.with(|qdisc, cx| {
        let classes = qdisc.classes().unwrap();
        let (child, total) = classes.leaf(class as u16).unwrap();
        child.replace(leaf, Handle::new(10, 0), total, cx);
        classes.leaf_changed(class as u16);
    });
    asked
}

/// Sends a packet through the busy class every 5 ms.
fn pass(htb: &mut Virtual, seconds: u64) {
    for _ in 0..seconds * 200 {
        assert_eq!(htb.enqueue(100, BUSY), Verdict::Success);
        assert_eq!(htb.dequeue(64).len(), 1);
        htb.now += 5 * MS;
    }
}

#[test]
fn an_idle_leaf_is_asked_for_its_memory_once_after_each_use() {
    let mut htb = htb("htb", &["0 10 rate 1gbit", "0 20 rate 1gbit", "0 30 rate 1gbit"]);
    let (busy, idle) = (attach_asked(&mut htb, BUSY, 0), attach_asked(&mut htb, IDLE, 0));
    let unused = attach_asked(&mut htb, 0x1_0030, 0);
    pass(&mut htb, 10);
    for uses in 1..4 {
        assert_eq!(htb.enqueue(100, IDLE), Verdict::Success);
        assert_eq!(htb.dequeue(64).len(), 1);
        pass(&mut htb, 1);
        assert_eq!(idle.load(Relaxed), uses - 1, "used a second ago");
        pass(&mut htb, 10);
        assert_eq!(idle.load(Relaxed), uses, "idle for eleven seconds");
    }
    assert_eq!((busy.load(Relaxed), unused.load(Relaxed)), (0, 0));
}

#[test]
fn a_leaf_that_keeps_its_memory_is_asked_again() {
    let mut htb = htb("htb", &["0 10 rate 1gbit", "0 20 rate 1gbit"]);
    let idle = attach_asked(&mut htb, IDLE, 3);
    // A packet that waits keeps its leaf from being asked.
    assert_eq!(htb.enqueue(100, IDLE), Verdict::Success);
    pass_beside_one(&mut htb);
    assert_eq!(idle.load(Relaxed), 0);
    assert_eq!(htb.dequeue(64).len(), 1);
    pass(&mut htb, 30);
    assert_eq!(idle.load(Relaxed), 4);
    // The class is deleted while its leaf is warm, and another has its place.
    assert_eq!(htb.enqueue(100, IDLE), Verdict::Success);
    assert_eq!(htb.dequeue(64).len(), 1);
    delete(&mut htb, 0x20).unwrap();
    add(&mut htb, "0 20 rate 1gbit").unwrap();
    let other = attach_asked(&mut htb, IDLE, 0);
    pass(&mut htb, 10);
    assert_eq!((idle.load(Relaxed), other.load(Relaxed)), (4, 0));
}

/// Lets ten seconds pass without a dequeue from the idle class, whose packet waits.
fn pass_beside_one(htb: &mut Virtual) {
    change(htb, 0x20, "rate 8bit burst 1 cburst 1 prio 7").unwrap();
    assert_eq!(htb.enqueue(100, IDLE), Verdict::Success);
    // The first packet leaves and the class owes for it.
    assert_eq!(htb.dequeue(64).len(), 1);
    pass(htb, 10);
    change(htb, 0x20, "rate 1gbit").unwrap();
    htb.now += 100_000 * MS;
}
