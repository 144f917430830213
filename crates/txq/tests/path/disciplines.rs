//! Promises of the enqueue disciplines beyond the path itself: bounds, turns, reasons, and order under adverse timing.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex, mpsc};
use std::thread;
use std::time::Duration;

use crate::device::{Wires, assert_conserved, pool};
use txq::drop::DropReason;
use txq::packet::{Packet, PacketList};
use txq::pool::PoolConfig;
use txq::qdisc::{Budget, Cx, Qdisc, Shortcuts, Verdict};
use txq::stats::QdiscStats;
use txq::tc::Style;
use txq::{Discipline, NetDev};

/// A FIFO that waits in `enqueue` while the test keeps its gate shut, and drops packets that the test has marked.
struct Gated {
    queue: PacketList,
    drops: u64,
    gate: Arc<Gate>,
    /// Packets enqueued since the last dequeue.
    run: usize,
}

#[derive(Default)]
struct Gate {
    state: Mutex<GateState>,
    changed: Condvar,
}

#[derive(Default)]
struct GateState {
    shut: bool,
    /// Whether a thread waits at the gate.
    waiting: bool,
    /// The most packets enqueued in a row.
    longest_run: usize,
}

impl Gate {
    fn shut(&self) {
        self.state.lock().unwrap().shut = true;
    }

    fn open(&self) {
        self.state.lock().unwrap().shut = false;
        self.changed.notify_all();
    }

    fn wait_for_somebody(&self) {
        drop(self.changed.wait_while(self.state.lock().unwrap(), |s| !s.waiting).unwrap());
    }

    fn pass(&self, run: usize) {
        let mut state = self.state.lock().unwrap();
        state.longest_run = state.longest_run.max(run);
        while state.shut {
            state.waiting = true;
            self.changed.notify_all();
            state = self.changed.wait(state).unwrap();
        }
        state.waiting = false;
    }
}

impl Qdisc for Gated {
    fn kind(&self) -> &'static str {
        "gated"
    }

    fn enqueue(&mut self, packet: Packet, cx: &mut Cx<'_>) -> Verdict {
        self.run += 1;
        self.gate.pass(self.run);
        let reason = match packet.mark() {
            0 => {
                self.queue.push_back(packet);
                return Verdict::Success;
            }
            1 => DropReason::QdiscOverlimit,
            2 => DropReason::QdiscDrop,
            _ => DropReason::NoMem,
        };
        self.drops += 1;
        cx.drop(packet, reason);
        Verdict::Drop
    }

    fn dequeue_batch(&mut self, budget: Budget, out: &mut PacketList, _: &mut Cx<'_>) {
        self.run = 0;
        self.queue.move_front(budget.packets, out);
    }

    fn reset(&mut self, cx: &mut Cx<'_>) {
        while let Some(packet) = self.queue.pop_front() {
            cx.drop(packet, DropReason::QueuePurge);
        }
    }

    fn qlen(&self) -> usize {
        self.queue.len()
    }

    fn stats(&self) -> QdiscStats {
        QdiscStats { drops: self.drops, qlen: self.queue.len() as u64, ..QdiscStats::default() }
    }
}

impl Shortcuts for Gated {}

/// Returns a device with that qdisc.
fn gated(discipline: Discipline, max_burst: u32) -> (NetDev, Wires, Arc<Gate>) {
    let (wires, gate) = (Wires::new(1, None), Arc::new(Gate::default()));
    let qdisc = Gated { queue: PacketList::new(), drops: 0, gate: gate.clone(), run: 0 };
    let builder = NetDev::builder(wires.clone()).custom_qdisc(qdisc).max_burst(max_burst);
    let pool = PoolConfig { buffers: 8192, ..pool() };
    (builder.discipline(discipline).pool_config(pool).build().unwrap(), wires, gate)
}

/// Returns each sender's packets that arrived, in order.
fn by_sender(sent: &[u64], senders: u64) -> Vec<Vec<u64>> {
    let of = |who| sent.iter().filter(|c| *c >> 32 == who).map(|c| c & 0xffff_ffff).collect();
    (0..senders).map(of).collect()
}

