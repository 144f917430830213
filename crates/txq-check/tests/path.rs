//! The whole way of a packet under each discipline: none is lost, sent twice or left behind, each sender's leave in their
//! order, and the counters add up.
//!
//! Guards the way in (`txq/src/enqueue/`), the run loop (`run.rs`), stop and wake (`txqueue.rs`) and the worker's
//! wake-up (`schedule.rs`).

mod device;

use device::{Device, Record};
use txq::drop::DropReason;
use txq::netdev::NetDev;
use txq::packet::PacketList;
use txq::{Sender, enqueue};
use txq_check::{Loom, Model, Shuttle};

/// `n` packets that know their sender and their place.
fn packets<A: Model>(sender: &mut Sender<A>, who: u64, n: u64) -> PacketList<A> {
    let one = |number| {
        let mut packet = sender.alloc(8).expect("the pool is large enough");
        packet.set_cookie(who << 32 | number);
        packet
    };
    (0..n).map(one).collect()
}

/// Each sender's packets are there, once, in order; `lossy` ones may be missing.
fn assert_order(sent: &[u64], senders: u64, each: u64, lossy: bool) {
    for who in 0..senders {
        let own: Vec<_> = sent.iter().filter(|c| **c >> 32 == who).map(|c| c & u64::from(u32::MAX)).collect();
        if lossy {
            assert!(own.is_sorted_by(|a, b| a < b), "sender {who}: doubled or out of order: {own:?}");
        } else {
            assert_eq!(own, Vec::from_iter(0..each), "sender {who}: lost, doubled or out of order");
        }
    }
}

/// Nothing is on its way, and nothing is missing.
fn assert_conserved<A: Model>(dev: &NetDev<A>) {
    let stats = dev.audit().unwrap_or_else(|wrong| panic!("{wrong}"));
    assert_eq!(stats.queued, 0, "a packet is left behind");
    assert!(dev.is_idle());
    assert_eq!(dev.pool().in_use(), Default::default(), "buffers are not home");
}

/// Senders alone: no worker comes to their help, and the device takes everything. So whatever is still queued when
/// all have returned was left behind.
fn senders<A: Model>(discipline: &str, senders: u64, calls: u64, batch: u64, max_burst: u32) {
    let record = Record::<A>::new();
    let device = Device { record: record.clone(), ring: None, inline: true };
    let dev = device.builder().discipline(discipline).max_burst(max_burst).build().expect("a device");
    let threads: Vec<_> = (0..senders)
        .map(|who| {
            let mut sender = dev.sender_on("s", 0);
            let mut packets = packets(&mut sender, who, calls * batch);
            A::spawn(who as u32 + 1, move || {
                let mut one_call = PacketList::new();
                while !packets.is_empty() {
                    packets.move_front(batch as usize, &mut one_call);
                    let _ = sender.xmit_batch(&mut one_call);
                }
                sender
            })
        })
        .collect();
    threads.into_iter().for_each(|join| drop(join()));
    assert_conserved(&dev);
    let lossy = dev.stats().dropped.get(DropReason::QdiscBurstDrop) > 0;
    assert_order(&record.sent(), senders, calls * batch, lossy);
}

/// Senders, a device that stops when it keeps `ring` packets, and a worker that sleeps when it has nothing to do: all
/// packets leave although nobody sends any more.
fn stop_and_wake<A: Model>(discipline: &str, senders: u64, each: u64, ring: u32, inline: bool) {
    let record = Record::<A>::new();
    let device = Device { record: record.clone(), ring: Some(ring), inline };
    let mut dev = device.builder().discipline(discipline).build().expect("a device");
    let worker = dev.worker(0);
    let worker = A::spawn(1, move || worker.run());
    let send = move |mut sender: Sender<A>, mut packets| {
        let _ = sender.xmit_batch(&mut packets);
        sender
    };
    let mut others = Vec::new();
    for who in 1..senders {
        let mut sender = dev.sender_on("s", 0);
        let packets = packets(&mut sender, who, each);
        others.push(A::spawn(who as u32 + 1, move || send(sender, packets)));
    }
    let mut sender = dev.sender_on("s", 0);
    let packets = packets(&mut sender, 0, each);
    drop(send(sender, packets));
    others.into_iter().for_each(|join| drop(join()));
    // Time stands still, so this waits for ever if a packet does.
    assert!(dev.drain(1));
    dev.shutdown().expect("the device finishes");
    worker();
    assert_conserved(&dev);
    assert_order(&record.sent(), senders, each, false);
}

#[test]
fn two_senders_under_loom() {
    for discipline in enqueue::names() {
        Loom::check(|| senders::<Loom>(discipline, 2, 1, 1, 1000));
    }
}

#[test]
fn two_batches_under_loom() {
    for discipline in enqueue::names() {
        Loom::check(|| senders::<Loom>(discipline, 2, 1, 2, 1000));
    }
}

#[test]
fn six_senders_under_shuttle() {
    for discipline in enqueue::names() {
        Shuttle::check(|| senders::<Shuttle>(discipline, 6, 3, 1, 1000));
        Shuttle::check(|| senders::<Shuttle>(discipline, 3, 2, 3, 1000));
    }
}

#[test]
fn a_full_defer_list_under_shuttle() {
    Shuttle::check(|| senders::<Shuttle>("llist", 6, 3, 1, 2));
}

#[test]
fn stop_and_wake_under_loom() {
    for discipline in enqueue::names() {
        Loom::check(|| stop_and_wake::<Loom>(discipline, 1, 2, 1, false));
    }
}

#[test]
fn stop_and_wake_by_a_sender_under_loom() {
    Loom::check(|| stop_and_wake::<Loom>("spinlock", 1, 2, 1, true));
}

#[test]
fn stop_and_wake_under_shuttle() {
    for discipline in enqueue::names() {
        for inline in [false, true] {
            Shuttle::check(move || stop_and_wake::<Shuttle>(discipline, 3, 4, 2, inline));
        }
    }
}

/// The worker goes on where a sender's quota ended.
#[test]
fn a_quota_ends_under_shuttle() {
    for discipline in enqueue::names() {
        Shuttle::check(|| stop_and_wake::<Shuttle>(discipline, 1, 70, 128, true));
    }
}
