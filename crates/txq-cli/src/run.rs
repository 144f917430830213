//! `txq run`: sends the generated traffic that a file describes.

use std::io::Write;

use crate::common::rate::Rate;
use anyhow::bail;
use txq_control::{Listener, tc};

use crate::args::{At, RunArgs, Workload};
use crate::config::{self, Config};
use crate::control;
use crate::device::{self, Reception, Use};
use crate::frames::Target;
use crate::load::{self, Load};
use crate::pump::pump;
use crate::report::{self, Asked, Report};
use crate::session::{self, Device, Job};

/// The default limit of outstanding packets of a sender at max: its own packets hold it back, and not drops.
const LIMIT: u64 = 128;

/// Runs a file, or the example, and prints the report; or prints what describes files.
pub(crate) fn run(args: &RunArgs) -> anyhow::Result<()> {
    let print = match args {
        RunArgs { print_example: true, .. } => Some(config::EXAMPLE.to_owned()),
        RunArgs { print_keys: true, .. } => Some(config::keys()),
        RunArgs { print_schema: true, .. } => Some(config::SCHEMA.to_owned()),
        _ => None,
    };
    if let Some(text) = print {
        return Ok(std::io::stdout().write_all(text.as_bytes())?);
    }
    let (report, closed) = serve(args)?;
    report::print(&report, args.output)?;
    closed
}

/// Runs a file, or the example; serves commands during the run if `args` has `--control`, `--socket` or `--name`. Returns the report,
/// and the first error of a sender or of closing a device.
fn serve(args: &RunArgs) -> anyhow::Result<(Report, anyhow::Result<()>)> {
    let config = config_of(&args.workload)?;
    let at = match &args.control {
        Some(Some(_)) if args.at.is_given() => {
            bail!("--control=PATH, --socket and --name exclude each other: use one")
        }
        Some(Some(path)) => At { socket: Some(path.clone()), name: None },
        _ => args.at.clone(),
    };
    let asked = args.control.is_some() || at.is_given();
    let bind = || control::builder(&at, None).program("txq run").bind().map_err(control::failed);
    let listener = asked.then(bind).transpose()?;
    send(&args.workload, &config, args.output.quiet, listener)
}

/// Runs a file, or the example, after `adjust` has changed each device's configuration. Returns the report, and the first
/// error of a sender or of closing a device.
pub(crate) fn workload(
    load: &Workload,
    quiet: bool,
    adjust: impl Fn(&mut config::Device),
) -> anyhow::Result<(Report, anyhow::Result<()>)> {
    let mut config = config_of(load)?;
    config.device.iter_mut().for_each(adjust);
    send(load, &config, quiet, None)
}

fn config_of(load: &Workload) -> anyhow::Result<Config> {
    let mut config = config::read(load.file.as_deref())?;
    if let Some(spin) = load.spin_us {
        config.device.iter_mut().for_each(|device| device.spin_us = Some(spin));
    }
    if let Some(discipline) = load.discipline {
        config.device.iter_mut().for_each(|device| device.discipline = Some(discipline));
    }
    Ok(config)
}

fn send(
    load: &Workload,
    config: &Config,
    quiet: bool,
    listener: Option<Listener>,
) -> anyhow::Result<(Report, anyhow::Result<()>)> {
    let devices = config.device.iter().map(|device| start(device, config)).collect::<Result<Vec<_>, _>>()?;
    let duration = load.duration.or(config.duration).map(|span| span.0);
    session::run(devices, jobs(config), duration, quiet, listener)
}

/// Returns the limit of outstanding packets of each of a sender's threads, if it has one.
pub(crate) fn limit(sender: &config::Sender) -> Option<u64> {
    sender.limit.map(|limit| limit.get()).or((sender.rate == Rate::Max).then_some(LIMIT))
}

/// Starts a device for its senders in `config`, whose number, limits and packets determine the defaults.
fn start(device: &config::Device, config: &Config) -> anyhow::Result<Device> {
    let users = || config.sender.iter().filter(|sender| sender.device == device.name);
    let limits = users().map(|sender| limit(sender).map(|limit| limit.saturating_mul(sender.threads.get())));
    let used = Use {
        grows: false,
        waits: false,
        clients: 0,
        threads: users().map(|sender| sender.threads.get()).sum(),
        limit: limits.sum(),
        longest: users().map(|sender| sender.packet.longest()).max().unwrap_or(0),
        rated: users().all(|sender| sender.rate != Rate::Max),
        receive: Reception::Off,
    };
    let dev = device::start(device, used)?;
    device.tc.iter().try_for_each(|command| tc::apply(&dev, command)).map_err(control::failed)?;
    let link = dev.info().link;
    let asked = Asked::sum(users().map(|sender| load::asked(sender, link)));
    Ok(Device { dev, discipline: device.discipline.unwrap_or_default(), asked })
}

fn jobs(config: &Config) -> Vec<Job<'_>> {
    let mut jobs = Vec::new();
    for (number, sender) in config.sender.iter().enumerate() {
        let device = config.device.iter().position(|device| device.name == sender.device);
        for index in 0..sender.threads.get() {
            let (name, thread) = (format!("sender-{number}.{index}"), jobs.len() as u16);
            let thread_name = name.clone();
            let udp = device.and_then(|at| config.device[at].udp.as_ref()).map(|udp| udp.remote);
            let cpu = sender.cpus.get(index as usize % sender.cpus.len().max(1)).map(|cpu| cpu.get() as u32);
            jobs.push(Job {
                device: device.expect("checked"),
                name: thread_name,
                work: Box::new(move |dev, gate, stop| {
                    let target = udp.map_or(Target::Link(dev.info().link), Target::Udp);
                    let mut load = Load::new(sender, index, thread, target);
                    session::send(dev, &name, cpu, limit(sender), gate, |tx, pace| {
                        pump(tx, &mut load, sender.batch.size(), pace, stop)
                    })
                }),
            });
        }
    }
    jobs
}
