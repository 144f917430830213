//! `txq contention`: the waits for locks in a run, in the layouts of `perf lock contention` and `/proc/lock_stat`.

mod json;
mod meet;

use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::Path;

use txq::Discipline;
use txq::stats::contention::ContentionReport;
use txq_cli_common::contention::{lock_stat, perf};
use txq_cli_common::out;

use crate::args::ContentionArgs;
use crate::report::Report;
use crate::run;

/// Disciplines under which senders wait for one another at the root lock.
const WAITING: [Discipline; 2] = [Discipline::Spinlock, Discipline::Busylock];

/// Runs a workload with recording on, and prints the recorded waits.
pub(crate) fn contention(args: &ContentionArgs) -> anyhow::Result<()> {
    let (report, closed) =
        run::workload(&args.workload, args.output.quiet, |device| device.contention = true)?;
    let all = sum(&report);
    let waited = all.sites.iter().any(|site| site.stats.contended > 0);
    let advice = (!waited).then(|| {
        let disciplines: BTreeSet<_> = report.devices.iter().map(|device| device.discipline).collect();
        advice(args.workload.file.as_deref(), &Vec::from_iter(disciplines))
    });
    let text = if args.output.json {
        format!("{}\n", json::line(&report, &all))
    } else if args.lock_stat {
        if let Some(advice) = advice.filter(|_| !args.output.quiet) {
            eprint!("txq: {advice}");
        }
        lock_stat::table(&all)
    } else {
        perf::table(&all) + advice.as_deref().unwrap_or_default() + "\n" + &meet::text(&report, &all)
    };
    out::write(&text)?;
    closed
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

/// Returns the sum of the records of all devices.
fn sum(report: &Report) -> ContentionReport {
    let mut all = ContentionReport::default();
    report.devices.iter().flat_map(|device| &device.contention).for_each(|one| all.merge(one));
    all
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
