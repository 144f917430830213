//! A run from start to end. Threads send through devices until no frame is left, the time is up or a signal arrives. Then
//! the queues are drained; packets that do not leave are dropped with their reason, and every packet is counted.

use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use crate::common::failure::Refused;
use crate::common::stop::{Cause, Signals, Stop};
use anyhow::{Context, anyhow};
use rustix::time::{ClockId, clock_gettime};
use txq::{Discipline, NetDev};
use txq_control::Listener;

use crate::control;
use crate::pace::{Gate, Pace};
use crate::progress::Progress;
use crate::pump::Account;
use crate::report::{Asked, Ended, Report};

/// How often a run checks for signals and the time.
const RUN_TICK: Duration = Duration::from_millis(10);
/// How often a drain checks whether all devices are idle.
const DRAIN_TICK: Duration = Duration::from_micros(200);
/// The longest drain after a signal.
const DRAIN_AFTER_SIGNAL: Duration = Duration::from_secs(1);
/// The longest time that a drain continues although no packet leaves.
const DRAIN_STALLED: Duration = Duration::from_secs(5);

/// A device of the run.
pub(crate) struct Device {
    pub(crate) dev: NetDev,
    pub(crate) discipline: Discipline,
    pub(crate) asked: Asked,
}

type Work<'a> = dyn FnOnce(&NetDev, &Gate, &Stop) -> anyhow::Result<Account> + Send + 'a;

/// The work of one thread.
pub(crate) struct Job<'a> {
    /// The index of the thread's device.
    pub(crate) device: usize,
    pub(crate) name: String,
    pub(crate) work: Box<Work<'a>>,
}

/// Runs each job on a thread of its own, and serves commands about the devices on `control` until the jobs end. Returns
/// the report, and the first error of a job or of closing a device.
pub(crate) fn run(
    mut devices: Vec<Device>,
    jobs: Vec<Job<'_>>,
    duration: Option<Duration>,
    quiet: bool,
    listener: Option<Listener>,
) -> anyhow::Result<(Report, anyhow::Result<()>)> {
    let signals = Signals::catch()?;
    let cpu_before = cpu_time();
    let (gate, stop) = (Gate::default(), Stop::default());
    let server = listener.map(|listener| {
        devices.iter().try_for_each(|device| listener.add(&device.dev))?;
        listener.serve()
    });
    let server = server.transpose().map_err(control::failed)?;
    let mut accounts = vec![Account::default(); devices.len()];
    let (cause, failed, start) = thread::scope(|scope| {
        let (alive, all_gone) = mpsc::channel::<()>();
        let mut threads = Vec::new();
        let mut failed = Ok(());
        for job in jobs {
            let (dev, alive, gate, stop) = (&devices[job.device].dev, alive.clone(), &gate, &stop);
            let work = move || {
                let _alive = alive;
                let done = (job.work)(dev, gate, stop);
                if done.is_err() {
                    stop.ask();
                }
                done
            };
            match thread::Builder::new().name(job.name).spawn_scoped(scope, work) {
                Ok(thread) => threads.push((job.device, thread)),
                Err(error) => {
                    failed = Err(Refused(format!("thread {} does not start: {error}", threads.len())).into());
                    stop.ask();
                    break;
                }
            }
        }
        drop(alive);
        let start = gate.open();
        let mut progress = Progress::new(quiet, start);
        let cause = loop {
            if let Some(signal) = signals.seen() {
                break signal;
            }
            let left = duration.map_or(RUN_TICK, |whole| whole.saturating_sub(start.elapsed()));
            if left.is_zero() {
                break Cause::Duration;
            }
            match all_gone.recv_timeout(left.min(RUN_TICK)) {
                Err(RecvTimeoutError::Timeout) | Ok(()) => {}
                Err(RecvTimeoutError::Disconnected) => break Cause::Done,
            }
            progress.tell(devices.iter().map(|device| &device.dev));
        };
        stop.ask();
        progress.end();
        for (device, thread) in threads {
            let done = thread.join().unwrap_or_else(|_| Err(anyhow!("a sending thread panicked")));
            match done {
                Ok(account) => accounts[device].merge(&account),
                Err(error) => failed = failed.and(Err(error)),
            }
        }
        (if failed.is_ok() { cause } else { Cause::Failure }, failed, start)
    });
    drop(server);
    let sending = accounts.iter().map(|account| start + Duration::from_nanos(account.ended));
    let ends = drain(&devices, &signals, cause, sending.collect());
    let seconds: Vec<f64> = ends.iter().map(|end| (*end - start).as_secs_f64()).collect();
    let took = Ended {
        cause,
        seconds: seconds.iter().copied().fold(0.0, f64::max),
        cpu_seconds: cpu_time() - cpu_before,
    };
    let mut closed = failed;
    let mut shut = |device: &mut Device| {
        let name = device.dev.info().name.clone();
        if let Err(error) = device.dev.shutdown() {
            let error = Err(Refused(format!("device \"{name}\": {error}")).into());
            closed = std::mem::replace(&mut closed, Ok(())).and(error);
        }
    };
    // The qdiscs as tc shows them before the shutdown, with the packets still queued.
    let shown = |device: &Device| (device.dev.qdiscs(Default::default()), device.dev.bands());
    let qdiscs: Vec<_> = devices.iter().map(shown).collect();
    devices.iter_mut().for_each(&mut shut);
    let parts = devices.iter().zip(accounts).zip(seconds).zip(qdiscs);
    let parts = parts.map(|(((device, account), seconds), (qdiscs, bands))| crate::report::Device {
        name: device.dev.info().name.clone(),
        discipline: device.discipline,
        asked: device.asked.clone(),
        account,
        seconds,
        stats: device.dev.stats(),
        latency: device.dev.latency(),
        lateness: device.dev.lateness(),
        contention: device.dev.contention(),
        xmit_times: device.dev.xmit_times(),
        by_hash: device.dev.steering().with_xps(|map| map.is_none()),
        qdiscs,
        bands,
    });
    Ok((Report { ended: took, devices: parts.collect() }, closed))
}

