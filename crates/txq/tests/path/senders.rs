//! The rows of senders, bands and classes: their packets sent and dropped, and the times of these.

use crate::device::{Wires, assert_conserved, pool};
use txq::drop::DropReason;
use txq::netdev::{Builder, Sampling};
use txq::pool::PoolConfig;
use txq::stats::device::SenderStats;
use txq::{Discipline, NetDev, Sender, Worker};

fn builder(wires: &Wires, discipline: Discipline) -> Builder {
    NetDev::builder(wires.clone()).discipline(discipline).pool_config(pool()).bql(None)
}

/// Sends `n` single packets of a priority.
fn send(sender: &mut Sender, n: u64, priority: u32) {
    for _ in 0..n {
        let mut packet = sender.alloc(60).unwrap();
        packet.set_priority(priority);
        let _ = sender.xmit(packet);
    }
}

/// Completes the device's packets until it is idle.
fn finish(dev: &NetDev, worker: &mut Worker, wires: &Wires) {
    while !dev.is_idle() {
        wires.at(0).complete(64);
        worker.poll();
    }
}

/// Returns `(accepted, sent, dropped, pending)` of a sender.
fn row(dev: &NetDev, name: &str) -> (u64, u64, u64, u64) {
    let stats = dev.stats();
    let rows = &stats.senders;
    let sum = |f: fn(&SenderStats) -> u64| rows.iter().map(f).sum::<u64>();
    assert_eq!(sum(|r| r.accepted), stats.accepted, "{stats:?}");
    assert_eq!(sum(|r| r.dropped), stats.dropped.total(), "{stats:?}");
    assert_eq!(sum(|r| r.sent + r.pending), stats.sent + stats.queued, "{stats:?}");
    let row = rows.iter().find(|row| row.name == name).unwrap_or_else(|| panic!("no {name} in {stats:?}"));
    assert_eq!(row.accepted, row.sent + row.dropped + row.pending, "{row:?}");
    (row.accepted, row.sent, row.dropped, row.pending)
}

/// Returns the drops of a sender by reason.
fn drops(dev: &NetDev, name: &str) -> Vec<(DropReason, u64)> {
    let stats = dev.stats();
    let row = stats.senders.iter().find(|row| row.name == name).unwrap();
    assert_eq!(row.drops.total(), row.dropped);
    row.drops.iter().collect()
}

#[test]
fn each_sender_is_told_what_became_of_its_packets() {
    for &discipline in Discipline::ALL {
        let wires = Wires::new(1, Some(4));
        let dev = builder(&wires, discipline).qdisc("pfifo limit 6").build().unwrap();
        let mut worker = dev.worker(0);
        let (mut a, mut b) = (dev.sender("a"), dev.sender("b"));
        // Four are in the device and one is queued; then five find room.
        send(&mut a, 5, 0);
        send(&mut b, 8, 0);
        assert_eq!((row(&dev, "a"), row(&dev, "b")), ((5, 0, 0, 5), (8, 0, 3, 5)), "{discipline}");
        assert_eq!(drops(&dev, "b"), [(DropReason::QdiscOverlimit, 3)], "{discipline}");
        finish(&dev, &mut worker, &wires);
        assert_eq!((row(&dev, "a"), row(&dev, "b")), ((5, 5, 0, 0), (8, 5, 3, 0)), "{discipline}");
        // The next sender gets the place of the dropped one, but none of its counts.
        drop(a);
        let mut c = dev.sender("c");
        send(&mut c, 14, 0);
        assert_eq!((row(&dev, "a"), row(&dev, "c")), ((5, 5, 0, 0), (14, 0, 4, 10)), "{discipline}");
        let names: Vec<_> = dev.stats().senders.into_iter().map(|row| (row.name, row.alive)).collect();
        let expected = [("a", false), ("b", true), ("c", true)].map(|(name, alive)| (name.to_owned(), alive));
        assert_eq!(names, expected, "{discipline}");
        finish(&dev, &mut worker, &wires);
        assert_eq!(row(&dev, "c"), (14, 10, 4, 0), "{discipline}");
        drop((b, c, worker));
        assert_conserved(&dev);
    }
}

