//! Several threads over devices that complete late, in bursts and out of order, with every reaper: no packet is lost, no txq
//! stays stopped, and the bytes in flight return to zero.

mod common;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use common::{assert_conserved, pool};
use txq::netdev::{Builder, Completions};
use txq::packet::PacketList;
use txq::{Discipline, NetDev};
use txq_device::faults::Rates;
use txq_device::{Faults, Null};

const THREADS: u64 = 3;
const EACH: u64 = 1000;

/// Sends from all threads over two txqs, waits until all packets have left, and checks.
fn run(builder: Builder, completions: Completions, discipline: Discipline) {
    let dev: NetDev = builder
        .default_qdisc("pfifo limit 100000")
        .discipline(discipline)
        .max_burst(10_000)
        .tx_queue_len(10_000)
        .pool_config(pool(4096))
        .workers(2)
        .affinity(&[1, 0])
        .completions(completions)
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
                    if sender.alloc_batch(1 + (n % 7) as usize, 60 + (n % 100) as usize, &mut batch).is_err()
                    {
                        std::thread::yield_now();
                        continue;
                    }
                    n += batch.len() as u64;
                    batch.for_each_mut(|packet| packet.set_hash((id as u32).wrapping_mul(0x9e37_79b9)));
                    let _ = sender.xmit_batch(&mut batch);
                }
            });
        }
    });
    let stats = assert_conserved(&dev);
    assert!(stats.sent >= THREADS * EACH && stats.dropped.total() == 0, "{completions:?}: {stats:?}");
    for queue in &stats.queues {
        assert!(!queue.stopped, "{completions:?}, {discipline}: {queue:?}");
        let bql = queue.bql.expect("packets wait for the wire");
        assert_eq!(bql.inflight, 0);
        assert!(bql.limit > 0 || queue.counters.packets == 0, "{bql:?}");
    }
}

fn everyone(null: &Null, rates: Option<Rates>) {
    for completions in [Completions::Inline, Completions::Worker, Completions::PerQueue] {
        for &discipline in Discipline::ALL {
            let builder = match rates {
                Some(rates) => NetDev::builder(Faults::new(null.clone(), 7, rates)),
                None => NetDev::builder(null.clone()),
            };
            run(builder, completions, discipline);
        }
    }
}

#[test]
fn late() {
    everyone(&Null { ring: 64, delay: Duration::from_micros(50), ..Null::new(2) }, None);
}

#[test]
fn in_bursts() {
    everyone(&Null { ring: 128, coalesce: Duration::from_micros(200), ..Null::new(2) }, None);
}

#[test]
fn at_the_rate_of_a_wire_and_told_of_in_bursts() {
    everyone(
        &Null { ring: 256, rate: Some(1_000_000_000), coalesce: Duration::from_micros(100), ..Null::new(2) },
        None,
    );
}

#[test]
fn out_of_order() {
    let rates =
        Rates { delay: 0.3, delay_time: Duration::from_micros(100), reorder: 0.5, ..Rates::default() };
    everyone(&Null { ring: 64, delay: Duration::from_nanos(1), ..Null::new(2) }, Some(rates));
}

#[test]
fn by_nobody_who_sends_if_the_driver_forbids_it() {
    everyone(&Null { ring: 64, delay: Duration::from_micros(10), inline: false, ..Null::new(2) }, None);
}

/// A started device has a completer for each CPU, and each of its txqs a completer.
#[test]
fn completers_share_txqs() {
    let cpus = std::thread::available_parallelism().unwrap().get();
    let txqs = 2 * cpus as u16 + 1;
    // Each txq stops again and again, and only its completer makes room.
    let null = Null { ring: 8, delay: Duration::from_micros(20), inline: false, ..Null::new(txqs) };
    let builder = NetDev::builder(null).qdisc("mq").default_qdisc("pfifo limit 1000").pool_config(pool(4096));
    let dev = builder.completions(Completions::PerQueue).xps(None).start().unwrap();
    let mut sender = dev.sender("s");
    for number in 0..50 * u32::from(txqs) {
        let mut frame = sender.wait_buffer(60, None).unwrap();
        let middle = (u64::from(number % u32::from(txqs)) << 32 | 1 << 31) / u64::from(txqs);
        frame.set_hash(middle as u32);
        let _ = sender.xmit(frame);
    }
    let stats = assert_conserved(&dev);
    assert_eq!(
        stats.queues.iter().map(|queue| queue.counters.packets).collect::<Vec<_>>(),
        vec![50; txqs.into()]
    );
    let completer = |index: usize| catch_unwind(AssertUnwindSafe(|| drop(dev.completer(index as u16))));
    assert!(completer(cpus - 1).is_ok() && completer(cpus).is_err());
}

/// Completions of the same time become due at the same time: none earlier, and all with the first.
#[test]
fn a_device_that_coalesces_tells_of_many_at_once() {
    const TELLS: Duration = Duration::from_millis(20);
    let null = Null { coalesce: TELLS, inline: false, ..Null::new(1) };
    let dev = NetDev::builder(null).qdisc("pfifo").bql(None).pool_config(pool(256)).build().unwrap();
    let (mut sender, mut worker) = (dev.sender("s"), dev.worker(0));
    let mut batch = PacketList::new();
    assert_eq!(sender.alloc_batch(50, 60, &mut batch).unwrap(), 50);
    let _ = sender.xmit_batch(&mut batch);
    while let Some(next) = worker.poll() {
        // The worker polls a device once more that has completed all.
        let in_flight = dev.stats().in_flight;
        assert!(
            in_flight == 0 || (in_flight, u128::from(next.as_nanos()) % TELLS.as_nanos()) == (50, 0),
            "{in_flight} in flight, until {next:?}"
        );
        std::thread::sleep(next - sender.now());
    }
    assert_conserved(&dev);
}
