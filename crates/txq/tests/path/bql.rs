//! Byte queue limits on a device that completes when the test says so: when txqs stop and wake, and which bytes count.

use std::thread::sleep;
use std::time::Duration;

use crate::device::{Wires, assert_conserved, pool};
use txq::bql::{Attr, BqlConfig, BqlState};
use txq::netdev::Builder;
use txq::packet::PacketList;
use txq::pool::PoolConfig;
use txq::qdisc::Verdict;
use txq::{Discipline, NetDev, Sender};

/// Returns a limit that does not change.
fn fixed(limit: u32) -> Option<BqlConfig> {
    Some(BqlConfig { limit, limit_min: limit, limit_max: limit, ..BqlConfig::default() })
}

fn builder(wires: &Wires) -> Builder {
    NetDev::builder(wires.clone()).pool_config(pool()).qdisc("pfifo limit 100000")
}

/// Returns packets of `len` bytes with the cookies `from..to`.
fn packets(sender: &mut Sender, len: usize, cookies: std::ops::Range<u64>) -> PacketList {
    let one = |cookie| {
        let mut packet = sender.alloc(len).unwrap();
        packet.set_cookie(cookie);
        packet
    };
    cookies.map(one).collect()
}

fn send(dev: &NetDev, sender: &mut Sender, len: usize, cookies: std::ops::Range<u64>) -> Verdict {
    let mut batch = packets(&mut dev.sender("other"), len, cookies);
    sender.xmit_batch(&mut batch)
}

fn bql(dev: &NetDev) -> BqlState {
    dev.stats().queues[0].bql.expect("the device keeps packets")
}

fn disciplines(test: impl Fn(Discipline)) {
    Discipline::ALL.iter().copied().for_each(test);
}

/// T04: without a byte limit the quota bounds a batch. A long backlog is not handed over in one piece, which the ring could
/// not take, so that it would be requeued.
#[test]
fn a_long_backlog_leaves_in_batches_of_the_quota_at_most() {
    const BACKLOG: u64 = 10_000;
    disciplines(|discipline| {
        for ring in [64, 128, 100, 8] {
            let wires = Wires::new(1, Some(ring));
            let unlimited = BqlConfig { limit_min: 1_879_048_192, ..BqlConfig::default() };
            let dev = builder(&wires)
                .pool_config(PoolConfig { buffers: 16384, ..pool() })
                .bql(Some(unlimited))
                .discipline(discipline)
                .build()
                .unwrap();
            let (mut sender, mut worker) = (dev.sender("s"), dev.worker(0));
            let _ = send(&dev, &mut sender, 60, 0..BACKLOG);
            while !dev.is_idle() {
                // Not all, so that the ring is in turn full, nearly full and half empty.
                wires.at(0).complete(ring as usize * 2 / 3);
                worker.poll();
            }
            let longest = wires.at(0).batches.iter().map(Vec::len).max().unwrap();
            assert!(longest <= 64, "{discipline}, ring {ring}: a batch of {longest}");
            assert!(longest >= (ring as usize * 2 / 3).min(64), "{discipline}, ring {ring}: in small pieces");
            assert_eq!(wires.at(0).sent(), (0..BACKLOG).collect::<Vec<_>>());
            assert_eq!(assert_conserved(&dev).requeues, 0);
        }
    });
}

/// The last packet of a batch may go over the limit; then the txq stops until the bytes are within it again.
#[test]
fn bytes_over_the_limit_stop_the_txq_and_completions_wake_it() {
    disciplines(|discipline| {
        let wires = Wires::new(1, Some(64));
        let dev = builder(&wires).bql(fixed(500)).discipline(discipline).build().unwrap();
        let (mut sender, mut worker) = (dev.sender("s"), dev.worker(0));
        let _ = send(&dev, &mut sender, 200, 0..10);
        assert_eq!(wires.at(0).batches, [vec![0, 1, 2]], "500, 300, 100, and none is left");
        let stats = dev.stats();
        assert!(stats.queues[0].stopped);
        assert_eq!((stats.queued, bql(&dev).inflight, stats.queues[0].counters.stops), (7, 600, 1));
        // 400 bytes are within the limit: one more packet is sent.
        wires.at(0).complete(1);
        worker.poll();
        assert_eq!(wires.at(0).sent(), (0..4).collect::<Vec<_>>());
        assert_eq!(bql(&dev).inflight, 600);
        while !dev.is_idle() {
            wires.at(0).complete(2);
            worker.poll();
        }
        assert_eq!(wires.at(0).sent(), (0..10).collect::<Vec<_>>());
        let stats = assert_conserved(&dev);
        assert_eq!((stats.requeues, bql(&dev).inflight, stats.queues[0].stopped), (0, 0, false));
    });
}

