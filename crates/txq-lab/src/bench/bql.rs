//! Suite `bql`: goodput under byte queue limits on a link whose completions come together, or late.
//!
//! One sender offers nine tenths of a link of 1 Gbit/s at a fixed rate through a `pfifo` and the null device. The device
//! completes packets together at multiples of a time, or a fixed time after the wire. The algorithm raises the limit when
//! a completion leaves nothing in flight. Such devices never show that, so txq tries higher limits. The suite reports the
//! share that was sent, and the bytes in flight beside those that the link needs: its rate times that time, plus a batch.
//!
//! The measurement begins when half of the time is over. The algorithm finds the limit before.

use std::thread;
use std::time::{Duration, Instant};

use txq::Discipline;
use txq::NetDev;
use txq::bql::BqlConfig;
use txq::pool::PoolConfig;
use txq_cli::common::failure::refused;
use txq_cli::common::span::Human;
use txq_cli::common::table::{align, number};
use txq_device::Null;

use super::case::{Case, Key, Late, Row, Sample};
use super::cpu::Begun;
use super::lab::Lab;
use super::plan::Plan;

/// The suite's name.
pub(super) const BQL: &str = "bql";
/// The link's rate in bits per second, and the offered part of it.
const LINK_RATE: u64 = 1_000_000_000;
const OFFERED: f64 = 0.9;
/// Bytes that a packet takes on the wire in addition to its own (`txq_device::Null`).
const WIRE: usize = 24;
/// Packets that the device's ring and the qdisc hold: more than the link needs at any of the times.
const RING: u32 = 4096;
/// Packets of a batch.
const BATCH: f64 = 64.0;
/// How long the sender sleeps after it has caught up.
const SENDER_SLEEP: Duration = Duration::from_micros(100);
/// Time between two samples of the bytes in flight.
const IN_FLIGHT_PERIOD: Duration = Duration::from_micros(700);

/// The devices' completion times, in nanoseconds.
const DEVICES: [Late; 5] = [
    Late { together: 0, by: 0 },
    Late { together: 1_000_000, by: 0 },
    Late { together: 10_000_000, by: 0 },
    Late { together: 0, by: 1_000_000 },
    Late { together: 0, by: 5_000_000 },
];

/// Returns all configurations.
pub(super) fn cases(plan: &Plan<'_>) -> Vec<Case> {
    let mut cases = Vec::new();
    for late in DEVICES {
        for len in [1500, 700] {
            for limited in [true, false] {
                let key = Key {
                    suite: BQL,
                    discipline: plan.discipline().first().copied(),
                    late: Some(late),
                    bytes: Some(len as u64),
                    limited: Some(limited),
                    threads: 1,
                    batch: 1,
                    ..Key::default()
                };
                let scene = Scene { discipline: plan.discipline()[0], late, len, limited };
                cases.push(Case { key, run: Box::new(move |lab, time| scene.measure(lab, time)) });
            }
        }
    }
    cases
}

/// One configuration.
struct Scene {
    discipline: Discipline,
    late: Late,
    len: usize,
    limited: bool,
}

impl Scene {
    /// Returns the nanoseconds that a packet is on the wire.
    fn wire(&self) -> f64 {
        ((self.len + WIRE) * 8) as f64 * 1e9 / LINK_RATE as f64
    }

    /// Returns the bytes in flight that keep the link busy.
    fn needs(&self) -> f64 {
        ((self.late.together + self.late.by) as f64 / self.wire() + BATCH) * self.len as f64
    }

