use std::io;

use super::*;
use crate::NetDev;
use crate::driver::{DeviceInfo, Driver, DriverQueue, NoCompletions, Status, Transmit, TxCx};

/// A device that sends at once.
struct Sink;

impl Driver for Sink {
    fn info(&self) -> DeviceInfo {
        DeviceInfo::new("sink").txqs(2)
    }

    fn open(&mut self, _: u16) -> io::Result<DriverQueue> {
        Ok(DriverQueue { tx: Box::new(Self), done: Box::new(NoCompletions), ring: None })
    }
}

impl Transmit for Sink {
    fn start_xmit(&mut self, batch: &mut PacketList, cx: &mut TxCx<'_>) -> Status {
        cx.sent_all(batch);
        Status::Ok
    }
}

/// Returns whether a sender that took a lease a moment ago, and then sends to these txqs, still counts as busy.
fn stays_busy(qdisc: &str, txqs: &[u16]) -> bool {
    let dev = NetDev::builder(Sink).qdisc(qdisc).build().unwrap();
    let mut sender = dev.sender("sender");
    sender.cache.leases().turn_to(sender.dev.root_of(0));
    sender.cache.leases().took = sender.now();
    for &txq in txqs {
        let mut batch = PacketList::new();
        batch.push_back(sender.packet(&[0; 60]).unwrap());
        let _verdict = sender.enter(txq, &mut batch);
    }
    sender.cache.leases().took > 0
}

#[test]
fn a_sender_that_leaves_a_queue_waits_for_no_lease() {
    assert!(stays_busy("mq", &[0, 0, 0]));
    assert!(!stays_busy("mq", &[0, 1, 0]));
    assert!(stays_busy("pfifo", &[0, 1, 0]), "one queue for both txqs");
}
