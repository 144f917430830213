//! A point, run: the machine, the device and its senders are made, warmed up, measured, and ended.

mod figures;

use std::cell::RefCell;
use std::rc::Rc;

use txq::NetDev;
use txq::cpumask::CpuMask;
use txq::netdev::{Builder, Completions as Reapers};
use txq::pool::{FreeMode, PoolConfig};
use txq::stats::contention::ContentionReport;
use txq::stats::device::DeviceStats;
use txq::stats::log2::Log2;
use txq::xps::XpsMap;

use crate::arch::Sim;
use crate::compare::Figures;
use crate::device::Card;
use crate::ledger::Ledger;
use crate::machine::{Machine, Picos};
use crate::os::CpuUse;
use crate::scenario::setup::{Completions, Pool, Setup, Steering};
use crate::sim;
use crate::workload::{self, Done};
use crate::world::{Task, World};

/// Picoseconds in a millisecond.
const MS: f64 = 1e9;
/// Times that the tasks that can run are counted while a point is measured.
const SAMPLES: u64 = 64;
/// How long somebody may take to read all counters, at most.
const WATCHED: Picos = 50_000_000_000;
/// How often a thread that is not pinned is moved to another CPU, about: load balancing and wake-ups elsewhere.
const REHOME: Picos = 4_000_000_000;

/// Why a point could not be run.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct RunError(String);

/// What a point came to, in the time that was measured.
#[derive(Debug, Clone)]
pub struct Report {
    /// The machine's name.
    pub machine: String,
    /// Its CPUs.
    pub cpus: u32,
    /// How long was measured, in seconds.
    pub seconds: f64,
    /// The figures, by their names.
    pub figures: Figures,
    /// Who waited for whom.
    pub contention: ContentionReport,
    /// How long calls of xmit took, in nanoseconds.
    pub xmit: Log2,
    /// Where the senders' time went, all together.
    pub senders: Ledger,
    /// Where the interrupts' time went, all together.
    pub interrupts: Ledger,
    /// How many interrupts' tasks there are.
    pub interrupted: u32,
    /// What all CPUs did, in picoseconds.
    pub used: CpuUse,
    /// Of all accesses: equal for equal points, always and everywhere.
    pub hash: u64,
    /// Accesses to lines, the warm-up's included.
    pub accesses: u64,
}

/// What is read of the world before and after the time that is measured.
struct Reading {
    used: CpuUse,
    switches: u64,
    senders: Ledger,
    interrupts: Ledger,
    done: u64,
}

/// Runs a point, with recording who waits for whom.
///
/// # Errors
/// As [`measure`].
///
/// # Panics
/// As [`measure`].
pub fn run(setup: &Setup) -> Result<Report, RunError> {
    once(setup, true)
}

/// Runs a point once, without recording: what it does, and not who waits for whom.
///
/// # Errors
/// When the machine, the qdisc or the discipline cannot be.
///
/// # Panics
/// When packets were lost: the data plane has an error then.
pub fn measure(setup: &Setup) -> Result<Report, RunError> {
    once(setup, false)
}

