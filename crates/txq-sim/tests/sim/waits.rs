//! Waits at the locks of a queue.

use txq_core::stats::contention::{Lock, LockStats, Site};
use txq_sim::run::run;
use txq_sim::scenario::Setup;

/// Returns the waits at the root locks of four queues, with eight senders each.
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