#[test]
fn what_becomes_of_the_packets_of_a_sender_that_is_gone_is_told() {
    let wires = Wires::new(1, Some(4));
    let dev = builder(&wires, Discipline::Combine).qdisc("pfifo limit 20").build().unwrap();
    let mut worker = dev.worker(0);
    let mut a = dev.sender("a");
    send(&mut a, 20, 0);
    drop(a);
    assert_eq!(row(&dev, "a"), (20, 0, 0, 20));
    // Queued packets are dropped, those in the device are sent.
    dev.deactivate();
    assert_eq!(row(&dev, "a"), (20, 0, 16, 4));
    finish(&dev, &mut worker, &wires);
    assert_eq!(row(&dev, "a"), (20, 4, 16, 0));
    assert_eq!(drops(&dev, "a"), [(DropReason::QueuePurge, 16)]);
    // The row stays the same when another sender has the place, and drops.
    let mut b = dev.sender("b");
    send(&mut b, 7, 0);
    assert_eq!((row(&dev, "a"), row(&dev, "b")), ((20, 4, 16, 0), (7, 0, 7, 0)));
    assert_eq!(drops(&dev, "a"), [(DropReason::QueuePurge, 16)]);
    assert_eq!(drops(&dev, "b"), [(DropReason::QdiscDrop, 7)]);
    drop((b, worker));
    assert_conserved(&dev);
}

/// A command takes the home of a sender that is gone, which nobody has asked about since its packets have left.
#[test]
fn a_command_does_not_end_the_row_of_a_sender_that_is_gone() {
    for is_dropped in [false, true] {
        let wires = Wires::new(1, Some(4));
        let dev = builder(&wires, Discipline::Combine).qdisc("pfifo limit 20").build().unwrap();
        let mut worker = dev.worker(0);
        let mut a = dev.sender("a");
        send(&mut a, 20, 0);
        drop(a);
        assert_eq!(row(&dev, "a"), (20, 0, 0, 20));
        if is_dropped {
            dev.deactivate();
        }
        finish(&dev, &mut worker, &wires);
        (0..3).for_each(|_| drop(dev.pool_demand()));
        let (sent, dropped) = if is_dropped { (4, 16) } else { (20, 0) };
        assert_eq!(row(&dev, "a"), (20, sent, dropped, 0));
        assert_eq!(drops(&dev, "a").iter().map(|(_, n)| n).sum::<u64>(), dropped);
        drop(worker);
        assert_conserved(&dev);
    }
}

/// Programs that create a sender for each connection do not make the report ever longer.
#[test]
fn rows_of_senders_that_are_gone_are_added_up() {
    let wires = Wires::new(1, None);
    let dev = builder(&wires, Discipline::Combine).qdisc("pfifo").build().unwrap();
    for n in 0..300 {
        send(&mut dev.sender(&format!("s{n}")), 2, 0);
    }
    let rows = dev.stats().senders;
    assert_eq!((rows.len(), rows[0].name.as_str()), (257, "earlier senders"));
    assert_eq!((rows[0].accepted, rows[0].sent, rows[256].sent), (88, 88, 2));
    row(&dev, "s299");
    assert_conserved(&dev);
}

#[test]
fn refusals_are_told_by_their_reason() {
    let wires = Wires::new(1, Some(4));
    let config = PoolConfig { buffers: 8, ..pool() };
    let dev = builder(&wires, Discipline::Combine).qdisc("pfifo").pool_config(config).build().unwrap();
    let mut sender = dev.sender("s");
    sender.set_limit(2);
    let held: Vec<_> = (0..2).map(|_| sender.alloc(60).unwrap()).collect();
    for _ in 0..3 {
        assert!(sender.alloc(60).is_err() && sender.packet(&[0; 9]).is_err());
    }
    sender.set_limit(u64::MAX);
    let mut list = txq::packet::PacketList::new();
    // The last call gets nothing; a call that gets fewer packets than it asks for is not refused.
    assert_eq!(sender.alloc_batch(100, 60, &mut list), Ok(6));
    assert!(sender.alloc_batch(100, 60, &mut list).is_err());
    let row = &dev.stats().senders[0];
    assert_eq!((row.at_limit, row.no_buffer), (6, 1));
    drop((held, list));
}

