use std::io;
use std::sync::Mutex;

use txq_core::sync::lease::{Lease, tag};

use super::*;
use crate::datapath::CoreAccess;
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

/// Returns whether a sender that took a lease of its queue a moment ago, and then sends to these txqs, still counts as busy there.
fn stays_busy(qdisc: &str, txqs: &[u16]) -> bool {
    let dev = NetDev::builder(Sink).qdisc(qdisc).build().unwrap();
    let mut sender = dev.sender("sender");
    sender.cache.leases().turn_to(sender.dev.root_of(0));
    sender.cache.leases().took = sender.now();
    txqs.iter().for_each(|&txq| send_to(&mut sender, txq));
    sender.cache.leases().took > 0
}

fn send_to(sender: &mut Sender, txq: u16) {
    let mut batch = PacketList::new();
    batch.push_back(sender.packet(&[0; 60]).unwrap());
    let _verdict = sender.enter(txq, &mut batch);
}

fn send_to_both(sender: &mut Sender) {
    send_to(sender, 0);
    send_to(sender, 1);
}

#[test]
fn a_sender_that_leaves_a_queue_does_not_wait_for_its_lease() {
    assert!(stays_busy("mq", &[0, 0, 0]));
    assert!(!stays_busy("mq", &[0, 1, 0]));
    assert!(stays_busy("pfifo", &[0, 1, 0]), "one queue for both txqs");
}

/// Two senders that send to both queues of a device.
struct Alternating {
    next: Sender,
    last: Sender,
    _dev: NetDev,
}

impl Alternating {
    fn new(discipline: Discipline) -> Self {
        let dev = NetDev::builder(Sink).qdisc("mq").discipline(discipline).build().unwrap();
        let (mut next, mut last) = (dev.sender("next"), dev.sender("last"));
        send_to_both(&mut next);
        send_to_both(&mut last);
        Self { next, last, _dev: dev }
    }

    fn lease(&self) -> &Lease<Native> {
        &self.next.dev.lease.word
    }

    /// Sends a packet to each queue as a busy sender. The device's lease is the other one's until `end`.
    fn send_beside_the_lease(&mut self, end: Nanos) {
        self.lease().grant(tag(self.last.cache.id()), end);
        self.next.cache.leases().took = self.next.now();
        send_to_both(&mut self.next);
    }

    fn has_it(&self) -> bool {
        !self.lease().held().is_none() && self.lease().held().is_of(tag(self.next.cache.id()))
    }
}

#[test]
fn senders_that_alternate_between_queues_take_turns_for_all() {
    for &discipline in Discipline::ALL {
        let mut senders = Alternating::new(discipline);
        let end = senders.next.now() + 500_000;
        senders.send_beside_the_lease(end);
        assert!(senders.next.now() >= end - 1023 && senders.has_it(), "{discipline}");
        assert!(senders.next.has_leases() && !senders.last.has_leases(), "{discipline}");
        // It waits for a bounded time.
        let end = senders.next.now() + 60_000_000_000;
        senders.send_beside_the_lease(end);
        assert!(!senders.has_it(), "{discipline}");
        // One that stays at a queue does not wait for the others' turns: a wait would take the lease.
        (0..32).for_each(|_| send_to(&mut senders.next, 0));
        assert!(!senders.next.cache.alternates());
        let now = senders.next.now();
        senders.lease().grant(tag(senders.last.cache.id()), now);
        send_to(&mut senders.next, 0);
        assert!(!senders.has_it(), "{discipline}");
    }
}

/// Only the trial ends leases, and these senders meet in no other way.
#[test]
fn a_sender_that_takes_the_devices_lease_looks_at_its_trial() {
    for &discipline in Discipline::ALL {
        let mut senders = Alternating::new(discipline);
        until("leases never end", discipline, || {
            let now = senders.next.now();
            senders.send_beside_the_lease(now);
            std::mem::swap(&mut senders.next, &mut senders.last);
            senders.lease().held().is_none()
        });
    }
}

#[test]
fn leases_of_the_device_are_tried_where_senders_meet_at_several_queues() {
    for discipline in [Discipline::Busylock, Discipline::Spinlock] {
        let mut senders = Alternating::new(discipline);
        until("leases never begin", discipline, || {
            send_to_both(&mut senders.next);
            std::mem::swap(&mut senders.next, &mut senders.last);
            !senders.lease().held().is_none()
        });
        let roots = &senders.next.dev.roots;
        assert!(roots.iter().filter_map(|root| root.discipline.lease()).all(|lease| lease.held().is_none()));
    }
}

/// A device that keeps packets until it is polled: all of them, or, if it is slow, one at every second poll.
#[derive(Clone, Default)]
struct Keeper {
    kept: Arc<Mutex<PacketList>>,
    slow: bool,
    polls: u32,
}

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
        self.kept.lock().unwrap().append(batch);
        Status::Ok
    }
}

