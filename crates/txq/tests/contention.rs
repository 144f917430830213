//! A device's records of waits, on a device that the test controls; and the absence of records unless they are switched on.

#[expect(dead_code, reason = "other tests use the rest")]
mod device;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::Barrier;

use device::{Wires, assert_conserved, pool};
use txq::driver::{DeviceInfo, Driver, DriverQueue, NoCompletions, Status, Transmit, TxCx};
use txq::netdev::Builder;
use txq::packet::PacketList;
use txq::stats::contention::{ContentionReport, LockStats};
use txq::stats::contention::{Lock, Site};
use txq::{Discipline, NetDev};

/// The system's allocator, with a count of allocations for each thread.
struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: the system's allocator does everything; counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

fn allocations(f: impl FnOnce()) -> u64 {
    let before = ALLOCATIONS.get();
    f();
    ALLOCATIONS.get() - before
}

fn builder(wires: &Wires, discipline: Discipline) -> Builder {
    NetDev::builder(wires.clone()).pool_config(pool()).qdisc("pfifo").discipline(discipline).bql(None)
}

fn send(dev: &NetDev, packets: u64, batch: usize) {
    let mut sender = dev.sender("s");
    let mut list = PacketList::new();
    for _ in 0..packets {
        sender.alloc_batch(batch, 60, &mut list).unwrap();
        let _ = sender.xmit_batch(&mut list);
    }
}

fn at(report: &ContentionReport, lock: Lock, site: Site) -> LockStats {
    let row = report.sites.iter().find(|row| (row.lock, row.site) == (lock, site));
    row.map_or_else(LockStats::default, |row| row.stats)
}

/// One sender alone, as in Linux: each call takes the root lock twice and the tx lock once, and never waits. The device keeps
/// the packets, so each poll is empty and the sender reaps after each packet.
#[test]
fn each_acquisition_is_counted_at_its_site() {
    for &discipline in Discipline::ALL {
        let wires = Wires::new(1, Some(16));
        let dev = builder(&wires, discipline).tx_lock(true).contention(true).build().unwrap();
        send(&dev, 10, 1);
        let report = dev.contention().unwrap();
        let taken = |lock, site| at(&report, lock, site).acquisitions;
        assert_eq!(taken(Lock::Tx, Site::Driver), 10);
        assert_eq!(taken(Lock::Completion, Site::Reap), 10);
        if ![Discipline::Combine, Discipline::Lockless].contains(&discipline) {
            assert_eq!((taken(Lock::Root, Site::Enqueue), taken(Lock::Root, Site::Retake)), (10, 10));
        }
        assert!(
            report.sites.iter().all(|row| row.stats.contended == 0 && row.stats.held_up == 0),
            "{report:?}"
        );
        assert_eq!(report.retries.iter().sum::<u64>(), 0);
        wires.at(0).complete(usize::MAX);
        dev.worker(0).poll();
        let worker = at(&dev.contention().unwrap(), Lock::Root, Site::Worker).acquisitions;
        assert_eq!(worker, 0, "no queue was scheduled");
        assert_conserved(&dev);
    }
}

/// An owner of the only queue that feeds a txq takes neither of the txq's locks, except under the disciplines that take them in
/// Linux.
#[test]
fn a_queue_that_alone_feeds_a_txq_takes_no_lock_of_it() {
    for (discipline, qdisc) in Discipline::ALL.iter().copied().flat_map(|d| [(d, "pfifo"), (d, "noqueue")]) {
        let wires = Wires::new(1, Some(16));
        let dev = builder(&wires, discipline).qdisc(qdisc).contention(true).build().unwrap();
        send(&dev, 10, 1);
        wires.at(0).complete(usize::MAX);
        dev.worker(0).poll();
        assert_eq!(dev.stats().in_flight, 0, "{discipline}: reaped without the lock");
        let report = dev.contention().unwrap();
        let taken = [(Lock::Tx, Site::Driver), (Lock::Completion, Site::Reap)]
            .map(|(lock, site)| at(&report, lock, site).acquisitions);
        let compared =
            ![Discipline::Combine, Discipline::Lockless].contains(&discipline) && qdisc != "noqueue";
        assert_eq!(taken, if compared { [10, 11] } else { [0, 0] }, "{discipline} {qdisc}");
        assert_conserved(&dev);
    }
}

#[test]
fn noqueue_has_a_lock_as_well() {
    let wires = Wires::new(1, None);
    let dev =
        builder(&wires, Discipline::Llist).qdisc("noqueue").tx_lock(true).contention(true).build().unwrap();
    send(&dev, 7, 2);
    let report = dev.contention().unwrap();
    assert_eq!(at(&report, Lock::Root, Site::Enqueue).acquisitions, 7);
    assert_eq!(at(&report, Lock::Root, Site::Retake).acquisitions, 0);
    assert_eq!(at(&report, Lock::Tx, Site::Driver).acquisitions, 7);
}

