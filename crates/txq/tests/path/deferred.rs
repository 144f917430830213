//! Completions that a lone sender leaves to its next calls: how many, for which packets, and which thread finally reaps
//! them. Senders are made for one CPU: one that the scheduler moves reaps what it has deferred.

use std::time::{Duration, Instant};

use crate::device::{Wires, assert_conserved, pool};
use txq::netdev::{Builder, Completions, Sampling};
use txq::{Discipline, Flow, NetDev, Sender};

/// Returns a builder of a device that completes each packet at once.
fn builder(wires: &Wires) -> Builder {
    wires.at(0).prompt = true;
    NetDev::builder(wires.clone()).pool_config(pool()).qdisc("pfifo").bql(None)
}

pub(crate) fn device(ring: u32, how: impl FnOnce(Builder) -> Builder) -> (Wires, NetDev) {
    let wires = Wires::new(1, Some(ring));
    let dev = how(builder(&wires)).build().unwrap();
    (wires, dev)
}

pub(crate) fn send(sender: &mut Sender) {
    let packet = sender.alloc(60).unwrap();
    let _ = sender.xmit(packet);
}

/// Returns the largest number of packets that the device keeps after any of `calls` calls.
fn most_kept(dev: &NetDev, sender: &mut Sender, calls: u32) -> u64 {
    let kept = |_| {
        send(sender);
        dev.stats().in_flight
    };
    (0..calls).map(kept).max().unwrap()
}

#[test]
fn a_lone_sender_reaps_ever_more_packets_together_up_to_32() {
    for queue in ["pfifo", "pfifo_fast", "noqueue"] {
        for discipline in [Discipline::Combine, Discipline::Lockless] {
            let (_, dev) = device(256, |builder| builder.qdisc(queue).discipline(discipline));
            let mut sender = dev.sender_on("s", 0);
            let kept = [1, 2, 4, 8, 16, 32, 32].map(|calls| most_kept(&dev, &mut sender, calls));
            assert_eq!(kept, [0, 1, 3, 7, 15, 31, 31], "{queue}, {discipline}");
            drop(sender);
            assert_conserved(&dev);
        }
    }
}