    fn measure(&self, lab: &Lab, time: Duration) -> anyhow::Result<Sample> {
        let Late { together, by } = self.late;
        let (delay, coalesce) = (Duration::from_nanos(by), Duration::from_nanos(together));
        let null = Null { rate: Some(LINK_RATE), ring: RING, delay, coalesce, ..Null::new(1) };
        let pool = PoolConfig { buffers: 4 * RING, room: 1536, ..PoolConfig::default() };
        let qdisc = format!("pfifo limit {RING}");
        let builder = NetDev::builder(null).discipline(self.discipline).qdisc(&qdisc).pool_config(pool);
        let mut dev = builder.bql(self.limited.then(BqlConfig::default)).start()?;
        let (start, begun) = (Instant::now(), Begun::now());
        let mut in_flight = Vec::new();
        let mut half = None;
        thread::scope(|scope| {
            let (dev, end) = (&dev, start + time);
            scope.spawn(move || self.offer(dev, end));
            while start.elapsed() < time && lab.signals.seen().is_none() {
                if start.elapsed() >= time / 2 {
                    let stats = dev.stats();
                    half.get_or_insert_with(|| (Instant::now(), Begun::now(), stats.sent));
                    in_flight.push(stats.in_flight as f64 * self.len as f64);
                }
                thread::sleep(IN_FLIGHT_PERIOD);
            }
        });
        let stats = dev.stats();
        let (from, cpu, before) = half.unwrap_or((start, begun, 0));
        let (wall, cpu, sent) = (from.elapsed(), cpu.used(), stats.sent - before);
        dev.shutdown()?;
        dev.audit().map_err(refused("the counters do not add up"))?;
        let limit = stats.queues.first().and_then(|queue| queue.bql).map(|bql| f64::from(bql.limit));
        let offered = wall.as_secs_f64() * 1e9 / self.wire() * OFFERED;
        Ok(Sample {
            share: Some(sent as f64 / offered),
            limit_bytes: limit,
            in_flight_bytes: Some(in_flight.iter().sum::<f64>() / in_flight.len().max(1) as f64),
            needed_bytes: Some(self.needs()),
            dropped: Some(stats.dropped.total() as f64 / stats.accepted.max(1) as f64),
            ..Sample::of(sent, wall, cpu)
        })
    }

    /// Offers packets at their times until `end`; late packets go at once.
    fn offer(&self, dev: &NetDev, end: Instant) {
        let mut sender = dev.sender("sender");
        let gap = self.wire() / OFFERED;
        let (start, mut offered) = (sender.now(), 0_u64);
        while Instant::now() < end {
            let due = ((sender.now() - start).as_nanos() as f64 / gap) as u64;
            for _ in offered..due {
                // The pool holds more than the queue and the ring together.
                if let Ok(packet) = sender.alloc(self.len) {
                    let _ = sender.xmit(packet);
                }
            }
            offered = due;
            thread::sleep(SENDER_SLEEP);
        }
    }
}

/// Returns the results of this suite.
pub(super) fn table(rows: &[Row]) -> String {
    let rows: Vec<&Row> = rows.iter().filter(|row| row.key.suite == BQL).collect();
    let mut text = String::new();
    if rows.is_empty() {
        return text;
    }
    text.push_str("\nbql: what is sent of 900 Mbit/s that are offered to a link of 1 Gbit/s\n\n");
    let heads = [
        "completions",
        "bytes",
        "limits",
        "sent, of offered",
        "in flight, kB",
        "limit, kB",
        "needed, kB",
        "CPU ns",
    ];
    let cells = rows.iter().map(|row| {
        let (key, s) = (&row.key, &row.sample);
        let or_dash = |value: Option<String>| value.unwrap_or_else(|| "-".into());
        let kilo = |bytes: Option<f64>| or_dash(bytes.map(|bytes| number(bytes / 1e3)));
        vec![
            key.late.unwrap_or_default().to_string(),
            key.bytes.unwrap_or_default().to_string(),
            if key.limited == Some(true) { "auto" } else { "off" }.into(),
            or_dash(s.share.map(|share| format!("{share:.3}"))),
            kilo(s.in_flight_bytes),
            kilo(s.limit_bytes),
            kilo(s.needed_bytes),
            or_dash(s.cpu_ns_per_packet.map(number)),
        ]
    });
    align(&mut text, heads.map(str::to_owned).to_vec(), cells.collect());
    text
}

impl std::fmt::Display for Late {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (self.together, self.by) {
            (0, 0) => f.write_str("at once"),
            (together, 0) => write!(f, "every {}", Human(together)),
            (_, by) => write!(f, "after {}", Human(by)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_needs_its_rate_times_the_delay_and_a_batch() {
        let late = Late { together: 0, by: 5_000_000 };
        let scene = Scene { discipline: Discipline::Combine, late, len: 1500, limited: true };
        // 5 ms of 1 Gbit/s are 625 kB on the wire; 24 of each 1524 bytes belong to no packet.
        assert!((scene.needs() - (615_157.0 + 96_000.0)).abs() < 1.0, "{}", scene.needs());
    }
}
