use std::collections::VecDeque;
use std::sync::mpsc::{Receiver as Inbox, Sender as Outbox, channel};

use txq::NetDev;
use txq::driver::Link;
use txq::pool::PoolConfig;

use super::*;
use crate::Null;

/// How long a busy machine may take.
const LONG: Duration = Duration::from_secs(60);

/// What a call of the scripted receiver returns.
enum Step {
    Packets(usize),
    Error,
}

/// A receiver of the steps that a test hands in.
struct Script {
    steps: Inbox<Step>,
    next: VecDeque<Step>,
    stats: RxStats,
}

impl Script {
    fn make() -> (Outbox<Step>, Box<dyn Receive>) {
        let (hand, steps) = channel();
        (hand, Box::new(Self { steps, next: VecDeque::new(), stats: RxStats::default() }))
    }
}

impl Receive for Script {
    fn link(&self) -> Link {
        Link::Ethernet
    }

    fn receive(&mut self, budget: usize, sender: &mut Sender, batch: &mut PacketList) -> io::Result<usize> {
        self.next.extend(self.steps.try_iter());
        match self.next.pop_front() {
            None => Ok(0),
            Some(Step::Error) => Err(io::ErrorKind::NetworkDown.into()),
            Some(Step::Packets(n)) => {
                let before = batch.len();
                let _ = sender.alloc_batch(n.min(budget), 60, batch);
                let got = batch.len() - before;
                if got < n {
                    self.next.push_front(Step::Packets(n - got));
                }
                self.stats.received(got as u64, 60 * got as u64);
                Ok(got)
            }
        }
    }

    fn wait(&mut self, timeout: Option<Duration>) -> io::Result<bool> {
        if self.next.is_empty() {
            self.next.extend(self.steps.recv_timeout(timeout.unwrap()));
        }
        Ok(!self.next.is_empty())
    }

    fn stats(&self) -> RxStats {
        self.stats
    }
}

fn until(mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < LONG);
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn it_forwards_through_errors_and_another_receiver() {
    let dev = NetDev::builder(Null::new(1)).qdisc("pfifo").start().unwrap();
    let ((hand, receiver), errors) = (Script::make(), Arc::new(Mutex::new(0)));
    let seen = errors.clone();
    let hooks = Hooks::new()
        .on_batch(|batch| batch.for_each_mut(|packet| packet.set_priority(6)))
        .on_error(move |_| *lock(&seen) += 1);
    let forwarder = Forwarder::start("test", receiver, dev.sender("test"), hooks).unwrap();
    for step in [Step::Packets(3), Step::Error, Step::Error, Step::Packets(200), Step::Error] {
        hand.send(step).unwrap();
    }
    until(|| forwarder.stats().rx.packets == 203 && forwarder.stats().errors == 3);
    // Two of the three errors are consecutive.
    assert_eq!(*lock(&errors), 2);
    let (other, receiver) = Script::make();
    forwarder.replace(receiver);
    other.send(Step::Packets(5)).unwrap();
    until(|| forwarder.stats().rx.packets == 208);
    assert_eq!(forwarder.stats().rx.bytes, 208 * 60);
    // The old receiver is gone.
    assert!(hand.send(Step::Packets(1)).is_err());
    drop(forwarder);
    let stats = dev.audit().unwrap();
    assert_eq!(stats.accepted, 208);
}

/// Packets for which the sender has no buffer wait in the receiver, and come when buffers are free.
#[test]
fn packets_wait_for_buffers() {
    let pool = PoolConfig { buffers: 64, reserve: 0, ..PoolConfig::default() };
    let dev = NetDev::builder(Null::new(1)).qdisc("pfifo").pool_config(pool).start().unwrap();
    let mut all = PacketList::new();
    let mut other = dev.sender("other");
    while let Ok(packet) = other.alloc(1) {
        all.push_back(packet);
    }
    let (hand, receiver) = Script::make();
    let forwarder = Forwarder::start("test", receiver, dev.sender("test"), Hooks::new()).unwrap();
    hand.send(Step::Packets(10)).unwrap();
    until(|| forwarder.stats().starved > 0);
    assert_eq!(forwarder.stats().rx.packets, 0);
    drop(all);
    until(|| forwarder.stats().rx.packets == 10);
    drop((forwarder, other));
    assert_eq!(dev.audit().unwrap().accepted, 10);
}