/// Packets that an owner takes from the list, and packets that it leaves to the worker when its quota of 64 is used up.
#[test]
fn drains_and_hand_offs_are_counted() {
    let wires = Wires::new(1, None);
    let dev = builder(&wires, Discipline::Combine).build().unwrap();
    send(&dev, 2, 5);
    dev.set_contention(true);
    // A lone sender's packets are on no list.
    send(&dev, 2, 1);
    let (entered, inside) = std::sync::mpsc::channel();
    let (leave, may_leave) = std::sync::mpsc::channel::<()>();
    wires.at(0).refuse_after(entered, may_leave);
    std::thread::scope(|scope| {
        scope.spawn(|| send(&dev, 1, 1));
        inside.recv().unwrap();
        // A sender is in the driver and owns the queue: these packets go on the list.
        send(&dev, 2, 3);
        leave.send(()).unwrap();
    });
    let mut worker = dev.worker(0);
    let mut run = || {
        while !dev.is_idle() {
            worker.poll();
        }
    };
    run();
    let before = dev.contention().unwrap();
    assert_eq!(before.hand_offs, 0);
    // Refused; the worker will send them.
    wires.at(0).busy = 1;
    send(&dev, 1, 200);
    run();
    let report = dev.contention().unwrap();
    let drained: Vec<_> =
        report.drained.buckets().filter(|b| b.count > 0).map(|b| (b.min, b.count)).collect();
    assert_eq!(drained, [(4, 1)]);
    // 200 = 64, 64, 64 and 8 by the worker, which reschedules the queue for itself.
    assert_eq!(report.hand_offs, 3);
    assert!(dev.stats().hand_offs >= 3, "counted also without a record");
    assert_conserved(&dev);
}

/// Threads at one queue, recorded and unrecorded in turn: the counts of a recorded part add up exactly to the threads'
/// calls.
#[test]
fn it_is_exact_among_threads_and_live() {
    let (threads, calls) = (4, 500);
    for &discipline in Discipline::ALL {
        let wires = Wires::new(1, None);
        let dev = builder(&wires, discipline).tx_lock(true).build().unwrap();
        let crowd = || {
            let start = Barrier::new(threads);
            std::thread::scope(|scope| {
                for _ in 0..threads {
                    scope.spawn(|| {
                        start.wait();
                        send(&dev, calls, 1);
                    });
                }
            });
            let mut worker = dev.worker(0);
            while !dev.is_idle() {
                worker.poll();
            }
        };
        crowd();
        assert_eq!(dev.contention(), None);
        dev.set_contention(true);
        let driven = dev.stats().queues[0].counters.batches;
        crowd();
        let report = dev.contention().unwrap();
        let batches = dev.stats().queues[0].counters.batches - driven;
        assert_eq!(at(&report, Lock::Tx, Site::Driver).acquisitions, batches);
        let enqueued = at(&report, Lock::Root, Site::Enqueue).acquisitions;
        match discipline {
            Discipline::Spinlock => assert_eq!(enqueued, threads as u64 * calls),
            // Senders that found the list empty.
            Discipline::Llist => assert!((1..=threads as u64 * calls).contains(&enqueued), "{enqueued}"),
            _ => {}
        }
        for &lock in Lock::ALL {
            let sum = report.of_lock(lock);
            assert_eq!((sum.contended, sum.contended), (sum.held_up, sum.waits.count()), "{lock:?}");
        }
        for row in report.sites.iter().filter(|row| row.site != Site::Control) {
            assert_eq!(row.stats.acquisitions, row.stats.hold.count, "{row:?}");
        }
        dev.set_contention(false);
        let before = dev.contention().unwrap();
        crowd();
        assert_eq!(dev.contention().unwrap(), before, "it is off");
        assert_conserved(&dev);
    }
}

/// Takes every packet, and allocates nothing.
struct Sink;

impl Driver for Sink {
    fn info(&self) -> DeviceInfo {
        DeviceInfo::new("sink")
    }
    fn open(&mut self, _: u16) -> std::io::Result<DriverQueue> {
        Ok(DriverQueue::new(Sink, NoCompletions))
    }
}

impl Transmit for Sink {
    fn start_xmit(&mut self, batch: &mut PacketList, cx: &mut TxCx<'_>) -> Status {
        cx.sent_all(batch);
        Status::Ok
    }
}

/// While recording is off, there is no record, and sending allocates nothing. While it is on, sending allocates nothing
/// either: all memory is allocated when recording is switched on.
#[test]
fn sending_allocates_nothing_recorded_or_not() {
    for &discipline in Discipline::ALL {
        let dev = NetDev::builder(Sink).pool_config(pool()).qdisc("pfifo").discipline(discipline).bql(None);
        let dev = dev.build().unwrap();
        for recorded in [false, true] {
            let switched_on = allocations(|| dev.set_contention(recorded));
            assert_eq!(switched_on > 0, recorded, "{switched_on}");
            let mut sender = dev.sender("s");
            let mut list = PacketList::new();
            let mut send = |times| {
                for _ in 0..times {
                    sender.alloc_batch(8, 60, &mut list).unwrap();
                    let _ = sender.xmit_batch(&mut list);
                }
            };
            // A sender notes once which txqs it has used.
            send(1);
            assert_eq!(allocations(|| send(100)), 0, "{discipline}, recorded: {recorded}");
            assert_eq!(dev.contention().is_some(), recorded);
        }
    }
}

/// Each call is in the histogram of its sender, whether the sender is alive or gone; by default, none is.
#[test]
fn calls_of_xmit_are_timed_when_asked_for() {
    let wires = Wires::new(1, None);
    let dev = builder(&wires, Discipline::Llist).build().unwrap();
    send(&dev, 10, 1);
    assert_eq!(dev.xmit_times().count(), 0);
    let dev = builder(&wires, Discipline::Llist).xmit_times(true).build().unwrap();
    let mut alive = dev.sender("alive");
    let packet = alive.packet(b"a frame").unwrap();
    let _ = alive.xmit(packet);
    let _ = alive.xmit_batch(&mut PacketList::new());
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| send(&dev, 20, 2));
        }
    });
    assert_eq!(dev.xmit_times().count(), 1 + 3 * 20, "an empty batch is no call");
}
