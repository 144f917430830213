//! Runs a point: creates the machine, the device and its senders, warms them up, measures them and ends them.

mod cpus;
mod figures;

use std::rc::Rc;

use txq::generic::NetDev;
use txq::generic::driver::Driver;
use txq::generic::netdev::{Builder, Completions as Reapers};
use txq::stats::contention::ContentionReport;
use txq::stats::log2::Log2;
use txq::tc::Handle;
use txq_core::pool::{FreeMode, PoolConfig};

use crate::sim::arch::Sim;
use crate::sim::compare::Figures;
use crate::sim::device::{Card, Counted, NullCard};
use crate::sim::ledger::Ledger;
use crate::sim::lines::LineUse;
use crate::sim::machine::{Machine, Picos, Topology};
use crate::sim::one_by_one::OneByOne;
use crate::sim::os::CpuUse;
use crate::sim::scenario::setup::{Completions, Pool, Setup};
use crate::sim::workload::{self, Done, Load, Shares};
use crate::sim::world::{Task, World};
use crate::tree::Tree;
use cpus::{divide, irq_cpu, nodes, xps};

/// Picoseconds in a millisecond.
const MS: f64 = 1e9;
/// How many times during a measurement the runnable tasks are counted.
const RUNNABLE_SAMPLES: u64 = 64;
/// About how often a thread that is not pinned moves to another CPU, by load balancing and by wake-ups elsewhere.
const REHOME: Picos = 4_000_000_000;

/// Why a point could not be run.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct RunError(String);

/// The results of a point, for the measured time.
#[derive(Debug, Clone)]
pub struct Report {
    /// The machine's name.
    pub machine: String,
    /// Its CPUs.
    pub cpus: u32,
    /// Length of the measured time, in seconds.
    pub seconds: f64,
    /// Length of the measured time and the warm-up, in seconds.
    pub whole: f64,
    /// The figures, by their names.
    pub figures: Figures,
    /// Number of the senders' sleeps until a packet is due by the scenario's rate or trace.
    pub sleeps: u64,
    /// Number of context switches, and the CPU time of one on this machine, in nanoseconds. The simulation charges none for a switch on
    /// an idle CPU.
    pub switches: (u64, f64),
    /// Which tasks waited for which lock holders, the warm-up included.
    pub contention: ContentionReport,
    /// How long calls of xmit took, in nanoseconds.
    pub xmit: Log2,
    /// The senders' time by kind, summed over all of them.
    pub senders: Ledger,
    /// The time by kind of the softirqs that run queues on for senders, summed over all of them. There is one softirq for
    /// each txq.
    pub softirqs: Ledger,
    /// The interrupts' time by kind, summed over all of them.
    pub interrupts: Ledger,
    /// Number of interrupts' tasks.
    pub interrupted: u32,
    /// Time of all CPUs by mode, in picoseconds.
    pub used: CpuUse,
    /// Cost of cache lines, the most expensive ones first; empty unless the point was run by [`explain`].
    pub lines: Vec<LineUse>,
    /// Hash of all accesses: equal for equal points in equal builds, on every machine. Debug builds check more, and so
    /// access more.
    pub hash: u64,
    /// Accesses to lines, the warm-up's included.
    pub accesses: u64,
}

/// Counters of the world, read before and after the measured time.
struct Reading {
    /// Packets and bytes sent.
    sent: (u64, u64),
    xmit: Log2,
    used: CpuUse,
    switches: u64,
    senders: Ledger,
    softirqs: Ledger,
    interrupts: Ledger,
    done: u64,
    late: (u64, Picos),
    sleeps: u64,
    /// Bytes sent by each class of the senders.
    shares: Vec<(Handle, u64)>,
}

/// Returns whether a figure is one that only [`run`] and [`explain`] measure, with recording.
pub fn is_recorded(figure: &str) -> bool {
    figures::BY_RECORD.iter().any(|prefix| figure.starts_with(prefix))
}

