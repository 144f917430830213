//! Which thread reaps a txq's completions, in whatever order they arrive; and a txq that gets none.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::device::{Wires, assert_conserved, pool};
use txq::netdev::{Builder, Completions, TxTimeout};
use txq::packet::PacketList;
use txq::{Discipline, NetDev, Sender};

fn builder(wires: &Wires) -> Builder {
    NetDev::builder(wires.clone()).pool_config(pool()).default_qdisc("pfifo").bql(None)
}

/// Sends `n` packets to txq 0, or to the last one.
fn send(sender: &mut Sender, n: u64, last: bool) {
    let mut batch = PacketList::new();
    for cookie in 0..n {
        let mut packet = sender.alloc(60).unwrap();
        packet.set_cookie(cookie);
        packet.set_hash(if last { u32::MAX } else { 1 });
        batch.push_back(packet);
    }
    let _ = sender.xmit_batch(&mut batch);
}

/// Completes two packets, in either order; returns which of these reaped them: a sender that sends one more, worker 0,
/// worker 1.
fn who_reaps(completions: Completions, affinity: &[usize]) -> [bool; 3] {
    // Of so small a ring senders reap after each packet.
    let wires = Wires::new(2, Some(7));
    wires.at(1).reversed = true;
    let dev = builder(&wires).workers(2).affinity(affinity).completions(completions).build().unwrap();
    let mut sender = dev.sender("s");
    send(&mut sender, 3, true);
    let in_flight = || dev.stats().in_flight;
    wires.at(1).complete(2);
    send(&mut sender, 1, true);
    let by_sender = in_flight() < 4;
    let mut workers = [0, 1].map(|index| dev.worker(index));
    let mut reaped = [by_sender, false, false];
    for (worker, reaped) in workers.iter_mut().zip(&mut reaped[1..]) {
        wires.at(1).complete(1);
        let before = in_flight();
        worker.poll();
        *reaped = in_flight() < before;
    }
    // The rest is reaped when all of them poll.
    wires.at(1).complete(8);
    if completions == Completions::PerQueue {
        assert!(!reaped[1] && !reaped[2]);
        dev.completer(0).poll();
        assert!(in_flight() > 0, "that of another txq");
        dev.completer(1).poll();
    }
    for worker in &mut workers {
        worker.poll();
    }
    assert_eq!(assert_conserved(&dev).sent, 4);
    reaped
}

#[test]
fn completions_are_reaped_by_whom_they_are_given_to() {
    // The second worker finds the packets that the first one left.
    assert_eq!(who_reaps(Completions::Inline, &[0, 1]), [true, false, true]);
    assert_eq!(who_reaps(Completions::Inline, &[1, 0]), [true, true, false]);
    assert_eq!(who_reaps(Completions::Worker, &[0, 1]), [false, false, true]);
    assert_eq!(who_reaps(Completions::Worker, &[1, 0]), [false, true, false]);
    assert_eq!(who_reaps(Completions::PerQueue, &[0, 0]), [false, false, false]);
}

/// A device that keeps packets completes about one for each one that it gets. A sender reaps twice as many of them together after
/// each full poll, half as many after an empty one, and the rest is left to the worker.
#[test]
fn a_sender_reaps_more_packets_together_while_its_polls_are_full() {
    let wires = Wires::new(1, Some(64));
    let dev = builder(&wires).build().unwrap();
    let mut sender = dev.sender("s");
    let mut after = |complete| {
        wires.at(0).complete(complete);
        send(&mut sender, 1, false);
        dev.stats().in_flight
    };
    assert_eq!([0, 0, 0].map(&mut after), [1, 2, 3], "nothing is complete");
    assert_eq!([1, 1, 1].map(&mut after), [3, 4, 3], "one at the first poll, then two");
    assert_eq!([1, 1, 1, 1].map(&mut after), [4, 5, 6, 3], "then four");
    assert_eq!([0; 8].map(&mut after), [4, 5, 6, 7, 8, 9, 10, 11], "the eighth poll is in vain");
    assert_eq!([0, 0, 0, 9].map(&mut after), [12, 13, 14, 6], "so there are four between again");
    wires.at(0).complete(6);
    dev.worker(0).poll();
    assert_eq!(assert_conserved(&dev).in_flight, 0);
}

