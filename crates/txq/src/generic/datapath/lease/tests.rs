use std::io;
use std::sync::atomic::AtomicBool;
use std::thread;

use txq_core::arch::Native;
use txq_core::packet::PacketList;

use super::*;
use crate::generic::driver::{DeviceInfo, Driver, DriverQueue, NoCompletions, Status, Transmit, TxCx};
use crate::generic::{Discipline, NetDev, Sender};

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

/// A device, and two senders of which the second has the turn.
struct Pair {
    dev: NetDev,
    next: Sender,
    holder: Sender,
}

impl Pair {
    fn new(qdisc: &str) -> Self {
        let dev = NetDev::builder(Sink).qdisc(qdisc).discipline(Discipline::Combine).build().unwrap();
        let [mut next, mut holder] = ["next", "holder"].map(|name| dev.sender_on(name, 0));
        for sender in [&mut next, &mut holder] {
            sender.assume_busy();
        }
        // The second one meets the first one, whose turn is over.
        send(&mut next);
        end_turn(&next);
        send(&mut holder);
        Self { dev, next, holder }
    }
}

fn send(sender: &mut Sender) {
    let packet = sender.packet(&[0; 60]).unwrap();
    let _verdict = sender.xmit(packet);
}

fn lease(sender: &Sender) -> &Lease<Native> {
    sender.datapath().lease.as_ref().unwrap()
}

/// Returns the sender's number if it has the turn.
fn has_turn(sender: &Sender) -> bool {
    PackedTurn(lease(sender).turn.load(Relaxed)).holder() == sender.number()
}

fn end_turn(sender: &Sender) {
    let turn = PackedTurn(lease(sender).turn.load(Relaxed));
    lease(sender).turn.store(PackedTurn::new(turn.holder(), Native::now()).0, Relaxed);
}

#[test]
fn a_turn_is_over_from_its_end_on() {
    for end in [5_000_000, (1 << 42) - 1024, 1 << 42, (1 << 57) + 1024] {
        let turn = PackedTurn::new(7, end);
        assert_eq!(turn.holder(), 7);
        // Also years later: a lone sender keeps its turn for as long as it sends.
        let later = [0, TURN_OF_SENDER, 1 << 41, 1 << 43, 1 << 56].map(|after| turn.is_over(end + after));
        assert!(later == [true; 5] && !turn.is_over(end - 1024), "{end}");
    }
}

#[test]
fn of_several_that_find_the_lease_free_one_takes_it() {
    let lease = Lease::<Native>::new();
    let free = PackedTurn(lease.turn.load(Relaxed));
    let taken = [1, 2, 3].map(|number| lease.take(free, number, 1000));
    assert_eq!(taken, [true, false, false]);
}

#[test]
fn a_busy_sender_that_meets_another_takes_a_free_lease_at_once() {
    let pair = Pair::new("pfifo");
    assert!(has_turn(&pair.holder) && !has_turn(&pair.next));
    assert_eq!(pair.dev.audit().unwrap().queued, 0);
}

#[test]
fn a_busy_sender_waits_for_the_end_of_a_turn() {
    let mut pair = Pair::new("pfifo");
    let turn = PackedTurn(lease(&pair.next).turn.load(Relaxed));
    send(&mut pair.next);
    assert!(has_turn(&pair.next) && turn.is_over(pair.next.now()));
}

#[test]
fn a_busy_sender_waits_for_the_end_of_a_turn_that_is_used() {
    let mut pair = Pair::new("pfifo");
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Relaxed) {
                send(&mut pair.holder);
            }
        });
        for _ in 0..20 {
            send(&mut pair.next);
            thread::yield_now();
            pair.next.assume_busy();
        }
        done.store(true, Relaxed);
    });
    let stats = pair.dev.audit().unwrap();
    assert_eq!((stats.queued, stats.dropped.total()), (0, 0));
}

