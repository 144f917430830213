//! A program's own qdisc, given to the device as an object.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use crate::device::Wires;
use txq::drop::DropReason;
use txq::packet::{Packet, PacketList};
use txq::qdisc::{Budget, Cx, Qdisc, Shortcuts, Verdict};
use txq::stats::QdiscStats;
use txq::tc::Style;
use txq::{Discipline, NetDev};

/// Last in, first out: an order that no qdisc of the library uses.
#[derive(Default)]
struct Lifo {
    stack: Vec<Packet>,
    stats: QdiscStats,
}

impl Qdisc for Lifo {
    fn kind(&self) -> &'static str {
        "lifo"
    }

    fn enqueue(&mut self, packet: Packet, _: &mut Cx<'_>) -> Verdict {
        self.stats.backlog += packet.len() as u64;
        self.stack.push(packet);
        Verdict::Success
    }

    fn dequeue_batch(&mut self, budget: Budget, out: &mut PacketList, _: &mut Cx<'_>) {
        for packet in (0..budget.packets).map_while(|_| self.stack.pop()) {
            self.stats.backlog -= packet.len() as u64;
            self.stats.bytes += packet.len() as u64;
            self.stats.packets += 1;
            out.push_back(packet);
        }
    }

    fn reset(&mut self, cx: &mut Cx<'_>) {
        self.stack.drain(..).for_each(|packet| cx.drop(packet, DropReason::QueuePurge));
        self.stats.backlog = 0;
    }

    fn qlen(&self) -> usize {
        self.stack.len()
    }

    fn stats(&self) -> QdiscStats {
        QdiscStats { qlen: self.stack.len() as u64, ..self.stats }
    }
}

impl Shortcuts for Lifo {}

/// A queue that lets single packets by, and counts how often it was asked.
struct Open {
    asked: Arc<AtomicU32>,
    stats: QdiscStats,
}

impl Qdisc for Open {
    fn kind(&self) -> &'static str {
        "open"
    }

    fn enqueue(&mut self, packet: Packet, cx: &mut Cx<'_>) -> Verdict {
        cx.drop(packet, DropReason::QdiscDrop);
        Verdict::Drop
    }

    fn dequeue_batch(&mut self, _: Budget, _: &mut PacketList, _: &mut Cx<'_>) {}

    fn reset(&mut self, _: &mut Cx<'_>) {}

    fn qlen(&self) -> usize {
        0
    }

    fn stats(&self) -> QdiscStats {
        self.stats
    }
}

impl Shortcuts for Open {
    fn can_bypass(&self) -> bool {
        self.asked.fetch_add(1, Relaxed);
        true
    }

    fn bypassed(&mut self, packets: u64, bytes: u64) {
        self.stats.packets += packets;
        self.stats.bytes += bytes;
    }
}

/// While only packets of one priority bypass the qdisc, it is asked once, and it counts them when its counters are read.
#[test]
fn a_qdisc_that_lets_packets_by_is_asked_once() {
    let asked = Arc::new(AtomicU32::new(0));
    let qdisc = Open { asked: asked.clone(), stats: QdiscStats::default() };
    let dev =
        NetDev::builder(Wires::new(1, Some(64))).custom_qdisc(qdisc).bql(None).build().expect("a device");
    let mut sender = dev.sender("test");
    let mut send = |n, priority| {
        for _ in 0..n {
            let mut packet = sender.alloc(100).expect("a buffer");
            packet.set_priority(priority);
            let _verdict = sender.xmit(packet);
        }
    };
    // Until an owner has found the queue to itself, packets are enqueued.
    send(1, 0);
    let (before, dropped) = (asked.load(Relaxed), dev.stats().dropped.total());
    send(5, 0);
    // Twice: by the run of the queue, and by the permit that it then gives to senders.
    assert_eq!(asked.load(Relaxed) - before, 2);
    send(5, 7);
    assert_eq!(asked.load(Relaxed) - before, 4, "of another priority");
    let counted = || dev.qdiscs(Style::default())[0].stats.packets;
    assert_eq!(counted(), 11 - dropped);
    send(5, 7);
    assert_eq!(asked.load(Relaxed) - before, 6, "after another access to the queue");
    assert_eq!(counted(), 16 - dropped);
    assert_eq!(dev.audit().expect("sums that add up").sent, 16 - dropped);
}

#[test]
fn a_programs_own_qdisc_decides_the_order() {
    for &discipline in Discipline::ALL {
        let wires = Wires::new(1, None);
        let dev = NetDev::builder(wires.clone()).custom_qdisc(Lifo::default()).discipline(discipline);
        let dev = dev.build().expect("a device");
        let mut sender = dev.sender("test");
        let mut batch = PacketList::new();
        assert_eq!(sender.alloc_batch(3, 100, &mut batch), Ok(3));
        let mut cookie = 0;
        batch.for_each_mut(|packet| {
            packet.set_cookie(cookie);
            cookie += 1;
        });
        assert_eq!(sender.xmit_batch(&mut batch), Verdict::Success);
        assert_eq!(wires.at(0).sent(), [2, 1, 0], "{discipline}");
        let shown = txq::tc::show_text(&dev.qdiscs(Style::default()), true);
        assert!(shown.starts_with("qdisc lifo 8001: dev "), "{shown}");
        assert!(shown.contains(" Sent 300 bytes 3 pkt"), "{shown}");
        assert_eq!(dev.audit().expect("sums that add up").sent, 3);
    }
}
