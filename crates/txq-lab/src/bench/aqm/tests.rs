//! Enqueues and drops of the qdisc, observed through a device of its own.

use std::sync::mpsc::{Receiver, Sender as Out, channel};

use txq::driver::{DeviceInfo, Driver, DriverQueue, NoCompletions, Status, Transmit, TxCx};
use txq::{Discipline, NetDev};

use super::*;

/// A device that records the hashes of the packets it sends.
struct Noted(Out<u32>);

impl Driver for Noted {
    fn info(&self) -> DeviceInfo {
        DeviceInfo::new("noted")
    }

    fn open(&mut self, _: u16) -> std::io::Result<DriverQueue> {
        let tx = Box::new(NotedTx(self.0.clone()));
        Ok(DriverQueue::new(tx, NoCompletions))
    }
}

struct NotedTx(Out<u32>);

impl Transmit for NotedTx {
    fn start_xmit(&mut self, batch: &mut PacketList, cx: &mut TxCx<'_>) -> Status {
        batch.iter().for_each(|packet| self.0.send(packet.hash()).expect("a test that listens"));
        cx.sent_all(batch);
        Status::Ok
    }
}

fn device(limit: usize) -> (NetDev, Receiver<u32>) {
    let (out, sent) = channel();
    let qdisc = Aqm { limit, ..Aqm::new(Work::default()) };
    let dev = NetDev::builder(Noted(out)).custom_qdisc(qdisc).discipline(Discipline::Combine).build();
    (dev.expect("a device that can be"), sent)
}

/// Hands in one packet of each flow, all in one batch.
fn send(dev: &NetDev, flows: &[u32]) -> Verdict {
    let mut sender = dev.sender("test");
    let mut batch = PacketList::new();
    assert_eq!(sender.alloc_batch(flows.len(), 100, &mut batch), Ok(flows.len()));
    let mut flows = flows.iter();
    batch.for_each_mut(|packet| packet.set_hash(*flows.next().expect("as many as packets")));
    sender.xmit_batch(&mut batch)
}

#[test]
fn flows_take_turns() {
    let (mut dev, sent) = device(100);
    assert_eq!(send(&dev, &[1, 1, 1, 2, 3, 3]), Verdict::Success);
    assert_eq!(sent.try_iter().collect::<Vec<_>>(), [1, 2, 3, 1, 3, 1]);
    dev.audit().unwrap();
    dev.shutdown().unwrap();
}

#[test]
fn beyond_the_limit_the_fattest_flow_pays() {
    let (mut dev, sent) = device(4);
    // The last packet of flow 1 exceeds the limit of four, and so does each packet of flows 2 and 3. All dropped packets
    // are flow 1's.
    assert_eq!(send(&dev, &[1, 1, 1, 1, 1, 2, 3]), Verdict::Congested);
    assert_eq!(sent.try_iter().collect::<Vec<_>>(), [1, 2, 3, 1]);
    let stats = dev.audit().unwrap();
    assert_eq!((stats.sent, stats.dropped.get(DropReason::QdiscOverlimit)), (4, 3));
    let shown = dev.qdiscs(txq::tc::Style::default())[0].stats;
    assert_eq!((shown.packets, shown.bytes, shown.drops, shown.qlen, shown.backlog), (4, 400, 3, 0, 0));
    dev.shutdown().unwrap();
}

#[test]
fn codel_drops_after_an_interval_and_ever_faster() {
    let mut codel = Codel::default();
    let mut at = |now| codel.drops(2 * CODEL_TARGET, 2 * MTU, now);
    assert!(!at(1) && !at(CODEL_INTERVAL));
    assert!(at(CODEL_INTERVAL + 1));
    let drops: Vec<u64> =
        (CODEL_INTERVAL + 2..10 * CODEL_INTERVAL).step_by(1000).filter(|&now| at(now)).collect();
    let gaps: Vec<u64> = drops.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(gaps.len() > 10 && gaps.is_sorted_by(|a, b| a + 2000 > *b) && gaps[0] > 2 * gaps[10], "{gaps:?}");
    // Dropping ends as soon as a packet has not waited, or leaves little behind.
    assert!(!codel.drops(CODEL_TARGET - 1, 2 * MTU, 11 * CODEL_INTERVAL) && !codel.dropping);
    assert!(!codel.drops(2 * CODEL_TARGET, MTU, 11 * CODEL_INTERVAL) && codel.above_until == 0);
}
