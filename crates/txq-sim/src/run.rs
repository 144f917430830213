//! A point, run: the machine, the device and its senders are made, warmed up, measured, and ended.

mod figures;

use std::rc::Rc;

use txq::NetDev;
use txq::cpumask::CpuMask;
use txq::netdev::{Builder, Completions as Reapers};
use txq::pool::{FreeMode, PoolConfig};
use txq::stats::contention::ContentionReport;
use txq::stats::log2::Log2;
use txq::xps::XpsMap;

use crate::arch::Sim;
use crate::compare::Figures;
use crate::device::{Card, Counted};
use crate::ledger::Ledger;
use crate::lines::LineUse;
use crate::machine::{Machine, Picos, Topology};
use crate::one_by_one::OneByOne;
use crate::os::CpuUse;
use crate::scenario::setup::{Completions, Pool, Setup, Steering};
use crate::workload::{self, Done, Load};
use crate::world::{Task, World};

/// Picoseconds in a millisecond.
const MS: f64 = 1e9;
/// Times that the tasks that can run are counted while a point is measured.
const SAMPLES: u64 = 64;
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
    /// The same with the warm-up.
    pub whole: f64,
    /// The figures, by their names.
    pub figures: Figures,
    /// Who waited for whom, the warm-up included.
    pub contention: ContentionReport,
    /// How long calls of xmit took, in nanoseconds.
    pub xmit: Log2,
    /// Where the senders' time went, all together.
    pub senders: Ledger,
    /// Where the time of the softirqs went that run queues on for senders, all together. There is one for each txq.
    pub softirqs: Ledger,
    /// Where the interrupts' time went, all together.
    pub interrupts: Ledger,
    /// How many interrupts' tasks there are.
    pub interrupted: u32,
    /// What all CPUs did, in picoseconds.
    pub used: CpuUse,
    /// What cache lines cost, the most expensive ones first, if that was [asked for](explain).
    pub lines: Vec<LineUse>,
    /// Of all accesses: equal for equal points in equal builds, always and everywhere. The checks of debug builds access more.
    pub hash: u64,
    /// Accesses to lines, the warm-up's included.
    pub accesses: u64,
}

/// What is read of the world before and after the time that is measured.
struct Reading {
    /// Packets and bytes.
    sent: (u64, u64),
    xmit: Log2,
    used: CpuUse,
    switches: u64,
    senders: Ledger,
    softirqs: Ledger,
    interrupts: Ledger,
    done: u64,
    late: (u64, Picos),
}

/// Runs a point, twice: as it is for what it does, and with recording for who waits for whom. Recording is not free, as it is
/// not where results were published.
///
/// # Errors
/// As [`measure`].
///
/// # Panics
/// As [`measure`].
pub fn run(setup: &Setup) -> Result<Report, RunError> {
    twice(setup, Look::Not)
}

/// As [`run`], and counts what cache lines cost, which takes more time but changes nothing.
///
/// # Errors
/// As [`measure`].
///
/// # Panics
/// As [`measure`].
pub fn explain(setup: &Setup) -> Result<Report, RunError> {
    twice(setup, Look::AtLines)
}

/// What is looked at beside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Look {
    Not,
    /// Who waits for whom: the data plane records it.
    AtWaits,
    AtLines,
}

fn twice(setup: &Setup, look: Look) -> Result<Report, RunError> {
    let recorded = once(setup, Look::AtWaits)?;
    let plain = once(setup, look)?;
    let mut figures = recorded.figures;
    let by_record = |name: &str| figures::BY_RECORD.iter().any(|prefix| name.starts_with(prefix));
    figures.retain(|name, _| by_record(name));
    figures.extend(
        plain.figures.iter().filter(|(name, _)| !by_record(name)).map(|(name, v)| (name.clone(), *v)),
    );
    Ok(Report { figures, contention: recorded.contention, xmit: recorded.xmit, ..plain })
}

/// Runs a point once, without recording: what it does, and not who waits for whom.
///
/// # Errors
/// When the machine, the qdisc or the discipline cannot be.
///
/// # Panics
/// When packets were lost: the data plane has an error then.
pub fn measure(setup: &Setup) -> Result<Report, RunError> {
    once(setup, Look::Not)
}