/// Runs a point twice: without recording for the figures, and with recording for lock waits. Recording takes time, and
/// published results were measured without it.
///
/// # Errors
/// As [`measure`].
///
/// # Panics
/// As [`measure`].
pub fn run(setup: &Setup) -> Result<Report, RunError> {
    twice(setup, Recording::Off)
}

/// Like [`run`], and also counts the cost of cache lines. That takes more host time but changes no figure.
///
/// # Errors
/// As [`measure`].
///
/// # Panics
/// As [`measure`].
pub fn explain(setup: &Setup) -> Result<Report, RunError> {
    twice(setup, Recording::CacheLines)
}

/// The events that a run records besides the figures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Recording {
    Off,
    /// The data plane records lock waits.
    LockWaits,
    /// The simulator records the cost of cache lines.
    CacheLines,
}

fn twice(setup: &Setup, recording: Recording) -> Result<Report, RunError> {
    let recorded = once(setup, Recording::LockWaits)?;
    let plain = once(setup, recording)?;
    let mut figures = recorded.figures;
    figures.retain(|name, _| is_recorded(name));
    figures.extend(
        plain.figures.iter().filter(|(name, _)| !is_recorded(name)).map(|(name, v)| (name.clone(), *v)),
    );
    Ok(Report { figures, contention: recorded.contention, xmit: recorded.xmit, ..plain })
}

/// Runs a point once, without recording lock waits.
///
/// # Errors
/// When the machine, the qdisc or the discipline is invalid.
///
/// # Panics
/// When packets were lost: then the data plane has an error.
pub fn measure(setup: &Setup) -> Result<Report, RunError> {
    once(setup, Recording::Off)
}

fn once(setup: &Setup, recording: Recording) -> Result<Report, RunError> {
    let failed = |error: &dyn std::fmt::Display| RunError(error.to_string());
    let load = Load::of(setup).map_err(|e| failed(&e))?;
    let machine = Machine::tuned(&setup.machine, &setup.tune).map_err(|e| failed(&e))?.scaled(setup.scale);
    let machine = if setup.overlap { machine } else { machine.without_overlap() };
    let mut world = World::new(&machine, setup.seed);
    world.prices(&setup.prices);
    world.footprint(setup.lines);
    world.known(setup.known);
    world.kernel(setup.kernel);
    world.sleeping_locks(setup.sleeping_locks);
    world.ticket_locks(setup.ticket_locks);
    if recording == Recording::CacheLines {
        world.name_lines();
    }
    if !setup.workload.is_pinned() {
        world.rehome(REHOME);
    }
    let cpus = machine.topology.cpus();
    let (own, irqs) = divide(&machine.topology, setup.device.irq_cpus).map_err(|e| failed(&e))?;
    let device = &setup.device;
    let inline = device.completions == Completions::Inline;
    let rate = (device.gbit > 0.0).then_some((device.gbit * 1e9) as u64);
    let mut card = Card::new(device.txqs, device.ring, rate, (device.coalesce_us * 1e3) as u64, inline);
    let done = Rc::new(Done::default());
    let (sent, times) = (card.counted(), card.times());
    // The peer is created before the device, which sends to it.
    let answers = workload::answers(setup, cpus);
    let shares = workload::shares(setup);
    let counts = || shares.as_ref().map(Shares::peer);
    card.peer = answers.as_ref().map(workload::Answers::peer).or_else(counts);
    let dev = Rc::new(
        build(setup, &load, card, &machine.topology, &own, recording == Recording::LockWaits)
            .map_err(|e| failed(&e))?,
    );
    for txq in 0..device.txqs {
        // In a program, any CPU that has time runs the queue on.
        let (urgent, raised) = (setup.kernel, setup.kernel);
        let task = Task { name: format!("softirq {txq}"), urgent, raised, ..Task::default() };
        let worker = dev.worker(txq.into());
        world.spawn(task, move || worker.run());
        if !inline {
            let cpu = Some(irq_cpu(device.completions, txq, device.txqs, &irqs));
            let task = Task { name: format!("irq {txq}"), cpu, urgent: setup.kernel, ..Task::default() };
            let completer = dev.completer(txq);
            world.spawn(task, move || completer.run());
        }
    }
    if let Some(answers) = answers {
        answers.spawn(&mut world);
    }
    workload::spawn(setup, &load, &own, &mut world, (&dev, &times), &done);
    let begin = (setup.warmup * MS) as Picos;
    let end = begin + (setup.milliseconds * MS) as Picos;
    if recording == Recording::CacheLines {
        world.watch_lines(begin);
    }
    world.advance(begin);
    let before = read(&mut world, &dev, (&sent, &done, shares.as_ref()), begin);
    let mut runnable = 0;
    for sample in 1..=RUNNABLE_SAMPLES {
        world.advance(begin + (end - begin) * sample / RUNNABLE_SAMPLES);
        runnable += world.runnable();
    }
    let after = read(&mut world, &dev, (&sent, &done, shares.as_ref()), end);
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
        sleeps: after.sleeps - before.sleeps,
        switches: (after.switches - before.switches, machine.os.switch),
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
        switches: report.switches.0,
        done: after.done - before.done,
        late: (after.late.0 - before.late.0, after.late.1 - before.late.1),
        shares: after.shares.iter().zip(&before.shares).map(|(to, from)| (to.0, to.1 - from.1)).collect(),
        runnable: runnable as f64 / RUNNABLE_SAMPLES as f64,
        pool: setup.path.pool,
        senders: setup.workload.senders(),
        times,
    };
    report.figures = figures::of(&report, &counts);
    Ok(report)
}

