//! The whole path over the null device, in each state into which the device can bring a txq.

mod common;

use common::{assert_conserved, pool};
use std::time::{Duration, Instant};
use txq::netdev::{Builder, Sampling};
use txq::packet::PacketList;
use txq::{Discipline, NetDev, Sender};
use txq_device::{EventFd, Null};

fn builder(null: Null) -> Builder {
    NetDev::builder(null).qdisc("pfifo limit 10000").pool_config(pool(20_000))
}

fn send(sender: &mut Sender, packets: usize) {
    let mut batch = PacketList::new();
    assert_eq!(sender.alloc_batch(packets, 60, &mut batch).unwrap(), packets);
    let _ = sender.xmit_batch(&mut batch);
}

/// Repeats an attempt until it was in time, because a busy machine makes some late.
fn in_time(what: &str, mut attempt: impl FnMut() -> bool) {
    assert!((0..100).any(|_| attempt()), "{what}: never in time");
}

/// No thread completes, so the ring fills and the txq stops; the worker's completions wake it until all packets have left.
#[test]
fn a_full_ring_stops_the_txq_and_completions_wake_it() {
    for &discipline in Discipline::ALL {
        let null = Null { ring: 16, inline: false, ..Null::new(1) };
        let dev = builder(null).discipline(discipline).build().unwrap();
        let (mut sender, mut worker) = (dev.sender("s"), dev.worker(0));
        send(&mut sender, 100);
        let stats = dev.audit().unwrap();
        assert_eq!((stats.sent, stats.queued, stats.in_flight), (16, 84, 16));
        assert!(stats.queues[0].stopped);
        assert_eq!(stats.queues[0].counters.stops, 1);
        // Each turn reaps a full ring and sends another.
        for turn in 1..=6 {
            let _ = worker.poll();
            assert_eq!(dev.audit().unwrap().sent, (16 * (turn + 1)).min(100), "{discipline}");
        }
        let _ = worker.poll();
        assert_eq!(assert_conserved(&dev).requeues, 0, "the driver never had to refuse");
    }
}

#[test]
fn a_worker_that_sleeps_is_woken_by_what_there_is_to_do() {
    let dev = builder(Null { ring: 8, inline: false, ..Null::new(3) }).qdisc("mq").xps(None).start().unwrap();
    let mut senders: Vec<_> = (0..3).map(|cpu| dev.sender_on("s", cpu)).collect();
    for round in 1..=50 {
        senders.iter_mut().for_each(|sender| send(sender, 20));
        assert_eq!(assert_conserved(&dev).sent, round * 60);
    }
}

#[test]
fn completions_come_after_their_delay() {
    const DELAY: Duration = Duration::from_millis(50);
    for inline in [true, false] {
        in_time("completions", || {
            let null = Null { delay: DELAY, inline, ..Null::new(1) };
            // All at once: this measures the delay, without a limit that begins at one packet.
            let dev = builder(null).bql(None).sampling(Sampling::All).start().unwrap();
            let mut sender = dev.sender("s");
            send(&mut sender, 10);
            assert_eq!((dev.stats().sent, dev.stats().in_flight), (10, 10));
            assert_conserved(&dev);
            let txq::netdev::Latencies { to_driver, to_completion, .. } = dev.latency();
            assert_eq!((to_driver.count(), to_completion.count()), (10, 10));
            let (first, last) = (to_completion.quantile(0.0).unwrap(), to_completion.max().unwrap());
            assert!(first >= DELAY, "{first:?}");
            to_driver.max().unwrap() < DELAY && last < 3 * DELAY
        });
    }
}

/// 1000 packets of 60 bytes plus 24 of the wire's at 10 Mbit/s take 67.2 ms, however the worker is scheduled meanwhile.
#[test]
fn a_links_rate_is_kept() {
    in_time("a full link", || {
        let null = Null { rate: Some(10_000_000), ring: 64, ..Null::new(1) };
        let dev = builder(null).start().unwrap();
        let mut sender = dev.sender("s");
        let began = Instant::now();
        send(&mut sender, 1000);
        assert_eq!(assert_conserved(&dev).sent, 1000);
        let took = began.elapsed();
        let exact = Duration::from_micros(67_200);
        assert!(took >= exact, "{took:?} is faster than the link");
        // The ring holds packets for 4 ms: on a busy machine the link idles while the worker waits for a CPU.
        took < exact * 3 / 2
    });
}

/// A program's own loop sleeps on an eventfd, until the time that the worker returned.
#[test]
fn an_own_loop_can_do_the_workers_work() {
    let dev = builder(Null { ring: 8, delay: Duration::from_micros(200), ..Null::new(1) }).build().unwrap();
    let (wake, mut worker) = (EventFd::new().unwrap(), dev.worker(0));
    worker.set_waker(wake.notifier());
    let mut sender = dev.sender("s");
    send(&mut sender, 100);
    assert!(wake.drain(), "there is something to do");
    let mut turns = 0;
    while !dev.is_idle() {
        let Some(next) = worker.poll() else { continue };
        std::thread::sleep(next - sender.now());
        turns += 1;
        assert!(turns < 2000, "the loop spins");
    }
    assert_eq!(assert_conserved(&dev).sent, 100);
}

/// A receiver keeps a stock of its sender's buffers. Once the device is idle, none of them counts as pending.
#[test]
fn buffers_that_a_sender_holds_are_not_pending_on_an_idle_device() {
    let null = Null { ring: 16, inline: false, ..Null::new(1) };
    let dev = builder(null).build().unwrap();
    let (mut sender, mut worker) = (dev.sender("s"), dev.worker(0));
    let (mut held, mut batch) = (PacketList::new(), PacketList::new());
    assert_eq!(sender.alloc_batch(32, 60, &mut held).unwrap(), 32);
    held.move_front(3, &mut batch);
    let _ = sender.xmit_batch(&mut batch);
    let row = dev.stats().senders.remove(0);
    assert_eq!((row.accepted, row.sent, row.pending), (3, 0, 3));
    let _ = worker.poll();
    let row = dev.audit().unwrap().senders.remove(0);
    assert_eq!((row.accepted, row.sent, row.pending), (3, 3, 0));
    send(&mut sender, 2);
    let row = dev.stats().senders.remove(0);
    assert_eq!((row.accepted, row.sent, row.pending), (5, 3, 2));
    drop(held);
}