/// The completer wakes the txq, and the txq's worker runs its queue.
#[test]
fn a_completer_wakes_the_txq_and_its_worker_runs_it() {
    let wires = Wires::new(2, Some(4));
    let builder = builder(&wires).workers(2).affinity(&[1, 0]).completions(Completions::PerQueue);
    let dev = builder.build().unwrap();
    let mut sender = dev.sender("s");
    send(&mut sender, 8, false);
    assert!(dev.stats().queues[0].stopped);
    let (mut worker, mut completer) = (dev.worker(1), dev.completer(0));
    wires.at(0).complete(4);
    worker.poll();
    assert_eq!(dev.stats().sent, 4);
    completer.poll();
    assert!(!dev.stats().queues[0].stopped);
    dev.worker(0).poll();
    assert_eq!(dev.stats().sent, 4, "not its txq");
    worker.poll();
    assert_eq!(dev.stats().sent, 8);
    wires.at(0).complete(4);
    completer.poll();
    assert_conserved(&dev);
}

/// An owner that finds its txq stopped reaps, whichever thread is responsible: there is no interrupt, and the worker may
/// have no CPU. Where one queue serves several txqs, the owner reaps the one that holds up the others.
#[test]
fn an_owner_that_finds_its_txq_stopped_reaps() {
    for &discipline in Discipline::ALL {
        for completions in [Completions::Inline, Completions::Worker, Completions::PerQueue] {
            for qdisc in ["mq", "pfifo"] {
                let wires = Wires::new(2, Some(4));
                let builder = builder(&wires).qdisc(qdisc).completions(completions);
                let dev = builder.discipline(discipline).build().unwrap();
                let mut sender = dev.sender("s");
                send(&mut sender, 4, false);
                send(&mut sender, 1, false);
                let what = format!("{discipline}, {completions:?}, {qdisc}");
                assert_eq!(dev.stats().sent, 4, "{what}");
                assert!(dev.stats().queues[0].stopped, "{what}");
                wires.at(0).complete(4);
                send(&mut sender, 1, false);
                let stats = dev.stats();
                assert_eq!((stats.sent, stats.in_flight), (6, 2), "{what}");
                // Takes the scheduled run, which has nothing left to do.
                dev.worker(0).poll();
                wires.at(0).complete(2);
                match completions {
                    Completions::PerQueue => dev.completer(0).poll(),
                    _ => dev.worker(0).poll(),
                };
                assert_eq!(assert_conserved(&dev).sent, 6, "{what}");
            }
        }
    }
}

/// Behind a long queue a poll for each packet that arrives would take one completion and send one packet. The owner polls once
/// for some, and for each packet again once the queue is short.
#[test]
fn an_owner_leaves_a_long_queue_and_its_stopped_txq_for_some_packets() {
    let wires = Wires::new(1, Some(64));
    let dev = builder(&wires).build().unwrap();
    let mut sender = dev.sender("s");
    let mut sent_after = |complete, packets| {
        wires.at(0).complete(complete);
        send(&mut sender, packets, false);
        wires.at(0).sent().len()
    };
    assert_eq!(sent_after(0, 64), 64);
    assert_eq!(sent_after(0, 62), 64);
    assert_eq!(sent_after(16, 1), 80, "63 packets wait: the owner polls");
    assert_eq!(sent_after(16, 17), 80, "64 packets wait: 16 times it does not");
    assert!((1..16).all(|_| sent_after(1, 1) == 80));
    assert_eq!(sent_after(1, 1), 112, "then it takes all completions together");
    // No further packet arrives: the worker polls.
    let mut worker = dev.worker(0);
    while !dev.is_idle() {
        wires.at(0).complete(64);
        worker.poll();
    }
    assert_conserved(&dev);
}

