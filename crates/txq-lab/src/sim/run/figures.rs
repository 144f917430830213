//! The figures of a report, under the names that scenarios use.

use std::sync::Arc;

use txq::stats::contention::LockStats;
use txq::tc::Handle;
use txq_core::stats::contention::{Lock, Site};

use super::Report;
use crate::sim::compare::Figures;
use crate::sim::ledger::{Phase, Spent};
use crate::sim::machine::Picos;
use crate::sim::scenario::setup::Pool;
use crate::sim::times::Times;

/// Number of CPUs on which the published contention was counted, for one second. They had senders: of their eight seconds
/// up to 7.1 were waits.
const CONTENTION_CPUS: f64 = 8.0;

/// Prefixes of the names of figures that come from the run with recording.
pub(super) const BY_RECORD: [&str; 6] = ["enqueue_", "retake_", "path_", "root_", "run_waiters", "xmit_mode"];

/// Counts of the measured time.
pub(super) struct Counts {
    pub(super) packets: u64,
    pub(super) bytes: u64,
    /// Fraction of all packets that were dropped.
    pub(super) lost: f64,
    pub(super) switches: u64,
    /// Completed transactions or requests.
    pub(super) done: u64,
    /// Number of packets that had a due time, and the sum of their delays.
    pub(super) late: (u64, Picos),
    /// Bytes of each class of the senders.
    pub(super) shares: Vec<(Handle, u64)>,
    /// Mean number of tasks that have a CPU or wait for one.
    pub(super) runnable: f64,
    /// Where freed buffers go.
    pub(super) pool: Pool,
    /// Number of senders.
    pub(super) senders: u32,
    /// How long calls and packets took.
    pub(super) times: Arc<Times>,
}

/// Returns the figures of a report.
pub(super) fn of(report: &Report, counts: &Counts) -> Figures {
    let mut figures = Figures::new();
    let mut put = |name: &str, value: f64| {
        // A mean of nothing is not a number: then there is no figure.
        if value.is_finite() {
            figures.insert(name.to_owned(), value);
        }
    };
    let seconds = report.seconds;
    put("mpps", counts.packets as f64 / seconds / 1e6);
    put("mbps", counts.bytes as f64 * 8.0 / seconds / 1e6);
    put("drops_percent", 100.0 * counts.lost);
    put("ktps", counts.done as f64 / seconds / 1e3);
    put("kreq", counts.done as f64 / seconds / 1e3);
    put("late_avg_us", counts.late.1 as f64 / 1e6 / counts.late.0 as f64);
    let bytes: u64 = counts.shares.iter().map(|share| share.1).sum();
    for (class, part) in &counts.shares {
        put(&format!("share_{class}_percent"), 100.0 * *part as f64 / bytes as f64);
    }
    put("switches_per_s", counts.switches as f64 / seconds);
    put("runnable", counts.runnable);
    let all = report.used.busy + report.used.spinning + report.used.idle;
    let used = (report.used.busy + report.used.spinning) as f64;
    put("system_cpu_percent", 100.0 * used / all as f64);
    put("spinning_percent", 100.0 * report.used.spinning as f64 / all as f64);
    put("cpu_ns_per_packet", used / 1e3 / counts.packets as f64);
    for (name, part) in [("p50", 0.5), ("p99", 0.99)] {
        let [xmit, sojourn] = counts.times.quantile(part).map(|ns| ns.unwrap_or(f64::NAN));
        put(&format!("xmit_{name}_ns"), xmit);
        put(&format!("sojourn_{name}_us"), sojourn / 1e3);
    }
    put("interrupt_cpus", report.interrupts.total().total() as f64 / 1e12 / seconds);
    locks(report, counts.senders, &mut put);
    interrupts(report, counts.pool, &mut put);
    let mode = report.xmit.buckets().max_by_key(|bucket| (bucket.count, std::cmp::Reverse(bucket.min)));
    put("xmit_mode_ns", mode.map_or(f64::NAN, |bucket| bucket.min as f64));
    figures
}

/// Adds the waits by site and on a packet's whole path, as perf reported them for eight CPUs, and the root lock as lock_stat
/// reported it. perf does not see the first waiter at a lock ([`LockStats::queued`]).
fn locks(report: &Report, senders: u32, put: &mut impl FnMut(&str, f64)) {
    let share = CONTENTION_CPUS / f64::from(senders.min(report.cpus)) / report.whole;
    let (enqueue, retake, worker) = (Site::Enqueue, Site::Retake, Site::Worker);
    let whole: &[Site] = &[enqueue, retake, worker];
    for (sites, name) in [(&[enqueue][..], "enqueue"), (&[retake], "retake"), (whole, "path")] {
        let mut stats = LockStats::default();
        let here = report.contention.sites.iter().filter(|s| sites.contains(&s.site));
        here.for_each(|s| stats.merge(&s.stats));
        put(&format!("{name}_contended"), stats.queued.count as f64 * share);
        put(&format!("{name}_wait_total_ms"), stats.queued.total as f64 / 1e6 * share);
        put(&format!("{name}_wait_avg_us"), stats.queued.total as f64 / 1e3 / stats.queued.count as f64);
        put(&format!("{name}_wait_max_us"), stats.queued.max as f64 / 1e3);
    }
    let root = report.contention.of_lock(Lock::Root);
    put("root_contended_percent", 100.0 * root.contended as f64 / root.acquisitions as f64);
    put("root_wait_avg_us", root.wait.total as f64 / 1e3 / root.wait.count as f64);
    put("root_hold_avg_us", root.hold.total as f64 / 1e3 / root.hold.count as f64);
    let at = |wanted: &[Site]| {
        let sites =
            report.contention.sites.iter().filter(|s| s.lock == Lock::Root && wanted.contains(&s.site));
        100.0 * sites.map(|s| s.stats.contended).sum::<u64>() as f64 / root.contended as f64
    };
    put("enqueue_waiters_percent", at(&[Site::Enqueue]));
    put("run_waiters_percent", at(&[Site::Retake, Site::Worker]));
}

/// Adds how the interrupts' CPUs spent their time, in percent of one such CPU's time.
fn interrupts(report: &Report, pool: Pool, put: &mut impl FnMut(&str, f64)) {
    let whole = report.seconds * 1e12 * f64::from(report.interrupted);
    let mut percent = |name: &str, time: u64| put(name, 100.0 * time as f64 / whole);
    let free = report.interrupts.of(Phase::Free);
    percent("softirq_percent", report.interrupts.total().total());
    percent("alloc_lock_percent", free.waits);
    // With `defer`, buffers return to their home and none is freed slowly.
    match pool {
        Pool::Defer => {
            percent("slow_free_percent", 0);
            percent("defer_percent", free.work + free.lines);
        }
        _ => percent("slow_free_percent", free.lines),
    }
    percent("free_work_percent", free.work);
    for phase in Phase::ALL {
        let Spent { work, lines, waits } = *report.interrupts.of(phase);
        percent(&format!("irq_{}_percent", phase.name().replace(' ', "_")), work + lines + waits);
    }
}