fn once(setup: &Setup, record: bool) -> Result<Report, RunError> {
    let failed = |error: &dyn std::fmt::Display| RunError(error.to_string());
    let machine = Machine::tuned(&setup.machine, &setup.tune).map_err(|e| failed(&e))?;
    let mut world = World::new(&machine, setup.seed);
    world.prices(&setup.prices);
    if !setup.workload.is_pinned() {
        world.rehome(REHOME);
    }
    let cpus = machine.topology.cpus();
    let device = &setup.device;
    let inline = device.completions == Completions::Inline;
    let rate = (device.gbit > 0.0).then_some((device.gbit * 1e9) as u64);
    let mut card = Card::new(device.txqs, device.ring, rate, (device.coalesce_us * 1e3) as u64, inline);
    let done = Rc::new(Done::default());
    // Whoever answers is made before the device, which talks to it.
    let answers = workload::answers(setup, cpus);
    card.peer = answers.as_ref().map(workload::Answers::peer);
    let dev = Rc::new(build(setup, card, cpus, record).map_err(|e| failed(&e))?);
    for txq in 0..device.txqs {
        let cpu = irq_cpu(device.completions, txq, device.txqs, cpus);
        let task = Task { name: format!("irq {txq}"), cpu: Some(cpu), urgent: true, ..Task::default() };
        let dev = dev.clone();
        world.spawn(task, move || dev.worker(txq.into()).run());
    }
    if let Some(answers) = answers {
        answers.spawn(&mut world);
    }
    workload::spawn(setup, &mut world, &dev, &done);
    let begin = (setup.warmup * MS) as Picos;
    let end = begin + (setup.milliseconds * MS) as Picos;
    let watch = Watch::spawn(&mut world, &dev, begin, end, record);
    world.advance(begin);
    let before = read(&mut world, &done, begin);
    let mut runnable = 0;
    for sample in 1..=SAMPLES {
        world.advance(begin + (end - begin) * sample / SAMPLES);
        runnable += world.runnable();
    }
    let after = read(&mut world, &done, end);
    // Whoever reads the counters may have to wait for locks.
    let mut late = 0;
    while !watch.is_done() && late < WATCHED {
        late += WATCHED / 64;
        world.advance(end + late);
    }
    let outcome = world.run(end + late);
    let Seen { readings: [sent, seen], contention } = watch.take().map_err(|e| failed(&e))?;
    if outcome.stuck.is_empty() {
        dev.audit().map_err(|e| failed(&format_args!("packets were lost: {e}")))?;
    }
    let mut report = Report {
        machine: machine.name.clone(),
        cpus,
        seconds: (end - begin) as f64 / 1e12,
        figures: Figures::new(),
        contention,
        xmit: minus(&seen.1, &sent.1),
        senders: after.senders.since(&before.senders),
        interrupts: after.interrupts.since(&before.interrupts),
        interrupted: device.txqs.into(),
        used: CpuUse {
            busy: after.used.busy - before.used.busy,
            spinning: after.used.spinning - before.used.spinning,
            idle: after.used.idle - before.used.idle,
        },
        hash: outcome.hash,
        accesses: outcome.accesses,
    };
    let counts = figures::Counts {
        packets: seen.0.sent - sent.0.sent,
        bytes: seen.0.bytes_sent - sent.0.bytes_sent,
        drops: seen.0.dropped.total() - sent.0.dropped.total(),
        switches: after.switches - before.switches,
        done: after.done - before.done,
        runnable: runnable as f64 / SAMPLES as f64,
    };
    report.figures = figures::of(&report, &counts);
    Ok(report)
}

/// Somebody in the world who reads the device's counters, for which one may have to wait for a lock.
struct Watch(Rc<RefCell<Vec<(DeviceStats, Log2)>>>, Rc<RefCell<Option<ContentionReport>>>);

/// What was seen.
struct Seen {
    readings: [(DeviceStats, Log2); 2],
    contention: ContentionReport,
}

impl Watch {
    /// Reads at `begin` and at `end`, and has contention recorded in between. It is on the last CPU for that moment.
    fn spawn(world: &mut World, dev: &Rc<NetDev<Sim>>, begin: Picos, end: Picos, record: bool) -> Self {
        let watch = Self(Rc::default(), Rc::default());
        let cpu = Some(world.cpus() - 1);
        let task = Task { name: "irq watch".into(), cpu, urgent: true, start: begin, at: None };
        let (readings, contention, dev) = (watch.0.clone(), watch.1.clone(), dev.clone());
        world.spawn(task, move || {
            let read = || readings.borrow_mut().push((dev.stats(), dev.xmit_times()));
            dev.set_contention(record);
            read();
            sim::sleep_until(end);
            read();
            *contention.borrow_mut() = Some(dev.contention().unwrap_or_default());
            loop {
                sim::sleep_until(Picos::MAX / 2);
            }
        });
        watch
    }

    fn is_done(&self) -> bool {
        self.1.borrow().is_some()
    }

