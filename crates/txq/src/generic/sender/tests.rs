use std::io;
use std::sync::Mutex;

use txq_core::sync::lease::{Lease, tag};

use super::*;
use crate::generic::driver::{
    Clock, Complete, DeviceInfo, Driver, DriverQueue, NoCompletions, Status, Transmit, TxCx,
};
use crate::generic::netdev::Completions;
use crate::generic::{Discipline, NetDev};

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
    let _verdict = sender.submit(txq, &mut batch);
}

#[test]
fn a_sender_that_leaves_a_queue_does_not_wait_for_its_lease() {
    assert!(stays_busy("mq", &[0, 0, 0]));
    assert!(!stays_busy("mq", &[0, 1, 0]));
    assert!(stays_busy("pfifo", &[0, 1, 0]), "one queue for both txqs");
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

/// Two senders, of which the second had the lease last: that of their queue, or that of the device.
struct Leased {
    next: Sender,
    last: Sender,
    /// Whether they send to both queues of the device by turns.
    alternating: bool,
    /// What a failure names.
    what: String,
    _dev: NetDev,
}

impl Leased {
    fn new(discipline: Discipline, alternating: bool) -> Self {
        let qdisc = if alternating { "mq" } else { "pfifo" };
        let dev = NetDev::builder(Sink).qdisc(qdisc).discipline(discipline).build().unwrap();
        let (next, last) = (dev.sender("next"), dev.sender("last"));
        let what = format!("{discipline} under {qdisc}");
        let mut leased = Self { next, last, alternating, what, _dev: dev };
        leased.send();
        leased.swap();
        leased.send();
        leased.swap();
        leased
    }

    /// Returns a pair of each discipline and each kind of lease.
    fn all() -> impl Iterator<Item = Self> {
        let each = |discipline| [false, true].map(|alternating| Self::new(discipline, alternating));
        Discipline::ALL.iter().flat_map(move |&discipline| each(discipline))
    }

    fn swap(&mut self) {
        std::mem::swap(&mut self.next, &mut self.last);
    }

    fn lease_of_queue(&self) -> &Lease<Native> {
        let dev = &self.next.dev;
        dev.roots[dev.root_of(0)].discipline.lease().unwrap()
    }

    fn lease(&self) -> &Lease<Native> {
        if self.alternating { &self.next.dev.lease.word } else { self.lease_of_queue() }
    }

    fn send(&mut self) {
        send_to(&mut self.next, 0);
        if self.alternating {
            send_to(&mut self.next, 1);
        }
    }

    /// Sends as a busy sender. The lease is the other one's until `end`.
    fn send_beside_the_lease(&mut self, end: Nanos) {
        self.lease().grant(tag(self.last.cache.id()), end);
        self.next.cache.leases().took = self.next.now();
        self.send();
    }

    fn send_after_the_lease(&mut self) {
        self.send_beside_the_lease(self.next.now());
    }

    fn has_it(&self) -> bool {
        !self.lease().held().is_none() && self.lease().held().is_of(tag(self.next.cache.id()))
    }
}

/// Calls `step` until it returns true, which it must within a minute.
fn until(what: &str, mut step: impl FnMut() -> bool) {
    let start = Native::now();
    while !step() {
        assert!(Native::now() < start + 60_000_000_000, "{what}");
    }
}

#[test]
fn a_lease_that_is_over_goes_to_the_next_sender() {
    for mut pair in Leased::all() {
        pair.send_after_the_lease();
        assert!(pair.has_it(), "{}: {:?}", pair.what, pair.lease().held());
        assert!(pair.next.has_leases() && !pair.last.has_leases(), "{}", pair.what);
    }
}

#[test]
fn a_busy_sender_waits_for_the_lease_for_a_bounded_time() {
    for mut pair in Leased::all() {
        let end = pair.next.now() + 500_000;
        pair.send_beside_the_lease(end);
        assert!(pair.next.now() >= end - 1023 && pair.has_it(), "{}", pair.what);
        let end = pair.next.now() + 60_000_000_000;
        pair.send_beside_the_lease(end);
        assert!(!pair.has_it(), "{}", pair.what);
    }
}

#[test]
fn a_sender_that_stays_at_a_queue_does_not_wait_for_the_devices_lease() {
    for &discipline in Discipline::ALL {
        let mut pair = Leased::new(discipline, true);
        (0..32).for_each(|_| send_to(&mut pair.next, 0));
        assert!(!pair.next.cache.alternates());
        let now = pair.next.now();
        pair.lease().grant(tag(pair.last.cache.id()), now);
        send_to(&mut pair.next, 0);
        // A wait would take the lease.
        assert!(!pair.has_it(), "{discipline}");
    }
}

/// Only the trial ends leases, and these senders meet in no other way.
#[test]
fn a_sender_that_takes_the_lease_looks_at_the_trial() {
    for mut pair in Leased::all() {
        until(&format!("{}: leases never end", pair.what), || {
            pair.send_after_the_lease();
            pair.swap();
            pair.lease().held().is_none()
        });
    }
}

#[test]
fn leases_are_tried_where_senders_take_a_lock_by_turns() {
    for (discipline, alternating) in
        [Discipline::Busylock, Discipline::Spinlock].into_iter().flat_map(|d| [(d, false), (d, true)])
    {
        let mut pair = Leased::new(discipline, alternating);
        until(&format!("{}: leases never begin", pair.what), || {
            pair.send();
            pair.swap();
            !pair.lease().held().is_none()
        });
        assert!(
            !alternating || pair.lease_of_queue().held().is_none(),
            "{}: a lease of one queue",
            pair.what
        );
        let mut alone = Leased::new(discipline, alternating);
        let start = alone.next.now();
        while alone.next.now() < start + 10_000_000 {
            alone.send();
            assert!(alone.lease().held().is_none(), "{}: leases of a lone sender", alone.what);
        }
    }
}
