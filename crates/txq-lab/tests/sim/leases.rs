//! Two busy senders of a cheap queue take turns, where the senders of a scenario have leases.

use txq_lab::sim::Prices;
use txq_lab::sim::run::measure;
use txq_lab::sim::scenario::Setup;

/// Returns what two senders of single packets send, in Mpps.
fn mpps(discipline: &str, way: f64, leases: bool) -> f64 {
    // The warm-up ends when the queue's owners have compared both rules.
    let text = format!(
        "machine = 'vm-2'\nmilliseconds = 1\nwarmup = 8\noverlap = true\n\
         tune = {{ access = {{ hit = 0.96, hit_gap = 0.96, same_complex = {way} }} }}\nlines = {{ driver = 1 }}\n\
         device = {{ null = true, completions = 'inline' }}\n\
         path = {{ qdisc = 'pfifo', discipline = '{discipline}', defer_completions = true, leases = {leases} }}\n\
         workload = {{ kind = 'udp-stream', senders = 2, bytes = 120, credit = 128, private = 0, pinned = true, \
         write = false }}\n"
    );
    let setup = Setup::of(text.parse().unwrap()).unwrap();
    // Plain code is so cheap that the transfers of lines decide.
    let setup = Setup { prices: Prices::FREE, ..setup };
    measure(&setup).unwrap().figures["mpps"]
}

/// `way` is the time that a line takes between the CPUs, in nanoseconds.
fn turns_send_more(discipline: &str, way: f64) {
    let (turns, hand_over) = (mpps(discipline, way, true), mpps(discipline, way, false));
    assert!(turns > 1.25 * hand_over, "{discipline}: {turns} Mpps in turns, {hand_over} without");
}

#[test]
fn turns_send_more_under_combine() {
    turns_send_more("combine", 28.0);
}

#[test]
fn turns_send_more_under_lockless() {
    turns_send_more("lockless", 28.0);
}

#[test]
fn turns_send_more_under_llist() {
    turns_send_more("llist", 28.0);
}

/// With CPUs close to one another, a lock for each packet sends nearly as much.
#[test]
fn turns_send_more_under_locks_where_lines_take_long() {
    turns_send_more("busylock", 75.0);
    turns_send_more("spinlock", 75.0);
}
