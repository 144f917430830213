//! A sender without a buffer or credit reaps the packets that are complete before it waits (`sender/reclaim.rs`), if it may. No worker runs here, unless the test says so.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::device::{Wires, assert_conserved, pool};
use txq::netdev::{Builder, Completions};
use txq::pool::{AllocError, PoolConfig};
use txq::{Discipline, NetDev, Sender};

fn device(txqs: usize, how: impl FnOnce(Builder) -> Builder) -> (Wires, NetDev) {
    let wires = Wires::new(txqs, Some(64));
    let dev = built(&wires, how);
    (wires, dev)
}

fn built(wires: &Wires, how: impl FnOnce(Builder) -> Builder) -> NetDev {
    let builder = NetDev::builder(wires.clone()).pool_config(pool()).qdisc("pfifo").bql(None);
    how(builder).build().unwrap()
}

fn sender(dev: &NetDev, name: &str, limit: u64) -> Sender {
    let mut sender = dev.sender_on(name, 0);
    sender.set_limit(limit);
    sender
}

/// Sends `n` packets to the txqs by turns.
fn send(sender: &mut Sender, wires: &Wires, n: usize) {
    let txqs = wires.0.len() as u64;
    for txq in (0..txqs).cycle().take(n) {
        let mut packet = sender.alloc(60).unwrap();
        packet.set_hash(((txq << 32).div_ceil(txqs) as u32).max(1));
        let _ = sender.xmit(packet);
    }
}

fn complete(wires: &Wires, n: usize) {
    (0..wires.0.len()).for_each(|txq| wires.at(txq).complete(n));
}

fn polls(wires: &Wires) -> usize {
    (0..wires.0.len()).map(|txq| wires.at(txq).polls).sum()
}

/// Whichever threads reap, and whether the txqs have one queue or one each.
#[test]
fn a_lone_sender_gets_back_what_is_complete() {
    for completions in [Completions::Inline, Completions::Worker, Completions::PerQueue] {
        for &discipline in Discipline::ALL {
            for qdisc in ["pfifo", "mq", "noqueue"] {
                let (wires, dev) =
                    device(4, |builder| builder.qdisc(qdisc).completions(completions).discipline(discipline));
                let mut sender = sender(&dev, "s", 16);
                for _ in 0..3 {
                    send(&mut sender, &wires, 16);
                    complete(&wires, usize::MAX);
                    assert!(sender.alloc(60).is_ok(), "{completions:?}, {discipline}, {qdisc}");
                    assert_eq!((0..4).map(|txq| wires.at(txq).held()).sum::<usize>(), 0);
                }
                drop(sender);
                assert_eq!(assert_conserved(&dev).sent, 48);
            }
        }
    }
}

/// A pool without buffers is a reason, too.
#[test]
fn a_sender_without_a_limit_gets_back_buffers() {
    let (wires, dev) = device(1, |builder| {
        builder.pool_config(PoolConfig { buffers: 16, ..pool() }).completions(Completions::Worker)
    });
    let mut sender = dev.sender_on("s", 0);
    send(&mut sender, &wires, 16);
    complete(&wires, usize::MAX);
    assert!(sender.alloc(60).is_ok());
}

/// A call polls 16 txqs at most; the next call goes on with the others.
#[test]
fn many_txqs_are_polled_by_turns() {
    let (wires, dev) = device(20, |builder| builder.completions(Completions::Worker));
    let mut sender = sender(&dev, "s", 40);
    send(&mut sender, &wires, 40);
    complete(&wires, usize::MAX);
    send(&mut sender, &wires, 32);
    assert_eq!(polls(&wires), 16);
    assert!(sender.alloc(60).is_ok());
    assert!((0..20).all(|txq| wires.at(txq).polls > 0));
    complete(&wires, usize::MAX);
    let mut worker = dev.worker(0);
    worker.poll();
    drop(sender);
    assert_eq!(assert_conserved(&dev).sent, 72);
}

