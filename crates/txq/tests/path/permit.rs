//! Packets and batches that bypass the qdisc by a permit (`datapath/permit.rs`): counted as others are, for one sender, within
//! the qdisc's limit and the ring, whatever the driver does.

use crate::deferred::{device, send};
use crate::device::assert_conserved;
use txq::Discipline;
use txq::Sender;
use txq::packet::PacketList;
use txq::qdisc::Verdict;

/// Hands in a batch of packets of these lengths, with these priorities.
fn send_batch(sender: &mut Sender, packets: impl IntoIterator<Item = (usize, u32)>) -> Verdict {
    let mut batch = PacketList::new();
    for (cookie, (len, priority)) in packets.into_iter().enumerate() {
        let mut packet = sender.alloc(len).unwrap();
        packet.set_priority(priority);
        packet.set_cookie(cookie as u64);
        batch.push_back(packet);
    }
    sender.xmit_batch(&mut batch)
}

/// For calls whose verdict says nothing here.
fn ignore(_: Verdict) {}

/// Packets that bypass the qdisc by a permit are counted by the qdisc, in the band of their priority, at every reading.
#[test]
fn packets_that_pass_by_a_permit_are_counted() {
    for discipline in [Discipline::Combine, Discipline::Llist, Discipline::Lockless] {
        let (_, dev) = device(64, |builder| builder.qdisc("pfifo_fast").discipline(discipline));
        let mut sender = dev.sender_on("s", 0);
        for (packets, priority) in [(300, 0), (7, 6), (1, 2), (40, 0), (40, 6)] {
            for _ in 0..packets {
                let mut packet = sender.alloc(60).unwrap();
                packet.set_priority(priority);
                let _ = sender.xmit(packet);
            }
        }
        let bands: Vec<_> = dev.bands().iter().map(|b| (b.stats.packets, b.stats.bytes)).collect();
        assert_eq!(bands, [(47, 47 * 60), (340, 340 * 60), (1, 60)], "{discipline}");
        let stats = dev.qdiscs(Default::default())[0].stats;
        assert_eq!((stats.packets, stats.bytes), (388, 388 * 60), "{discipline}");
        drop(sender);
        assert_eq!(assert_conserved(&dev).sent, 388);
    }
}

/// Batches pass by a permit, too. They are counted as single packets are, whatever their lengths and priorities.
#[test]
fn batches_that_pass_by_a_permit_are_counted() {
    for discipline in [Discipline::Combine, Discipline::Llist, Discipline::Lockless] {
        let (wires, dev) = device(64, |builder| builder.qdisc("pfifo_fast").discipline(discipline));
        let mut sender = dev.sender_on("s", 0);
        let (mut sent, mut bands) = (Vec::new(), [0; 3]);
        // In bands 1, 0 and 2: batches of one band, and with one packet of another band or priority among them.
        for (times, packets, priority, odd) in [
            (100, 4, 0, 0),
            (9, 1, 0, 0),
            (20, 8, 6, 6),
            (20, 3, 0, 3),
            (20, 3, 2, 2),
            (5, 15, 0, 6),
            (9, 16, 0, 0),
            (9, 7, 4, 7),
        ] {
            for _ in 0..times {
                let batch: Vec<u32> = (0..packets).map(|i| if i == 2 { odd } else { priority }).collect();
                let band = |priority: u32| [1, 2, 2, 2, 1, 2, 0, 0][priority as usize];
                batch.iter().for_each(|&priority| bands[band(priority)] += 1);
                let mut order: Vec<u64> = (0..packets).collect();
                order.sort_by_key(|&i| band(batch[i as usize]));
                sent.extend(order);
                let _ = send_batch(&mut sender, batch.iter().map(|&priority| (60, priority)));
            }
        }
        assert_eq!(wires.at(0).sent(), sent, "{discipline}");
        let counted: Vec<_> = dev.bands().iter().map(|b| (b.stats.packets, b.stats.bytes)).collect();
        assert_eq!(counted, bands.map(|n| (n, n * 60)), "{discipline}");
        drop(sender);
        assert_eq!(assert_conserved(&dev).sent, sent.len() as u64);
    }
}

