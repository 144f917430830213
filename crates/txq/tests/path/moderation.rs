//! The time at which a worker polls a txq whose device keeps packets, and the events that wake the worker before that.

use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use crate::device::{Wires, assert_conserved};
use crate::whole::{builder, packets, poll_after_wait, sender_of};
use txq::{Discipline, Instant, NetDev, Sender, Worker};

/// A worker that waits until a device has completed half of its packets.
struct Waiting {
    wires: Wires,
    dev: NetDev,
    sender: Sender,
    worker: Worker,
    /// The worker's deadline.
    next: Option<Instant>,
    /// How often the worker was woken: once.
    wakes: Arc<AtomicU32>,
}

impl Waiting {
    fn new() -> Self {
        Self::under(Discipline::default())
    }

    fn under(discipline: Discipline) -> Self {
        let wires = Wires::new(1, Some(256));
        let dev = builder(&wires).qdisc("pfifo").discipline(discipline).build().unwrap();
        let (mut sender, mut worker) = (dev.sender("s"), dev.worker(0));
        let wakes = Arc::new(AtomicU32::new(0));
        let count = wakes.clone();
        worker.set_waker(move || {
            count.fetch_add(1, Relaxed);
        });
        let _ = sender.xmit_batch(&mut packets(&mut sender_of(&dev), 0..100));
        assert_eq!(wakes.load(Relaxed), 1);
        worker.poll();
        wires.at(0).complete(10);
        std::thread::sleep(Duration::from_millis(1));
        let next = worker.poll();
        assert_eq!(dev.stats().in_flight, 90);
        Self { wires, dev, sender, worker, next, wakes }
    }
}

/// A worker that ends before its poll leaves it to the next one, whose loop is woken.
#[test]
fn a_worker_that_ends_leaves_its_polls_to_the_next() {
    let Waiting { wires, dev, worker, wakes, .. } = Waiting::new();
    drop(worker);
    assert_eq!(wakes.load(Relaxed), 2);
    wires.at(0).complete(usize::MAX);
    let mut worker = dev.worker(0);
    worker.poll();
    worker.poll();
    assert_eq!(assert_conserved(&dev).sent, 100);
}

/// While the worker waits until the device has completed half of its packets, no sender wakes it, and it polls unasked.
#[test]
fn a_worker_that_waits_for_completions_is_not_woken_by_senders() {
    let Waiting { wires, dev, mut sender, mut worker, next, wakes } = Waiting::new();
    for cookie in 100..120 {
        let _ = sender.xmit_batch(&mut packets(&mut sender_of(&dev), cookie..cookie + 1));
    }
    assert_eq!(wakes.load(Relaxed), 1);
    assert!(
        next.is_some_and(|at| at <= Instant::now() + Duration::from_micros(100)),
        "the worker polls unasked"
    );
    wires.at(0).complete(usize::MAX);
    poll_after_wait(&mut worker);
    // A poll takes 64 packets, and the next follows at once.
    worker.poll();
    assert_eq!((assert_conserved(&dev).sent, wakes.load(Relaxed)), (120, 1));
    // A device that has completed all may get the next packet soon, so the worker polls again. Until then it is not woken.
    let _ = sender.xmit_batch(&mut packets(&mut sender_of(&dev), 120..121));
    assert_eq!(wakes.load(Relaxed), 1);
    wires.at(0).complete(1);
    poll_after_wait(&mut worker);
    assert_eq!(assert_conserved(&dev).sent, 121);
    // A poll that finds no packet completed since the last one ends the wait.
    poll_after_wait(&mut worker);
    let _ = sender.xmit_batch(&mut packets(&mut sender_of(&dev), 121..122));
    assert_eq!(wakes.load(Relaxed), 2);
    wires.at(0).complete(1);
    worker.poll();
    assert_eq!(assert_conserved(&dev).sent, 122);
}