/// A lone packet that finds the queue empty stops the txq as well.
#[test]
fn a_packet_that_passes_the_qdisc_counts_too() {
    let wires = Wires::new(1, Some(64));
    let dev = builder(&wires).bql(fixed(0)).build().unwrap();
    let mut sender = dev.sender("s");
    let _ = send(&dev, &mut sender, 60, 0..1);
    let _ = send(&dev, &mut sender, 60, 1..2);
    assert_eq!((wires.at(0).sent(), dev.stats().queued), (vec![0], 1));
    wires.at(0).complete(1);
    dev.worker(0).poll();
    assert_eq!(wires.at(0).sent(), [0, 1]);
    wires.at(0).complete(1);
    dev.worker(0).poll();
    assert_conserved(&dev);
}

/// The limit starts at 0 and grows while the device runs empty over it; after some rounds it suffices.
#[test]
fn the_limit_grows_to_what_the_device_sends_between_two_completions() {
    let wires = Wires::new(1, Some(1024));
    let dev = builder(&wires).build().unwrap();
    let (mut sender, mut worker) = (dev.sender("s"), dev.worker(0));
    assert_eq!(bql(&dev).limit, 0);
    let _ = send(&dev, &mut sender, 100, 0..2000);
    while !dev.is_idle() {
        wires.at(0).complete(usize::MAX);
        worker.poll();
    }
    let batches: Vec<_> = wires.at(0).batches.iter().map(Vec::len).collect();
    assert_eq!(batches[0], 1, "nothing is known yet");
    assert!(batches.contains(&64), "{batches:?}");
    assert!(batches.len() < 100, "{batches:?}");
    assert!(bql(&dev).limit >= 6400 && bql(&dev).limit < 40_000, "{:?}", bql(&dev));
    assert_conserved(&dev);
}

/// All packets that are complete at a time are one completion, though a driver returns 64 packets per poll: the limit grows
/// beyond the packets of a few polls.
#[test]
fn the_limit_grows_beyond_the_budget_of_a_poll() {
    const PACKETS: u64 = 6000;
    disciplines(|discipline| {
        let wires = Wires::new(1, Some(1024));
        let config = PoolConfig { buffers: 16384, ..pool() };
        let dev = builder(&wires).pool_config(config).discipline(discipline).build().unwrap();
        let (mut sender, mut worker) = (dev.sender("s"), dev.worker(0));
        let _ = send(&dev, &mut sender, 100, 0..PACKETS);
        let mut most = 0;
        while !dev.is_idle() {
            // An interrupt arrives, and the queue runs until the txq stops or the queue is empty.
            wires.at(0).complete(usize::MAX);
            let batches = || wires.at(0).batches.len();
            let mut before = usize::MAX;
            while before != batches() {
                before = batches();
                worker.poll();
            }
            most = most.max(dev.stats().in_flight);
        }
        assert!(most > 500, "{discipline}: never more than {most} packets in flight");
        assert_eq!(wires.at(0).sent().len() as u64, PACKETS);
        assert_conserved(&dev);
    });
}

/// Bytes that the driver refuses, drops, or loses in a panic are not in flight.
#[test]
fn only_what_the_driver_keeps_is_in_flight() {
    disciplines(|discipline| {
        let wires = Wires::new(1, Some(64));
        let dev = builder(&wires).bql(fixed(10_000)).discipline(discipline).build().unwrap();
        let (mut sender, mut worker) = (dev.sender("s"), dev.worker(0));
        wires.at(0).busy = 1;
        let _ = send(&dev, &mut sender, 100, 0..5);
        assert_eq!((bql(&dev).inflight, dev.stats().queued), (0, 5), "refused");
        worker.poll();
        assert_eq!((bql(&dev).inflight, dev.stats().queued), (500, 0));
        wires.at(0).longest = Some(100);
        let mut mixed = packets(&mut dev.sender("other"), 100, 5..6);
        mixed.append(&mut packets(&mut dev.sender("other"), 101, 6..8));
        let _ = sender.xmit_batch(&mut mixed);
        assert_eq!((bql(&dev).inflight, dev.stats().dropped.total()), (600, 2), "dropped by the driver");
        wires.at(0).panic = true;
        let mut victim = dev.sender("victim");
        let mut batch = packets(&mut victim, 100, 8..11);
        let died = std::thread::scope(|s| s.spawn(move || victim.xmit_batch(&mut batch)).join());
        assert!(died.is_err());
        wires.0[0].clear_poison();
        wires.at(0).panic = false;
        assert_eq!(bql(&dev).inflight, 600, "lost in a panic");
        let _ = send(&dev, &mut sender, 100, 11..12);
        while !dev.is_idle() {
            wires.at(0).complete(usize::MAX);
            worker.poll();
        }
        // The panic lost one packet.
        assert_eq!(wires.at(0).sent(), [0, 1, 2, 3, 4, 5, 9, 10, 11]);
        assert_eq!(bql(&dev).inflight, 0);
        assert_conserved(&dev);
    });
}