/// A batch that exceeds the qdisc's limit, in packets or in bytes, does not pass because another has passed.
#[test]
fn a_permit_keeps_the_limit() {
    let pfifo = ("pfifo limit 5", vec![(60, 0); 4], vec![(30, 0); 7], 2);
    let bfifo = ("bfifo limit 2000", vec![(60, 0); 10], vec![(220, 0); 10], 1);
    for (queue, small, large, dropped) in [pfifo, bfifo] {
        let (_, dev) = device(64, |builder| builder.qdisc(queue));
        let mut sender = dev.sender_on("s", 0);
        (0..64).for_each(|_| ignore(send_batch(&mut sender, small.clone())));
        // The permit is for another number of packets each time.
        for batches in 0..9 {
            (0..batches).for_each(|_| ignore(send_batch(&mut sender, small.clone())));
            let verdict = send_batch(&mut sender, large.clone());
            assert_eq!(verdict, Verdict::Congested, "{queue}, after {batches}");
        }
        let stats = dev.stats();
        assert_eq!(stats.dropped.total(), 9 * dropped, "{queue}");
        let sent = (64 + 36) * small.len() as u64 + 9 * (large.len() as u64 - dropped);
        assert_eq!(stats.sent, sent, "{queue}");
        drop(sender);
        assert_conserved(&dev);
    }
}

/// A permit is one sender's: a batch of another's packets is reaped at once.
#[test]
fn a_permit_is_of_one_sender() {
    for packets in [1, 3] {
        let (wires, dev) = device(64, |builder| builder);
        let (mut one, mut other) = (dev.sender_on("one", 0), dev.sender_on("other", 0));
        let mut kept = || {
            let _ = send_batch(&mut one, vec![(60, 0); packets]);
            wires.at(0).held()
        };
        (0..100).for_each(|_| _ = kept());
        assert!((0..100).any(|_| kept() == 6), "{packets}");
        let mut foreign = PacketList::new();
        let _ = other.alloc_batch(packets, 60, &mut foreign);
        let _ = one.xmit_batch(&mut foreign);
        assert_eq!(wires.at(0).held(), 0, "{packets}");
        drop((one, other));
        assert_conserved(&dev);
    }
}

/// A batch never overfills the ring by a permit, and never makes the device keep more packets than single ones would.
#[test]
fn a_permit_is_for_so_many_packets() {
    for queue in ["pfifo", "noqueue"] {
        for (ring, longest, most) in [(64, 15, 31), (32, 15, 31), (12, 5, 11), (8, 7, 7)] {
            let (wires, dev) = device(ring, |builder| builder.qdisc(queue));
            let mut sender = dev.sender_on("s", 0);
            let mut kept = |call: usize| {
                let _ = send_batch(&mut sender, vec![(60, 0); 1 + call % longest]);
                wires.at(0).held()
            };
            let kept = (0..2000_usize).map(&mut kept).max().unwrap();
            assert!((most - 1..=most).contains(&kept), "{queue}, a ring of {ring}: {kept}");
            assert_eq!(dev.stats().dropped.total(), 0, "{queue}, a ring of {ring}");
            drop(sender);
            assert_conserved(&dev);
        }
    }
}

/// An exchanged qdisc, or a device taken down, takes effect from the next packet on, with or without a permit.
#[test]
fn a_change_ends_the_permit() {
    let (_, dev) = device(64, |builder| builder);
    let mut sender = dev.sender_on("s", 0);
    (0..100).for_each(|_| send(&mut sender));
    dev.tc("qdisc replace root pfifo limit 0").unwrap();
    (0..5).for_each(|_| send(&mut sender));
    assert_eq!((dev.stats().sent, dev.stats().dropped.total()), (100, 5));
    dev.tc("qdisc replace root noqueue").unwrap();
    (0..100).for_each(|_| send(&mut sender));
    dev.deactivate();
    (0..5).for_each(|_| send(&mut sender));
    assert_eq!((dev.stats().sent, dev.stats().dropped.total()), (200, 10));
    dev.activate();
    (0..100).for_each(|_| send(&mut sender));
    assert_eq!(dev.stats().sent, 300);
    drop(sender);
    assert_conserved(&dev);
}

/// Packets that a driver gets by a permit and refuses, drops or completes at once are counted as usual.
#[test]
fn a_driver_is_free_under_a_permit() {
    for queue in ["pfifo", "noqueue"] {
        let (wires, dev) = device(64, |builder| builder.qdisc(queue));
        let (mut sender, mut worker) = (dev.sender_on("s", 0), dev.worker(0));
        (0..100).for_each(|_| send(&mut sender));
        wires.at(0).busy = 1;
        (0..3).for_each(|_| send(&mut sender));
        while worker.poll().is_some_and(|at| at <= sender.now()) {}
        (0..100).for_each(|_| send(&mut sender));
        wires.at(0).longest = Some(50);
        send(&mut sender);
        wires.at(0).longest = None;
        (0..100).for_each(|_| send(&mut sender));
        while worker.poll().is_some() {}
        let refused = u64::from(queue == "noqueue");
        let stats = dev.stats();
        assert_eq!((stats.sent, stats.dropped.total()), (303 - refused, 1 + refused), "{queue}");
        drop(sender);
        assert_conserved(&dev);
    }
}

