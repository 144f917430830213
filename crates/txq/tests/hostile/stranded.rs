//! A driver that panics over a lone sender's batch: the packets that it did not take are sent, though no other packet comes.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

use txq::driver::{DeviceInfo, Driver, DriverQueue, NoCompletions, Status, Transmit, TxCx};
use txq::packet::PacketList;
use txq::{Discipline, NetDev};

use crate::{bounded, packets, pool};

/// Panics in its first calls.
#[derive(Clone)]
struct Nervous(Arc<AtomicU32>);

impl Driver for Nervous {
    fn info(&self) -> DeviceInfo {
        DeviceInfo::new("nervous")
    }

    fn open(&mut self, _: u16) -> io::Result<DriverQueue> {
        Ok(DriverQueue { tx: Box::new(self.clone()), done: Box::new(NoCompletions), ring: None })
    }
}

impl Transmit for Nervous {
    fn start_xmit(&mut self, batch: &mut PacketList, cx: &mut TxCx<'_>) -> Status {
        if self.0.load(Relaxed) > 0 {
            self.0.fetch_sub(1, Relaxed);
            panic!("as told");
        }
        cx.sent_all(batch);
        Status::Ok
    }
}

#[test]
fn packets_that_a_panic_leaves_are_sent() {
    bounded(|| {
        for &discipline in Discipline::ALL {
            for qdisc in ["pfifo", "pfifo_fast", "prio", "fq_codel"] {
                for panics in [1, 2] {
                    let nervous = Nervous(Arc::new(AtomicU32::new(0)));
                    let builder = NetDev::builder(nervous.clone()).qdisc(qdisc).discipline(discipline);
                    let dev = builder.pool_config(pool()).start().expect("a device");
                    let mut sender = dev.sender("s");
                    // The first turn finds out that there is no crowd.
                    for n in 0..3 {
                        let _ = sender.xmit_batch(&mut packets(&mut dev.sender("its own"), n..n + 1));
                    }
                    assert!(dev.drain(Duration::from_secs(50)));
                    nervous.0.store(panics, Relaxed);
                    let mut batch = packets(&mut dev.sender("its own"), 3..8);
                    let caught = catch_unwind(AssertUnwindSafe(|| sender.xmit_batch(&mut batch)));
                    assert!(caught.is_err());
                    assert!(
                        dev.drain(Duration::from_secs(5)),
                        "{discipline} {qdisc} {panics}: {:?}",
                        dev.stats()
                    );
                    let stats = dev.audit().unwrap();
                    assert_eq!((stats.sent, stats.dropped.total()), (8 - u64::from(panics), panics.into()));
                }
            }
        }
    });
}
