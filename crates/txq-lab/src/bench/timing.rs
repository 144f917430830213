//! Suite `timing`: lateness of packets that a qdisc releases at a time, and exactness of a shaper's rate.
//!
//! The device's own worker wakes up when a packet is due, so the packet is late by the wakeup time of the machine, unless
//! the worker spins on the clock for the last microseconds (`spin_us`). Lateness is the time from a packet's departure
//! time to the driver's call. The rate is that at which the driver takes the packets, compared with the configured one.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use histogram::Histogram;
use txq::NetDev;
use txq::driver::{DeviceInfo, Driver, DriverQueue, Status, Transmit, TxCx};
use txq::packet::PacketList;
use txq::pool::PoolConfig;
use txq_cli::common::failure::refused;
use txq_cli::common::span::Human;
use txq_cli::common::table::{align, number};
use txq_device::Null;

use super::case::{Case, Key, Row, Sample};
use super::cpu::Begun;
use super::lab::Lab;
use super::meter::Counter;
use super::plan::Plan;

/// The suite's name.
pub(super) const TIMING: &str = "timing";
/// How long a worker spins on the clock by default, in microseconds.
const SPINS: [u64; 2] = [0, 100];
/// Time from one packet with a departure time to the next.
const DEPARTURE_GAP: Duration = Duration::from_micros(100);
/// How long before their departure times packets are handed in.
const HAND_IN_AHEAD: Duration = Duration::from_millis(5);
/// A shaper's rate, in bits per second, and the bytes of its packets.
const SHAPER_RATE: f64 = 1e9;
const LONG: usize = 1514;
/// Outstanding packets, at most.
const LIMIT: u64 = 256;

/// The measured quantity.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Of {
    Lateness,
    Rate,
}

const SUBJECTS: [(&str, Of); 3] = [
    ("fq timer_slack 0", Of::Lateness),
    ("tbf rate 1gbit burst 125kb latency 10ms", Of::Rate),
    ("fq maxrate 1gbit flow_limit 1000", Of::Rate),
];

/// Returns all configurations.
pub(super) fn cases(plan: &Plan<'_>) -> Vec<Case> {
    let spins = if plan.args.spin_us.is_empty() {
        SPINS.to_vec()
    } else {
        plan.args.spin_us.iter().map(|spin| spin.get()).collect()
    };
    let mut cases = Vec::new();
    for (text, of) in SUBJECTS {
        for &spin in &spins {
            let key = Key {
                suite: TIMING,
                qdisc: Some(text.into()),
                spin_us: Some(spin),
                threads: 1,
                batch: 1,
                ..Key::default()
            };
            let run = Box::new(move |lab: &Lab, time| measure(lab, time, text, of, spin));
            cases.push(Case { key, run });
        }
    }
    cases
}

/// The null device, with the bytes that its driver has taken and the lateness of packets with a departure time.
struct Timed {
    null: Null,
    bytes: Counter,
    late: Arc<Mutex<Histogram>>,
}

impl Driver for Timed {
    fn info(&self) -> DeviceInfo {
        <Null as Driver>::info(&self.null)
    }

    fn open(&mut self, txq: u16) -> io::Result<DriverQueue> {
        let queue: DriverQueue = self.null.open(txq)?;
        let (bytes, late) = (self.bytes.clone(), self.late.clone());
        Ok(queue.map_transmit(|tx| TimedTx { tx, bytes, late }))
    }
}

struct TimedTx {
    tx: Box<dyn Transmit>,
    bytes: Counter,
    late: Arc<Mutex<Histogram>>,
}

impl Transmit for TimedTx {
    fn start_xmit(&mut self, batch: &mut PacketList, cx: &mut TxCx<'_>) -> Status {
        let mut late = self.late.lock().unwrap_or_else(PoisonError::into_inner);
        for packet in batch.iter().filter(|packet| packet.departure() > txq::Instant::ZERO) {
            let _ = late.increment((txq::Instant::now() - packet.departure()).as_nanos() as u64);
        }
        let before = batch.bytes();
        let status = self.tx.start_xmit(batch, cx);
        self.bytes.add(before - batch.bytes());
        status
    }
}