/// Where only the worker reaps otherwise, it leaves a txq to the sender that reaps, until the sender waits.
#[test]
fn the_worker_leaves_completions_to_a_sender_that_reaps() {
    let (wires, dev) = device(1, |builder| builder.completions(Completions::Worker));
    let (mut sender, mut worker) = (sender(&dev, "s", 16), dev.worker(0));
    send(&mut sender, &wires, 16);
    worker.poll();
    complete(&wires, usize::MAX);
    send(&mut sender, &wires, 16);
    assert_eq!(polls(&wires), 2, "the worker's and the sender's");
    complete(&wires, usize::MAX);
    worker.poll();
    assert_eq!(polls(&wires), 2);
    send(&mut sender, &wires, 16);
    assert_eq!(polls(&wires), 3);
    assert!(matches!(sender.alloc(60), Err(AllocError::Limit { .. })));
    let before = polls(&wires);
    complete(&wires, usize::MAX);
    worker.poll();
    assert!(sender.alloc(60).is_ok());
    assert_eq!(polls(&wires), before + 1, "the worker's");
    drop(sender);
    assert_eq!(assert_conserved(&dev).sent, 48);
}

/// A sender whose limit was lowered gets back some packets, which are too few: then the worker polls for the others.
#[test]
fn a_reap_that_does_not_suffice_makes_the_worker_poll() {
    let (wires, dev) = device(1, |builder| builder.completions(Completions::Worker));
    let (mut sender, mut worker) = (sender(&dev, "s", 16), dev.worker(0));
    send(&mut sender, &wires, 16);
    worker.poll();
    complete(&wires, 4);
    sender.set_limit(4);
    assert!(matches!(sender.alloc(60), Err(AllocError::Limit { .. })));
    assert_eq!((polls(&wires), wires.at(0).held()), (2, 12));
    complete(&wires, usize::MAX);
    worker.poll();
    assert_eq!(wires.at(0).held(), 0, "the worker does not leave them to the sender");
    assert!(sender.alloc(60).is_ok());
    drop(sender);
    assert_eq!(assert_conserved(&dev).sent, 16);
}

#[test]
fn a_sender_among_others_reaps_too() {
    let reapers = [Completions::Worker, Completions::PerQueue];
    for (qdisc, completions) in ["pfifo", "mq"].into_iter().flat_map(|qdisc| reapers.map(|by| (qdisc, by))) {
        let (wires, dev) = device(2, |builder| builder.qdisc(qdisc).completions(completions));
        let (mut ours, mut other) = (sender(&dev, "ours", 16), sender(&dev, "other", 64));
        send(&mut ours, &wires, 16);
        send(&mut other, &wires, 16);
        complete(&wires, usize::MAX);
        assert!(ours.alloc(60).is_ok(), "{qdisc}");
        drop((ours, other));
        assert_eq!(assert_conserved(&dev).sent, 32);
    }
}

/// Not if the driver or the program forbids it.
#[test]
fn a_sender_reaps_only_where_it_may() {
    let wires = Wires::new(1, Some(64));
    wires.at(0).worker_reaps = true;
    let forbidden = built(&wires, |builder| builder);
    let (others, as_before) =
        device(1, |builder| builder.completions(Completions::Worker).defer_completions(false));
    for (wires, dev) in [(wires, forbidden), (others, as_before)] {
        let (mut sender, mut worker) = (sender(&dev, "s", 16), dev.worker(0));
        send(&mut sender, &wires, 16);
        complete(&wires, usize::MAX);
        assert!(matches!(sender.alloc(60), Err(AllocError::Limit { .. })));
        assert_eq!(polls(&wires), 0);
        worker.poll();
        assert!(sender.alloc(60).is_ok());
    }
}

/// The poll is a driver's: it may panic, in the midst of an allocation.
#[test]
fn a_driver_panics_while_a_sender_reaps_for_want_of_credit() {
    for completions in [Completions::Inline, Completions::Worker] {
        let (wires, dev) = device(1, |builder| builder.completions(completions));
        let (mut sender, mut worker) = (sender(&dev, "s", 16), dev.worker(0));
        send(&mut sender, &wires, 16);
        complete(&wires, usize::MAX);
        wires.at(0).panic_in_poll = true;
        assert!(catch_unwind(AssertUnwindSafe(|| sender.alloc(60))).is_err());
        wires.at(0).panic_in_poll = false;
        worker.poll();
        send(&mut sender, &wires, 16);
        complete(&wires, usize::MAX);
        worker.poll();
        drop(sender);
        assert_eq!(assert_conserved(&dev).sent, 32);
    }
}
