//! Panics of senders, qdiscs and drivers, workers that a driver's panic ends, and what happens to the other threads'
//! packets.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use crate::device::{Wires, assert_conserved, pool};
use txq::drop::DropReason;
use txq::netdev::Builder;
use txq::packet::{Packet, PacketList};
use txq::qdisc::{Budget, Cx, Qdisc, Shortcuts, Verdict};
use txq::stats::QdiscStats;
use txq::{Discipline, NetDev, Sender, Worker};

fn builder(wires: &Wires) -> Builder {
    NetDev::builder(wires.clone()).bql(None).pool_config(pool())
}

fn disciplines(test: impl Fn(Discipline)) {
    Discipline::ALL.iter().copied().for_each(test);
}

fn packets(sender: &mut Sender, cookies: std::ops::Range<u64>) -> PacketList {
    let one = |cookie| {
        let mut packet = sender.alloc(60).unwrap();
        packet.set_cookie(cookie);
        packet
    };
    cookies.map(one).collect()
}

fn dies<R>(f: impl FnOnce() -> R) {
    assert!(catch_unwind(AssertUnwindSafe(f)).is_err(), "it lives on");
}

fn work(worker: &mut Worker, dev: &NetDev) {
    for _ in 0..100 {
        let _ = catch_unwind(AssertUnwindSafe(|| worker.poll()));
        if dev.is_idle() {
            return;
        }
    }
    panic!("the queue does not go on: {:?}", dev.stats());
}

/// When a [`Fragile`] qdisc panics next.
#[derive(Default)]
struct Fate {
    /// Enqueues and dequeues of single packets until the next panic; 0 for never.
    enqueues: AtomicUsize,
    dequeues: AtomicUsize,
    requeues: AtomicBool,
    /// Called while it enqueues a packet.
    meanwhile: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

impl Fate {
    fn strike(count: &AtomicUsize) {
        if count.load(Relaxed) > 0 && count.fetch_sub(1, Relaxed) == 1 {
            panic!("the qdisc panics, as the test wants");
        }
    }
}

/// First in, first out, until it panics.
struct Fragile {
    queue: std::collections::VecDeque<Packet>,
    fate: Arc<Fate>,
}

impl Qdisc for Fragile {
    fn kind(&self) -> &'static str {
        "fragile"
    }

    fn enqueue(&mut self, packet: Packet, _: &mut Cx<'_>) -> Verdict {
        let meanwhile = self.fate.meanwhile.lock().unwrap().take();
        meanwhile.into_iter().for_each(|f| f());
        Fate::strike(&self.fate.enqueues);
        self.queue.push_back(packet);
        Verdict::Success
    }

    fn dequeue_batch(&mut self, budget: Budget, out: &mut PacketList, _: &mut Cx<'_>) {
        for _ in 0..budget.packets.min(self.queue.len()) {
            Fate::strike(&self.fate.dequeues);
            out.push_back(self.queue.pop_front().expect("as many as it has"));
        }
    }

    fn requeue(&mut self, batch: &mut PacketList) {
        assert!(!self.fate.requeues.swap(false, Relaxed), "the qdisc panics, as the test wants");
        while let Some(packet) = batch.pop_front() {
            self.queue.push_front(packet);
        }
    }

    fn reset(&mut self, cx: &mut Cx<'_>) {
        self.queue.drain(..).for_each(|packet| cx.drop(packet, DropReason::QueuePurge));
    }

    fn qlen(&self) -> usize {
        self.queue.len()
    }

    fn stats(&self) -> QdiscStats {
        QdiscStats::default()
    }
}

impl Shortcuts for Fragile {}

fn fragile() -> (Fragile, Arc<Fate>) {
    let fate = Arc::new(Fate::default());
    (Fragile { queue: Default::default(), fate: fate.clone() }, fate)
}

