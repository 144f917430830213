//! A program's own qdisc, given to the device as an object.

use crate::device::Wires;
use txq::drop::DropReason;
use txq::packet::{Packet, PacketList};
use txq::qdisc::{Budget, Cx, Qdisc, Verdict};
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