fn measure(lab: &Lab, time: Duration, text: &str, of: Of, spin: u64) -> anyhow::Result<Sample> {
    let late = Arc::new(Mutex::new(Histogram::new(7, 40).expect("constants in range")));
    let bytes = Counter::default();
    let device = Timed { null: Null::new(1), bytes: bytes.clone(), late: late.clone() };
    let pool = PoolConfig { buffers: 4096, ..PoolConfig::default() };
    let mut dev =
        NetDev::builder(device).qdisc(text).pool_config(pool).spin(Duration::from_micros(spin)).start()?;
    let (cpu, start) = (Begun::now(), Instant::now());
    let sample = match of {
        Of::Lateness => {
            let sent = punctual(lab, &dev, time)?;
            let (wall, cpu) = (start.elapsed(), cpu.used());
            let late = late.lock().unwrap_or_else(PoisonError::into_inner);
            let at = |share| anyhow::Ok(late.quantile_bucket(share)?.map(|bucket| bucket.end() as f64));
            let (p50_ns, p99_ns, max) = (at(0.5)?, at(0.99)?, at(1.0)?);
            let sample = Sample { p50_ns, p99_ns, max_ns: max, ..Sample::of(sent, wall, cpu) };
            Sample { cpu_share: Some(cpu.cpu.as_secs_f64() / wall.as_secs_f64()), ..sample }
        }
        Of::Rate => greedy(lab, &dev, &bytes, time)?,
    };
    dev.shutdown()?;
    dev.audit().map_err(refused("the counters do not add up"))?;
    Ok(sample)
}

/// Sends packets with a departure time each, and waits until all have left.
fn punctual(lab: &Lab, dev: &NetDev, time: Duration) -> anyhow::Result<u64> {
    let mut sender = dev.sender("sender");
    let (first, mut sent) = (sender.now() + HAND_IN_AHEAD, 0_u32);
    let end = first + time;
    while lab.signals.seen().is_none() {
        let at = first + DEPARTURE_GAP * sent;
        if at >= end {
            break;
        }
        let now = sender.now();
        if at > now + HAND_IN_AHEAD {
            thread::sleep(HAND_IN_AHEAD / 2);
            continue;
        }
        let mut packet = sender.packet(&[0; 60])?;
        packet.set_departure(at);
        let _ = sender.xmit(packet);
        sent += 1;
    }
    lab.sleep(2 * HAND_IN_AHEAD);
    Ok(sent.into())
}

/// Sends one flow as fast as its outstanding packets allow, and measures the rate at which they leave.
fn greedy(lab: &Lab, dev: &NetDev, bytes: &Counter, time: Duration) -> anyhow::Result<Sample> {
    let mut sender = dev.sender("sender");
    sender.set_limit(LIMIT);
    // A shaper's initial burst is not part of its rate.
    let (from, begun, warm) = (Instant::now(), Begun::now(), time / 8);
    let mut begin = None;
    loop {
        if begin.is_none() && from.elapsed() >= warm {
            begin = Some((Instant::now(), Begun::now(), bytes.get()));
        }
        if from.elapsed() >= warm + time || lab.signals.seen().is_some() {
            break;
        }
        match sender.alloc(LONG) {
            Ok(mut packet) => {
                packet.set_hash(1);
                let _ = sender.xmit(packet);
            }
            Err(_) => {
                sender.wait_credit(Some(sender.now() + Duration::from_millis(1)));
            }
        }
    }
    let (start, cpu, before) = begin.unwrap_or((from, begun, 0));
    let (wall, cpu, bytes) = (start.elapsed(), cpu.used(), bytes.get() - before);
    let rate = bytes as f64 * 8.0 / wall.as_secs_f64();
    let share = cpu.cpu.as_secs_f64() / wall.as_secs_f64();
    let sample = Sample::of(bytes / LONG as u64, wall, cpu);
    Ok(Sample { rate_error: Some(rate / SHAPER_RATE - 1.0), cpu_share: Some(share), ..sample })
}

/// Returns the results of this suite.
pub(super) fn table(rows: &[Row]) -> String {
    let rows: Vec<&Row> = rows.iter().filter(|row| row.key.suite == TIMING).collect();
    let mut text = String::new();
    if rows.is_empty() {
        return text;
    }
    text.push_str("\ntiming: how late packets leave, and how exact a rate is\n\n");
    let heads = ["", "spin us", "late p50", "p99", "max", "rate error", "CPU"];
    let cells = rows.iter().map(|row| {
        let (key, s) = (&row.key, &row.sample);
        let or_dash = |value: Option<String>| value.unwrap_or_else(|| "-".into());
        let nanos = |ns: Option<f64>| or_dash(ns.map(|ns| Human(ns as u64).to_string()));
        vec![
            key.qdisc.clone().unwrap_or_default(),
            key.spin_us.unwrap_or_default().to_string(),
            nanos(s.p50_ns),
            nanos(s.p99_ns.filter(|_| s.p50_ns.is_some())),
            nanos(s.max_ns),
            or_dash(s.rate_error.map(|error| format!("{:+.2} %", error * 100.0))),
            or_dash(s.cpu_share.map(|share| format!("{} %", number(share * 100.0)))),
        ]
    });
    align(&mut text, heads.map(str::to_owned).to_vec(), cells.collect());
    text
}