#[test]
fn limits_change_under_traffic_and_hold_from_the_next_completion_on() {
    let wires = Wires::new(2, Some(64));
    let dev = NetDev::builder(wires.clone()).pool_config(pool()).qdisc("mq").build().unwrap();
    let set = |attr, text| dev.set_bql(1, attr, text);
    assert_eq!(dev.show_bql(1, Attr::LimitMax).unwrap(), "1879048192\n");
    assert_eq!(dev.show_bql(1, Attr::HoldTime).unwrap(), "1000\n");
    set(Attr::HoldTime, "5\n").unwrap();
    assert_eq!(dev.show_bql(1, Attr::HoldTime).unwrap(), "8\n", "in jiffies of 4 ms");
    set(Attr::LimitMax, "1000").unwrap();
    set(Attr::Limit, "max\n").unwrap();
    assert_eq!(dev.show_bql(1, Attr::Limit).unwrap(), "1879048192\n", "above its maximum");
    assert_eq!(dev.show_bql(0, Attr::LimitMax).unwrap(), "1879048192\n", "another txq's");
    let mut sender = dev.sender("s");
    let mut packet = sender.alloc(60).unwrap();
    packet.set_hash(u32::MAX);
    let _ = sender.xmit(packet);
    assert_eq!(dev.show_bql(1, Attr::Inflight).unwrap(), "60\n");
    wires.at(1).complete(1);
    dev.worker(0).poll();
    assert_eq!(dev.show_bql(1, Attr::Limit).unwrap(), "1000\n");
    assert!(set(Attr::Limit, "1879048193").is_err());
    assert_eq!(dev.show_bql(1, Attr::Limit).unwrap(), "1000\n", "an error changes nothing");
    assert_conserved(&dev);
}

#[test]
fn some_txqs_have_no_byte_queue_limits() {
    let absent = |builder: Builder| {
        let dev = builder.build().unwrap();
        assert_eq!(dev.stats().queues[0].bql, None);
        assert_eq!(dev.set_bql(0, Attr::Limit, "1"), Err(dev.show_bql(0, Attr::Limit).unwrap_err()));
        dev.show_bql(0, Attr::Limit).unwrap_err().to_string()
    };
    let error = absent(builder(&Wires::new(1, None)));
    assert!(error.starts_with("txq 0 of \"wires\" has no byte queue limits: "), "{error}");
    assert_eq!(absent(builder(&Wires::new(1, Some(8))).bql(None)), error);
    assert_eq!(absent(builder(&Wires::new(1, Some(8))).qdisc("noqueue")), error);
    let dev = builder(&Wires::new(1, Some(8))).build().unwrap();
    assert!(dev.show_bql(1, Attr::Limit).is_err(), "there is no txq 1");
    let wrong = BqlConfig { limit_max: u32::MAX, ..BqlConfig::default() };
    assert_eq!(
        builder(&Wires::new(1, Some(8))).bql(Some(wrong)).build().err().unwrap().to_string(),
        "byte queue limits: limit_max \"4294967295\": Invalid argument: use 0 to 1879048192 bytes, or max"
    );
}

#[test]
fn a_wait_for_completions_is_counted_as_a_stall() {
    let wires = Wires::new(1, Some(64));
    let dev =
        builder(&wires).bql(Some(BqlConfig { stall_thrs: 16, ..fixed(10_000).unwrap() })).build().unwrap();
    let (mut sender, mut worker) = (dev.sender("s"), dev.worker(0));
    for stalls in 1..=2 {
        // In a later jiffy than the completion before.
        sleep(Duration::from_millis(8));
        let _ = send(&dev, &mut sender, 100, 0..3);
        sleep(Duration::from_millis(40));
        wires.at(0).complete(3);
        worker.poll();
        assert_eq!(bql(&dev).stall_cnt, stalls);
        assert!(bql(&dev).stall_max >= 36, "{:?}", bql(&dev));
    }
    dev.set_bql(0, Attr::StallMax, "whatever").unwrap();
    assert_eq!((bql(&dev).stall_cnt, bql(&dev).stall_max), (2, 0));
    assert_conserved(&dev);
}
