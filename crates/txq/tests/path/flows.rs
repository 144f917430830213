//! Order under load: threads pass flows to each other and send while maps, classes and the txqs in use change. Each packet
//! carries its flow and its number, and every txq's driver checks whether a later packet came first.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Barrier, Mutex};
use std::thread;
use std::time::Duration;

use txq::Instant;
use txq::cpumask::CpuMask;
use txq::driver::{Clock, Complete, DeviceInfo, Driver, DriverQueue, Status, Transmit, TxCx};
use txq::netdev::Builder;
use txq::packet::{Packet, PacketList};
use txq::pool::{Backing, PoolConfig};
use txq::xps::XpsMap;
use txq::{Discipline, Flow, NetDev, Sender};

use crate::device::home::assert_home;

const TXQS: u16 = 4;
const FLOWS: usize = 24;

/// What the drivers have seen.
#[derive(Default)]
struct Seen {
    /// The number of each flow's latest packet plus one, and in the upper half the txq that sent it.
    latest: [AtomicU64; FLOWS],
    turned: AtomicU64,
    moved: AtomicU64,
    by_txq: [AtomicU64; TXQS as usize],
}

struct Device(Arc<Seen>);

impl Driver for Device {
    fn info(&self) -> DeviceInfo {
        DeviceInfo::new("seen").txqs(TXQS)
    }

    fn open(&mut self, txq: u16) -> io::Result<DriverQueue> {
        let kept = Arc::default();
        let queue = || Queue { seen: self.0.clone(), txq, kept: Arc::clone(&kept) };
        Ok(DriverQueue::new(queue(), queue()).ring(16))
    }
}

struct Queue {
    seen: Arc<Seen>,
    txq: u16,
    kept: Arc<Mutex<VecDeque<Packet>>>,
}

impl Transmit for Queue {
    fn start_xmit(&mut self, batch: &mut PacketList, _: &mut TxCx<'_>) -> Status {
        while let Some(packet) = batch.pop_front() {
            let (flow, place) = ((packet.cookie() >> 32) as usize, packet.cookie() & u64::from(u32::MAX));
            let before = self.seen.latest[flow].swap(u64::from(self.txq) << 32 | (place + 1), Relaxed);
            self.seen.turned.fetch_add(u64::from(before & u64::from(u32::MAX) > place), Relaxed);
            self.seen.moved.fetch_add(u64::from(before >> 32 != u64::from(self.txq)), Relaxed);
            self.seen.by_txq[usize::from(self.txq)].fetch_add(1, Relaxed);
            self.kept.lock().unwrap().push_back(packet);
        }
        Status::Ok
    }
}

impl Complete for Queue {
    fn poll(&mut self, budget: usize, done: &mut PacketList, _: &mut Clock) -> Option<Instant> {
        // Half of them, so that flows have packets in flight most of the time.
        let mut kept = self.kept.lock().unwrap();
        let n = kept.len().div_ceil(2).min(budget);
        done.extend(kept.drain(..n));
        (!kept.is_empty()).then_some(Instant::ZERO)
    }

    fn inline(&self) -> bool {
        false
    }
}

fn builder(seen: &Arc<Seen>) -> Builder {
    let pool = PoolConfig { buffers: 2048, room: 64, backing: Backing::Heap, ..Default::default() };
    let builder = NetDev::builder(Device(seen.clone())).pool_config(pool).xps(map(&mut Random(1)));
    builder.workers(2).txq_reselection(Duration::ZERO)
}

/// Xorshift.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 32) % bound
    }
}

/// Returns a map in which each CPU has one txq, or two, or none.
fn map(random: &mut Random) -> XpsMap {
    let mut masks = vec![CpuMask::new(); TXQS.into()];
    for cpu in 0..4 {
        (0..random.below(3)).for_each(|_| masks[random.below(TXQS.into()) as usize].set(cpu));
    }
    XpsMap::from_masks(&masks, TXQS.into(), 4).unwrap()
}

/// Returns up to `n` packets of a flow that has sent `place` packets so far.
fn batch(sender: &mut Sender, flow: usize, place: &mut u64, n: u64) -> PacketList {
    let mut batch = PacketList::new();
    for _ in 0..n {
        let Ok(mut packet) = sender.alloc(60) else { break };
        packet.data_mut().fill(flow as u8);
        packet.set_cookie((flow as u64) << 32 | *place);
        *place += 1;
        batch.push_back(packet);
    }
    batch
}

fn finish(dev: &NetDev) {
    assert!(dev.drain(Duration::from_secs(20)), "{:?}", dev.stats());
    let stats = dev.audit().unwrap_or_else(|wrong| panic!("{wrong}"));
    assert_eq!(stats.queued, 0);
    assert_home(dev);
}

