//! Frames to the kernel, also while interfaces go down and disappear.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use txq::NetDev;
use txq::drop::DropReason;
use txq::packet::PacketList;
use txq::pool::{Pool, PoolConfig};
use txq_device::AfXdpConfig;

use crate::support::process::wait_until;
use crate::support::receiver::Receiver;
use crate::{Bench, WITHIN, check_frames, config, counters, frame, send};

#[test]
fn one_and_two_queues_send_everything_in_order() {
    const EACH: u32 = 5000;
    let Some(bench) = Bench::new("one_and_two_queues_send_everything_in_order", 2) else { return };
    let mut sent = 0;
    for queues in [1, 2] {
        let receiver = Receiver::start(&bench.far, "rx0");
        let qdisc = if queues == 1 { "pfifo limit 100000" } else { "mq" };
        let dev = bench.start(config(queues), |b| b.qdisc(qdisc).default_qdisc("pfifo limit 100000"));
        thread::scope(|scope| {
            for id in 0..3_u8 {
                let mut sender = dev.sender(&format!("s{id}"));
                sender.set_limit(500);
                scope.spawn(move || send(&mut sender, id, 0..EACH));
            }
        });
        assert!(dev.drain(WITHIN), "packets do not leave: {:?}", dev.stats());
        let stats = dev.audit().unwrap();
        assert_eq!(stats.sent, u64::from(3 * EACH));
        sent += stats.sent;
        assert_eq!(counters(&bench.near)[0] - bench.before[0], sent);
        assert!(wait_until(WITHIN, || receiver.count() >= u64::from(3 * EACH)));
        let frames = receiver.finish();
        (0..3).for_each(|id| check_frames(&frames, id, 0..EACH));
        drop(dev);
        bench.check_pool();
    }
}

#[test]
fn an_interface_that_goes_down_fills_the_ring_and_loses_nothing() {
    let test = "an_interface_that_goes_down_fills_the_ring_and_loses_nothing";
    let Some(bench) = Bench::new(test, 1) else { return };
    let receiver = Receiver::start(&bench.far, "rx0");
    let ring = AfXdpConfig { ring: 64, ..config(1) };
    let dev = bench.start(ring, |b| b.qdisc("pfifo limit 1000"));
    let mut sender = dev.sender("s");
    send(&mut sender, 0, 0..100);
    assert_eq!(bench.check_idle(&dev), 100);
    bench.near.ip("link set tx0 down");
    send(&mut sender, 0, 100..400);
    thread::sleep(Duration::from_millis(50));
    let stats = dev.audit().unwrap();
    assert_eq!((stats.dropped.total(), stats.accepted), (0, 400));
    // The ring has 64 of them, and is full; the others are in the qdisc.
    assert_eq!(stats.sent + stats.queued, 400);
    assert!(stats.queued >= 236, "{stats:?}");
    bench.near.ip("link set tx0 up");
    assert_eq!(bench.check_idle(&dev), 400);
    assert!(wait_until(WITHIN, || receiver.count() >= 400));
    check_frames(&receiver.finish(), 0, 0..400);
    drop(sender);
    drop(dev);
    bench.check_pool();
}

#[test]
fn without_a_carrier_packets_wait_after_the_first() {
    let Some(bench) = Bench::new("without_a_carrier_packets_wait_after_the_first", 1) else { return };
    let dev = bench.start(config(1), |b| b.qdisc("pfifo limit 1000"));
    let mut sender = dev.sender("s");
    bench.far.ip("link set rx0 down");
    send(&mut sender, 0, 0..200);
    thread::sleep(Duration::from_millis(100));
    let dropped = counters(&bench.near)[2] - bench.before[2];
    assert!(dropped <= 2, "{dropped} are lost");
    bench.far.ip("link set rx0 up");
    assert!(dev.drain(WITHIN), "packets do not leave: {:?}", dev.stats());
    let now = counters(&bench.near);
    let [packets, _, dropped] = [0, 1, 2].map(|i| now[i] - bench.before[i]);
    assert_eq!((dev.audit().unwrap().sent, packets + dropped), (200, 200));
    assert!(dropped <= 2, "{dropped} are lost");
}