/// A sender dies while it owns a packet, with packets in the queue, and between calls.
#[test]
fn a_sender_dies() {
    disciplines(|discipline| {
        let wires = Wires::new(1, Some(2));
        let dev = builder(&wires).qdisc("pfifo").discipline(discipline).build().unwrap();
        let mut victim = dev.sender("victim");
        let mut other = dev.sender("other");
        let _ = victim.xmit_batch(&mut packets(&mut victim_of(&dev), 0..5));
        let in_hand = packets(&mut victim, 5..6);
        dies(move || {
            let _in_hand = in_hand;
            let _victim = victim;
            panic!("the sender panics, as the test wants");
        });
        let _ = other.xmit_batch(&mut packets(&mut victim_of(&dev), 6..8));
        let mut worker = dev.worker(0);
        while !dev.is_idle() {
            wires.at(0).complete(2);
            worker.poll();
        }
        assert_eq!(wires.at(0).sent(), [0, 1, 2, 3, 4, 6, 7], "{discipline}");
        assert_eq!(assert_conserved(&dev).accepted, 7);
    });
}

fn victim_of(dev: &NetDev) -> Sender {
    dev.sender("its own")
}

/// A qdisc that panics over a packet loses that packet and no other, whichever thread enqueues it.
#[test]
fn a_qdisc_panics_over_one_packet() {
    disciplines(|discipline| {
        let wires = Wires::new(1, Some(4));
        let (qdisc, fate) = fragile();
        let dev = builder(&wires).custom_qdisc(qdisc).discipline(discipline).build().unwrap();
        let (mut sender, mut worker) = (dev.sender("s"), dev.worker(0));
        let _ = sender.xmit_batch(&mut packets(&mut victim_of(&dev), 0..6));
        // It panics over the third of these.
        fate.enqueues.store(3, Relaxed);
        dies(|| sender.xmit_batch(&mut packets(&mut victim_of(&dev), 6..11)));
        let _ = sender.xmit_batch(&mut packets(&mut victim_of(&dev), 11..13));
        while !dev.is_idle() {
            wires.at(0).complete(4);
            worker.poll();
        }
        assert_eq!(wires.at(0).sent(), [0, 1, 2, 3, 4, 5, 6, 7, 9, 10, 11, 12], "{discipline}");
        assert_eq!(assert_conserved(&dev).dropped.get(DropReason::NotSpecified), 1);
    });
}

/// An owner dies when another sender has just left a packet to it: that sender's next packet does not overtake it.
#[test]
fn an_owner_dies_with_a_packet_left_to_it() {
    for discipline in [Discipline::Combine, Discipline::Lockless] {
        let wires = Wires::new(1, None);
        let (qdisc, fate) = fragile();
        let dev = builder(&wires).custom_qdisc(qdisc).discipline(discipline).build().unwrap();
        let (mut owner, mut worker) = (dev.sender("owner"), dev.worker(0));
        let other = Arc::new(Mutex::new(dev.sender("other")));
        let mut rest = packets(&mut other.lock().unwrap(), 1..3);
        let mut left = PacketList::new();
        rest.move_front(1, &mut left);
        let leaves = other.clone();
        *fate.meanwhile.lock().unwrap() = Some(Box::new(move || {
            let _ = leaves.lock().unwrap().xmit_batch(&mut left);
        }));
        fate.enqueues.store(1, Relaxed);
        dies(|| owner.xmit_batch(&mut packets(&mut victim_of(&dev), 0..1)));
        let _ = other.lock().unwrap().xmit_batch(&mut rest);
        work_all(&dev, &wires, &mut worker);
        assert_eq!(wires.at(0).sent(), [1, 2], "{discipline}");
        assert_eq!(assert_conserved(&dev).dropped.get(DropReason::NotSpecified), 1);
    }
}

/// A qdisc that panics in the middle of a batch that it dequeues, or when a batch is requeued, loses no packet that it had.
#[test]
fn a_qdisc_panics_while_it_gives_packets_up() {
    disciplines(|discipline| {
        let wires = Wires::new(1, Some(4));
        let (qdisc, fate) = fragile();
        let dev = builder(&wires).custom_qdisc(qdisc).discipline(discipline).build().unwrap();
        let (mut sender, mut worker) = (dev.sender("s"), dev.worker(0));
        fate.dequeues.store(3, Relaxed);
        dies(|| sender.xmit_batch(&mut packets(&mut victim_of(&dev), 0..6)));
        work_all(&dev, &wires, &mut worker);
        fate.requeues.store(true, Relaxed);
        wires.at(0).busy = 1;
        dies(|| sender.xmit_batch(&mut packets(&mut victim_of(&dev), 6..9)));
        work_all(&dev, &wires, &mut worker);
        assert_eq!(wires.at(0).sent(), (0..9).collect::<Vec<_>>(), "{discipline}");
        assert_eq!(assert_conserved(&dev).dropped.total(), 0);
    });
}

