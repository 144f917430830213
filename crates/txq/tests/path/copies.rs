//! Copies of packets (netem's `duplicate`) on a device: every one is sent, dropped or queued, and counted, whichever thread
//! makes it.

use crate::device::{Wires, assert_conserved, pool};
use txq::netdev::Builder;
use txq::packet::PacketList;
use txq::qdisc::Verdict;
use txq::{Discipline, NetDev, Sender};

fn builder(wires: &Wires) -> Builder {
    NetDev::builder(wires.clone()).pool_config(pool()).bql(None)
}

fn packets(sender: &mut Sender, cookies: std::ops::Range<u64>) -> PacketList {
    let one = |cookie| {
        let mut packet = sender.alloc(60).unwrap();
        packet.set_cookie(cookie);
        packet.set_priority(cookie as u32 % 8);
        packet
    };
    cookies.map(one).collect()
}

#[test]
fn each_packet_leaves_twice() {
    for &discipline in Discipline::ALL {
        let wires = Wires::new(1, None);
        let dev = builder(&wires).qdisc("netem duplicate 100%").discipline(discipline).build().unwrap();
        let mut sender = dev.sender("s");
        sender.set_limit(6);
        let batch = &mut packets(&mut sender, 0..6);
        assert_eq!(sender.xmit_batch(batch), Verdict::Success);
        assert_eq!(wires.at(0).sent(), [0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5]);
        let one = packets(&mut sender, 6..7).pop_front().unwrap();
        assert_eq!(sender.xmit(one), Verdict::Success);
        let stats = assert_conserved(&dev);
        assert_eq!((stats.accepted, stats.created, stats.sent), (7, 7, 14), "{discipline}");
    }
}

/// Below a class, too: the copy enters at the root, which counts it like any other packet, and limits apply to it.
#[test]
fn a_copy_enters_at_the_root() {
    let wires = Wires::new(1, Some(1));
    let dev = builder(&wires)
        .qdisc("handle 1: prio bands 2 priomap 0 1 0 1 0 1 0 1 0 0 0 0 0 0 0 0")
        .build()
        .unwrap();
    dev.tc("qdisc add parent 1:2 handle 2: netem limit 3 duplicate 100%").unwrap();
    let (mut sender, mut worker) = (dev.sender("s"), dev.worker(0));
    let batch = &mut packets(&mut sender, 0..8);
    assert_eq!(sender.xmit_batch(batch), Verdict::Congested);
    let stats = dev.audit().unwrap();
    assert_eq!((stats.accepted, stats.created, stats.dropped.total()), (8, 2, 3));
    let shown: Vec<_> =
        dev.qdiscs(Default::default()).iter().map(|q| (q.stats.qlen, q.stats.drops)).collect();
    // One is in the device.
    assert_eq!(shown, [(6, 3), (3, 3)]);
    while !dev.is_idle() {
        wires.at(0).complete(1);
        worker.poll();
    }
    assert_eq!(wires.at(0).sent(), [0, 2, 4, 6, 1, 1, 3]);
    assert_conserved(&dev);
}

/// Where a batch is split by classes, packets behind a copy keep their place: each class's packets leave in order, and none
/// is lost.
#[test]
fn a_batch_goes_on_where_a_copy_interrupted_it() {
    const CLASSES: [u32; 10] = [1, 2, 2, 1, 2, 1, 1, 2, 2, 2];
    let trees: [(&str, &[&str]); 3] = [
        ("prio bands 2 priomap 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0", &[]),
        ("drr", &["classid 1:1 drr", "classid 1:2 drr"]),
        ("htb", &["classid 1:1 htb rate 8gbit", "classid 1:2 htb rate 8gbit"]),
    ];
    for (root, classes) in trees {
        let wires = Wires::new(1, None);
        let dev = builder(&wires).qdisc(&format!("handle 1: {root}")).build().unwrap();
        classes.iter().for_each(|class| drop(dev.tc(&format!("class add parent 1: {class}")).unwrap()));
        dev.tc("qdisc add parent 1:2 handle 2: netem duplicate 100%").unwrap();
        let (mut sender, mut worker) = (dev.sender("s"), dev.worker(0));
        let mut batch = packets(&mut sender, 0..10);
        batch.for_each_mut(|packet| packet.set_priority(1 << 16 | CLASSES[packet.cookie() as usize]));
        assert_eq!(sender.xmit_batch(&mut batch), Verdict::Success, "{root}");
        while !dev.is_idle() {
            worker.poll();
        }
        let sent = wires.at(0).sent();
        let of = |class: u32| sent.iter().copied().filter(move |&n| CLASSES[n as usize] == class);
        assert_eq!(of(1).collect::<Vec<_>>(), [0, 3, 5, 6], "{root}");
        assert_eq!(of(2).collect::<Vec<_>>(), [1, 1, 2, 2, 4, 4, 7, 7, 8, 8, 9, 9], "{root}");
        let stats = assert_conserved(&dev);
        assert_eq!((stats.accepted, stats.created, stats.sent), (10, 6, 16), "{root}");
    }
}

