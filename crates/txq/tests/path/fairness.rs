//! One pool, two senders: whatever a congested sender does, one that is not congested gets buffers. Through classes, by
//! priority, and for a sender that begins when the other has all that it can get.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use crate::device::{Wires, assert_conserved, pool};
use txq::pool::{AllocError, PoolConfig};
use txq::{Instant, NetDev, Sender, WaitError};

/// Length of a packet in bytes: 100 of them a second are 1 Mbit/s.
const LEN: usize = 1250;
/// Packets that the sender without congestion sends.
const SENT: u64 = 300;
/// Packets that it has on their way at most.
const WINDOW: u64 = 32;

/// The default pool, whatever the default becomes: fewer buffers than an fq_codel's limit.
fn config() -> PoolConfig {
    PoolConfig { buffers: 4096, room: LEN, ..pool() }
}

/// Allocates and sends packets of a class until the pool refuses one; returns how many, and why it has ended.
fn flood(sender: &mut Sender, priority: u32) -> (u64, AllocError) {
    let mut sent = 0;
    loop {
        match sender.alloc(LEN) {
            Ok(mut packet) => {
                packet.set_priority(priority);
                let _ = sender.xmit(packet);
                sent += 1;
            }
            Err(error) => return (sent, error),
        }
    }
}

/// Sends [`SENT`] packets of a class, at most [`WINDOW`] at a time, while the other sender takes each buffer that it can
/// get; returns how many allocations failed for want of a buffer.
fn beside_a_flood(own: &mut Sender, hog: Sender, priority: u32, others: u32) -> u64 {
    own.set_limit(WINDOW);
    let over = AtomicBool::new(false);
    thread::scope(|threads| {
        let flood = threads.spawn(|| {
            let mut hog = hog;
            while !over.load(Relaxed) {
                flood(&mut hog, others);
                thread::yield_now();
            }
            hog
        });
        let (mut sent, mut refused) = (0, 0);
        while sent < SENT {
            assert!(own.wait_credit(None));
            match own.alloc(LEN) {
                Ok(mut packet) => {
                    packet.set_priority(priority);
                    let _ = own.xmit(packet);
                    sent += 1;
                }
                Err(_) => {
                    refused += 1;
                    if refused > 10 {
                        break;
                    }
                    thread::sleep(Duration::from_millis(1));
                }
            }
        }
        over.store(true, Relaxed);
        drop(flood.join().unwrap());
        refused
    })
}

/// A class of 1 Mbit/s, overloaded, beside one of 50 Mbit/s. The first could queue 10240 packets.
fn two_classes(wires: &Wires) -> NetDev {
    let dev = NetDev::builder(wires.clone())
        .pool_config(config())
        .qdisc("handle 1: htb default 20")
        .start()
        .unwrap();
    dev.tc("class add parent 1: classid 1:10 htb rate 1mbit").unwrap();
    dev.tc("class add parent 1: classid 1:20 htb rate 50mbit").unwrap();
    dev.tc("qdisc replace parent 1:10 fq_codel").unwrap();
    dev
}

/// The priority that chooses class 1:10.
const SLOW: u32 = 0x0001_0010;
/// The priority that chooses class 1:20.
const FAST: u32 = 0x0001_0020;

#[test]
fn a_class_without_congestion_gets_buffers_beside_a_congested_one() {
    let dev = two_classes(&Wires::new(1, None));
    let (mut fast, mut slow) = (dev.sender("fast"), dev.sender("slow"));
    let (held, _) = flood(&mut slow, SLOW);
    assert!(held > 2048, "the congested sender may have most of the pool: {held}");
    assert_eq!(beside_a_flood(&mut fast, slow, FAST, SLOW), 0, "refused for want of a buffer");
}

#[test]
fn a_sender_that_begins_beside_a_flood_gets_buffers() {
    let dev = two_classes(&Wires::new(1, None));
    let mut slow = dev.sender("slow");
    flood(&mut slow, SLOW);
    let mut late = dev.sender("late");
    assert_eq!(beside_a_flood(&mut late, slow, FAST, SLOW), 0, "refused for want of a buffer");
}

