//! Several threads over a device that misbehaves: no packet is lost, no flow is reordered, and all packets leave although no
//! more are sent.

mod common;

use common::{assert_conserved, pool};
use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use txq::driver::{DeviceInfo, Driver, DriverQueue, Status, Transmit, TxCx};
use txq::packet::PacketList;
use txq::{Discipline, NetDev};
use txq_device::faults::Rates;
use txq_device::{Faults, Null};

const THREADS: u64 = 4;
const EACH: u64 = 2000;

/// Null, and the cookies of the packets that it took on each txq, in order.
struct Recorder {
    null: Null,
    seen: Arc<Vec<Mutex<Vec<u64>>>>,
}

struct Tx {
    inner: Box<dyn Transmit>,
    txq: u16,
    seen: Arc<Vec<Mutex<Vec<u64>>>>,
}

impl Driver for Recorder {
    fn info(&self) -> DeviceInfo {
        Driver::info(&self.null)
    }

    fn open(&mut self, txq: u16) -> io::Result<DriverQueue> {
        let queue = self.null.open(txq)?;
        Ok(queue.map_transmit(|inner| Tx { inner, txq, seen: self.seen.clone() }))
    }
}

impl Transmit for Tx {
    fn start_xmit(&mut self, batch: &mut PacketList, cx: &mut TxCx<'_>) -> Status {
        let cookies: Vec<u64> = batch.iter().map(|packet| packet.cookie()).collect();
        let status = self.inner.start_xmit(batch, cx);
        let taken = &cookies[..cookies.len() - batch.len()];
        self.seen[usize::from(self.txq)].lock().unwrap().extend(taken);
        status
    }
}

/// Sends from all threads, checks, and returns how often a packet was requeued.
fn run(null: Null, rates: Rates, seed: u64, qdisc: &str, discipline: Discipline) -> u64 {
    let what = format!("{null:?} {rates:?} seed {seed} {qdisc} {discipline}");
    let seen: Arc<Vec<_>> = Arc::new((0..null.txqs).map(|_| Mutex::new(Vec::new())).collect());
    let driver = Faults::new(Recorder { null, seen: seen.clone() }, seed, rates);
    let dev = NetDev::builder(driver)
        .qdisc(qdisc)
        .discipline(discipline)
        .default_qdisc("pfifo limit 100000")
        .pool_config(pool(4096))
        .xps(None)
        .start()
        .unwrap();
    std::thread::scope(|scope| {
        for id in 0..THREADS {
            let mut sender = dev.sender(&format!("s{id}"));
            scope.spawn(move || {
                let mut n = 0;
                while n < EACH {
                    let mut batch = PacketList::new();
                    // Without a free buffer the thread continues: some are in flight.
                    let size = (1 + n % 7).min(EACH - n) as usize;
                    if sender.alloc_batch(size, 60, &mut batch).is_err() {
                        std::thread::yield_now();
                        continue;
                    }
                    batch.for_each_mut(|packet| {
                        packet.set_cookie(id << 32 | n);
                        packet.set_hash(id as u32 * 0x4000_0000 + 1);
                        n += 1;
                    });
                    let _ = sender.xmit_batch(&mut batch);
                }
            });
        }
    });
    let stats = assert_conserved(&dev);
    assert_eq!(stats.accepted, THREADS * EACH, "{what}");
    let mut taken = 0;
    for seen in seen.iter() {
        let seen = seen.lock().unwrap();
        taken += seen.len() as u64;
        for id in 0..THREADS {
            let flow = seen.iter().filter(|&&cookie| cookie >> 32 == id);
            assert!(flow.is_sorted(), "flow {id} is out of order: {what}");
        }
    }
    assert_eq!(stats.sent, taken, "{what}");
    stats.requeues
}

fn everywhere(null: &Null, rates: Rates) {
    let mut requeues = 0;
    for &discipline in Discipline::ALL {
        let qdiscs = ["pfifo limit 100000", "pfifo_fast", "noqueue", "mq"];
        // With one txq, mq has nothing to spread.
        let qdiscs = &qdiscs[..if null.txqs > 1 { 4 } else { 3 }];
        for (seed, qdisc) in qdiscs.iter().enumerate() {
            requeues += run(null.clone(), rates, seed as u64, qdisc, discipline);
        }
    }
    assert_eq!(requeues > 0, rates.busy > 0.0 || rates.stall > 0.0);
}

#[test]
fn refusals() {
    let rates = Rates { busy: 0.2, ..Rates::default() };
    everywhere(&Null::new(1), rates);
    everywhere(&Null { ring: 16, ..Null::new(2) }, rates);
}

/// Refusals that wait for a completion, while another thread completes: the wake must not be lost in between.
#[test]
fn refusals_on_a_small_ring_that_the_worker_reaps() {
    let rates = Rates { busy: 0.5, ..Rates::default() };
    everywhere(&Null { ring: 4, inline: false, ..Null::new(1) }, rates);
    everywhere(&Null { ring: 4, ..Null::new(3) }, rates);
}

#[test]
fn stalls() {
    let rates = Rates { stall: 0.01, stall_time: Duration::from_millis(2), ..Rates::default() };
    everywhere(&Null { ring: 64, ..Null::new(2) }, rates);
}

#[test]
fn drops() {
    everywhere(&Null::new(2), Rates { drop: 0.05, ..Rates::default() });
}

#[test]
fn late_completions_in_another_order() {
    let rates =
        Rates { delay: 0.3, delay_time: Duration::from_micros(300), reorder: 0.3, ..Rates::default() };
    everywhere(&Null { ring: 32, ..Null::new(1) }, rates);
    everywhere(&Null { ring: 32, inline: false, ..Null::new(2) }, rates);
}

#[test]
fn all_at_once() {
    let rates = Rates {
        busy: 0.1,
        stall: 0.002,
        stall_time: Duration::from_micros(500),
        drop: 0.02,
        delay: 0.2,
        delay_time: Duration::from_micros(100),
        reorder: 0.2,
    };
    everywhere(&Null { ring: 32, rate: Some(1_000_000_000), ..Null::new(2) }, rates);
    everywhere(&Null { ring: 8, inline: false, delay: Duration::from_micros(10), ..Null::new(1) }, rates);
}
