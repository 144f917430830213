//! Suite `isolation`: how much a sender of the highest priority suffers from others that flood the same qdisc.
//!
//! A probe sends one packet of priority 6 every half millisecond through `pfifo_fast`. Flooding senders of priority 2,
//! each with at most 256 outstanding packets, send as fast as they can, and go on at once when packets are dropped. The
//! driver is the bottleneck: it works for a microsecond on each packet, in the thread that runs the queue. The probe's
//! packets should wait only for the packets in the driver's hands, and its calls of xmit should return at once.

use std::io;
use std::num::NonZeroU64;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, Scope, ScopedJoinHandle};
use std::time::Duration;

use histogram::Histogram;
use txq::Instant;
use txq::driver::{DeviceInfo, Driver, DriverQueue, Status, Transmit, TxCx};
use txq::packet::PacketList;
use txq::pool::{CACHE_SIZE, PoolConfig};
use txq::{Discipline, NetDev, Sender};
use txq_cli::common::failure::refused;
use txq_cli::common::span::Human;
use txq_cli::common::stop::Stop;
use txq_cli::common::table::{align, number};
use txq_device::Null;

use super::case::{Case, Key, Row, Sample};
use super::cpu::Begun;
use super::lab::Lab;
use super::meter::{Calls, Counter, Log, Measuring, watch};
use super::plan::Plan;
use super::rig::join;
use super::work::Work;
use crate::tree::Tree;

/// The suite's name.
pub(super) const ISOLATION: &str = "isolation";
/// Default time of each configuration. It is longer than in other suites because the suite measures rare waits.
pub(super) const ISOLATION_TIME: Duration = Duration::from_secs(3);
/// The driver's work for each packet, in nanoseconds.
const DRIVER_NS: u64 = 1000;
/// Time from one packet of the probe to the next.
const PROBE_GAP: Duration = Duration::from_micros(500);
/// Priorities of the probe and of the others: pfifo_fast's bands 0 and 2.
const PROBE_PRIORITY: u32 = 6;
const FLOOD_PRIORITY: u32 = 2;
/// Outstanding packets of a flooding sender, and bytes of every packet.
const LIMIT: u64 = 256;
const LEN: usize = 60;
/// Packets that the queue and the ring hold in addition.
const QUEUES: u64 = 8192;
/// How long a flooding sender at its limit sleeps at most.
const REST: Duration = Duration::from_millis(5);

/// Returns all configurations.
pub(super) fn cases(plan: &Plan<'_>) -> Vec<Case> {
    let mut cases = Vec::new();
    let work = plan.lab.calibration.work(DRIVER_NS);
    for qdisc in plan.qdiscs(&["pfifo_fast"]) {
        for batch in plan.batches(&[1]) {
            for threads in plan.threads(&[8]) {
                for discipline in plan.disciplines() {
                    let key = Key {
                        suite: ISOLATION,
                        discipline: Some(discipline),
                        qdisc: Some(qdisc.clone()),
                        threads,
                        batch,
                        ..Key::default()
                    };
                    let scene = Scene { discipline, qdisc: Tree::new(&qdisc), threads, batch, work };
                    cases.push(Case { key, run: Box::new(move |lab, time| scene.measure(lab, time)) });
                }
            }
        }
    }
    cases
}

/// The null device behind a driver that works for each packet, and records the lateness of the probe's packets.
struct Busy {
    null: Null,
    work: Work,
    taken: Counter,
    late: Arc<Mutex<Histogram>>,
}

impl Driver for Busy {
    fn info(&self) -> DeviceInfo {
        <Null as Driver>::info(&self.null)
    }

    fn open(&mut self, txq: u16) -> io::Result<DriverQueue> {
        let queue: DriverQueue = self.null.open(txq)?;
        let (work, taken, late) = (self.work, self.taken.clone(), self.late.clone());
        Ok(queue.map_transmit(|tx| BusyTx { tx, work, taken, late }))
    }
}

struct BusyTx {
    tx: Box<dyn Transmit>,
    work: Work,
    taken: Counter,
    late: Arc<Mutex<Histogram>>,
}

impl Transmit for BusyTx {
    fn start_xmit(&mut self, batch: &mut PacketList, cx: &mut TxCx<'_>) -> Status {
        for packet in batch.iter() {
            if let Some(at) = sent_at(packet.data()).filter(|_| packet.priority() == PROBE_PRIORITY) {
                let late = ((Instant::now() - at).as_nanos() as u64).min((1 << 40) - 1);
                let mut times = self.late.lock().unwrap_or_else(PoisonError::into_inner);
                times.increment(late).expect("within the histogram's range");
            }
            self.work.spend();
        }
        let before = batch.len();
        let status = self.tx.start_xmit(batch, cx);
        self.taken.add((before - batch.len()) as u64);
        status
    }
}

