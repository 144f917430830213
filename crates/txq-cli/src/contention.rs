//! `txq contention`: the waits for locks in a run, in the layouts of `perf lock contention` and `/proc/lock_stat`.

mod json;
mod meet;

use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::Path;

use crate::common::contention::{lock_stat, perf};
use crate::common::out;
use txq::Discipline;
use txq::stats::contention::ContentionReport;

use crate::args::{ContentionArgs, Target};
use crate::control;
use crate::report::Rates;
use crate::run;

/// Disciplines under which senders wait for one another at the root lock.
const WAITING: [Discipline; 2] = [Discipline::Spinlock, Discipline::Busylock];

/// The heads of the table of lock sites.
pub(crate) const HEADS: [&str; 10] = [
    "lock",
    "site",
    "taken",
    "waited",
    "bounces",
    "wait avg",
    "wait max",
    "held avg",
    "held max",
    "waited for",
];

/// The record of a run, or of a running program.
struct Recording {
    stopped_by: &'static str,
    seconds: f64,
    mpps: f64,
    devices: Vec<DeviceRecord>,
    /// The sum of the records of all devices.
    all: ContentionReport,
}

/// The record of one device.
struct DeviceRecord {
    name: String,
    /// The enqueue discipline, if the program names it.
    discipline: Option<Discipline>,
    seconds: f64,
    sent: u64,
    mpps: f64,
    contention: Option<ContentionReport>,
}

/// Prints the recorded waits of a workload, or of a running program.
pub(crate) fn contention(args: &ContentionArgs) -> anyhow::Result<()> {
    match args.running.target() {
        Some(target) => running(args, &target),
        None if args.running.dev.is_some() => {
            anyhow::bail!("--dev needs a running program: name it with --name or --socket")
        }
        None => workload(args),
    }
}

/// Records a running program.
fn running(args: &ContentionArgs, target: &Target) -> anyhow::Result<()> {
    let time = args.workload.duration.map_or(control::RECORDING, |span| span.0);
    let mut client = control::connect(target)?;
    let found = client.contention(args.running.dev.as_deref(), time).map_err(control::failed)?;
    let rate = |sent: u64, seconds: f64| if seconds > 0.0 { sent as f64 / seconds / 1e6 } else { 0.0 };
    let devices = found.into_iter().map(|found| DeviceRecord {
        mpps: rate(found.sent, found.seconds),
        name: found.device,
        discipline: None,
        seconds: found.seconds,
        sent: found.sent,
        contention: Some(found.report),
    });
    let devices: Vec<_> = devices.collect();
    let seconds = devices.iter().map(|device| device.seconds).fold(0.0, f64::max);
    let mpps = rate(devices.iter().map(|device| device.sent).sum(), seconds);
    let advice = "no thread waited for a lock in this time: record for longer with --duration\n";
    print(args, &Recording::new("duration", seconds, mpps, devices), || advice.to_owned())
}

/// Sends a workload with recording on.
fn workload(args: &ContentionArgs) -> anyhow::Result<()> {
    let (report, closed) =
        run::workload(&args.workload, args.output.quiet, |device| device.contention = true)?;
    let disciplines: BTreeSet<_> = report.devices.iter().map(|device| device.discipline).collect();
    let mpps = Rates::achieved(&report.devices).mpps();
    let devices = report.devices.into_iter().map(|device| DeviceRecord {
        mpps: device.achieved().mpps(),
        name: device.name,
        discipline: Some(device.discipline),
        seconds: device.seconds,
        sent: device.stats.sent,
        contention: device.contention,
    });
    let recording = Recording::new(report.ended.cause.name(), report.ended.seconds, mpps, devices.collect());
    print(args, &recording, || advice(args.workload.file.as_deref(), &Vec::from_iter(disciplines)))?;
    closed
}

impl Recording {
    fn new(stopped_by: &'static str, seconds: f64, mpps: f64, devices: Vec<DeviceRecord>) -> Self {
        let mut all = ContentionReport::default();
        devices.iter().flat_map(|device| &device.contention).for_each(|one| all.merge(one));
        Self { stopped_by, seconds, mpps, devices, all }
    }
}

/// Prints a record; calls `advice` if no thread waited.
fn print(
    args: &ContentionArgs,
    recording: &Recording,
    advice: impl FnOnce() -> String,
) -> anyhow::Result<()> {
    let all = &recording.all;
    let waited = all.sites.iter().any(|site| site.stats.contended > 0);
    let advice = (!waited).then(advice);
    let text = if args.output.json {
        format!("{}\n", json::line(recording))
    } else if args.lock_stat {
        if let Some(advice) = advice.filter(|_| !args.output.quiet) {
            eprint!("txq: {advice}");
        }
        lock_stat::table(all)
    } else {
        perf::table(all) + advice.as_deref().unwrap_or_default() + "\n" + &meet::text(recording)
    };
    out::write(&text)
}

/// Returns why no wait was recorded, and a command that records some.
fn advice(file: Option<&Path>, disciplines: &[Discipline]) -> String {
    let mut command = "txq contention".to_owned();
    if let Some(file) = file {
        let _ = write!(command, " {}", file.display());
    }
    if disciplines.iter().all(|discipline| WAITING.contains(discipline)) {
        return format!(
            "no thread waited for a lock; to record waits, let more threads share a txq, or send for longer:\n  \
             {command} --duration 10s\n"
        );
    }
    let names: Vec<_> = disciplines.iter().map(|discipline| discipline.name()).collect();
    format!(
        "no thread waited for a lock, as senders seldom do under {}; to record waits, run\n  {command} --discipline spinlock\n",
        names.join(" and ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_records_waits_is_advised() {
        for (file, disciplines, command) in [
            (None, &[Discipline::Combine][..], "txq contention --discipline spinlock"),
            (
                Some("my.toml"),
                &[Discipline::Llist, Discipline::Spinlock],
                "txq contention my.toml --discipline spinlock",
            ),
            (
                Some("my.toml"),
                &[Discipline::Busylock, Discipline::Spinlock],
                "txq contention my.toml --duration 10s",
            ),
        ] {
            let advice = advice(file.map(Path::new), disciplines);
            assert!(advice.starts_with("no thread waited for a lock"), "{advice}");
            assert_eq!(advice.lines().nth(1), Some(format!("  {command}").as_str()));
        }
    }
}