/// Waits until all devices are idle, or until no packet leaves for [`DRAIN_STALLED`]; after a signal, for
/// [`DRAIN_AFTER_SIGNAL`] at most. `ends` holds the time at which each device's senders ended; returns the time at which
/// each device's last packet left.
fn drain(devices: &[Device], signals: &Signals, cause: Cause, mut ends: Vec<Instant>) -> Vec<Instant> {
    let gone = |device: &Device| {
        let stats = device.dev.stats();
        stats.sent + stats.dropped.total() - stats.in_flight
    };
    let mut signalled = matches!(cause, Cause::Signal(_)).then(Instant::now);
    let mut seen: Vec<u64> = devices.iter().map(gone).collect();
    let mut last = Instant::now();
    while !devices.iter().all(|device| device.dev.is_idle()) {
        if signalled.is_none() {
            signalled = signals.seen().map(|_| Instant::now());
        }
        if signalled.is_some_and(|at| at.elapsed() > DRAIN_AFTER_SIGNAL) || last.elapsed() > DRAIN_STALLED {
            break;
        }
        thread::sleep(DRAIN_TICK);
        for ((device, seen), end) in devices.iter().zip(&mut seen).zip(&mut ends) {
            let now = gone(device);
            if now != *seen {
                last = Instant::now();
                (*seen, *end) = (now, last);
            }
        }
    }
    ends
}

/// Returns the CPU time of the whole process, in seconds.
fn cpu_time() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// Makes a sender of `dev`, pinned to `cpu` if given, with a limit of outstanding packets if given; waits for the start, and
/// runs `work` with the sender.
pub(crate) fn send(
    dev: &NetDev,
    name: &str,
    cpu: Option<u32>,
    limit: Option<u64>,
    gate: &Gate,
    work: impl FnOnce(&mut txq::Sender, Pace) -> anyhow::Result<Account>,
) -> anyhow::Result<Account> {
    let mut sender = match cpu {
        Some(cpu) => {
            pin(cpu)?;
            dev.sender_on(name, cpu)
        }
        None => dev.sender(name),
    };
    if let Some(limit) = limit {
        sender.set_limit(limit);
    }
    work(&mut sender, gate.pass())
}

/// Binds the calling thread to a CPU.
pub(crate) fn pin(cpu: u32) -> anyhow::Result<()> {
    let refused = || Refused(format!("CPU {cpu}: no thread can run there: use one of those that are online"));
    if cpu as usize >= rustix::thread::CpuSet::MAX_CPU {
        return Err(refused().into());
    }
    let mut set = rustix::thread::CpuSet::new();
    set.set(cpu as usize);
    rustix::thread::sched_setaffinity(None, &set).map_err(|_| refused()).context("cpus")
}