/// Returns when the probe sent a packet; `None` for a packet sent before the measurement began.
fn sent_at(bytes: &[u8]) -> Option<Instant> {
    let at = u64::from_ne_bytes(*bytes.first_chunk()?);
    (at > 0).then_some(at.into())
}

/// One configuration.
struct Scene {
    discipline: Discipline,
    qdisc: Tree,
    threads: u64,
    batch: u64,
    work: Work,
}

impl Scene {
    fn measure(&self, lab: &Lab, time: Duration) -> anyhow::Result<Sample> {
        let late = Arc::new(Mutex::new(Histogram::new(7, 40).expect("constants in range")));
        let taken = Counter::default();
        let busy = Busy { null: Null::new(1), work: self.work, taken: taken.clone(), late: late.clone() };
        let limit = LIMIT.max(self.batch);
        let buffers = (limit + 2 * CACHE_SIZE as u64) * (self.threads + 1) + QUEUES;
        let pool = PoolConfig { buffers: buffers as u32, room: 256, ..PoolConfig::default() };
        let builder = NetDev::builder(busy).discipline(self.discipline).qdisc(self.qdisc.root());
        let mut dev = builder.pool_config(pool).start()?;
        self.qdisc.complete(|command| dev.tc(command))?;
        let (stop, measuring) = (Stop::default(), Measuring::default());
        let calls: Vec<Calls> = (0..self.threads).map(|_| Calls::default()).collect();
        let (seen, cpu, longest, times) = thread::scope(|scope| {
            let (dev, stop, measuring) = (&dev, &stop, &measuring);
            let floods = calls.iter().enumerate().map(|(index, calls)| {
                let (batch, log) = (self.batch as usize, Log::new(calls, measuring));
                let work = move |sender| flood(sender, limit, batch, log, stop);
                start(scope, dev, stop, format!("flood {index}"), work)
            });
            let floods = floods.collect::<anyhow::Result<Vec<_>>>()?;
            let work = move |sender| probe(sender, measuring, stop);
            let probe = start(scope, dev, stop, "probe".into(), work)?;
            lab.sleep((time / 8).min(Duration::from_millis(50)));
            let before = Begun::now();
            measuring.set(true);
            let seen = watch(lab, || taken.get(), &calls, time);
            measuring.set(false);
            let cpu = before.used();
            stop.ask();
            let times = floods.into_iter().map(join).collect::<anyhow::Result<Vec<_>>>()?;
            anyhow::Ok((seen, cpu, join(probe)?, times))
        })?;
        let stats = dev.stats();
        dev.shutdown()?;
        dev.audit().map_err(refused("the counters do not add up"))?;
        let late = late.lock().unwrap_or_else(PoisonError::into_inner);
        let at = |times: &Histogram, share| {
            anyhow::Ok(times.quantile_bucket(share)?.map(|bucket| bucket.end() as f64))
        };
        let mut others = seen.xmit.as_secs_f64() * 1e6;
        for times in &times {
            others = others.max(at(times, 1.0)?.unwrap_or_default() / 1e3);
        }
        Ok(Sample {
            p50_ns: at(&late, 0.5)?,
            p99_ns: at(&late, 0.99)?,
            max_ns: at(&late, 1.0)?,
            worst_xmit_us: at(&longest, 1.0)?.map(|ns| ns / 1e3),
            worst_flood_us: Some(others),
            worst_stall_us: Some(seen.stall.as_secs_f64() * 1e6),
            dropped: Some(stats.dropped.total() as f64 / stats.accepted.max(1) as f64),
            ..Sample::of(seen.packets, seen.wall, cpu)
        })
    }
}

/// Starts a thread with a sender of its own. If that fails, the other threads stop.
fn start<'scope>(
    scope: &'scope Scope<'scope, '_>,
    dev: &'scope NetDev,
    stop: &Stop,
    name: String,
    work: impl FnOnce(Sender) -> Histogram + Send + 'scope,
) -> anyhow::Result<ScopedJoinHandle<'scope, anyhow::Result<Histogram>>> {
    let thread = thread::Builder::new().name(name.clone());
    let run = move || anyhow::Ok(work(dev.sender(&name)));
    let started = thread.spawn_scoped(scope, run).map_err(refused("a thread does not start"));
    started.inspect_err(|_| stop.ask())
}