impl Complete for Keeper {
    fn poll(&mut self, _: usize, done: &mut PacketList, _: &mut Clock) -> Option<Nanos> {
        self.polls += 1;
        let mut kept = self.kept.lock().unwrap();
        match self.slow {
            false => done.append(&mut kept),
            true if self.polls.is_multiple_of(2) => {
                kept.pop_front().into_iter().for_each(|packet| done.push_back(packet))
            }
            true => {}
        }
        None
    }
}

/// Returns whether a sender at its limit gets a buffer, after another one has sent through its queue, too.
fn gets_a_buffer_among_others(discipline: Discipline, leased: bool, slow: bool) -> bool {
    let builder = NetDev::builder(Keeper { slow, ..Keeper::default() }).qdisc("pfifo").bql(None);
    // The program drives the worker, which does nothing here.
    let dev = builder.discipline(discipline).completions(Completions::Worker).build().unwrap();
    let (mut ours, mut other) = (dev.sender("ours"), dev.sender("other"));
    ours.set_limit(8);
    for sender in [&mut other, &mut ours] {
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
    for &discipline in Discipline::ALL {
        assert!(gets_a_buffer_among_others(discipline, true, false), "{discipline}");
        assert!(!gets_a_buffer_among_others(discipline, false, false), "{discipline}");
    }
}

#[test]
fn the_holder_of_the_lease_polls_until_its_packets_are_complete() {
    for &discipline in Discipline::ALL {
        // A poll may take long on a busy machine, and it polls for a bounded time.
        let got = (0..100).any(|_| gets_a_buffer_among_others(discipline, true, true));
        assert!(got, "{discipline}");
    }
}

/// A queue of two senders, and the sender that had its lease last.
struct Leased {
    next: Sender,
    last: Sender,
    shared: Arc<Shared<Native>>,
    _dev: NetDev,
}

impl Leased {
    fn new(discipline: Discipline) -> Self {
        let dev = NetDev::builder(Sink).qdisc("pfifo").discipline(discipline).build().unwrap();
        let (next, last) = (dev.sender("next"), dev.sender("last"));
        let shared = next.dev.clone();
        Self { next, last, shared, _dev: dev }
    }

    fn queue(&self) -> &dyn CoreAccess<Native> {
        &*self.shared.roots[self.shared.root_of(0)].discipline
    }

    fn lease(&self) -> &Lease<Native> {
        self.queue().lease().unwrap()
    }

    fn send(&mut self) {
        let packet = self.next.packet(&[0; 60]).unwrap();
        let _verdict = self.next.xmit(packet);
    }

    /// Sends a packet as a busy sender that finds the other one's lease over.
    fn send_after_the_lease(&mut self) {
        self.lease().grant(tag(self.last.cache.id()), self.next.now());
        self.next.cache.leases().turn_to(self.shared.root_of(0));
        self.next.cache.leases().took = self.next.now();
        self.send();
    }

    fn has_it(&self) -> bool {
        !self.lease().held().is_none() && self.lease().held().is_of(tag(self.next.cache.id()))
    }
}

/// Calls `step` until it returns true, which it must within a minute.
fn until(what: &str, discipline: Discipline, mut step: impl FnMut() -> bool) {
    let start = Native::now();
    while !step() {
        assert!(Native::now() < start + 60_000_000_000, "{discipline}: {what}");
    }
}

#[test]
fn a_lease_that_is_over_goes_to_the_next_sender() {
    for &discipline in Discipline::ALL {
        let mut queue = Leased::new(discipline);
        queue.send_after_the_lease();
        assert!(queue.has_it(), "{discipline}: {:?}", queue.lease().held());
    }
}

/// Only the trial ends leases, and these senders meet in no other way.
#[test]
fn a_sender_that_takes_the_lease_looks_at_the_trial() {
    for &discipline in Discipline::ALL {
        let mut queue = Leased::new(discipline);
        until("leases never end", discipline, || {
            queue.send_after_the_lease();
            std::mem::swap(&mut queue.next, &mut queue.last);
            queue.lease().held().is_none()
        });
    }
}

#[test]
fn leases_are_tried_where_senders_take_a_lock_by_turns() {
    for discipline in [Discipline::Busylock, Discipline::Spinlock] {
        let mut queue = Leased::new(discipline);
        until("leases never begin", discipline, || {
            queue.send();
            std::mem::swap(&mut queue.next, &mut queue.last);
            !queue.lease().held().is_none()
        });
        let mut alone = Leased::new(discipline);
        let start = alone.next.now();
        while alone.next.now() < start + 10_000_000 {
            alone.send();
            assert!(alone.lease().held().is_none(), "{discipline}: leases of a lone sender");
        }
    }
}