fn once(setup: &Setup, look: Look) -> Result<Report, RunError> {
    let failed = |error: &dyn std::fmt::Display| RunError(error.to_string());
    let load = Load::of(setup).map_err(|e| failed(&e))?;
    let machine = Machine::tuned(&setup.machine, &setup.tune).map_err(|e| failed(&e))?.scaled(setup.scale);
    let mut world = World::new(&machine, setup.seed);
    world.prices(&setup.prices);
    world.footprint(setup.lines);
    world.kernel(setup.kernel);
    world.sleeping_locks(setup.sleeping_locks);
    if look == Look::AtLines {
        world.name_lines();
    }
    if !setup.workload.is_pinned() {
        world.rehome(REHOME);
    }
    let cpus = machine.topology.cpus();
    let device = &setup.device;
    let inline = device.completions == Completions::Inline;
    let rate = (device.gbit > 0.0).then_some((device.gbit * 1e9) as u64);
    let mut card = Card::new(device.txqs, device.ring, rate, (device.coalesce_us * 1e3) as u64, inline);
    let done = Rc::new(Done::default());
    let sent = card.counted();
    // Whoever answers is made before the device, which talks to it.
    let answers = workload::answers(setup, cpus);
    card.peer = answers.as_ref().map(workload::Answers::peer);
    let dev =
        Rc::new(build(setup, &load, card, &machine.topology, look == Look::AtWaits).map_err(|e| failed(&e))?);
    for txq in 0..device.txqs {
        // In a program, a queue is run on by whatever CPU has time.
        let (urgent, raised) = (setup.kernel, setup.kernel);
        let task = Task { name: format!("softirq {txq}"), urgent, raised, ..Task::default() };
        let worker = dev.worker(txq.into());
        world.spawn(task, move || worker.run());
        if !inline {
            let cpu = Some(irq_cpu(device.completions, txq, device.txqs, cpus));
            let task = Task { name: format!("irq {txq}"), cpu, urgent: setup.kernel, ..Task::default() };
            let completer = dev.completer(txq);
            world.spawn(task, move || completer.run());
        }
    }
    if let Some(answers) = answers {
        answers.spawn(&mut world);
    }
    workload::spawn(setup, &load, &mut world, &dev, &done);
    let begin = (setup.warmup * MS) as Picos;
    let end = begin + (setup.milliseconds * MS) as Picos;
    if look == Look::AtLines {
        world.watch_lines(begin);
    }
    world.advance(begin);
    let before = read(&mut world, &dev, &sent, &done, begin);
    let mut runnable = 0;
    for sample in 1..=SAMPLES {
        world.advance(begin + (end - begin) * sample / SAMPLES);
        runnable += world.runnable();
    }
    let after = read(&mut world, &dev, &sent, &done, end);
    let lines = world.line_uses(end);
    let outcome = world.run(end);
    if let Some(task) = outcome.stuck.first() {
        return Err(RunError(format!(
            "{task} and {} other tasks do not come to an end",
            outcome.stuck.len() - 1
        )));
    }
    let (stats, contention) = (dev.audit(), dev.contention().unwrap_or_default());
    let stats = stats.map_err(|e| failed(&format_args!("packets were lost: {e}")))?;
    let lost = stats.dropped.total() as f64 / stats.accepted.max(1) as f64;
    let mut report = Report {
        machine: machine.name.clone(),
        cpus,
        seconds: (end - begin) as f64 / 1e12,
        whole: end as f64 / 1e12,
        figures: Figures::new(),
        contention,
        xmit: minus(&after.xmit, &before.xmit),
        senders: after.senders.since(&before.senders),
        softirqs: after.softirqs.since(&before.softirqs),
        interrupts: after.interrupts.since(&before.interrupts),
        interrupted: device.txqs.into(),
        used: CpuUse {
            busy: after.used.busy - before.used.busy,
            spinning: after.used.spinning - before.used.spinning,
            idle: after.used.idle - before.used.idle,
        },
        lines,
        hash: outcome.hash,
        accesses: outcome.accesses,
    };
    let counts = figures::Counts {
        packets: after.sent.0 - before.sent.0,
        bytes: after.sent.1 - before.sent.1,
        lost,
        switches: after.switches - before.switches,
        done: after.done - before.done,
        late: (after.late.0 - before.late.0, after.late.1 - before.late.1),
        runnable: runnable as f64 / SAMPLES as f64,
        pool: setup.path.pool,
    };
    report.figures = figures::of(&report, &counts);
    Ok(report)
}