/// Of a batch that has a permit the driver may refuse or drop some packets: the qdisc has the refused ones again, in order.
#[test]
fn a_driver_takes_a_part_under_a_permit() {
    for (queue, dropped) in [("pfifo", 0), ("noqueue", 3)] {
        let (wires, dev) = device(64, |builder| builder.qdisc(queue));
        let (mut sender, mut worker) = (dev.sender_on("s", 0), dev.worker(0));
        (0..200).for_each(|_| ignore(send_batch(&mut sender, [(60, 0); 5])));
        wires.at(0).refuses = 3;
        let verdict = if dropped == 0 { Verdict::Success } else { Verdict::Congested };
        assert_eq!(send_batch(&mut sender, [(60, 0); 5]), verdict, "{queue}");
        while worker.poll().is_some_and(|at| at <= sender.now()) {}
        assert_eq!(dev.stats().dropped.total(), dropped, "{queue}");
        (0..100).for_each(|_| ignore(send_batch(&mut sender, [(60, 0); 5])));
        wires.at(0).longest = Some(50);
        let _ = send_batch(&mut sender, [(60, 0), (50, 0), (60, 0)]);
        wires.at(0).longest = None;
        (0..100).for_each(|_| ignore(send_batch(&mut sender, [(60, 0); 5])));
        while worker.poll().is_some() {}
        let stats = dev.stats();
        assert_eq!((stats.sent, stats.dropped.total()), (2006 - dropped, 2 + dropped), "{queue}");
        let sent = wires.at(0).sent();
        assert!(sent[..1000].chunks(5).all(|batch| batch == [0, 1, 2, 3, 4]), "{queue}: {sent:?}");
        let part: &[u64] = if dropped == 0 { &[0, 1, 2, 3, 4, 0] } else { &[0, 1, 0] };
        assert_eq!(&sent[1000..1000 + part.len()], part, "{queue}");
        drop(sender);
        assert_conserved(&dev);
    }
}

/// A driver that panics over packets with a permit loses the first one, or all of them where no queue keeps the others.
#[test]
fn a_driver_that_panics_ends_the_permit() {
    for (queue, packets) in [("pfifo", 1), ("noqueue", 1), ("pfifo", 4), ("noqueue", 4)] {
        let (wires, dev) = device(64, |builder| builder.qdisc(queue));
        let (mut sender, mut worker) = (dev.sender_on("s", 0), dev.worker(0));
        (0..100).for_each(|_| ignore(send_batch(&mut sender, vec![(60, 0); packets])));
        wires.at(0).panic = true;
        let send_one = std::panic::AssertUnwindSafe(|| send_batch(&mut sender, vec![(60, 0); packets]));
        assert!(std::panic::catch_unwind(send_one).is_err());
        wires.at(0).panic = false;
        (0..100).for_each(|_| send(&mut sender));
        while worker.poll().is_some() {}
        let stats = dev.stats();
        let lost = if queue == "pfifo" { 1 } else { packets };
        let all = 100 * packets + packets + 100;
        assert_eq!(
            (stats.sent, stats.dropped.total(), stats.queued),
            ((all - lost) as u64, lost as u64, 0),
            "{queue}"
        );
        drop(sender);
        assert_conserved(&dev);
    }
}

/// Without a queue, a batch finds the room of all packets that the device has completed, however many they are.
#[test]
fn a_batch_finds_the_room_that_completions_make() {
    for (ring, packets) in [(64, 48), (256, 200), (1024, 700)] {
        let (wires, dev) = device(ring, |builder| builder.qdisc("noqueue"));
        let (mut sender, mut worker) = (dev.sender_on("s", 0), dev.worker(0));
        (0..100).for_each(|_| ignore(send_batch(&mut sender, vec![(60, 0); packets])));
        assert_eq!(wires.at(0).sent().len(), 100 * packets, "a ring of {ring}");
        while worker.poll().is_some() {}
        drop(sender);
        assert_conserved(&dev);
    }
}

/// A driver that panics while a sender without a queue makes room loses the sender's packets, and they are counted.
#[test]
fn a_driver_panics_while_room_is_made() {
    let (wires, dev) = device(8, |builder| builder.qdisc("noqueue"));
    let mut sender = dev.sender_on("s", 0);
    wires.at(0).prompt = false;
    (0..8).for_each(|_| send(&mut sender));
    wires.at(0).complete(8);
    wires.at(0).panic_in_poll = true;
    let send_three = std::panic::AssertUnwindSafe(|| send_batch(&mut sender, [(60, 0); 3]));
    assert!(std::panic::catch_unwind(send_three).is_err());
    wires.at(0).panic_in_poll = false;
    wires.at(0).prompt = true;
    (0..100).for_each(|_| send(&mut sender));
    let stats = dev.stats();
    assert_eq!((stats.sent, stats.dropped.total()), (108, 3));
    drop(sender);
    assert_conserved(&dev);
}