fn read(
    world: &mut World,
    dev: &NetDev<Sim>,
    (sent, done, shares): (&Counted, &Done, Option<&Shares>),
    now: Picos,
) -> Reading {
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
        sleeps: done.sleeps(),
        shares: shares.map(Shares::get).unwrap_or_default(),
    }
}

/// Returns `after` minus `before`: the calls between the two readings.
fn minus(after: &Log2, before: &Log2) -> Log2 {
    let mut left = Log2::new();
    for bucket in after.buckets() {
        let then = before.buckets().find(|b| b.min == bucket.min).map_or(0, |b| b.count);
        left.add(bucket.min, bucket.count - then);
    }
    left
}

/// Builds the device on the card.
fn build(
    setup: &Setup,
    load: &Load,
    card: Card,
    topology: &Topology,
    own: &[u32],
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
    let driver: Box<dyn Driver<Sim>> = match setup.device.null {
        true => Box::new(NullCard::new(&card)),
        false => Box::new(card),
    };
    let mut builder = Builder::new(driver)
        .default_qdisc(&setup.path.default_qdisc)
        .discipline(setup.path.discipline)
        .tx_lock(setup.kernel)
        .defer_completions(setup.path.defer_completions)
        .tx_queue_len(setup.path.txqueuelen)
        .max_burst(setup.path.max_burst)
        .pool_config(pool)
        .workers(txqs.into())
        .affinity(&affinity)
        .completions(if inline { Reapers::Inline } else { Reapers::PerQueue })
        .watchdog_timeo(None)
        .contention(record)
        .xmit_times(record);
    let tree = Tree::new(&setup.path.qdisc);
    builder = match setup.path.one_by_one {
        true => builder.custom_qdisc(OneByOne::new(setup.path.txqueuelen)),
        false => builder.qdisc(tree.root()),
    };
    if !setup.device.bql {
        builder = builder.bql(None);
    }
    let dev = builder.xps(xps(setup.steering, txqs, topology, own)?).build()?;
    if !setup.path.one_by_one {
        tree.complete(|command| dev.tc(command))?;
    }
    for class in &setup.path.classes {
        dev.tc(&format!("class add {class}"))?;
    }
    Ok(dev)
}