#[test]
fn a_wait_is_bounded() {
    let mut pair = Pair::new("pfifo");
    let start = pair.next.now();
    let far = PackedTurn::new(pair.holder.number(), start + 3_600_000_000_000 / 2);
    lease(&pair.next).turn.store(far.0, Relaxed);
    send(&mut pair.next);
    assert!(!has_turn(&pair.next) && pair.next.now() >= start + LONGEST_TURN_WAIT);
    // It has handed its packet over.
    assert_eq!(pair.dev.audit().unwrap().queued, 0);
}

#[test]
fn a_sender_that_is_not_busy_does_not_wait() {
    let mut pair = Pair::new("pfifo");
    let mut light = pair.dev.sender_on("light", 0);
    for _ in 0..10 {
        send(&mut light);
    }
    assert!(has_turn(&pair.holder));
    // It has left no trace for the user of the queue.
    let before = pair.holder.pace_waited();
    send(&mut pair.holder);
    assert_eq!(pair.holder.pace_waited(), before);
}

#[test]
fn senders_that_meet_at_no_queue_do_not_wait() {
    let dev = NetDev::builder(Sink).qdisc("mq").discipline(Discipline::Combine).build().unwrap();
    let mut senders = [0, 1].map(|cpu| dev.sender_on("sender", cpu));
    for _ in 0..3 {
        for (txq, sender) in senders.iter_mut().enumerate() {
            sender.assume_busy();
            let mut batch = PacketList::new();
            batch.push_back(sender.packet(&[0; 60]).unwrap());
            let _verdict = sender.submit_to(txq as u16, &mut batch);
            // The first call of each takes the free lease, which the other one then has no need of.
            end_turn(sender);
        }
    }
    let before = senders.each_ref().map(Sender::pace_waited);
    for (txq, sender) in senders.iter_mut().enumerate() {
        let mut batch = PacketList::new();
        batch.push_back(sender.packet(&[0; 60]).unwrap());
        let _verdict = sender.submit_to(txq as u16, &mut batch);
    }
    assert_eq!(senders.each_ref().map(Sender::pace_waited), before);
}

/// A sender is busy if it hands in packets faster than a packet moves to another CPU.
#[test]
fn a_sender_knows_whether_it_is_busy() {
    let judge = |outside: Nanos, inside: Nanos, waited: Nanos| {
        let mut pace = SendWindows::new(0);
        let calls = u64::from(BUSY_WINDOW);
        pace.begin(1_000_000, 0);
        assert!(!pace.is_busy, "nothing is known before the first window");
        pace.inside = [inside; 2];
        pace.waited = waited;
        pace.begin(1_000_000 + waited + calls * (outside + inside), calls);
        pace.is_busy
    };
    assert!(judge(50, 100, 0) && judge(50, 5_000, 0));
    assert!(judge(50, 100, 3 * TURN_OF_SENDER), "a wait for its turn, a buffer or credit is no other work");
    assert!(!judge(HAND_OVER_COST, 100, 0) && !judge(1_000_000, 100, 0));
    // Of two calls that it has measured, a preemption made one long.
    let mut pace = SendWindows::new(0);
    (pace.packets, pace.inside) = (0, [3_000_000, 100]);
    pace.begin(1_000_000_000, 64);
    assert!(!pace.is_busy);
}

/// The work between a buffer's return and the next call is the application's.
#[test]
fn a_wait_for_a_buffer_ends_with_the_buffer() {
    let mut pair = Pair::new("pfifo");
    pair.next.set_limit(1);
    let held = pair.next.packet(&[0; 60]).unwrap();
    let before = pair.next.pace_waited();
    assert!(pair.next.packet(&[0; 60]).is_err());
    drop(held);
    assert!(pair.next.wait_credit(None));
    let waited = pair.next.pace_waited() - before;
    assert!(waited > 0);
    thread::sleep(std::time::Duration::from_millis(2));
    send(&mut pair.next);
    assert_eq!(pair.next.pace_waited() - before, waited);
}