fn work_all(dev: &NetDev, wires: &Wires, worker: &mut Worker) {
    for _ in 0..100 {
        wires.at(0).complete(4);
        worker.poll();
        if dev.is_idle() {
            return;
        }
    }
    panic!("the queue does not go on: {:?}", dev.stats());
}

/// A driver that panics each time loses one packet each time, whichever thread calls it; the others wait until it recovers.
/// So do packets that other senders leave meanwhile. With noqueue each sender loses its own packets.
#[test]
fn a_driver_panics_again_and_again() {
    disciplines(|discipline| {
        for root in ["pfifo", "noqueue"] {
            let wires = Wires::new(1, None);
            let dev = builder(&wires).qdisc(root).discipline(discipline).build().unwrap();
            let (mut sender, mut worker) = (dev.sender("s"), dev.worker(0));
            wires.at(0).panic = true;
            dies(|| sender.xmit_batch(&mut packets(&mut victim_of(&dev), 0..5)));
            let _ = catch_unwind(AssertUnwindSafe(|| {
                let _ = sender.xmit_batch(&mut packets(&mut victim_of(&dev), 5..8));
            }));
            wires.at(0).panic = false;
            work(&mut worker, &dev);
            let stats = assert_conserved(&dev);
            let lost = stats.dropped.get(DropReason::NotSpecified);
            assert_eq!(stats.sent + lost, 8);
            let sent = wires.at(0).sent();
            assert!(sent.is_sorted(), "{discipline}: {sent:?}");
            assert!(root == "noqueue" || lost <= 2, "{discipline}: {lost} lost by two panics");
        }
    });
}

/// Packets that a driver returned before it panicked in `poll` are home, and the txq continues.
#[test]
fn a_driver_panics_over_completions() {
    disciplines(|discipline| {
        let wires = Wires::new(1, Some(4));
        let dev = builder(&wires).qdisc("pfifo").discipline(discipline).build().unwrap();
        let mut sender = dev.sender("s");
        let _ = sender.xmit_batch(&mut packets(&mut victim_of(&dev), 0..10));
        wires.at(0).complete(4);
        wires.at(0).panic_in_poll = true;
        // The worker dies, and another takes its place and finds the work that the first one had taken.
        let mut worker = dev.worker(0);
        dies(move || {
            loop {
                worker.poll();
            }
        });
        wires.at(0).panic_in_poll = false;
        work_all(&dev, &wires, &mut dev.worker(0));
        assert_eq!(wires.at(0).sent(), (0..10).collect::<Vec<_>>(), "{discipline}");
        assert_eq!(assert_conserved(&dev).dropped.total(), 0);
    });
}

/// A worker's own thread continues after a panic, and is not woken in vain.
#[test]
fn a_workers_thread_goes_on() {
    let wires = Wires::new(1, Some(4));
    let dev = builder(&wires).qdisc("pfifo").start().unwrap();
    wires.at(0).panic_in_poll = true;
    let mut sender = dev.sender("s");
    let _ = catch_unwind(AssertUnwindSafe(|| {
        let _ = sender.xmit_batch(&mut packets(&mut victim_of(&dev), 0..10));
    }));
    while dev.worker_restarts() == 0 {
        std::thread::yield_now();
    }
    wires.at(0).panic_in_poll = false;
    while !dev.is_idle() {
        wires.at(0).complete(4);
        std::thread::yield_now();
    }
    assert_eq!(wires.at(0).sent(), (0..10).collect::<Vec<_>>());
    while !dev.pool().in_use().is_empty() {
        std::thread::yield_now();
    }
    assert_conserved(&dev);
}