/// T01, T02, T45: while the owner is held up in the qdisc, up to `qdisc_max_burst` packets wait for it; a batch of three
/// counts as three. Packets beyond that are dropped for that reason, unknown to the qdisc. Waiting packets leave in the
/// order of each sender, and the owner that takes them dequeues as many as it enqueues. (llist's owner enqueues all, and one
/// sender waits for it.)
#[test]
fn what_waits_for_the_owner_is_bounded() {
    for discipline in [Discipline::Combine, Discipline::Lockless] {
        // A thread that is preempted in the driver keeps the next owners from dequeuing, and each may enqueue its share.
        let bounded = (0..20).any(|_| longest_run_behind_a_held_owner(discipline) <= 64 + BATCH as usize);
        assert!(bounded, "{discipline}: an owner enqueues more than its share");
    }
}

const BATCH: u64 = 3;

/// Lets packets wait for an owner that is held up in the qdisc; returns how many the qdisc then got in a row.
fn longest_run_behind_a_held_owner(discipline: Discipline) -> usize {
    const SENDERS: u64 = 4;
    const CALLS: u64 = 36;
    const BURST: u64 = 300;
    let (dev, wires, gate) = gated(discipline, BURST as u32);
    gate.shut();
    let (done, opened) = (AtomicUsize::new(0), AtomicBool::new(false));
    let (accepted, dropped) = (AtomicUsize::new(0), AtomicUsize::new(0));
    thread::scope(|scope| {
        let mut owner = dev.sender("owner");
        scope.spawn(move || {
            let packet = owner.packet(b"the owner's").unwrap();
            assert_eq!(owner.xmit(packet), Verdict::Success);
        });
        gate.wait_for_somebody();
        for who in 1..=SENDERS {
            let mut sender = dev.sender("s");
            let (done, opened, accepted, dropped) = (&done, &opened, &accepted, &dropped);
            scope.spawn(move || {
                for call in 0..CALLS {
                    // From then on only waiting packets are enqueued.
                    if opened.load(SeqCst) {
                        break;
                    }
                    let mut batch = PacketList::new();
                    for n in 0..BATCH {
                        let mut packet = sender.alloc(60).unwrap();
                        packet.set_cookie(who << 32 | (call * BATCH + n));
                        batch.push_back(packet);
                    }
                    match sender.xmit_batch(&mut batch) {
                        Verdict::Success => accepted.fetch_add(BATCH as usize, SeqCst),
                        Verdict::Drop => dropped.fetch_add(BATCH as usize, SeqCst),
                        Verdict::Congested => panic!("lists take a batch, or refuse it"),
                    };
                }
                done.fetch_add(1, SeqCst);
            });
        }
        while done.load(SeqCst) < SENDERS as usize {
            thread::yield_now();
        }
        let waiting = accepted.load(SeqCst) as u64;
        // Each sender may have found the list empty once; that batch is not counted.
        assert!(waiting > BURST - BATCH * SENDERS, "{discipline}: {waiting}");
        assert!(waiting <= BURST + BATCH * SENDERS, "{discipline}: {waiting}");
        opened.store(true, SeqCst);
        gate.open();
    });
    let mut worker = dev.worker(0);
    while !dev.is_idle() {
        worker.poll();
    }
    let stats = assert_conserved(&dev);
    let (accepted, dropped) = (accepted.into_inner() as u64, dropped.into_inner() as u64);
    assert_eq!(accepted + dropped + 1, stats.accepted);
    assert_eq!((stats.sent, stats.dropped.total()), (accepted + 1, dropped), "{discipline}");
    assert_eq!(stats.dropped.get(DropReason::QdiscBurstDrop), dropped);
    assert_eq!(dev.qdiscs(Style::default())[0].stats.drops, 0);
    for of_one in by_sender(&wires.at(0).sent(), SENDERS + 1) {
        assert!(of_one.is_sorted(), "{discipline}: {of_one:?}");
    }
    let longest = gate.state.lock().unwrap().longest_run;
    assert!(longest > 32, "{discipline}: nothing was taken together");
    longest
}

