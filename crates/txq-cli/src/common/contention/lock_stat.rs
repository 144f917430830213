//! The layout of `/proc/lock_stat`, version 0.4: a row for each class of locks, the most contended first; under it the call
//! sites that waited, and those that held the lock meanwhile.
//!
//! A class is a kind of lock, summed over all devices. The address of a call site is zeros, as the kernel prints it where
//! addresses are hidden.

use std::cmp::Reverse;
use std::fmt::Write;

use txq::stats::contention::Lock;
use txq::stats::contention::{ContentionReport, LockStats, SiteReport, Spread};

const NAME: usize = 40;
const CELL_WIDTH: usize = 14;
const LOCK_STAT_COLUMNS: [&str; 12] = [
    "con-bounces",
    "contentions",
    "waittime-min",
    "waittime-max",
    "waittime-total",
    "waittime-avg",
    "acq-bounces",
    "acquisitions",
    "holdtime-min",
    "holdtime-max",
    "holdtime-total",
    "holdtime-avg",
];
const HIDDEN: &str = "[<0000000000000000>]";

/// Returns the table.
pub fn table(report: &ContentionReport) -> String {
    let line = |c: &str| c.repeat(NAME + 1 + LOCK_STAT_COLUMNS.len() * (CELL_WIDTH + 1));
    let mut text = format!("lock_stat version 0.4\n{}\n", line("-"));
    let _ = writeln!(text, "{:>NAME$} {}", "class name", cells(&LOCK_STAT_COLUMNS.map(str::to_owned)));
    let _ = writeln!(text, "{}\n", line("-"));
    let mut locks: Vec<_> = Lock::ALL.iter().map(|&lock| (lock, report.of_lock(lock))).collect();
    locks.sort_by_key(|(_, stats)| Reverse(stats.contended));
    for (lock, stats) in locks.iter().filter(|(_, stats)| stats.acquisitions > 0) {
        let _ = writeln!(text, "{:>NAME$}:{}", lock.class(), cells(&row(stats)));
        let sites = || report.sites.iter().filter(|site| site.lock == *lock);
        points(&mut text, lock.class(), sites().map(|site| (site, site.stats.contended)));
        points(&mut text, lock.class(), sites().map(|site| (site, site.stats.held_up)));
        if stats.contended > 0 {
            let _ = writeln!(text, "\n{}\n", line("."));
        }
    }
    text
}

fn row(stats: &LockStats) -> [String; 12] {
    let [wait, hold] = [stats.wait, stats.hold].map(spread);
    let count = |n: u64| n.to_string();
    let [a, b, c, d] = wait;
    let [e, f, g, h] = hold;
    let (con, acq) = (count(stats.contention_bounces), count(stats.acquisition_bounces));
    [con, count(stats.contended), a, b, c, d, acq, count(stats.acquisitions), e, f, g, h]
}

/// Returns the minimum, maximum, total and mean in microseconds.
fn spread(times: Spread) -> [String; 4] {
    [times.min, times.max, times.total, times.mean()].map(|nanos| {
        let hundredths = (nanos + 5) / 10;
        format!("{}.{:02}", hundredths / 100, hundredths % 100)
    })
}

fn cells(cells: &[String]) -> String {
    cells.iter().map(|cell| format!("{cell:>CELL_WIDTH$}")).collect::<Vec<_>>().join(" ")
}

/// Appends a block of the call sites whose count is above zero, if there are any.
fn points<'a>(text: &mut String, class: &str, sites: impl Iterator<Item = (&'a SiteReport, u64)>) {
    let mut sites: Vec<_> = sites.filter(|(_, count)| *count > 0).collect();
    sites.sort_by_key(|(_, count)| Reverse(*count));
    if !sites.is_empty() {
        let _ = writeln!(text, "{:>NAME$}", "-".repeat(class.len()));
    }
    for (site, count) in sites {
        let _ = writeln!(text, "{class:>NAME$} {count:>CELL_WIDTH$} {HIDDEN:>29} {}", site.site.caller());
    }
}
