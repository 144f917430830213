use std::io;
use std::sync::Mutex;

use txq_core::sync::lease::tag;

use super::*;
use crate::driver::{
    Clock, Complete, DeviceInfo, Driver, DriverQueue, NoCompletions, Status, Transmit, TxCx,
};
use crate::netdev::Completions;
use crate::{Discipline, NetDev};

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

/// A device that keeps packets until it is polled.
#[derive(Clone, Default)]
struct Keeper(Arc<Mutex<PacketList>>);

impl Driver for Keeper {
    fn info(&self) -> DeviceInfo {
        DeviceInfo::new("keeper")
    }

    fn open(&mut self, _: u16) -> io::Result<DriverQueue> {
        Ok(DriverQueue { tx: Box::new(self.clone()), done: Box::new(self.clone()), ring: Some(64) })
    }
}

impl Transmit for Keeper {
    fn start_xmit(&mut self, batch: &mut PacketList, _: &mut TxCx<'_>) -> Status {
        self.0.lock().unwrap().append(batch);
        Status::Ok
    }
}

impl Complete for Keeper {
    fn poll(&mut self, _: usize, done: &mut PacketList, _: &mut Clock) -> Option<Nanos> {
        done.append(&mut self.0.lock().unwrap());
        None
    }
}

/// Returns whether a sender at its limit gets a buffer, after others have sent through its queue, too.
fn gets_a_buffer_among_others(discipline: Discipline, leased: bool) -> bool {
    let builder = NetDev::builder(Keeper::default()).qdisc("pfifo").bql(None);
    let dev = builder.discipline(discipline).completions(Completions::Worker).build().unwrap();
    let (mut ours, mut other) = (dev.sender("ours"), dev.sender("other"));
    ours.set_limit(8);
    for sender in [&mut ours, &mut other] {
        for _ in 0..8 {
            let packet = sender.packet(&[0; 60]).unwrap();
            let _verdict = sender.xmit(packet);
        }
    }
    if let Some(lease) = ours.dev.roots[0].discipline.lease().filter(|_| leased) {
        lease.grant(tag(ours.cache.id()), ours.now() + 1_000_000_000);
    }
    ours.alloc(60).is_ok()
}

#[test]
fn the_holder_of_the_lease_reaps_at_its_limit() {
    for discipline in [Discipline::Combine, Discipline::Lockless, Discipline::Llist] {
        assert!(gets_a_buffer_among_others(discipline, true), "{discipline}");
        assert!(!gets_a_buffer_among_others(discipline, false), "{discipline}");
    }
    assert!(!gets_a_buffer_among_others(Discipline::Spinlock, true), "it has no lease");
}