#[test]
fn times_are_told_where_packets_are_sampled() {
    for (sampling, samples) in [(Sampling::Off, 0), (Sampling::All, 10), (Sampling::Every(4), 3)] {
        let wires = Wires::new(1, None);
        let dev = builder(&wires, Discipline::Combine).qdisc("pfifo").sampling(sampling).build().unwrap();
        let mut sender = dev.sender("s");
        send(&mut sender, 10, 0);
        let row = &dev.stats().senders[0];
        let times = row.latency;
        assert_eq!(times.map_or(0, |times| times.samples), samples, "{sampling:?}");
        assert!(times.is_none_or(|times| times.p50 <= times.p99), "{times:?}");
        assert_eq!(row.measured_calls, samples, "{sampling:?}");
        assert_eq!(row.longest_call.is_some(), samples > 0, "{sampling:?}");
        let all = dev.latency().to_driver;
        assert_eq!(all.count(), samples, "{sampling:?}");
        // The next sender has times of its own.
        drop(sender);
        let _next = dev.sender("t");
        assert_eq!(dev.stats().senders[1].latency, None, "{sampling:?}");
        assert_eq!(dev.stats().senders[0].latency, times, "{sampling:?}");
    }
    // All calls can be timed although only some packets are sampled.
    let wires = Wires::new(1, None);
    let dev =
        builder(&wires, Discipline::Combine).qdisc("pfifo").sampling(Sampling::Every(4)).xmit_times(true);
    let dev = dev.build().unwrap();
    send(&mut dev.sender("s"), 10, 0);
    let row = &dev.stats().senders[0];
    assert_eq!((row.measured_calls, row.latency.map(|times| times.samples)), (10, Some(3)));
    assert_eq!(dev.xmit_times().buckets().map(|bucket| bucket.count).sum::<u64>(), 10);
}

/// Returns `(name, sent, dropped, queued, samples)` of each band.
fn bands(dev: &NetDev) -> Vec<(String, u64, u64, u64, u64)> {
    let bands = dev.bands().into_iter();
    bands.map(|b| (b.name, b.stats.packets, b.stats.drops, b.stats.qlen, b.latency.count())).collect()
}

#[test]
fn bands_are_told_apart() {
    let expected = |names: [&str; 3], numbers: [(u64, u64, u64, u64); 3]| {
        let rows = names.into_iter().zip(numbers);
        rows.map(|(name, (sent, dropped, queued, samples))| (name.to_owned(), sent, dropped, queued, samples))
            .collect::<Vec<_>>()
    };
    for (qdisc, names) in
        [("pfifo_fast", ["band 0", "band 1", "band 2"]), ("handle 1: prio", ["1:1", "1:2", "1:3"])]
    {
        let wires = Wires::new(1, Some(2));
        let dev = builder(&wires, Discipline::Combine).tx_queue_len(3).qdisc(qdisc).sampling(Sampling::All);
        let dev = dev.build().unwrap();
        let mut worker = dev.worker(0);
        let mut sender = dev.sender("s");
        // One packet of band 0 and one of band 2 go to the device at once, then the bands fill.
        send(&mut sender, 1, 6);
        send(&mut sender, 1, 2);
        send(&mut sender, 2, 0);
        send(&mut sender, 5, 2);
        send(&mut sender, 1, 6);
        // Only prio's packets were queued on their path.
        let past = u64::from(qdisc != "pfifo_fast");
        let first = [(1, 0, 1, past), (0, 0, 2, 0), (1, 2, 3, past)];
        assert_eq!(bands(&dev), expected(names, first), "{qdisc}");
        finish(&dev, &mut worker, &wires);
        let last = [(2, 0, 0, 1 + past), (2, 0, 0, 2), (4, 2, 0, 3 + past)];
        assert_eq!(bands(&dev), expected(names, last), "{qdisc}");
        drop((sender, worker));
        assert_conserved(&dev);
    }
}
