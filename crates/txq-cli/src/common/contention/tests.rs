//! Compares the tables with the output of perf and of the kernel.

use txq::stats::contention::{ContentionReport, Lock, LockStats, Site, SiteReport, Spread};
use txq::stats::log2::Log2;

use super::*;

fn site(lock: Lock, site: Site, [acquisitions, contended, held_up]: [u64; 3], wait: Spread) -> SiteReport {
    let mut waits = Log2::new();
    waits.add(wait.min, wait.count);
    let bounces = (acquisitions / 2, contended / 2);
    let mut stats = LockStats::default();
    (stats.acquisitions, stats.contended, stats.held_up) = (acquisitions, contended, held_up);
    (stats.acquisition_bounces, stats.contention_bounces) = bounces;
    (stats.wait, stats.waits) = (wait, waits);
    stats.hold = Spread { count: acquisitions, total: acquisitions * 600, min: 600, max: 600 };
    SiteReport { lock, site, stats }
}

fn report(sites: Vec<SiteReport>) -> ContentionReport {
    let mut report = ContentionReport::default();
    report.sites = sites;
    report
}

fn spread(count: u64, total: u64, min: u64, max: u64) -> Spread {
    Spread { count, total, min, max }
}

/// The numbers are those of the published comparison (a second on 8 CPUs); the widths and units are perf's.
#[test]
fn the_table_is_perfs() {
    let sites = vec![
        site(Lock::Root, Site::Enqueue, [9000, 5961, 0], spread(5961, 9_570_000, 300, 740_000)),
        site(
            Lock::Root,
            Site::Retake,
            [500_000, 442_111, 0],
            spread(442_111, 6_790_000_000, 300, 162_000_000),
        ),
        site(Lock::Root, Site::Worker, [7, 1, 0], spread(1, 740, 740, 740)),
        site(Lock::Tx, Site::Driver, [77, 0, 0], Spread::default()),
    ];
    let report = report(sites);
    let printed = [
        " contended   total wait     max wait     avg wait         type   caller",
        "",
        "    442111      6.79 s     162.00 ms     15.36 us     spinlock   dev_hard_start_xmit",
        "      5961      9.57 ms    740.00 us      1.60 us     spinlock   __dev_queue_xmit",
        "         1       740 ns       740 ns       740 ns     spinlock   net_tx_action",
    ];
    assert_eq!(perf::table(&report).lines().collect::<Vec<_>>(), printed);
}

/// The numbers are those of a published minute of lock_stat; the layout is that of the kernel's documentation
/// (lockstat.rst).
#[test]
fn the_layout_is_lock_stats() {
    let wait = |count| spread(count, count * 2_293, 710, 1_286_620);
    let sites = vec![
        site(Lock::Root, Site::Enqueue, [30_000_000, 15_600_000, 18_100_000], wait(15_600_000)),
        site(Lock::Root, Site::Worker, [14_904_018, 9_000_000, 6_500_000], wait(9_000_000)),
        site(Lock::Tx, Site::Driver, [100, 0, 0], Spread::default()),
    ];
    let table = lock_stat::table(&report(sites));
    let lines: Vec<&str> = table.lines().collect();
    assert_eq!(lines[0], "lock_stat version 0.4");
    assert_eq!(lines[1], "-".repeat(221));
    let head = "                              class name    con-bounces    contentions   waittime-min   waittime-max \
                waittime-total   waittime-avg    acq-bounces   acquisitions   holdtime-min   holdtime-max \
                holdtime-total   holdtime-avg";
    assert_eq!(lines[2], head);
    let row = "                     &sch->root_lock_key:      12300000       24600000           0.71        1286.62    \
               56407800.00           2.29       22452009       44904018           0.60           0.60    \
               26942410.80           0.60";
    assert_eq!(lines[5], row);
    let rest = [
        "                     -------------------",
        "                     &sch->root_lock_key       15600000          [<0000000000000000>] __dev_queue_xmit",
        "                     &sch->root_lock_key        9000000          [<0000000000000000>] net_tx_action",
        "                     -------------------",
        "                     &sch->root_lock_key       18100000          [<0000000000000000>] __dev_queue_xmit",
        "                     &sch->root_lock_key        6500000          [<0000000000000000>] net_tx_action",
        "",
        &".".repeat(221),
        "",
    ];
    assert_eq!(lines[6..15], rest);
    assert!(lines[15].starts_with(
        "                             _xmit_ETHER:             0              0           0.00"
    ));
    assert_eq!(lines.len(), 16, "nobody has waited for the tx lock");
}
