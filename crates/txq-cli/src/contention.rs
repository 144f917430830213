//! `txq contention`: who waits for whom in a run, in the tables that people know from `perf lock contention` and
//! `/proc/lock_stat`.

pub(crate) mod json;
pub(crate) mod lock_stat;
mod meet;
pub(crate) mod perf;

use txq::stats::contention::ContentionReport;

use crate::args::ContentionArgs;
use crate::report::{self, Report};
use crate::run;

/// Runs a workload with recording on and prints what was recorded.
pub(crate) fn contention(args: &ContentionArgs) -> anyhow::Result<()> {
    let (report, closed) =
        run::workload(&args.workload, args.output.quiet, |device| device.contention = true)?;
    let all = sum(&report);
    let text = if args.output.json {
        format!("{}\n", json::line(&report, &all))
    } else if args.lock_stat {
        lock_stat::table(&all)
    } else {
        perf::table(&all) + "\n" + &meet::text(&report, &all)
    };
    report::write(&text)?;
    closed
}

/// What was recorded in all devices.
fn sum(report: &Report) -> ContentionReport {
    let mut all = ContentionReport::default();
    report.devices.iter().flat_map(|device| &device.contention).for_each(|one| all.merge(one));
    all
}

#[cfg(test)]
mod tests;