fn read(world: &mut World, dev: &NetDev<Sim>, sent: &Counted, done: &Done, now: Picos) -> Reading {
    let mut used = CpuUse::default();
    for cpu in world.uses(now) {
        used.busy += cpu.busy;
        used.spinning += cpu.spinning;
        used.idle += cpu.idle;
    }
    let [mut senders, mut softirqs, mut interrupts] = [Ledger::default(); 3];
    for (name, ledger) in world.ledgers() {
        let of = match name.split(' ').next() {
            Some("irq") => &mut interrupts,
            Some("softirq") => &mut softirqs,
            _ => &mut senders,
        };
        of.add(&ledger);
    }
    let switches = world.switches();
    Reading {
        sent: sent.get(),
        xmit: dev.xmit_times(),
        used,
        switches,
        senders,
        softirqs,
        interrupts,
        done: done.get(),
        late: done.late(),
    }
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
    load: &Load,
    card: Card,
    topology: &Topology,
    record: bool,
) -> Result<NetDev<Sim>, Box<dyn std::error::Error>> {
    let txqs = setup.device.txqs;
    let pool = PoolConfig {
        name: "sim".into(),
        buffers: setup.workload.buffers(&setup.device),
        room: load.room as usize,
        free: match setup.path.pool {
            Pool::Defer => FreeMode::Defer,
            Pool::Keep => FreeMode::Keep,
            Pool::Shared => FreeMode::Shared,
        },
        defer_max: setup.path.defer_max,
        nodes: nodes(topology),
        ..PoolConfig::default()
    };
    let affinity: Vec<usize> = (0..usize::from(txqs)).collect();
    let inline = setup.device.completions == Completions::Inline;
    let mut builder = Builder::<Sim>::new(Box::new(card))
        .default_qdisc(&setup.path.default_qdisc)
        .discipline(&setup.path.discipline)
        .tx_lock(setup.kernel)
        .defer_completions(false)
        .tx_queue_len(setup.path.txqueuelen)
        .max_burst(setup.path.max_burst)
        .pool_config(pool)
        .workers(txqs.into())
        .affinity(&affinity)
        .completions(if inline { Reapers::Inline } else { Reapers::PerQueue })
        .watchdog_timeo(None)
        .contention(record)
        .xmit_times(record);
    builder = match setup.path.one_by_one {
        true => builder.custom_qdisc(OneByOne::new(setup.path.txqueuelen)),
        false => builder.qdisc(&setup.path.qdisc),
    };
    if !setup.device.bql {
        builder = builder.bql(None);
    }
    if let Some(map) = xps(setup.steering, txqs, topology)? {
        builder = builder.xps(map);
    }
    Ok(builder.build()?)
}

/// The CPUs of each socket.
fn nodes(topology: &Topology) -> Vec<CpuMask> {
    let mut nodes = vec![CpuMask::default(); topology.sockets as usize];
    let (cpus, cores) = (topology.cpus(), topology.cpus() / topology.threads);
    for cpu in 0..cpus {
        nodes[(cpu % cores * topology.sockets / cores) as usize].set(cpu as usize);
    }
    nodes
}

/// Which CPU uses which txq.
fn xps(steering: Steering, txqs: u16, topology: &Topology) -> Result<Option<XpsMap>, txq::xps::XpsError> {
    let cpus = topology.cpus();
    let cores = cpus / topology.threads;
    let txq_of = |cpu: u32| match steering {
        Steering::Hash => None,
        Steering::Near => Some(cpu % cores * u32::from(txqs) / cores),
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