#[test]
fn an_affinity_names_a_worker_for_each_txq() {
    let error = |affinity: &[usize]| {
        let builder = builder(&Wires::new(2, Some(4))).workers(2).affinity(affinity);
        builder.build().err().unwrap().to_string()
    };
    let text = "the affinity [0, 2] is not for 2 txqs and 2 workers: name a worker from 0 to 1 for each txq";
    assert_eq!(error(&[0, 2]), text);
    assert!(error(&[0]).starts_with("the affinity [0] is not for 2 txqs"));
}

/// Returns a device, and the list of its timeouts.
fn watched(wires: &Wires, timeo: Duration) -> (NetDev, Arc<Mutex<Vec<TxTimeout>>>) {
    let events = Arc::new(Mutex::new(Vec::new()));
    let told = events.clone();
    let builder = builder(wires).watchdog_timeo(Some(timeo));
    let dev = builder.on_tx_timeout(move |event| told.lock().unwrap().push(*event)).build().unwrap();
    (dev, events)
}

/// T44: a device that never completes. The txq is full and stopped; each period reports that once.
#[test]
fn a_txq_that_stands_still_times_out_once_a_period() {
    const TIMEO: Duration = Duration::from_millis(20);
    let wires = Wires::new(2, Some(4));
    let (dev, events) = watched(&wires, TIMEO);
    let (mut sender, mut worker) = (dev.sender("s"), dev.worker(0));
    // A txq that is in use and not stopped is not reported.
    send(&mut sender, 2, true);
    // The device announces no completion for ages; the worker polls nevertheless.
    wires.at(0).next = Some(txq::Instant::from_nanos(u64::MAX));
    wires.at(1).next = Some(txq::Instant::from_nanos(u64::MAX));
    send(&mut sender, 10, false);
    let began = Instant::now();
    while events.lock().unwrap().len() < 4 {
        assert!(worker.poll().is_some_and(|next| next <= sender.now() + TIMEO));
        std::thread::sleep(Duration::from_millis(1));
        let periods = began.elapsed().as_nanos() / TIMEO.as_nanos();
        assert!(events.lock().unwrap().len() as u128 <= periods, "more than one a period");
    }
    let told = events.lock().unwrap().clone();
    for (event, n) in told.iter().zip(1..) {
        assert_eq!((event.txq, event.in_flight, event.tx_timeout), (0, 4, n));
        assert!(event.stopped_for >= n as u32 * TIMEO);
    }
    let timeouts = |txq: usize| dev.stats().queues[txq].counters.tx_timeout;
    assert_eq!((timeouts(0), timeouts(1)), (4, 0));
    // The device recovers.
    wires.at(0).next = None;
    wires.at(1).complete(2);
    while !dev.is_idle() {
        wires.at(0).complete(4);
        worker.poll();
    }
    assert_conserved(&dev);
}

/// A txq that stays stopped but moves now and then is not reported: each completion begins a new period, and here one
/// arrives before each poll.
#[test]
fn a_txq_that_moves_does_not_time_out() {
    let wires = Wires::new(1, Some(64));
    let (dev, events) = watched(&wires, Duration::from_millis(2));
    let (mut sender, mut worker) = (dev.sender("s"), dev.worker(0));
    send(&mut sender, 100, false);
    // 16 free places would wake it.
    for _ in 0..15 {
        wires.at(0).complete(1);
        worker.poll();
        std::thread::sleep(Duration::from_millis(3));
    }
    assert!(dev.stats().queues[0].stopped);
    assert!(events.lock().unwrap().is_empty());
    while !dev.is_idle() {
        wires.at(0).complete(64);
        worker.poll();
    }
    assert_conserved(&dev);
}
