//! Everything at once: senders that start, end and panic, a driver that refuses, drops and panics, workers that die, qdiscs
//! that are added, replaced, changed, reset and deleted, devices that go down and up, queues and txqs whose number changes,
//! drivers that are replaced. In every case no packet is missing or counted twice, no flow is reordered, no buffer is lost,
//! a sender that waits for room or a buffer is woken, and queued packets leave without further packets.
//!
//! A seed decides the actions of each thread; a failure prints it, and `TXQ_SEED=.. cargo test -p txq --test chaos` takes
//! the same decisions again. `TXQ_CHAOS_SECONDS` sets the duration (T13, T14, T41).
//!
//! Each second round runs on a machine whose threads stop at random accesses to shared state (`chaos/jitter.rs`).
//!
//! Errors that it finds within seconds, and no model does, because they need too many threads at the wrong moment: a queue
//! that comes into force while it relays (`netdev/rule.rs`); an owner in lockless whose packets overtake those that it has
//! listed before, and the list of the previous rule taken last (`enqueue/lockless.rs`). It finds within minutes a packet that is
//! relayed in front of an older one, whose queue was closed later (`netdev/rule.rs`), and a packet that overtakes what a panic has
//! left in its sender (`sender.rs`).

#[path = "chaos/jitter.rs"]
mod jitter;
#[path = "chaos/wild.rs"]
mod wild;

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use jitter::Jitter;
use txq::generic::netdev::Builder;
use txq::generic::{Discipline, Flow, NetDev, Room, Sender, WaitError};
use txq::pool::{Backing, PoolConfig};
use txq_core::arch::{Arch, Nanos, Native};
use txq_core::packet::PacketList;
use wild::{Judge, OnPurpose, Random, Wild, lock, panic_on_purpose};

const ROOTS: [&str; 16] = [
    "root pfifo",
    "root handle 5: pfifo limit 20",
    "root bfifo limit 30000",
    "root pfifo_fast",
    "root handle 1: mq",
    "root handle 2: mq",
    "root mq",
    "root noqueue",
    "root pfifo limit 3",
    "root fq_codel limit 60",
    // Those that keep packets for a time: a worker sends them then.
    "root tbf rate 100mbit burst 2k limit 20k",
    "root tbf_mq rate 100mbit burst 2k limit 20k",
    "root cake bandwidth 200mbit",
    "root cake_mq bandwidth 200mbit",
    "root netem delay 200us limit 50",
    "root fq maxrate 20mbit",
];
const CHILDREN: [&str; 4] = ["pfifo limit 7", "pfifo_fast", "bfifo", "handle 30: pfifo"];
const RINGS: [Option<u32>; 4] = [None, Some(4), Some(15), Some(64)];
const SENDERS: usize = 3;
const WORKERS: usize = 2;
/// The longest wait for room or a buffer, in nanoseconds: far longer than a round.
const PATIENCE: Nanos = 20_000_000_000;
/// Number of calls of each sender in a round.
const CALLS: usize = 400;

/// A machine, and how a device begins on it.
trait Machine: Arch {
    /// Whether the test drives the workers.
    const DRIVEN: bool;
    fn begin(builder: Builder<Self>) -> NetDev<Self>;
}

impl Machine for Native {
    const DRIVEN: bool = false;

    fn begin(builder: Builder) -> NetDev {
        builder.start().unwrap()
    }
}

impl Machine for Jitter {
    const DRIVEN: bool = true;

    fn begin(builder: Builder<Self>) -> NetDev<Self> {
        builder.build().unwrap()
    }
}

/// Drives a worker. It sleeps until it is woken, so lost work shows.
fn drive<A: Arch>(dev: &NetDev<A>, worker: usize, over: &AtomicBool) {
    while !over.load(Relaxed) {
        let _ = catch_unwind(AssertUnwindSafe(|| {
            let (mut worker, thread) = (dev.worker(worker), thread::current());
            worker.set_waker(move || thread.unpark());
            while !over.load(Relaxed) {
                match worker.poll() {
                    None => thread::park(),
                    Some(at) => thread::park_timeout(Duration::from_nanos(at.saturating_sub(A::now()))),
                }
            }
        }));
    }
}

/// A sender's flows, the number of the last packet of each, and what counts its packets.
struct Flows<A: Arch>([(u64, u64, Flow<A>); 3]);

impl<A: Arch> Flows<A> {
    fn new(next: &AtomicU64) -> Self {
        Self(std::array::from_fn(|_| (next.fetch_add(1, Relaxed), 0, Flow::new())))
    }