/// Runs `f` while another thread is the owner, held up in the qdisc; then opens the gate, unless `f` has.
fn while_the_owner_is_held_up<R>(dev: &NetDev, gate: &Arc<Gate>, f: impl FnOnce() -> R) -> R {
    gate.shut();
    thread::scope(|scope| {
        let mut owner = dev.sender("owner");
        scope.spawn(move || {
            let packet = owner.packet(b"the owner's").unwrap();
            assert_eq!(owner.xmit(packet), Verdict::Success);
        });
        gate.wait_for_somebody();
        let result = f();
        gate.open();
        result
    })
}

/// A sender that checks whether it may choose a new txq does not wait until the queue has no owner: on a queue in constant
/// use that could take seconds.
#[test]
fn a_new_choice_of_txqs_does_not_wait_for_the_owner() {
    for discipline in [Discipline::Combine, Discipline::Lockless] {
        let (dev, _, gate) = gated(discipline, 1000);
        while_the_owner_is_held_up(&dev, &gate, || {
            let (done, finished) = mpsc::channel();
            let mut sender = dev.sender("s");
            let first = sender.packet(b"on its way").unwrap();
            // llist's sender with the duty waits for a moment, and then leaves it to the worker.
            assert_eq!(sender.xmit(first), Verdict::Success);
            dev.steering().set_xps(None).unwrap();
            let sender = thread::spawn(move || {
                let second = sender.packet(b"with a new map").unwrap();
                assert_eq!(sender.xmit(second), Verdict::Success);
                done.send(()).unwrap();
            });
            let returned = finished.recv_timeout(Duration::from_secs(20));
            gate.open();
            sender.join().unwrap();
            assert!(returned.is_ok(), "{discipline}: a sender waits for the owner");
        });
        let mut worker = dev.worker(0);
        while !dev.is_idle() {
            worker.poll();
        }
        assert_eq!(assert_conserved(&dev).sent, 3);
    }
}

/// A sender that finds the list in front of the qdisc full gives the owner time to return before it drops.
#[test]
fn a_full_list_is_waited_for() {
    const BURST: u32 = 8;
    for discipline in [Discipline::Combine, Discipline::Lockless] {
        let mut verdict = Verdict::Drop;
        // The owner may get no CPU while the sender waits, but not each time.
        for _ in 0..50 {
            let (dev, _, gate) = gated(discipline, BURST);
            while_the_owner_is_held_up(&dev, &gate, || {
                let mut sender = dev.sender("s");
                // The first finds the list empty; only lockless counts it.
                for _ in 0..BURST + u32::from(discipline != Discipline::Lockless) {
                    let packet = sender.packet(&[0; 60]).unwrap();
                    let _ = sender.xmit(packet);
                }
                let waits = AtomicBool::new(false);
                thread::scope(|scope| {
                    scope.spawn(|| {
                        while !waits.load(SeqCst) {
                            thread::yield_now();
                        }
                        thread::sleep(Duration::from_micros(300));
                        gate.open();
                    });
                    let packet = sender.packet(&[0; 60]).unwrap();
                    waits.store(true, SeqCst);
                    verdict = sender.xmit(packet);
                });
            });
            let mut worker = dev.worker(0);
            while !dev.is_idle() {
                worker.poll();
            }
            let dropped = assert_conserved(&dev).dropped.get(DropReason::QdiscBurstDrop);
            assert_eq!(dropped, u64::from(verdict == Verdict::Drop), "{discipline}");
            if verdict == Verdict::Success {
                break;
            }
        }
        assert_eq!(verdict, Verdict::Success, "{discipline}: no sender has waited");
    }
}

