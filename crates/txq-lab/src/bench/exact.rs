//! Suite `rate`, second table: how exact a rate is that is reached, from 1 Mbit/s to 40 Gbit/s.
//!
//! On this machine two threads hand in more than the rate, and the packets that the null device takes are compared with it. On a
//! virtual clock the same qdisc is dequeued exactly when it asks for that, on as many txqs as a large machine has CPUs. So the
//! error there is the qdisc's own. The rest of the error here is the machine's: late timers, and bursts that begin before the
//! measurement or end after it. Where no thread has to wait, the rate is not reached, and there is no error.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::bail;
use txq::generic::qdisc::{Budget, Built, Env, Qdisc, build};
use txq::pool::PoolConfig;
use txq::scheduler::{Config, Item};
use txq::{NetDev, Scheduler, Sender};
use txq_cli::common::failure::refused;
use txq_cli::common::rate::metric;
use txq_cli::common::stop::Stop;
use txq_cli::common::table::align;
use txq_device::Null;

use super::case::{Case, Key, Row, Sample};
use super::cpu::{Begun, Used};
use super::lab::Lab;
use super::rig::{hold, join};

/// The name of its rows.
pub(super) const EXACT: &str = "exact";
/// How a row is measured.
const HERE: &str = "this machine";
const VIRTUAL: &str = "virtual clock";

/// The kinds, and whether they have classes.
const SHAPER_KINDS: [(&str, bool); 4] = [("tbf", false), ("htb", true), ("tbf_mq", false), ("htb_mq", true)];
/// The rates, in bit/s, and the bytes of a packet: short ones where few packets leave in a second.
const RATES: [(u64, usize); 5] = [
    (1_000_000, 64),
    (100_000_000, 500),
    (1_000_000_000, 1514),
    (10_000_000_000, 1514),
    (40_000_000_000, 1514),
];
/// The bucket, as a part of a second at the rate: longer than a timer is late.
const BUCKET_DEPTH: u64 = 200;
/// Threads and txqs on this machine, and txqs on the virtual clock.
const THREADS: u64 = 2;
const TXQS: u16 = 64;
/// Outstanding packets of a thread, and those of one call.
const LIMIT: u64 = 900;
const BATCH: u64 = 32;
/// Packets that leave on the virtual clock, beside four bursts.
const PACKETS: u64 = 16_000;
/// Packets that wait in each part on the virtual clock.
const WAITING: usize = 64;

/// A shaper.
#[derive(Clone, Copy)]
struct Shaper {
    kind: &'static str,
    has_classes: bool,
    /// In bit/s.
    rate: u64,
    /// Bytes of a packet.
    len: usize,
}

pub(super) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for (kind, has_classes) in SHAPER_KINDS {
        for (rate, len) in RATES {
            let shaper = Shaper { kind, has_classes, rate, len };
            for shape in [HERE, VIRTUAL] {
                let key = Key {
                    suite: EXACT,
                    shape: Some(shape),
                    qdisc: Some(format!("{kind} {}bit", metric(rate as f64))),
                    threads: if shape == HERE { THREADS } else { 1 },
                    batch: BATCH,
                    bytes: Some(len as u64),
                    ..Key::default()
                };
                let run = Box::new(move |lab: &Lab, time| match shape {
                    HERE => shaper.here(lab, time),
                    _ => shaper.on_virtual_clock(),
                });
                cases.push(Case { key, run });
            }
        }
    }
    cases
}

impl Shaper {
    fn burst(&self) -> u64 {
        (self.rate / 8 / BUCKET_DEPTH).max(2 * self.len as u64)
    }

    fn qdisc(&self) -> String {
        match self.has_classes {
            true => format!("handle 1: {} default 10", self.kind),
            false => {
                format!("handle 1: {} rate {}bit burst {} limit 100mb", self.kind, self.rate, self.burst())
            }
        }
    }

    /// Returns the classes as `tc class add` describes them: one that borrows nearly all that it sends.
    fn classes(&self) -> Vec<String> {
        let (rate, burst) = (self.rate, self.burst());
        let borrows =
            format!("rate {}bit ceil {rate}bit burst {burst} cburst {burst} quantum 1514", rate / 100);
        let all = [
            format!("parent 1: classid 1:1 htb rate {rate}bit burst {burst} cburst {burst}"),
            format!("parent 1:1 classid 1:10 htb {borrows}"),
        ];
        all.into_iter().filter(|_| self.has_classes).collect()
    }

    /// Returns the figures of so many packets.
    fn sample(&self, packets: u64, wall: Duration, cpu: Used) -> Sample {
        let rate = (packets * self.len as u64 * 8) as f64 / wall.as_secs_f64();
        Sample { rate_error: Some(rate / self.rate as f64 - 1.0), ..Sample::of(packets, wall, cpu) }
    }

