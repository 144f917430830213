//! A driver that panics while a sender hands over a batch for several txqs: the parts that are left go with the next call, and no
//! packet overtakes one of its own flow.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use txq::driver::{DeviceInfo, Driver, DriverQueue, NoCompletions, Status, Transmit, TxCx};
use txq::packet::PacketList;
use txq::{Discipline, NetDev};

use crate::{packets, pool};

/// Panics once, and keeps the cookies of what it sends after that.
#[derive(Clone, Default)]
struct Once(Arc<(AtomicBool, Mutex<Vec<u64>>)>);

impl Driver for Once {
    fn info(&self) -> DeviceInfo {
        DeviceInfo::new("once").txqs(8)
    }

    fn open(&mut self, _: u16) -> io::Result<DriverQueue> {
        Ok(DriverQueue::new(self.clone(), NoCompletions))
    }
}

impl Transmit for Once {
    fn start_xmit(&mut self, batch: &mut PacketList, cx: &mut TxCx<'_>) -> Status {
        assert!(self.0.0.swap(true, Relaxed), "the driver panics, as the test wants");
        self.0.1.lock().unwrap().extend(batch.iter().map(|packet| packet.cookie()));
        cx.sent_all(batch);
        Status::Ok
    }
}

#[test]
fn a_part_that_a_panic_leaves_is_not_overtaken() {
    let mqs = Discipline::ALL.iter().map(|&discipline| ("mq", discipline));
    for (root, discipline) in mqs.chain([("noqueue", Discipline::default())]) {
        let once = Once::default();
        let dev = NetDev::builder(once.clone()).qdisc(root).discipline(discipline).pool_config(pool());
        let dev = dev.xps(None).build().unwrap();
        let mut sender = dev.sender("s");
        // The cookie tells the flow and the number: flows 0 to 7, which go to several txqs.
        let batch = |sender: &mut txq::Sender, number| {
            let mut batch = packets(sender, 0..8);
            batch.for_each_mut(|packet| {
                packet.set_hash((packet.cookie() as u32 + 1) << 29 | 1);
                packet.set_cookie(packet.cookie() << 8 | number);
            });
            batch
        };
        let mut first = batch(&mut sender, 1);
        assert!(catch_unwind(AssertUnwindSafe(|| sender.xmit_batch(&mut first))).is_err(), "{root}");
        dev.steering().set_txqs(1).unwrap();
        let mut second = batch(&mut sender, 2);
        let _verdict = sender.xmit_batch(&mut second);
        drop(sender);
        let mut worker = dev.worker(0);
        for _ in 0..100 {
            worker.poll();
        }
        assert!(dev.drain(Duration::from_secs(10)), "{root}, {discipline}");
        let sent = once.0.1.lock().unwrap().clone();
        for flow in 0..8 {
            let numbers: Vec<u64> = sent.iter().filter(|&c| c >> 8 == flow).map(|c| c & 255).collect();
            assert!(numbers.is_sorted() && numbers.ends_with(&[2]), "{root}, {discipline}: {sent:x?}");
        }
        assert!(sent.len() > 9, "{root}, {discipline}: parts were left");
        dev.audit().unwrap_or_else(|wrong| panic!("{root}, {discipline}: {wrong}"));
    }
}