/// T05: packets of one batch that are dropped for different reasons are each counted under their own.
#[test]
fn each_packet_has_its_own_reason() {
    for &discipline in Discipline::ALL {
        let (dev, _, _) = gated(discipline, 1000);
        let mut sender = dev.sender("s");
        let mut batch = PacketList::new();
        for mark in [1, 0, 2, 2, 3, 3, 3, 0] {
            let mut packet = sender.alloc(60).unwrap();
            packet.set_mark(mark);
            batch.push_back(packet);
        }
        assert_eq!(sender.xmit_batch(&mut batch), Verdict::Congested);
        let stats = assert_conserved(&dev);
        assert_eq!(stats.sent, 2);
        let reasons = [DropReason::QdiscOverlimit, DropReason::QdiscDrop, DropReason::NoMem];
        assert_eq!(reasons.map(|r| stats.dropped.get(r)), [1, 2, 3], "{discipline}");
    }
}

/// T10: a sender's packets arrive in order, though it bypasses the qdisc when that seems empty, the driver refuses now and
/// then, and a worker and other senders run. (T45: batches are never doubled or lost where the bypass turns out to be
/// impossible.)
#[test]
fn the_driver_refuses_and_order_stays() {
    const SENDERS: u64 = 3;
    const EACH: u64 = 1500;
    for &discipline in Discipline::ALL {
        for qdisc in ["pfifo_fast", "pfifo"] {
            let wires = Wires::new(1, None);
            let pool = PoolConfig { buffers: 16384, ..pool() };
            let builder = NetDev::builder(wires.clone()).qdisc(qdisc).tx_queue_len(100_000).pool_config(pool);
            let dev = builder.discipline(discipline).max_burst(100_000).start().unwrap();
            thread::scope(|scope| {
                for who in 0..SENDERS {
                    let mut sender = dev.sender("s");
                    let wires = &wires;
                    scope.spawn(move || {
                        let mut next = 0;
                        while next < EACH {
                            let mut batch = PacketList::new();
                            // One packet may bypass the qdisc; several may not.
                            for _ in 0..(1 + next % 4).min(EACH - next) {
                                let mut packet = sender.alloc(60).unwrap();
                                packet.set_cookie(who << 32 | next);
                                packet.set_priority(who as u32 * 3);
                                batch.push_back(packet);
                                next += 1;
                            }
                            assert_eq!(sender.xmit_batch(&mut batch), Verdict::Success);
                            if next % 50 < 4 {
                                wires.at(0).busy = 2;
                            }
                        }
                    });
                }
            });
            assert!(dev.drain(Duration::from_secs(20)));
            let stats = assert_conserved(&dev);
            assert_eq!(stats.sent, SENDERS * EACH, "{discipline} {qdisc}");
            assert!(stats.requeues > 0, "{discipline} {qdisc}: the driver never refused");
            for of_one in by_sender(&wires.at(0).sent(), SENDERS) {
                assert_eq!(of_one, Vec::from_iter(0..EACH), "{discipline} {qdisc}");
            }
        }
    }
}

/// Refused packets return to their band: a later packet of a higher priority still leaves first, and refused packets leave
/// together.
#[test]
fn refused_packets_keep_their_priority_and_leave_in_batches() {
    for &discipline in Discipline::ALL {
        let wires = Wires::new(1, None);
        let dev = NetDev::builder(wires.clone()).qdisc("pfifo_fast").pool_config(pool());
        let dev = dev.discipline(discipline).build().unwrap();
        let mut sender = dev.sender("s");
        let mut send = |cookies: std::ops::Range<u64>, priority| {
            let mut batch = PacketList::new();
            for cookie in cookies {
                let mut packet = sender.alloc(60).unwrap();
                packet.set_cookie(cookie);
                packet.set_priority(priority);
                batch.push_back(packet);
            }
            let _ = sender.xmit_batch(&mut batch);
        };
        wires.at(0).busy = 2;
        // Bulk (band 2), refused; then interactive (band 0), refused with it.
        send(0..5, 2);
        send(5..8, 6);
        send(8..9, 0);
        assert_eq!(wires.at(0).batches, [vec![5, 6, 7, 8, 0, 1, 2, 3, 4]], "{discipline}");
        assert_eq!(assert_conserved(&dev).requeues, 13);
    }
}