#[test]
fn an_interface_that_is_deleted_under_traffic_is_reported() {
    let Some(bench) = Bench::new("an_interface_that_is_deleted_under_traffic_is_reported", 2) else { return };
    let mut dev = bench.start(config(2), |b| b.qdisc("mq").default_qdisc("pfifo limit 10000"));
    let gone = AtomicBool::new(false);
    // If the deletion fails, the threads end nevertheless, and the test with them.
    let end = Instant::now() + Duration::from_secs(60);
    thread::scope(|scope| {
        for id in 0..2_u8 {
            let mut sender = dev.sender(&format!("s{id}"));
            sender.set_limit(500);
            let gone = &gone;
            scope.spawn(move || {
                for number in (0..).step_by(50) {
                    let last = gone.load(Relaxed) || Instant::now() > end;
                    send(&mut sender, id, number..number + 50);
                    if last {
                        break;
                    }
                }
            });
        }
        let sends = wait_until(WITHIN, || dev.stats().sent > 0);
        bench.near.ip("link del tx0");
        gone.store(true, Relaxed);
        assert!(sends, "nothing is sent: {:?}", dev.stats());
    });
    assert!(dev.drain(WITHIN), "packets do not leave: {:?}", dev.stats());
    let stats = dev.audit().unwrap();
    assert!(stats.sent > 0 && stats.dropped.get(DropReason::DevReady) > 0, "{stats:?}");
    let told = dev.shutdown().unwrap_err().to_string();
    assert!(told.contains("of interface \"tx0\" is gone: its packets are dropped ("), "{told}");
    drop(dev);
    bench.check_pool();
}

#[test]
fn an_interface_that_is_deleted_while_idle_drops_packets() {
    let Some(bench) = Bench::new("an_interface_that_is_deleted_while_idle_drops_packets", 1) else { return };
    let mut dev = bench.start(config(1), |b| b.qdisc("pfifo limit 1000"));
    let mut sender = dev.sender("s");
    send(&mut sender, 0, 0..10);
    assert_eq!(bench.check_idle(&dev), 10);
    bench.near.ip("link del tx0");
    send(&mut sender, 0, 10..30);
    assert!(dev.drain(WITHIN));
    let stats = dev.audit().unwrap();
    assert_eq!((stats.sent, stats.dropped.get(DropReason::DevReady)), (10, 20));
    let told = dev.shutdown().unwrap_err().to_string();
    assert!(told.starts_with("queue 0 of interface \"tx0\" is gone: its packets are dropped ("), "{told}");
    dev.shutdown().unwrap();
}

#[test]
fn packets_in_the_ring_return_to_the_pool_when_the_device_ends() {
    let test = "packets_in_the_ring_return_to_the_pool_when_the_device_ends";
    let Some(bench) = Bench::new(test, 1) else { return };
    bench.near.ip("link set tx0 down");
    let dev = bench.start(config(1), |b| b.qdisc("pfifo limit 1000"));
    let mut sender = dev.sender("s");
    send(&mut sender, 0, 0..500);
    assert!(bench.pool.in_use().values().sum::<usize>() == 500 || cfg!(not(debug_assertions)));
    drop(sender);
    drop(dev);
    bench.check_pool();
}

#[test]
fn packets_of_another_pool_are_copied() {
    let Some(bench) = Bench::new("packets_of_another_pool_are_copied", 1) else { return };
    let receiver = Receiver::start(&bench.far, "rx0");
    let other = Pool::new(&PoolConfig { buffers: 2000, ..PoolConfig::default() }).unwrap();
    let device = bench.open(AfXdpConfig { ring: 128, ..config(1) });
    let dev = NetDev::builder(device).pool(other.clone()).qdisc("pfifo limit 10000").start().unwrap();
    let mut sender = dev.sender("s");
    sender.set_limit(500);
    send(&mut sender, 0, 0..3000);
    assert_eq!(bench.check_idle(&dev), 3000);
    assert!(wait_until(WITHIN, || receiver.count() >= 3000));
    check_frames(&receiver.finish(), 0, 0..3000);
    bench.near.ip("link set tx0 down");
    send(&mut sender, 0, 0..200);
    drop(sender);
    drop(dev);
    assert_eq!(other.in_use(), BTreeMap::new());
    bench.check_pool();
}

#[test]
fn frames_that_cannot_be_sent_are_dropped_and_the_others_go() {
    let test = "frames_that_cannot_be_sent_are_dropped_and_the_others_go";
    let Some(bench) = Bench::new(test, 1) else { return };
    let receiver = Receiver::start(&bench.far, "rx0");
    let dev = bench.start(config(1), |b| b.qdisc("pfifo limit 1000"));
    assert_eq!((dev.info().mtu, dev.info().name.as_str()), (1500, "tx0"));
    let mut sender = dev.sender("s");
    let mut batch = PacketList::new();
    for (number, len) in (0..).zip([60, 1800, 1514, 5, 0, 60, 1515, 14]) {
        batch.push_back(sender.packet(&frame(0, number, len)).unwrap());
    }
    let _ = sender.xmit_batch(&mut batch);
    assert_eq!(bench.check_idle(&dev), 4);
    let stats = dev.stats();
    let dropped = [DropReason::PktTooBig, DropReason::HdrTrunc].map(|reason| stats.dropped.get(reason));
    assert_eq!(dropped, [2, 2]);
    assert!(wait_until(WITHIN, || receiver.count() >= 4));
    let lengths: Vec<usize> = receiver.finish().iter().map(Vec::len).collect();
    assert_eq!(lengths, [60, 1514, 60, 14]);
}
