//! The whole path of a packet under each discipline: no packet is lost, sent twice or left behind, each sender's packets
//! leave in order, and the counters add up.
//!
//! Guards the entry (`txq/src/generic/enqueue/`) and the run loop (`run.rs`). Mutants that it catches: a sender that leaves because
//! the queue runs although it began the list, or an owner that leaves after one batch, by "a packet is left behind"; two
//! threads that run the queue at once, a lone packet that overtakes a running queue, a defer list that is taken before the
//! lock or sent newest first, by "lost, doubled or out of order"; a defer list without a bound, by "the list was never
//! full". Of combine: each exchange with too weak an ordering ("Causality violation"), an owner that leaves although the
//! list is not empty or the driver was left to it ("a packet is left behind"). Of lockless: a sender that does not publish
//! that it missed the token, an owner that does not check for that ("left behind"), an owner that does not publish that it
//! leaves packets on the lists ("out of order").

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::device::{Device, Record, assert_conserved, assert_order, packets};
use txq::Discipline;
use txq::drop::DropReason;
use txq_check::{Loom, Model, Shuttle};
use txq_core::packet::PacketList;

/// Senders without a worker's help; the device takes everything. So a packet that is still queued when all calls have
/// returned was left behind.
/// Returns how many packets were dropped because too many waited for the owner.
pub(super) fn senders<A: Model>(
    discipline: Discipline,
    senders: u64,
    calls: u64,
    batch: u64,
    max_burst: u32,
) -> u64 {
    let reason = DropReason::QdiscBurstDrop;
    senders_into::<A>("pfifo", reason, discipline, senders, calls, batch, max_burst)
}

/// As [`senders`], with a root qdisc; returns how many were dropped for `reason`.
fn senders_into<A: Model>(
    root: &str,
    reason: DropReason,
    discipline: Discipline,
    senders: u64,
    calls: u64,
    batch: u64,
    max_burst: u32,
) -> u64 {
    let record = Record::<A>::new(1);
    let device = Device { record: record.clone(), ring: None, inline: true };
    let builder = device.builder().default_qdisc(root).discipline(discipline).max_burst(max_burst);
    let dev = builder.build().expect("a device");
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
    if u64::from(max_burst) < senders * calls * batch {
        // A sender that waits for room sleeps. Time passes meanwhile, and an owner's turn may end with packets left to the worker.
        let _ = dev.worker(0).poll();
    }
    assert_conserved(&dev);
    let dropped = dev.stats().dropped.get(reason);
    assert_order(&record.sent(), senders, calls * batch, dropped > 0);
    dropped
}

/// A module of tests for each discipline, so that each can run alone.
macro_rules! disciplines {
    ($($module:ident: $discipline:ident,)*) => {
        $(mod $module {
            use super::*;

            const DISCIPLINE: Discipline = Discipline::$discipline;

            #[test]
            fn two_senders_under_loom() {
                Loom::check(|| assert_eq!(senders::<Loom>(DISCIPLINE, 2, 1, 1, 1000), 0));
            }

            #[test]
            fn two_batches_under_loom() {
                Loom::check(|| assert_eq!(senders::<Loom>(DISCIPLINE, 2, 1, 2, 1000), 0));
            }

            #[test]
            fn six_senders_under_shuttle() {
                Shuttle::check(|| assert_eq!(senders::<Shuttle>(DISCIPLINE, 6, 3, 1, 1000), 0));
                Shuttle::check(|| assert_eq!(senders::<Shuttle>(DISCIPLINE, 3, 2, 3, 1000), 0));
            }
        })*

        #[test]
        fn every_discipline_is_modelled() {
            assert_eq!(Discipline::ALL, [$(Discipline::$discipline),*]);
        }
    };
}

disciplines! {
    combine: Combine,
    llist: Llist,
    lockless: Lockless,
    busylock: Busylock,
    spinlock: Spinlock,
}

/// `qdisc_max_burst` bounds packets that wait for the owner, separately from the qdisc's limit.
fn a_full_list(discipline: Discipline) {
    static DROPPED: AtomicU64 = AtomicU64::new(0);
    DROPPED.store(0, Relaxed);
    Shuttle::check(move || {
        let dropped = senders::<Shuttle>(discipline, 6, 4, 1, 1);
        DROPPED.fetch_add(dropped, Relaxed);
    });
    assert!(DROPPED.load(Relaxed) > 0, "{discipline}: the list was never full");
}

#[test]
fn full_lists_under_shuttle() {
    [Discipline::Combine, Discipline::Llist, Discipline::Lockless].into_iter().for_each(a_full_list);
}

/// A sender becomes the owner without passing, because it has listed a packet, and another one passes after it.
#[test]
fn lockless_passes_after_a_turn_under_loom() {
    Loom::check(|| {
        let record = Record::<Loom>::new(1);
        let device = Device { record: record.clone(), ring: None, inline: true };
        let dev = device.builder().discipline(Discipline::Lockless).build().expect("a device");
        let [mut one, mut other] = [0, 1].map(|_| dev.sender_on("s", 0));
        let mut twice = packets(&mut one, 0, 2);
        let mut once = packets(&mut other, 1, 1);
        let other = Loom::spawn(1, move || {
            let _ = other.xmit_batch(&mut once);
            other
        });
        while let Some(packet) = twice.pop_front() {
            let _ = one.xmit(packet);
        }
        drop((other(), one));
        assert_conserved(&dev);
        assert_order(&record.sent(), 1, 2, false);
    });
}

/// A thread that reads a queue's counters waits until the queue has no owner, and then sees all that the owner wrote.
#[test]
fn a_visit_under_loom() {
    for &discipline in Discipline::ALL {
        Loom::check(move || {
            let record = Record::<Loom>::new(1);
            let device = Device { record: record.clone(), ring: None, inline: true };
            let dev = device.builder().discipline(discipline).build().expect("a device");
            let mut sender = dev.sender_on("s", 0);
            let mut packet = packets(&mut sender, 0, 1);
            let sender = Loom::spawn(1, move || {
                let _ = sender.xmit_batch(&mut packet);
                sender
            });
            let stats = dev.stats();
            assert!(stats.sent <= stats.accepted, "{stats:?}");
            drop(sender());
            // The sender may have come during the visit.
            let _ = dev.worker(0).poll();
            assert_conserved(&dev);
            assert_order(&record.sent(), 1, 1, false);
        });
    }
}

/// A turn of lockless ends at its quota, all packets that it took are sent, and a packet that the other sender has listed
/// stays: that sender's next packet does not overtake it.
#[test]
fn lockless_turn_ends_under_loom() {
    /// Of a turn, the owner's own packets included.
    const QUOTA: u64 = 64;
    Loom::check_to(3, || {
        let record = Record::<Loom>::new(1);
        let device = Device { record: record.clone(), ring: None, inline: true };
        let dev = device.builder().discipline(Discipline::Lockless).build().expect("a device");
        let mut one = dev.sender_on("s", 0);
        let mut other = dev.sender_on("s", 0);
        let mut first = packets(&mut one, 0, 1);
        let mut many = packets(&mut other, 1, QUOTA + 2);
        let other = Loom::spawn(1, move || {
            for n in [QUOTA - 1, 1, 1, 1] {
                let mut one_call = PacketList::new();
                many.move_front(n as usize, &mut one_call);
                let _ = other.xmit_batch(&mut one_call);
            }
            other
        });
        let _ = one.xmit_batch(&mut first);
        drop((other(), one));
        let _ = dev.worker(0).poll();
        assert_conserved(&dev);
        assert_order(&record.sent(), 2, QUOTA + 2, true);
    });
}