/// X4, T21, X7: three threads on three CPUs take flows from each other and a fourth replaces the map. No flow's packets are
/// reordered, although flows change their txq all the time.
#[test]
fn a_flow_stays_in_order_from_thread_to_thread_and_from_map_to_map() {
    for &discipline in Discipline::ALL {
        let seen = Arc::new(Seen::default());
        let dev = builder(&seen).discipline(discipline).start().unwrap();
        let flows: Mutex<VecDeque<(usize, Flow, u64)>> =
            Mutex::new((0..FLOWS).map(|flow| (flow, Flow::new(), 0)).collect());
        let done = AtomicBool::new(false);
        thread::scope(|scope| {
            let senders: Vec<_> = (0..3)
                .map(|cpu| {
                    let mut sender = dev.sender_on("s", cpu);
                    let flows = &flows;
                    scope.spawn(move || {
                        let mut random = Random(cpu as u64 + 7);
                        for _ in 0..5000 {
                            let Some((number, mut flow, mut place)) = flows.lock().unwrap().pop_front()
                            else {
                                continue;
                            };
                            // Some flows pause.
                            if random.below(4) == 0 {
                                while flow.outstanding() > 0 {
                                    thread::yield_now();
                                }
                            }
                            let mut packets = batch(&mut sender, number, &mut place, 1 + random.below(4));
                            let _ = sender.xmit_batch_on(&mut flow, &mut packets);
                            flows.lock().unwrap().push_back((number, flow, place));
                        }
                    })
                })
                .collect();
            scope.spawn(|| {
                let mut random = Random(3);
                while !done.load(Relaxed) {
                    dev.steering().set_xps(Some(map(&mut random))).unwrap();
                    thread::yield_now();
                }
            });
            senders.into_iter().for_each(|sender| sender.join().unwrap());
            done.store(true, Relaxed);
        });
        finish(&dev);
        assert_eq!(seen.turned.load(Relaxed), 0, "{discipline}: packets turned around");
        assert!(seen.moved.load(Relaxed) > 20, "{discipline}: flows hardly moved: nothing was shown");
        assert!(flows.into_inner().unwrap().iter().all(|(_, flow, _)| flow.outstanding() == 0));
    }
}

/// T21, X5, X7: plain senders, each a flow of its own, while the map and the number of txqs in use change: no packet is lost
/// or reordered, and at rest no sender uses a txq that is not in use.
#[test]
fn senders_stay_in_order_while_txqs_come_and_go() {
    for (discipline, qdisc) in Discipline::ALL.iter().copied().zip(["mq", "pfifo"].into_iter().cycle()) {
        let seen = Arc::new(Seen::default());
        let dev = builder(&seen).discipline(discipline).qdisc(qdisc).start().unwrap();
        let done = AtomicBool::new(false);
        let (pause, random) = (Barrier::new(3), Mutex::new(Random(11)));
        thread::scope(|scope| {
            let senders: Vec<_> = (0..3)
                .map(|number| {
                    let mut sender = dev.sender_on("s", number);
                    let (dev, pause, random) = (&dev, &pause, &random);
                    scope.spawn(move || {
                        let mut place = 0;
                        for call in 0..6000 {
                            // All pause before the call in which they check: the first one to continue finds every txq idle,
                            // and a new map.
                            if call % 64 == 63 {
                                pause.wait();
                                assert!(dev.drain(Duration::from_secs(20)));
                                if pause.wait().is_leader() {
                                    dev.steering().set_xps(Some(map(&mut random.lock().unwrap()))).unwrap();
                                }
                                pause.wait();
                            }
                            let mut packets = batch(&mut sender, number as usize, &mut place, 3);
                            let _ = sender.xmit_batch(&mut packets);
                        }
                        (sender, place)
                    })
                })
                .collect();
            scope.spawn(|| {
                let mut random = Random(5);
                while !done.load(Relaxed) {
                    dev.steering().set_txqs(1 + random.below(TXQS.into()) as u16).unwrap();
                    thread::yield_now();
                    dev.steering().set_xps(Some(map(&mut random))).unwrap();
                    thread::yield_now();
                }
            });
            let senders: Vec<_> = senders.into_iter().map(|sender| sender.join().unwrap()).collect();
            done.store(true, Relaxed);
            assert!(dev.drain(Duration::from_secs(20)));
            dev.steering().set_txqs(2).unwrap();
            let by_txq = || seen.by_txq.each_ref().map(|n| n.load(Relaxed));
            let mut before = by_txq();
            for (number, (mut sender, mut place)) in senders.into_iter().enumerate() {
                for call in 0..70 {
                    if call == 64 {
                        // By now the sender has checked, and found no packet in flight.
                        before = by_txq();
                    }
                    let mut packets = batch(&mut sender, number, &mut place, 2);
                    let _ = sender.xmit_batch(&mut packets);
                    assert!(dev.drain(Duration::from_secs(20)));
                }
                assert_eq!(before[2..], by_txq()[2..], "a txq that is not in use");
                assert_eq!(before.iter().sum::<u64>() + 12, by_txq().iter().sum::<u64>());
            }
        });
        finish(&dev);
        assert_eq!(seen.turned.load(Relaxed), 0, "{discipline}, {qdisc}: packets turned around");
        assert!(seen.moved.load(Relaxed) > 3, "{discipline}, {qdisc}: hardly anyone moved");
    }
}