    fn take(self) -> Result<Seen, String> {
        let late = || format!("the counters could not be read within {} ms", WATCHED as f64 / MS);
        let readings: [_; 2] = self.0.take().try_into().map_err(|_| late())?;
        Ok(Seen { readings, contention: self.1.take().ok_or_else(late)? })
    }
}

fn read(world: &mut World, done: &Done, now: Picos) -> Reading {
    let mut used = CpuUse::default();
    for cpu in world.uses(now) {
        used.busy += cpu.busy;
        used.spinning += cpu.spinning;
        used.idle += cpu.idle;
    }
    let (mut senders, mut interrupts) = (Ledger::default(), Ledger::default());
    for (name, ledger) in world.ledgers() {
        let of = if name.starts_with("irq") { &mut interrupts } else { &mut senders };
        of.add(&ledger);
    }
    let switches = world.switches();
    Reading { used, switches, senders, interrupts, done: done.get() }
}

/// What was recorded since.
fn minus(after: &Log2, before: &Log2) -> Log2 {
    let mut left = Log2::new();
    for bucket in after.buckets() {
        let then = before.buckets().find(|b| b.min == bucket.min).map_or(0, |b| b.count);
        left.add(bucket.min, bucket.count - then);
    }
    left
}

/// The device, on the card.
fn build(
    setup: &Setup,
    card: Card,
    cpus: u32,
    record: bool,
) -> Result<NetDev<Sim>, Box<dyn std::error::Error>> {
    let txqs = setup.device.txqs;
    let pool = PoolConfig {
        name: "sim".into(),
        buffers: setup.workload.buffers(&setup.device),
        room: setup.workload.bytes() as usize,
        free: match setup.path.pool {
            Pool::Defer => FreeMode::Defer,
            Pool::Keep => FreeMode::Keep,
            Pool::Shared => FreeMode::Shared,
        },
        defer_max: setup.path.defer_max,
        ..PoolConfig::default()
    };
    let affinity: Vec<usize> = (0..usize::from(txqs)).collect();
    let inline = setup.device.completions == Completions::Inline;
    let mut builder = Builder::<Sim>::new(Box::new(card))
        .qdisc(&setup.path.qdisc)
        .default_qdisc(&setup.path.default_qdisc)
        .discipline(&setup.path.discipline)
        .tx_queue_len(setup.path.txqueuelen)
        .max_burst(setup.path.max_burst)
        .pool_config(pool)
        .workers(txqs.into())
        .affinity(&affinity)
        .completions(if inline { Reapers::Inline } else { Reapers::Worker })
        .watchdog_timeo(None)
        .xmit_times(record);
    if !setup.device.bql {
        builder = builder.bql(None);
    }
    if let Some(map) = xps(setup.steering, txqs, cpus)? {
        builder = builder.xps(map);
    }
    Ok(builder.build()?)
}

/// Which CPU uses which txq.
fn xps(steering: Steering, txqs: u16, cpus: u32) -> Result<Option<XpsMap>, txq::xps::XpsError> {
    let txq_of = |cpu: u32| match steering {
        Steering::Hash => None,
        Steering::Near => Some(cpu * u32::from(txqs) / cpus),
        Steering::Far => Some(cpu % u32::from(txqs)),
    };
    if steering == Steering::Hash {
        return Ok(None);
    }
    let mut masks = vec![CpuMask::default(); txqs.into()];
    for cpu in 0..cpus {
        if let Some(txq) = txq_of(cpu) {
            masks[txq as usize].set(cpu as usize);
        }
    }
    XpsMap::from_masks(&masks, txqs.into(), cpus as usize).map(Some)
}

/// The CPU that a txq's interrupt goes to.
fn irq_cpu(completions: Completions, txq: u16, txqs: u16, cpus: u32) -> u32 {
    match completions {
        Completions::First | Completions::Inline => u32::from(txq) % cpus,
        Completions::Spread => u32::from(txq) * cpus / u32::from(txqs),
        Completions::One => 0,
    }
}
