//! combine's owner enqueues no more than it sends: a flood that fills the list costs it nothing.

use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use txq::driver::{DeviceInfo, Driver, DriverQueue, NoCompletions, Status, Transmit, TxCx};
use txq::packet::{Packet, PacketList};
use txq::qdisc::{Budget, Cx, Qdisc, Shortcuts, Verdict};
use txq::stats::QdiscStats;
use txq::{Discipline, NetDev};

use crate::device::assert_conserved;

/// The packets of a turn, which are also those of a portion.
const QUOTA: usize = 64;

/// A FIFO that notes how many packets it gets in a row.
struct Runs {
    queue: PacketList,
    run: usize,
    longest: Arc<AtomicUsize>,
}

impl Qdisc for Runs {
    fn kind(&self) -> &'static str {
        "runs"
    }

    fn enqueue(&mut self, packet: Packet, _: &mut Cx<'_>) -> Verdict {
        self.run += 1;
        self.longest.fetch_max(self.run, Relaxed);
        self.queue.push_back(packet);
        Verdict::Success
    }

    fn dequeue_batch(&mut self, budget: Budget, out: &mut PacketList, _: &mut Cx<'_>) {
        self.run = 0;
        self.queue.move_front(budget.packets, out);
    }

    fn reset(&mut self, cx: &mut Cx<'_>) {
        while let Some(packet) = self.queue.pop_front() {
            cx.drop(packet, txq::drop::DropReason::QueuePurge);
        }
    }

    fn qlen(&self) -> usize {
        self.queue.len()
    }

    fn stats(&self) -> QdiscStats {
        QdiscStats { qlen: self.queue.len() as u64, ..QdiscStats::default() }
    }
}

impl Shortcuts for Runs {}

/// A driver that takes a millisecond for each call, and checks the order of each sender's packets.
#[derive(Clone, Default)]
struct Slow(Arc<Mutex<HashMap<u64, u64>>>);

impl Driver for Slow {
    fn info(&self) -> DeviceInfo {
        DeviceInfo::new("slow")
    }

    fn open(&mut self, _: u16) -> io::Result<DriverQueue> {
        Ok(DriverQueue::new(self.clone(), NoCompletions))
    }
}

impl Transmit for Slow {
    fn start_xmit(&mut self, batch: &mut PacketList, cx: &mut TxCx<'_>) -> Status {
        thread::sleep(Duration::from_millis(1));
        let mut last = self.0.lock().unwrap();
        for packet in batch.iter() {
            let (sender, n) = (packet.cookie() >> 32, packet.cookie() & 0xffff_ffff);
            let before = last.insert(sender, n);
            assert!(before.is_none_or(|before| before < n), "sender {sender}: {n} after {before:?}");
        }
        cx.sent_all(batch);
        Status::Ok
    }
}

#[test]
fn an_owner_before_a_slow_driver_enqueues_as_much_as_it_sends() {
    const BATCH: usize = 8;
    let longest = Arc::new(AtomicUsize::new(0));
    let qdisc = Runs { queue: PacketList::new(), run: 0, longest: longest.clone() };
    let builder = NetDev::builder(Slow::default()).custom_qdisc(qdisc).discipline(Discipline::Combine);
    let dev = builder.start().unwrap();
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        for who in 0..4 {
            let (mut sender, done) = (dev.sender("s"), &done);
            sender.set_limit(500);
            scope.spawn(move || {
                let mut cookies = who << 32..;
                while !done.load(Relaxed) {
                    let mut batch = PacketList::new();
                    for _ in 0..BATCH {
                        let Ok(mut packet) = sender.alloc(60) else { break };
                        packet.set_cookie(cookies.next().unwrap());
                        batch.push_back(packet);
                    }
                    let _ = sender.xmit_batch(&mut batch);
                    sender.wait_credit(Some(sender.now() + Duration::from_millis(1)));
                }
            });
        }
        let start = Instant::now();
        while dev.tx_packets() < 3000 && start.elapsed() < Duration::from_secs(60) {
            thread::sleep(Duration::from_millis(5));
        }
        done.store(true, Relaxed);
    });
    assert!(dev.drain(Duration::from_secs(60)));
    let longest = longest.load(Relaxed);
    assert!(
        dev.tx_packets() >= 3000 && longest > BATCH,
        "at most {longest} packets in a row: no list was long"
    );
    // Whole batches are enqueued.
    assert!(longest < QUOTA + BATCH, "{longest} packets were enqueued in a row");
    assert_conserved(&dev);
}