/// A worker that leaves an empty device alone is woken when the ring is full: only its poll may wake the txq.
#[test]
fn a_worker_that_waits_for_packets_is_woken_by_a_txq_that_stops() {
    let Waiting { wires, dev, mut sender, mut worker, wakes, .. } = Waiting::new();
    wires.at(0).complete(usize::MAX);
    poll_after_wait(&mut worker);
    worker.poll();
    let ring = u64::from(wires.at(0).ring.unwrap());
    let _ = sender.xmit_batch(&mut packets(&mut sender_of(&dev), 100..100 + ring - 1));
    assert_eq!(wakes.load(Relaxed), 1);
    let _ = sender.xmit_batch(&mut packets(&mut sender_of(&dev), 1000..1010));
    assert_eq!((dev.stats().queues[0].stopped, wakes.load(Relaxed)), (true, 2));
    wires.at(0).complete(usize::MAX);
    // At once, whatever the time of the next poll.
    worker.poll();
    assert!(!dev.stats().queues[0].stopped);
}

/// Makes senders reap since the worker's last poll, completes 30 of 84 packets, and polls the worker after its deadline.
fn tended() -> Waiting {
    let mut waiting = Waiting::new();
    waiting.wires.at(0).complete(10);
    let _ = waiting.sender.xmit_batch(&mut packets(&mut sender_of(&waiting.dev), 100..104));
    assert_eq!(waiting.dev.stats().in_flight, 84, "the sender has reaped");
    waiting.wires.at(0).complete(30);
    std::thread::sleep(Duration::from_millis(1));
    waiting.next = waiting.worker.poll();
    waiting
}

/// Senders that reap need no worker: it leaves the device alone for a millisecond. It reaps when they have paused for that time.
#[test]
fn a_worker_leaves_a_device_to_senders_that_reap_until_they_pause() {
    let Waiting { dev, mut worker, next, .. } = tended();
    assert_eq!(dev.stats().in_flight, 84, "the worker has not reaped");
    assert!(next.is_some_and(|at| at <= Instant::now() + Duration::from_millis(1)), "it polls unasked");
    poll_after_wait(&mut worker);
    assert_eq!(dev.stats().in_flight, 54);
}

/// A sender without credit needs the worker, which leaves the device to the senders: it is woken, and polls at once. The next
/// failures find it at work.
#[test]
fn a_worker_that_leaves_a_device_to_senders_is_woken_by_one_that_lacks_credit() {
    let Waiting { wires, dev, mut sender, mut worker, wakes, .. } = tended();
    let _ = sender.xmit_batch(&mut packets(&mut sender_of(&dev), 200..203));
    sender.set_limit(1);
    let last = sender.alloc(60).unwrap();
    assert_eq!(wakes.load(Relaxed), 1);
    let _ = sender.xmit(last);
    assert_eq!(dev.stats().in_flight, 58, "the sender has reaped what was complete, with its fourth packet");
    wires.at(0).complete(7);
    for _ in 0..3 {
        assert!(sender.alloc(60).is_err());
        assert_eq!(wakes.load(Relaxed), 2);
    }
    worker.poll();
    assert_eq!(dev.stats().in_flight, 51);
    assert!(sender.alloc(60).is_err());
    assert_eq!(wakes.load(Relaxed), 2, "the worker polls unasked in time");
}

/// The worker's own runs of a queue complete packets, too. They do not make senders of it.
#[test]
fn a_worker_that_runs_queues_does_not_take_itself_for_a_sender() {
    let Waiting { wires, dev, mut sender, mut worker, .. } = Waiting::under(Discipline::Spinlock);
    let free = u64::from(wires.at(0).ring.unwrap()) - 90;
    let _ = sender.xmit_batch(&mut packets(&mut sender_of(&dev), 100..100 + free + 40));
    assert!(dev.stats().queues[0].stopped);
    // The poll takes 64 packets and wakes the txq. Then the worker runs the queue: its 40 packets leave, and it takes the rest.
    wires.at(0).complete(100);
    poll_after_wait(&mut worker);
    assert_eq!((dev.stats().in_flight, dev.stats().queued), (196, 0));
    wires.at(0).complete(20);
    poll_after_wait(&mut worker);
    assert_eq!(dev.stats().in_flight, 176);
}
