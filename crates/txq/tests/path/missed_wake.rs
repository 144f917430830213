//! A driver refuses until a completion, the completion arrives, and the worker answers the wake, all before the refused
//! packets are back in their queue: they must be sent nonetheless.

use std::io;
use std::sync::mpsc;
use std::time::Duration;

use txq::NetDev;
use txq::driver::{Clock, Complete, DeviceInfo, Driver, DriverQueue, Status, Transmit, TxCx};
use txq::packet::PacketList;
use txq::{Discipline, Instant};
use txq_core::sync::spsc::{Consumer, Producer, ring};

const RING: u32 = 64;
/// Number of packets that the first call takes: the remaining room is too small to wake the txq.
const TAKEN: usize = 56;

struct Refusing;
struct Tx {
    ring: Producer<txq_core::arch::Native, txq::packet::Packet>,
    calls: usize,
}
struct Done(Consumer<txq_core::arch::Native, txq::packet::Packet>);

impl Driver for Refusing {
    fn info(&self) -> DeviceInfo {
        DeviceInfo::new("refusing")
    }

    fn open(&mut self, _: u16) -> io::Result<DriverQueue> {
        let (tx, done) = ring(RING);
        let (tx, done) = (Tx { ring: tx, calls: 0 }, Done(done));
        Ok(DriverQueue::new(tx, done).ring(RING))
    }
}

impl Transmit for Tx {
    fn start_xmit(&mut self, batch: &mut PacketList, _: &mut TxCx<'_>) -> Status {
        self.calls += 1;
        let left = if self.calls == 1 { batch.len() - TAKEN } else { 0 };
        while batch.len() > left {
            let packet = batch.pop_front().expect("more than what is left");
            self.ring.push(packet).expect("the txq knows the ring's size");
        }
        self.ring.publish();
        if left > 0 { Status::Busy { retry: None } } else { Status::Ok }
    }
}

impl Complete for Done {
    fn poll(&mut self, budget: usize, done: &mut PacketList, _: &mut Clock) -> Option<Instant> {
        done.extend((0..budget).map_while(|_| self.0.pop()));
        self.0.publish();
        None
    }
}

#[test]
fn a_wake_that_comes_before_the_requeue_is_not_lost() {
    // At once, since the waker's thread ends by a timeout.
    std::thread::scope(|scope| {
        for &discipline in Discipline::ALL {
            scope.spawn(move || check(discipline));
        }
    });
}

fn check(discipline: Discipline) {
    let dev = NetDev::builder(Refusing).qdisc("pfifo").discipline(discipline).bql(None).build().unwrap();
    let mut sender = dev.sender("s");
    let mut worker = dev.worker(0);
    let (wake, woken) = mpsc::channel();
    // The waker is held up until the worker has answered.
    worker.set_waker(move || {
        let (answer, answered) = mpsc::channel();
        if wake.send(answer).is_ok() {
            let _ = answered.recv_timeout(Duration::from_millis(100));
        }
    });
    std::thread::scope(|scope| {
        let dev = &dev;
        scope.spawn(move || {
            while let Ok(answer) = woken.recv_timeout(Duration::from_millis(500)) {
                let _: mpsc::Sender<()> = answer;
                let _ = worker.poll();
                let _ = answer.send(());
            }
        });
        let mut batch = PacketList::new();
        assert_eq!(sender.alloc_batch(60, 60, &mut batch).unwrap(), 60);
        let _ = sender.xmit_batch(&mut batch);
        assert!(dev.drain(Duration::from_secs(5)), "{discipline}: nobody sends them: {:?}", dev.stats());
    });
    assert_eq!(dev.audit().unwrap().sent, 60);
}