#[test]
fn four_floods_leave_buffers_for_a_fifth_sender() {
    let dev = two_classes(&Wires::new(1, None));
    let mut hogs = ["a", "b", "c", "d"].map(|name| dev.sender(name));
    thread::scope(|threads| {
        hogs.iter_mut().for_each(|hog| {
            threads.spawn(|| flood(hog, SLOW));
        });
    });
    let mut fast = dev.sender("fast");
    let hog = dev.sender("hog");
    assert_eq!(beside_a_flood(&mut fast, hog, FAST, SLOW), 0, "refused for want of a buffer");
}

/// Strict priority over a slow link: the flood of the last band does not move while the first band sends.
#[test]
fn a_higher_priority_gets_buffers_beside_a_congested_lower_one() {
    let wires = Wires::new(1, Some(4));
    let dev = NetDev::builder(wires.clone()).pool_config(config()).qdisc("handle 1: prio").start().unwrap();
    dev.tc("qdisc replace parent 1:3 pfifo limit 10000").unwrap();
    let (mut first, mut last) = (dev.sender("first"), dev.sender("last"));
    flood(&mut last, 0x0001_0003);
    let over = AtomicBool::new(false);
    thread::scope(|threads| {
        let (wire, done) = (wires.0[0].clone(), &over);
        threads.spawn(move || {
            while !done.load(Relaxed) {
                wire.lock().unwrap().complete(4);
                thread::yield_now();
            }
        });
        let refused = beside_a_flood(&mut first, last, 0x0001_0001, 0x0001_0003);
        let drained = dev.drain(Duration::from_secs(60));
        over.store(true, Relaxed);
        assert_eq!((refused, drained), (0, true), "refused for want of a buffer, or packets do not leave");
    });
    drop(first);
    assert_conserved(&dev);
}

/// A sender beyond its share that awaits a buffer gets one when its own packets leave, and takes none of the others'.
#[test]
fn a_congested_sender_awaits_its_own_packets() {
    let wires = Wires::new(1, Some(4));
    let dev =
        NetDev::builder(wires.clone()).pool_config(config()).qdisc("pfifo limit 10000").build().unwrap();
    let (mut hog, mut worker) = (dev.sender("hog"), dev.worker(0));
    let (held, error) = flood(&mut hog, 0);
    assert!(matches!(error, AllocError::Reserved { .. }), "{error}");
    assert_eq!(hog.wait_buffer(LEN, Some(Instant::ZERO)).unwrap_err(), WaitError::Deadline);
    for _ in 0..held {
        wires.at(0).complete(4);
        worker.poll();
        if hog.wait_buffer(LEN, Some(Instant::ZERO)).is_ok() {
            break;
        }
    }
    assert!(hog.wait_buffer(LEN, Some(Instant::ZERO)).is_ok(), "no packet of its own has helped");
    while !dev.is_idle() {
        wires.at(0).complete(4);
        worker.poll();
    }
    drop(hog);
    assert_conserved(&dev);
}

/// The default pool has a buffer for each packet that the qdiscs may queue, so an overload is the qdisc's to drop. A program
/// that adds classes later grows the pool.
#[test]
fn the_default_pool_follows_the_limits() {
    let dev = |qdisc: &str| NetDev::builder(Wires::new(1, None)).qdisc(qdisc).build().unwrap();
    assert_eq!(dev("pfifo limit 100").pool().buffers(), 4096);
    let fq_codel = dev("fq_codel");
    assert!(!fq_codel.pool_demand().is_short(), "{}", fq_codel.pool_demand());
    assert_eq!(fq_codel.pool_demand().queued, 10240);
    let large = dev("pfifo limit 100000");
    assert!(large.pool_demand().is_short(), "{}", large.pool_demand());
    let htb = dev("handle 1: htb default 20");
    htb.tc("class add parent 1: classid 1:10 htb rate 1mbit").unwrap();
    htb.tc("qdisc replace parent 1:10 fq_codel").unwrap();
    htb.tc("class add parent 1: classid 1:20 htb rate 1mbit").unwrap();
    htb.tc("qdisc replace parent 1:20 bfifo").unwrap();
    let demand = htb.pool_demand();
    assert_eq!((demand.queued, demand.others, demand.is_short()), (10240, 1, true), "{demand}");
    let demand = htb.fit_pool().unwrap();
    assert!(!demand.is_short() && htb.pool().buffers() == demand.buffers, "{demand}");
    assert_eq!(demand.to_string().split_once(';').unwrap().1, " the pool has 11264 buffers");
}