/// Sends as fast as the limit allows and ignores the verdicts.
fn flood(mut sender: Sender, limit: u64, batch: usize, mut log: Log<'_>, stop: &Stop) -> Histogram {
    sender.set_limit(limit);
    let mut list = PacketList::new();
    while !stop.asked() {
        if sender.alloc_batch(batch, LEN, &mut list).is_err() {
            if sender.wait_credit(Some(sender.now() + REST)) {
                thread::yield_now();
            }
            continue;
        }
        list.for_each_mut(|packet| packet.set_priority(FLOOD_PRIORITY));
        log.call(|| {
            let _ = sender.xmit_batch(&mut list);
        });
    }
    log.times()
}

/// Runs the probe. Returns the times of its calls.
fn probe(mut sender: Sender, measuring: &Measuring, stop: &Stop) -> Histogram {
    // A sleep may otherwise end 50 us late. Where the slack cannot be changed, the probe sends fewer packets.
    let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1000));
    let mut times = Histogram::new(7, 40).expect("constants in range");
    let mut due = sender.now();
    while !stop.asked() {
        let now = sender.now();
        if now < due {
            thread::sleep(due - now);
            continue;
        }
        // The probe does not catch up on missed packets: it sends one at a time.
        due = now.max(due) + PROBE_GAP;
        let Ok(mut packet) = sender.alloc(LEN) else { continue };
        packet.set_priority(PROBE_PRIORITY);
        let measured = measuring.get();
        let start = sender.now();
        let stamp = if measured { start.as_nanos() } else { 0 };
        packet.data_mut()[..size_of::<u64>()].copy_from_slice(&stamp.to_ne_bytes());
        let _ = sender.xmit(packet);
        if measured {
            let took = ((sender.now() - start).as_nanos() as u64).min((1 << 40) - 1);
            times.increment(took).expect("within the histogram's range");
        }
    }
    times
}

/// Returns the results of this suite, a table for each qdisc, batch and number of senders.
pub(super) fn table(rows: &[Row]) -> String {
    let mut tables: Vec<Vec<&Row>> = Vec::new();
    let about = |row: &Row| (row.key.qdisc.clone(), row.key.batch, row.key.threads);
    for row in rows.iter().filter(|row| row.key.suite == ISOLATION) {
        match tables.iter_mut().find(|table| about(table[0]) == about(row)) {
            Some(table) => table.push(row),
            None => tables.push(vec![row]),
        }
    }
    let mut text = String::new();
    for table in tables {
        let key = &table[0].key;
        text.push_str(&format!(
            "\n{ISOLATION}, {}: a probe of priority {PROBE_PRIORITY} beside {} flooding senders, batch {}\n\n",
            key.qdisc.as_deref().unwrap_or_default(),
            key.threads,
            key.batch
        ));
        let heads = ["", "to driver p50", "p99", "max", "its longest xmit", "any xmit", "Mpps", "dropped"];
        let cells = table.iter().map(|row| {
            let s = &row.sample;
            let or_dash = |value: Option<String>| value.unwrap_or_else(|| "-".into());
            let nanos = |ns: Option<f64>| or_dash(ns.map(|ns| Human(ns as u64).to_string()));
            let micros = |us: Option<f64>| nanos(us.map(|us| us * 1e3));
            let any = s.worst_flood_us.map(|us| us.max(s.worst_xmit_us.unwrap_or_default()));
            vec![
                row.key.subject(),
                nanos(s.p50_ns),
                nanos(s.p99_ns),
                nanos(s.max_ns),
                micros(s.worst_xmit_us),
                micros(any),
                number(s.mpps),
                or_dash(s.dropped.map(|share| format!("{:.1} %", share * 100.0))),
            ]
        });
        align(&mut text, heads.map(str::to_owned).to_vec(), cells.collect());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_packets_of_the_measured_time_have_one() {
        assert_eq!(sent_at(&42_u64.to_ne_bytes()), Some(Instant::from_nanos(42)));
        assert_eq!((sent_at(&[0; 60]), sent_at(&[1; 7])), (None, None));
    }

    #[test]
    fn the_longest_of_all_calls_is_told() {
        let key = Key {
            suite: ISOLATION,
            discipline: Some(Discipline::Llist),
            threads: 8,
            batch: 1,
            ..Key::default()
        };
        let sample = Sample {
            p50_ns: Some(63e3),
            p99_ns: Some(2.3e6),
            worst_xmit_us: Some(14e3),
            worst_flood_us: Some(9e3),
            ..Sample::default()
        };
        let row = Row::of(key, &[sample]).expect("one sample");
        let text = table(&[row]);
        assert!(text.contains("beside 8 flooding senders, batch 1"), "{text}");
        assert_eq!(text.matches("14.0 ms").count(), 2, "{text}");
    }
}