/// Without a buffer, a copy is only counted: as created and as dropped.
#[test]
fn a_copy_without_a_buffer_is_counted() {
    let wires = Wires::new(1, Some(4));
    let mut config = pool();
    config.buffers = 3;
    let dev = builder(&wires).pool_config(config).qdisc("netem duplicate 100%").build().unwrap();
    let (mut sender, mut worker) = (dev.sender("s"), dev.worker(0));
    let batch = &mut packets(&mut sender, 0..2);
    let _ = sender.xmit_batch(batch);
    let stats = dev.audit().unwrap();
    assert_eq!((stats.created, stats.dropped.get(txq::drop::DropReason::NoMem)), (2, 1));
    wires.at(0).complete(9);
    worker.poll();
    assert_eq!(wires.at(0).sent(), [0, 0, 1]);
    assert_conserved(&dev);
}

/// Senders on several threads; the thread that runs the queue makes the copies.
#[test]
fn copies_of_many_senders_are_conserved() {
    const SENDERS: u64 = 3;
    const EACH: u64 = 2000;
    for &discipline in Discipline::ALL {
        let wires = Wires::new(1, None);
        let dev =
            builder(&wires).qdisc("netem limit 50 duplicate 30%").discipline(discipline).build().unwrap();
        let mut worker = dev.worker(0);
        std::thread::scope(|scope| {
            for n in 0..SENDERS {
                let mut sender = dev.sender(&format!("s{n}"));
                scope.spawn(move || {
                    let mut sent = 0;
                    while sent < EACH {
                        let mut batch = PacketList::new();
                        // The copies of others may hold every buffer for a moment.
                        while sender.alloc_batch(5, 60, &mut batch).is_err() {
                            std::thread::yield_now();
                        }
                        sent += batch.len() as u64;
                        let _ = sender.xmit_batch(&mut batch);
                    }
                });
            }
        });
        while !dev.is_idle() {
            worker.poll();
        }
        let stats = assert_conserved(&dev);
        // Of all packets that found room; some copies did not.
        let overlimit = stats.dropped.get(txq::drop::DropReason::QdiscOverlimit);
        assert!(stats.created > (stats.accepted - overlimit) / 10, "{discipline}: {stats:?}");
    }
}

#[test]
fn one_netem_that_duplicates_is_alone_in_its_tree() {
    const MIXED: &str = "Error: netem: cannot mix duplicating netems with other netems in tree.";
    let wires = Wires::new(1, None);
    let dev = builder(&wires).qdisc("handle 1: prio").build().unwrap();
    let refused = |done: Result<Vec<String>, txq::tc::ParseError>| done.unwrap_err().message().to_owned();
    dev.tc("qdisc add parent 1:1 handle 2: netem").unwrap();
    assert_eq!(refused(dev.tc("qdisc add parent 1:2 handle 3: netem duplicate 1%")), MIXED);
    assert_eq!(refused(dev.tc("qdisc add parent 2:1 handle 3: netem duplicate 1%")), MIXED);
    dev.tc("qdisc change parent 1:1 netem duplicate 1%").unwrap();
    assert_eq!(refused(dev.tc("qdisc add parent 1:2 handle 3: netem")), MIXED);
    dev.tc("qdisc change parent 1:1 netem duplicate 0%").unwrap();
    dev.tc("qdisc add parent 2:1 handle 3: netem").unwrap();
    assert_eq!(refused(dev.tc("qdisc change parent 1:1 netem duplicate 1%")), MIXED);
    assert_eq!(refused(dev.tc("qdisc change parent 2:1 netem duplicate 1%")), MIXED);
    dev.tc("qdisc replace root handle 4: netem duplicate 1%").unwrap();
    assert_eq!(refused(dev.tc("qdisc add parent 4:1 handle 5: netem")), MIXED);
    dev.tc("qdisc change root netem").unwrap();
    dev.tc("qdisc add parent 4:1 handle 5: netem").unwrap();
    assert_eq!(refused(dev.tc("qdisc change root netem duplicate 1%")), MIXED);
    dev.tc("qdisc del parent 4:1").unwrap();
    dev.tc("qdisc change root netem duplicate 1%").unwrap();
}