    /// Returns up to `n` packets of the flow `only`, or of all flows.
    fn packets(
        &mut self,
        sender: &mut Sender<A>,
        n: usize,
        only: Option<usize>,
        random: &mut Random,
    ) -> PacketList<A> {
        let one = |_| {
            // At its limit a sender reaps, so a driver may panic.
            let packet = catch_unwind(AssertUnwindSafe(|| sender.alloc(60)));
            let mut packet = packet.ok()?.ok()?;
            let (flow, number, _) = &mut self.0[only.unwrap_or_else(|| random.below(3))];
            *number += 1;
            packet.set_cookie(*flow << 32 | *number);
            packet.set_priority(*flow as u32);
            packet.set_hash((*flow as u32).wrapping_mul(0x9e37_79b9) | 1);
            Some(packet)
        };
        (0..n).map_while(one).collect()
    }
}

fn send<A: Arch>(dev: &NetDev<A>, plan: Plan, mut random: Random, flow: &AtomicU64) {
    let new_sender = |random: &mut Random| {
        let mut sender = dev.sender("s");
        if random.one_in(2) {
            sender.set_limit(1 + random.below(64) as u64);
        }
        sender
    };
    let (mut sender, mut flows) = (new_sender(&mut random), Flows::new(flow));
    for _ in 0..CALLS {
        let end = A::now() + PATIENCE;
        if random.one_in(8) {
            // A wait reaps deferred completions, so a driver may panic.
            let mut wait = || catch_unwind(AssertUnwindSafe(|| sender.wait_room(Some(end))));
            while let Ok(Room::Full) = wait() {
                assert!(A::now() < end, "a wait for room ends only by its deadline: {:?}", dev.stats());
            }
        }
        let n = if random.one_in(2) { 1 } else { 1 + random.below(40) };
        let only = plan.by_flow.then(|| random.below(3));
        let mut batch = flows.packets(&mut sender, n, only, &mut random);
        if batch.is_empty() {
            let packet = catch_unwind(AssertUnwindSafe(|| sender.wait_buffer(60, Some(end))));
            let late = matches!(packet, Ok(Err(WaitError::Deadline)));
            assert!(!late, "a wait for a buffer ends only by its deadline: {:?}", dev.stats());
        }
        let died = match random.below(60) {
            0 => catch_unwind(|| panic_on_purpose()),
            1 => {
                batch = PacketList::new();
                Ok(())
            }
            _ => catch_unwind(AssertUnwindSafe(|| {
                let _ = match only {
                    Some(flow) => sender.xmit_batch_on(&mut flows.0[flow].2, &mut batch),
                    None => sender.xmit_batch(&mut batch),
                };
            })),
        };
        if died.is_err() || random.one_in(100) {
            // Whether the sender is dropped or continues, no other may be affected.
            if random.one_in(2) {
                drop(batch);
                (sender, flows) = (new_sender(&mut random), Flows::new(flow));
            }
        }
    }
}

/// What a round does.
#[derive(Clone, Copy)]
struct Plan {
    txqs: u16,
    /// Whether senders send by [`Flow`]: a flow moves to another txq when its own packets have left, a sender when its txqs are
    /// idle.
    by_flow: bool,
}

/// Changes the device once; a refused change is ignored.
fn change<A: Arch>(dev: &NetDev<A>, plan: Plan, random: &mut Random, judge: &Arc<Judge>) {
    let txqs = plan.txqs;
    let none = Ok(Vec::new());
    let _ = match random.below(17) {
        0..4 => dev.tc(&format!("qdisc replace {}", random.of(&ROOTS))),
        4 => dev.tc(&format!("qdisc add {}", random.of(&ROOTS))),
        5 => dev.tc("qdisc del root"),
        6..8 => {
            let parent = format!("parent {}:{}", 1 + random.below(2), 1 + random.below(txqs.into()));
            match random.below(3) {
                0 => dev.tc(&format!("qdisc del {parent}")),
                _ => dev.tc(&format!("qdisc replace {parent} {}", random.of(&CHILDREN))),
            }
        }
        8 => dev.tc(&format!(
            "qdisc change {}",
            random.of(&["pfifo limit 5", "pfifo limit 100", "parent 1:1 pfifo limit 9"])
        )),
        9 => dev.reset_qdisc("root").map(|()| Vec::new()),
        10 => {
            dev.deactivate();
            assert!(!dev.is_active());
            thread::yield_now();
            dev.activate();
            none
        }
        11 => {
            dev.set_tx_queue_len([0, 1, 30, 1000][random.below(4)]);
            none
        }
        12 => {
            let ring = RINGS[random.below(RINGS.len())];
            let driver = Wild { txqs, ring, random: random.fork(), judge: judge.clone() };
            // The old driver may panic in its last completions.
            let _ = catch_unwind(AssertUnwindSafe(|| dev.replace_driver(driver)));
            none
        }
        13 => {
            // A `Flow` leaves a txq that is no longer in use at once.
            if !plan.by_flow {
                dev.set_txqs(1 + random.below(txqs.into()) as u16).unwrap();
            }
            none
        }
        14 => {
            dev.qdiscs(Default::default());
            none
        }
        _ => {
            dev.stats();
            none
        }
    };
}

