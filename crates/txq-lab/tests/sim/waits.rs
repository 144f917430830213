//! Waits at the locks of a queue.

use txq_core::arch::Nanos;
use txq_core::stats::contention::{Lock, LockStats, Site};
use txq_lab::sim::run::run;
use txq_lab::sim::scenario::Setup;

/// The length of a measurement, and of the warm-up before it.
const TIME: Nanos = 1_000_000;
/// Queues with eight senders each.
const QUEUES: u64 = 4;

/// Returns the waits at the queues' root locks.
fn root_lock(discipline: &str) -> impl Fn(Site) -> LockStats {
    let text = format!(
        "machine = 'server-128'\nkernel = true\nmilliseconds = 1\nwarmup = 1\n\
         device = {{ gbit = 100, txqs = 4, coalesce_us = 20, completions = 'spread' }}\n\
         path = {{ qdisc = 'mq', default_qdisc = 'fq', discipline = '{discipline}' }}\n\
         workload = {{ kind = 'udp-stream', senders = 32, bytes = 186, credit = 90, private = 600, pinned = true }}\n"
    );
    let report = run(&Setup::of(text.parse().unwrap()).unwrap()).unwrap();
    move |site| {
        let rows = report.contention.sites.iter().filter(|row| row.lock == Lock::Root && row.site == site);
        rows.map(|row| row.stats).next().unwrap_or_default()
    }
}

/// While a queue runs, busylock lets one sender at a time wait for the root lock. So the owner, which retakes that lock after
/// the driver, seldom waits behind another waiter.
#[test]
fn owners_compete_with_one_sender_under_busylock() {
    let [busy, spin] = ["busylock", "spinlock"].map(|discipline| root_lock(discipline)(Site::Retake));
    let share = |stats: &LockStats| stats.queued.count as f64 / stats.acquisitions as f64;
    assert!(busy.contended > 100 && spin.contended > 100, "{busy:?} {spin:?}");
    assert!(share(&busy) < 0.02 && share(&spin) > 0.3, "{busy:?} {spin:?}");
}

/// Under llist one sender of a queue at a time waits for the root lock, as long as it takes, and so does the owner after the driver.
#[test]
fn one_sender_at_a_time_waits_under_llist() {
    let llist = root_lock("llist");
    let waits = llist(Site::Enqueue);
    assert!(waits.contended > 1000, "{waits:?}");
    assert!(waits.wait.total <= QUEUES * TIME, "{waits:?}");
    let retakes = llist(Site::Retake);
    assert!(retakes.queued.count > 10, "{retakes:?}");
}

/// Senders take a lock to add packets to a band under lockless, and wait for each other there.
#[test]
fn producers_wait_for_each_other_under_lockless() {
    let text = "machine = 'server-128'\nkernel = true\nmilliseconds = 1\nwarmup = 1\n\
                device = { txqs = 1, coalesce_us = 0, completions = 'inline', bql = false }\n\
                path = { qdisc = 'pfifo_fast', discipline = 'lockless' }\n\
                workload = { kind = 'pktgen', threads = 8, bytes = 60, private = 100 }\n";
    let report = run(&Setup::of(text.parse().unwrap()).unwrap()).unwrap();
    let mut rows = report.contention.sites.iter().filter(|row| row.lock == Lock::Producers);
    let row = rows.next().unwrap();
    let (waits, all) = (row.stats.contended, row.stats.acquisitions);
    assert!(row.site == Site::Enqueue && waits > all / 2 && all > 1000, "{:?} {waits} {all}", row.site);
}
