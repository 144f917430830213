//! Late or missing answers: drivers that block, that keep packets for ever, that panic in every second poll; senders that
//! die in the middle of a batch while others send.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use txq::drop::DropReason;
use txq::packet::PacketList;
use txq::stats::device::DeviceStats;
use txq::{Discipline, NetDev};

use crate::liar::Liar;
use crate::reentry::{Spot, Where};
use crate::{audited, bounded, everywhere, packets, pool};

/// Threads send through a device; each calls `f` with its sender and the number of its call. Then every packet is accounted
/// for.
fn crowd(
    spot: &Spot,
    root: &str,
    discipline: Discipline,
    calls: u64,
    f: impl Fn(&mut txq::Sender, u64) + Sync,
) -> DeviceStats {
    let dev = NetDev::builder(spot.clone()).qdisc(root).discipline(discipline).pool_config(pool());
    let dev = dev.start().expect("a device");
    std::thread::scope(|scope| {
        for _ in 0..4 {
            let mut sender = dev.sender("s");
            let f = &f;
            scope.spawn(move || (0..calls).for_each(|call| f(&mut sender, call)));
        }
    });
    spot.disarm();
    assert!(dev.drain(Duration::from_secs(60)), "{root}, {discipline}: {:?}", dev.stats());
    let stats = audited(&dev);
    assert_eq!(stats.accepted, stats.sent + stats.dropped.total());
    until_home(&dev, root, discipline);
    stats
}

/// Waits until all buffers are home: workers free the packets that they reap a moment after the txq counts them.
fn until_home(dev: &NetDev, root: &str, discipline: Discipline) {
    let began = Instant::now();
    while dev.pool().in_use() != Default::default() {
        let left = dev.pool().in_use();
        assert!(began.elapsed() < Duration::from_secs(60), "{root}, {discipline}: not home: {left:?}");
        std::thread::yield_now();
    }
}

/// A driver blocks for 100 ms in a call: under the disciplines without a lock on the path, other senders do not wait for it.
#[test]
fn a_driver_blocks() {
    bounded(|| {
        everywhere(|root, discipline| {
            if root == "pfifo_fast" {
                return;
            }
            let spot = Spot::new(None);
            let mut times = 1;
            spot.arm(Where::StartXmit, move || {
                if times > 0 {
                    times -= 1;
                    std::thread::sleep(Duration::from_millis(100));
                }
            });
            let waited = AtomicU64::new(0);
            let stats = crowd(&spot, root, discipline, 50, |sender, _| {
                let Ok(packet) = sender.alloc(60) else { return };
                let began = Instant::now();
                let _ = sender.xmit(packet);
                if began.elapsed() >= Duration::from_millis(90) {
                    waited.fetch_add(1, Relaxed);
                }
            });
            assert_eq!(stats.dropped.total(), 0, "{root}, {discipline}: {stats:?}");
            let blocked = waited.load(Relaxed);
            assert!(blocked <= 4, "{root}, {discipline}: {blocked} calls waited");
        });
    });
}

/// A driver panics in every second poll: packets that it returned before are home, and all others come home.
#[test]
fn every_second_poll_panics() {
    bounded(|| {
        everywhere(|root, discipline| {
            let spot = Spot::new(Some(8));
            let mut polls = 0;
            spot.arm(Where::Poll, move || {
                polls += 1;
                assert!(polls % 2 == 0 || polls > 40, "the driver panics, as the test wants");
            });
            let stats = crowd(&spot, root, discipline, 50, |sender, _| {
                // A sender without a buffer polls, too.
                let _ = catch_unwind(AssertUnwindSafe(|| sender.alloc(60).map(|packet| sender.xmit(packet))));
            });
            let full = stats.dropped.get(DropReason::FullRing);
            assert_eq!(
                stats.dropped.total(),
                full,
                "{root}, {discipline}: a completion's panic loses no packet"
            );
        });
    });
}

/// Senders die with a batch half made, and others take their place.
#[test]
fn senders_die_in_the_middle_of_a_batch() {
    bounded(|| {
        everywhere(|root, discipline| {
            let spot = Spot::new(Some(16));
            let dev = NetDev::builder(spot).qdisc(root).discipline(discipline).pool_config(pool());
            let dev = dev.start().unwrap();
            std::thread::scope(|scope| {
                for _ in 0..4 {
                    scope.spawn(|| {
                        for i in 0..20 {
                            let mut sender = dev.sender("mortal");
                            let died = catch_unwind(AssertUnwindSafe(move || {
                                let mut batch: PacketList =
                                    (0..i).filter_map(|_| sender.alloc(60).ok()).collect();
                                let mut half = PacketList::new();
                                batch.move_front(batch.len() / 2, &mut half);
                                let _ = sender.xmit_batch(&mut half);
                                panic!("the sender panics, as the test wants");
                            }));
                            assert!(died.is_err());
                        }
                    });
                }
            });
            assert!(dev.drain(Duration::from_secs(60)), "{root}, {discipline}: {:?}", dev.stats());
            let stats = audited(&dev);
            assert_eq!(stats.dropped.get(DropReason::NotSpecified), 0, "{root}, {discipline}: {stats:?}");
            until_home(&dev, root, discipline);
        });
    });
}

/// A driver keeps packets for ever: the txq stops, the queue fills and drops, and the device can still end.
#[test]
fn a_driver_keeps_packets_for_ever() {
    bounded(|| {
        everywhere(|root, discipline| {
            let liar = Liar::new(Some(8));
            liar.state().hoards = true;
            let dev = NetDev::builder(liar.clone()).qdisc(root).discipline(discipline).tx_queue_len(20);
            let dev = dev.pool_config(pool()).start().unwrap();
            let mut maker = dev.sender("its own");
            let mut sender = dev.sender("s");
            for i in 0..20 {
                let _ = sender.xmit_batch(&mut packets(&mut maker, i * 5..i * 5 + 5));
            }
            assert!(!dev.drain(Duration::from_millis(1)), "{root}, {discipline}");
            let stats = audited(&dev);
            assert!(stats.in_flight <= 8 && stats.sent == stats.in_flight, "{root}, {discipline}: {stats:?}");
            let pool = dev.pool().clone();
            let left = Arc::new(dev);
            drop((Arc::into_inner(left), sender, maker));
            liar.forget();
            assert_eq!(pool.in_use(), Default::default(), "{root}, {discipline}: buffers are not home");
        });
    });
}