    /// Measures two threads on this machine.
    fn here(&self, lab: &Lab, time: Duration) -> anyhow::Result<Sample> {
        let pool = PoolConfig { buffers: 8192, room: 1536, ..PoolConfig::default() };
        let builder = NetDev::builder(Null::new(THREADS as u16)).qdisc(&self.qdisc()).pool_config(pool);
        let mut dev = builder.workers(THREADS as usize).start()?;
        for class in self.classes() {
            dev.tc(&format!("class add {class}"))?;
        }
        let stop = Stop::default();
        let measured = thread::scope(|scope| {
            let threads = (0..THREADS as u32).map(|thread| {
                let (sender, stop) = (dev.sender(&format!("sender {thread}")), &stop);
                thread::Builder::new().spawn_scoped(scope, move || Ok(self.send(sender, thread, stop)))
            });
            let threads: Vec<_> = threads.collect::<Result<_, _>>()?;
            // The first burst is not part of the rate.
            lab.sleep(time / 4 + Duration::from_secs(1) / BUCKET_DEPTH as u32);
            let (start, cpu, before) = (Instant::now(), Begun::now(), dev.tx_packets());
            lab.sleep(time);
            let (wall, cpu, packets) = (start.elapsed(), cpu.used(), dev.tx_packets() - before);
            stop.ask();
            let waits = threads.into_iter().map(join).collect::<anyhow::Result<Vec<u64>>>()?;
            let sample = self.sample(packets, wall, cpu);
            let is_reached = waits.iter().all(|&waits| waits > 0);
            anyhow::Ok(Sample { rate_error: sample.rate_error.filter(|_| is_reached), ..sample })
        })?;
        dev.shutdown()?;
        dev.audit().map_err(refused("the counters do not add up"))?;
        Ok(measured)
    }

    /// Sends until `stop`; returns how often the sender had to wait.
    fn send(&self, mut sender: Sender, thread: u32, stop: &Stop) -> u64 {
        sender.set_limit(LIMIT);
        let (mut list, mut waits) = (txq::packet::PacketList::new(), 0);
        while !stop.asked() {
            if sender.alloc_batch(BATCH as usize, self.len, &mut list).is_err() {
                waits += 1;
                if sender.wait_credit(Some(sender.now() + Duration::from_millis(1))) {
                    hold();
                }
                continue;
            }
            // The highest bit of the hash chooses one of two txqs.
            list.for_each_mut(|packet| packet.set_hash(thread << 31 | 1));
            let _ = sender.xmit_batch(&mut list);
        }
        waits
    }

    /// Dequeues from all txqs at the times that they ask for.
    fn on_virtual_clock(&self) -> anyhow::Result<Sample> {
        let (began, cpu) = (1_000_000_000, Begun::now());
        let mut parts = self.parts(began)?;
        let mut due: BinaryHeap<Reverse<(u64, usize)>> =
            (0..parts.len()).map(|part| Reverse((began, part))).collect();
        let bytes = (PACKETS + 4 * self.burst() / self.len as u64) * self.len as u64;
        let length = (u128::from(bytes) * 8 * 1_000_000_000 / u128::from(self.rate)) as u64;
        // The first burst is not part of the rate.
        let (from, to) = (began + length / 4, began + length / 4 + length);
        let (mut packets, mut out) = (0, Vec::new());
        while let Some(Reverse((now, which))) = due.pop().filter(|Reverse((now, _))| *now < to) {
            let part = &mut parts[which];
            while part.len() < WAITING {
                let _ = part.enqueue(now, Item::new(self.len as u32, ()));
            }
            part.dequeue_batch(now, Budget::packets(WAITING / 2), &mut out);
            packets += if now >= from { out.len() as u64 } else { 0 };
            let next = match out.is_empty() {
                true => part.next_event().map_or(0, |at| at.as_nanos()).max(now + 1),
                false => now,
            };
            out.clear();
            due.push(Reverse((next, which)));
        }
        Ok(self.sample(packets, Duration::from_nanos(to - from), cpu.used()))
    }

    /// Returns the qdisc's parts, one for each txq; of a root of all txqs the one part.
    fn parts(&self, now: u64) -> anyhow::Result<Vec<Scheduler<()>>> {
        let env = Env { txqs: TXQS, ..Env::default() };
        let parts: Vec<Box<dyn Qdisc>> = match build(&self.qdisc(), &env)? {
            (_, Built::Qdisc(qdisc)) => vec![qdisc],
            (_, Built::Parts(parts) | Built::Replicas(parts)) => parts,
            _ => bail!("{} has no packets of its own", self.kind),
        };
        let config = Config { env, packets: 1024, header: 1, ..Config::default() };
        let mut parts: Vec<_> =
            parts.into_iter().map(|part| Scheduler::of_part(part, &config)).collect::<Result<_, _>>()?;
        for part in &mut parts {
            for class in self.classes() {
                part.tc(now, &format!("class add {class}"))?;
            }
        }
        Ok(parts)
    }
}

/// Returns the table of this suite.
pub(super) fn table(rows: &[Row]) -> String {
    let rows: Vec<&Row> = rows.iter().filter(|row| row.key.suite == EXACT).collect();
    let mut text = String::new();
    if rows.is_empty() {
        return text;
    }
    text += &format!(
        "\nrate: error of a rate that is reached; {THREADS} threads on this machine, and {TXQS} txqs on a virtual clock\n\n"
    );
    let cells = rows.chunk_by(|a, b| a.key.qdisc == b.key.qdisc).map(|rows| {
        let of =
            |shape| rows.iter().find(|row| row.key.shape == Some(shape)).map(|row| row.sample.rate_error);
        let cell = |shape| match of(shape) {
            None => String::new(),
            Some(None) => "not reached".into(),
            Some(Some(error)) => format!("{:+.3} %", error * 100.0),
        };
        vec![rows[0].key.qdisc.clone().unwrap_or_default(), cell(HERE), cell(VIRTUAL)]
    });
    align(&mut text, ["", HERE, VIRTUAL].map(str::to_owned).to_vec(), cells.collect());
    text
}