/// A setting that makes a sender reap at once, and its name.
type Case = (&'static str, fn(Builder) -> Builder);

/// Where the sender's stock is not the only thing that waits for completions, each batch is reaped.
#[test]
fn what_others_wait_for_is_reaped_at_once() {
    let cases: [Case; 5] = [
        ("as the program says", |builder| builder.defer_completions(false)),
        ("sampled", |builder| builder.sampling(Sampling::All)),
        ("byte limits", |builder| builder.bql(Some(Default::default()))),
        ("the tx lock is taken", |builder| builder.discipline(Discipline::Spinlock)),
        ("the locks are taken", |builder| builder.tx_lock(true)),
    ];
    for (name, how) in cases {
        let (_, dev) = device(64, how);
        let mut sender = dev.sender_on("s", 0);
        assert_eq!(most_kept(&dev, &mut sender, 300), 0, "{name}");
    }
    let (_, dev) = device(64, |builder| builder.completions(Completions::Worker));
    let mut sender = dev.sender_on("s", 0);
    (0..60).for_each(|_| send(&mut sender));
    assert_eq!(dev.stats().in_flight, 60, "only the worker reaps");
}

/// A flow learns at once that none of its packets is outstanding, even while completions of packets without a flow are left.
#[test]
fn packets_of_a_flow_are_reaped_at_once() {
    let (_, dev) = device(64, |builder| builder);
    let (mut sender, mut flow) = (dev.sender_on("s", 0), Flow::new());
    for _ in 0..200 {
        send(&mut sender);
        let packet = sender.alloc(60).unwrap();
        let _ = sender.xmit_on(&mut flow, packet);
        assert_eq!((flow.outstanding(), dev.stats().in_flight), (0, 0));
    }
}

/// Completions of a device that is late are deferred no more, until a reap empties it.
#[test]
fn no_completion_of_a_late_device_is_deferred() {
    let (wires, dev) = device(64, |builder| builder);
    let mut sender = dev.sender_on("s", 0);
    assert_eq!(most_kept(&dev, &mut sender, 200), 31);
    wires.at(0).prompt = false;
    (0..32).for_each(|_| send(&mut sender));
    assert!(dev.stats().in_flight > 0);
    wires.at(0).prompt = true;
    // The next reap empties it, if packets are between.
    let emptied = (0..33).any(|_| {
        send(&mut sender);
        dev.stats().in_flight == 0
    });
    assert!(emptied);
    assert_eq!(most_kept(&dev, &mut sender, 200), 31);
}

/// Completions that were only left for later cause neither a sender's limit nor a lack of buffers.
#[test]
fn a_sender_that_finds_no_buffer_reaps_first() {
    let (_, dev) = device(64, |builder| builder);
    let mut sender = dev.sender_on("s", 0);
    sender.set_limit(8);
    (0..300).for_each(|_| send(&mut sender));
    assert_eq!(dev.stats().senders[0].at_limit, 0);
    let (_, dev) = device(64, |builder| builder.pool_config(txq::pool::PoolConfig { buffers: 8, ..pool() }));
    let mut sender = dev.sender_on("s", 0);
    (0..300).for_each(|_| send(&mut sender));
    assert_eq!(dev.stats().senders[0].no_buffer, 0);
}

#[test]
fn a_sender_that_ends_leaves_nothing() {
    let (_, dev) = device(64, |builder| builder);
    let mut sender = dev.sender_on("s", 0);
    (0..100).for_each(|_| send(&mut sender));
    assert!(dev.stats().in_flight > 0);
    drop(sender);
    assert_eq!(dev.stats().in_flight, 0);
}

/// When the sender sends no more, the worker reaps, and then has no reason to return.
#[test]
fn the_worker_reaps_when_the_sender_pauses() {
    let (_, dev) = device(64, |builder| builder);
    let (mut sender, mut worker) = (dev.sender_on("s", 0), dev.worker(0));
    for _ in 0..3 {
        (0..100).for_each(|_| send(&mut sender));
        assert!(dev.stats().in_flight > 0);
        assert!(worker.poll().is_some(), "the sender has reaped since");
        assert!(worker.poll().is_none(), "nothing has moved since");
        assert_eq!(dev.stats().in_flight, 0);
        assert_eq!([1, 2, 4].map(|calls| most_kept(&dev, &mut sender, calls)), [0, 1, 3], "it begins anew");
    }
}

/// The same with the device's own threads: the test does not poll.
#[test]
fn nothing_is_left_in_a_device_with_a_worker_of_its_own() {
    let wires = Wires::new(1, Some(64));
    let dev = builder(&wires).start().unwrap();
    let mut sender = dev.sender_on("s", 0);
    for _ in 0..5 {
        (0..150).for_each(|_| send(&mut sender));
        let start = Instant::now();
        while dev.stats().in_flight > 0 {
            assert!(start.elapsed() < Duration::from_secs(30), "completions are left for ever");
            std::thread::sleep(Duration::from_micros(200));
        }
    }
}

/// A device that replaces another starts without deferral, and so does one whose rule changes.
#[test]
fn a_device_that_is_replaced_begins_anew() {
    let (_, dev) = device(64, |builder| builder);
    let mut sender = dev.sender_on("s", 0);
    assert_eq!(most_kept(&dev, &mut sender, 200), 31);
    let other = Wires::new(1, Some(64));
    other.at(0).prompt = true;
    dev.replace_driver(other.clone()).unwrap();
    assert_eq!([1, 2, 4].map(|calls| most_kept(&dev, &mut sender, calls)), [0, 1, 3]);
    assert_eq!(most_kept(&dev, &mut sender, 200), 31);
    let mut worker = dev.worker(0);
    while worker.poll().is_some() {}
    assert_eq!(dev.stats().in_flight, 0);
    drop(sender);
    assert_conserved(&dev);
}
