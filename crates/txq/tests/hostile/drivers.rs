//! Drivers that lie about packets.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use txq::drop::DropReason;
use txq::netdev::DriverBug;
use txq::stats::device::DeviceStats;
use txq::{Discipline, NetDev};

use crate::liar::{Liar, Lie, other_pool};
use crate::{audited, bounded, build, everywhere, packets, settle};

const PACKETS: u64 = 200;

/// A run over a driver that lies in its first calls, and the results that hold whatever the lie.
pub(crate) struct Run {
    stats: DeviceStats,
    bugs: Vec<DriverBug>,
    invented: u64,
    sent: Vec<u64>,
}

pub(crate) fn run(
    lie: Lie,
    ring: Option<u32>,
    root: &str,
    discipline: Discipline,
    own_pool: bool,
    total: u64,
) -> Run {
    let what = format!("{lie:?}, ring {ring:?}, {root}, {discipline}, own pool {own_pool}");
    let liar = Liar::new(ring);
    let told = Arc::new(Mutex::new(Vec::new()));
    let tell = told.clone();
    let builder = NetDev::builder(liar.clone()).on_driver_bug(move |event| {
        assert_eq!((&*event.device, event.txq), ("liar", 0));
        tell.lock().unwrap().push(event.bug);
    });
    let dev = build(builder, root, discipline);
    let other = other_pool();
    liar.lie(lie, 3, if own_pool { dev.sender("driver") } else { other.sender("driver") });
    let (mut sender, mut worker) = (dev.sender("s"), dev.worker(0));
    let mut next = 0;
    for n in [1, 2, 20, 1, 64].into_iter().cycle() {
        let end = total.min(next + n);
        let _ = catch_unwind(AssertUnwindSafe(|| {
            sender.xmit_batch(&mut packets(&mut sender_of(&dev), next..end))
        }));
        let _ = catch_unwind(AssertUnwindSafe(|| worker.poll()));
        next = end;
        if next == total {
            break;
        }
    }
    settle(&dev, &mut worker);
    let stats = dev.audit().unwrap_or_else(|wrong| panic!("{what}: {wrong}"));
    assert_eq!(stats.accepted, total, "{what}");
    assert_eq!(stats.sent + stats.dropped.total(), total, "{what}: {stats:?}");
    let counters = stats.queues[0].counters;
    let most = liar.state().most;
    assert!(most <= ring.unwrap_or(64) as usize, "{what}: it was given {most} packets at once");
    // The last reading of the counters may have found the bug.
    worker.poll();
    let bugs = told.lock().unwrap().clone();
    assert!(bugs.len() as u64 <= counters.driver_bugs, "{what}: {bugs:?}");
    liar.forget();
    drop((sender, worker));
    for dev in [&dev, &other] {
        assert_eq!(dev.pool().in_use(), Default::default(), "{what}: buffers are not home: {stats:?}");
    }
    let state = liar.state();
    Run { stats, bugs, invented: state.invented, sent: state.sent.clone() }
}

fn sender_of(dev: &NetDev) -> txq::Sender {
    dev.sender("its own")
}

fn attack(lie: Lie, rings: &[Option<u32>], check: impl Fn(Run)) {
    everywhere(|root, discipline| {
        for &ring in rings {
            for own_pool in [false, true] {
                check(run(lie, ring, root, discipline, own_pool, PACKETS));
            }
        }
    });
}

const ANY: [Option<u32>; 2] = [None, Some(8)];

fn counted(run: &Run, bug: DriverBug) {
    let counters = run.stats.queues[0].counters;
    assert_eq!(run.bugs, [bug], "told once: {:?}", run.stats);
    assert!(counters.driver_bugs >= 1);
    assert_eq!(counters.invented, run.invented, "{:?}", run.stats);
}

/// It leaves more packets than it got: the surplus is freed, the given packets are sent, in order.
#[test]
fn a_driver_leaves_more_than_it_got() {
    bounded(|| {
        for lie in [Lie::Leaves(1), Lie::Leaves(70), Lie::Tag] {
            attack(lie, &ANY, |run| {
                counted(&run, DriverBug::Invented);
                // With noqueue, refused packets are dropped.
                let refused = run.stats.dropped.get(DropReason::FullRing);
                assert_eq!(run.stats.sent + refused, PACKETS);
                assert_eq!(run.sent.len() as u64, run.stats.sent, "none of them was one of the driver's own");
                assert!(run.sent.is_sorted(), "{:?}", run.sent);
            });
        }
    });
}

/// It takes all packets, and leaves other ones: a surplus over the given number is freed. On a ring some of them cannot be
/// told from the sender's, until the ring returns more than it kept.
#[test]
fn a_driver_exchanges_packets() {
    bounded(|| {
        for n in [1, 2, 100] {
            attack(Lie::Exchanges(n), &ANY, |run| {
                assert!(run.stats.queues[0].counters.invented <= run.invented, "{:?}", run.stats);
                assert!(run.bugs.contains(&DriverBug::Invented) || run.bugs.contains(&DriverBug::NeverKept));
            });
        }
    });
}