/// Runs a round; returns how many packets were sent.
fn round<A: Machine>(seed: u64) -> u64 {
    let mut random = Random(seed);
    let judge = Arc::new(Judge::default());
    let txqs = 1 + random.below(3) as u16;
    let plan = Plan { txqs, by_flow: random.one_in(3) };
    let discipline = random.of(Discipline::ALL);
    let (ring, root) = (RINGS[random.below(RINGS.len())], random.of(&ROOTS).trim_start_matches("root "));
    let root = if txqs == 1 && root.contains("mq") { "pfifo" } else { root };
    println!("TXQ_SEED={seed}: {discipline}, {root}, {txqs} txqs, ring {ring:?}");
    let pool =
        PoolConfig { buffers: 600, room: 64, headroom: 0, backing: Backing::Heap, ..Default::default() };
    let driver = Wild { txqs, ring, random: random.fork(), judge: judge.clone() };
    let dev = Builder::<A>::new(Box::new(driver)).qdisc(root).discipline(discipline).pool_config(pool);
    // Unpinned threads send in order only by hash.
    let dev = A::begin(dev.xps(None).txq_reselection(Duration::ZERO).workers(WORKERS));
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let (dev, over) = (&dev, &over);
        let driven = (0..WORKERS).filter(|_| A::DRIVEN);
        let workers: Vec<_> = driven.map(|n| scope.spawn(move || drive(dev, n, over))).collect();
        let sent = catch_unwind(AssertUnwindSafe(|| crowd(dev, plan, &mut random, &judge)));
        over.store(true, Relaxed);
        workers.iter().for_each(|worker| worker.thread().unpark());
        sent.unwrap_or_else(|panic| resume_unwind(panic))
    })
}

/// Sends through a device and changes it; returns how many packets were sent.
fn crowd<A: Machine>(dev: &NetDev<A>, plan: Plan, random: &mut Random, judge: &Arc<Judge>) -> u64 {
    let (flow, sending) = (AtomicU64::new(1), AtomicBool::new(true));
    thread::scope(|scope| {
        let mut changes = random.fork();
        let sending = &sending;
        let changer = scope.spawn(move || {
            while sending.load(Relaxed) {
                change(dev, plan, &mut changes, judge);
                thread::sleep(Duration::from_micros(changes.below(300) as u64));
            }
        });
        let senders: Vec<_> = (0..SENDERS)
            .map(|_| {
                let (random, flow) = (random.fork(), &flow);
                scope.spawn(move || send(dev, plan, random, flow))
            })
            .collect();
        let all_ended: Vec<_> = senders.into_iter().map(|s| s.join()).collect();
        sending.store(false, Relaxed);
        changer.join().unwrap();
        assert!(all_ended.iter().all(Result::is_ok));
    });
    judge.calm.store(true, Relaxed);
    dev.activate();
    assert!(dev.drain(Duration::from_secs(20)), "what is queued does not leave: {:?}", dev.stats());
    assert_eq!(*lock(&judge.wrong), Vec::<String>::new());
    let stats = dev.audit().unwrap_or_else(|wrong| panic!("{wrong}"));
    // A worker frees the last packets a moment after they are counted.
    let patience = Instant::now() + Duration::from_secs(20);
    while !dev.pool().in_use().is_empty() {
        assert!(Instant::now() < patience, "buffers are not home: {:?}, {stats:?}", dev.pool().in_use());
        thread::yield_now();
    }
    stats.sent
}

#[test]
fn whatever_happens_the_invariants_hold() {
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        if !info.payload().is::<OnPurpose>() {
            hook(info);
        }
    }));
    let number = |name| std::env::var(name).ok().map(|v| v.parse::<u64>().expect("a number"));
    let end = Instant::now() + Duration::from_secs(number("TXQ_CHAOS_SECONDS").unwrap_or(2));
    let given = number("TXQ_SEED");
    let clock = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let mut seed = given.unwrap_or_else(|| clock.map_or(1, |t| t.as_nanos() as u64));
    let mut sent = 0;
    while sent == 0 || Instant::now() < end {
        sent += if seed.is_multiple_of(2) { round::<Native>(seed) } else { round::<Jitter>(seed) };
        seed = seed.wrapping_add(1);
    }
}