/// It reports foreign packets as sent or dropped: they are freed, and are in no sum.
#[test]
fn a_driver_sends_and_drops_what_it_never_got() {
    bounded(|| {
        for lie in [Lie::Sends(1), Lie::Sends(100), Lie::Drops(1), Lie::Drops(100)] {
            attack(lie, &[None], |run| counted(&run, DriverBug::Invented));
            // On a ring they count as kept packets, until those come back.
            attack(lie, &[Some(8)], |run| {
                assert!(run.stats.queues[0].counters.invented <= run.invented, "{:?}", run.stats);
            });
        }
    });
}

/// All of it at once.
#[test]
fn a_driver_does_everything_wrong() {
    bounded(|| {
        attack(Lie::Everything, &ANY, |run| {
            assert_eq!(run.stats.queues[0].counters.invented, run.invented, "{:?}", run.stats);
            assert!(run.bugs.contains(&DriverBug::Invented) && run.bugs.contains(&DriverBug::LeftBehind));
        });
    });
}

/// It returns `Ok` and leaves half of the batch: the rest is sent, in order, without a busy loop.
#[test]
fn a_driver_says_ok_and_leaves_half() {
    bounded(|| {
        attack(Lie::Half, &ANY, |run| {
            counted(&run, DriverBug::LeftBehind);
            assert!(run.sent.is_sorted(), "{:?}", run.sent);
        });
    });
}

/// Packets come back longer or shorter than they were: the bytes sent never fall below zero, and the sums of queues and txqs
/// agree.
#[test]
fn a_driver_changes_lengths() {
    bounded(|| {
        attack(Lie::Grows, &ANY, |run| {
            let sent = run.stats.sent;
            assert!((sent * 60..=sent * 72).contains(&run.stats.bytes_sent), "{:?}", run.stats);
        });
        attack(Lie::Shrinks, &ANY, |_| {});
        for lie in [Lie::Shorter, Lie::Longer] {
            attack(lie, &[Some(8)], |run| {
                assert_eq!(
                    (run.stats.sent, run.stats.dropped.total()),
                    (run.sent.len() as u64, PACKETS - run.stats.sent)
                );
            });
        }
    });
}

/// It panics with foreign packets in the batch, and with packets on its ring.
#[test]
fn a_driver_invents_and_panics() {
    bounded(|| {
        for lie in [Lie::Panics(1), Lie::Panics(100), Lie::PanicsOnTheWay] {
            attack(lie, &ANY, |run| {
                let lost = run.stats.dropped.get(DropReason::NotSpecified);
                assert!(lost > 0, "{:?}", run.stats);
                assert!(!run.bugs.contains(&DriverBug::NeverKept), "what a panic left on the ring was kept");
            });
        }
    });
}

/// It refuses until the end of time: the txq nevertheless retries after a second at most.
#[test]
fn a_driver_that_says_never_is_asked_again() {
    bounded(|| {
        let liar = Liar::new(None);
        let dev = build(NetDev::builder(liar.clone()), "pfifo", Discipline::Combine);
        liar.lie(Lie::Never, 1, other_pool().sender("driver"));
        let (mut sender, mut worker) = (dev.sender("s"), dev.worker(0));
        let _ = sender.xmit_batch(&mut packets(&mut sender_of(&dev), 0..3));
        let next = worker.poll().expect("the worker will poll again");
        assert!(next <= sender.now() + Duration::from_secs(1), "{next:?}");
        liar.state().sent.clear();
        while !dev.is_idle() {
            worker.poll();
            std::thread::sleep(Duration::from_millis(20));
        }
        assert_eq!(audited(&dev).sent, 3);
    });
}

/// It completes packets that it never had: they are freed and counted, and the ring is never given more than it holds.
#[test]
fn a_driver_returns_what_it_never_got() {
    bounded(|| {
        for n in [1, 64, 300] {
            attack(Lie::Returns(n), &[Some(8)], |run| {
                assert_eq!(run.stats.queues[0].counters.invented, run.invented, "{:?}", run.stats);
                assert!(run.bugs.contains(&DriverBug::NeverKept), "{:?}", run.bugs);
                assert_eq!(run.bugs.contains(&DriverBug::OverBudget), n >= 64, "{:?}", run.bugs);
            });
        }
        // More than the budget, but all its own.
        attack(Lie::AllAtOnce, &[Some(200)], |run| assert_eq!(run.invented, 0));
    });
}

/// Missing bytes, under byte queue limits, do not stop the txq for ever; and each limit is counted.
#[test]
fn bytes_that_are_missing_do_not_stop_a_txq() {
    bounded(|| {
        everywhere(|root, discipline| {
            let liar = Liar::new(Some(64));
            let dev = build(NetDev::builder(liar.clone()), root, discipline);
            liar.lie(Lie::Shorter, usize::MAX, other_pool().sender("driver"));
            let (mut sender, mut worker) = (dev.sender("s"), dev.worker(0));
            for i in 0..100 {
                let _ = sender.xmit_batch(&mut packets(&mut sender_of(&dev), i * 30..i * 30 + 30));
                settle(&dev, &mut worker);
            }
            let stats = audited(&dev);
            assert_eq!(stats.sent + stats.dropped.get(DropReason::FullRing), 3000);
            assert_eq!(stats.queues[0].counters.driver_bugs > 0, root != "noqueue", "{stats:?}");
        });
    });
}
