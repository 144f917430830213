//! The state of a real qdisc moves with its owner from CPU to CPU.

use txq_lab::sim::run::measure;
use txq_lab::sim::scenario::{Change, Scenario, Setup};

/// Returns what senders of many flows send through a qdisc under spinlock, in Mpps. `more` is a line of further fields.
fn mpps(qdisc: &str, senders: u32, more: &str) -> f64 {
    let text = format!(
        "machine = 'vm-2'\nmilliseconds = 1\nwarmup = 1\noverlap = true\n\
         tune = {{ access = {{ same_complex = 105.0 }} }}\n{more}\n\
         device = {{ null = true, completions = 'inline' }}\n\
         path = {{ qdisc = '{qdisc}', discipline = 'spinlock' }}\n\
         workload = {{ kind = 'udp-stream', senders = {senders}, flows = {}, bytes = 120, credit = 128, private = 0, \
         pinned = true, write = false }}\n",
        200 / senders
    );
    measure(&Setup::of(text.parse().unwrap()).unwrap()).unwrap().figures["mpps"]
}

/// Two senders of one cake on CPUs that are far apart send less than one. With a state of two lines they seem to send more.
#[test]
fn two_senders_through_cake_send_less_than_one() {
    let of = |more: &str| mpps("cake", 2, more) / mpps("cake", 1, more);
    let small = of("lines = { qdisc = 2 }");
    let real = of("");
    assert!(real < 0.8 && real < 0.7 * small, "{real} of one sender, and {small} with a state of two lines");
}

#[test]
fn cake_costs_more_than_fq() {
    let (cake, fq) = (mpps("cake", 1, ""), mpps("fq", 1, ""));
    assert!(cake < fq, "{cake} {fq}");
}

/// Returns what a point of `docs/lab/llist-under-cake.toml` sends, in Mpps, in less time than its file says.
fn under_cake(point: &str) -> f64 {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/lab/llist-under-cake.toml");
    let scenario = Scenario::open(file).unwrap_or_else(|error| panic!("{error}"));
    let shorter = ["milliseconds=10", "warmup=15"].map(|change| change.parse::<Change>().unwrap());
    measure(&scenario.setup(point, &shorter).unwrap()).unwrap().figures["mpps"]
}

/// A flood through one cake collapses under llist, and neither under busylock nor under combine. One sender is no flood.
#[test]
fn a_flood_through_cake_collapses_under_llist_alone() {
    let [busylock, llist, combine] = ["flood, busylock", "flood, llist", "flood, combine"].map(under_cake);
    assert!(llist < 0.05 * busylock, "{llist} {busylock}");
    assert!(combine > 0.9 * busylock, "{combine} {busylock}");
    let alone = under_cake("one netperf, llist");
    assert!(alone > 0.3 * busylock, "{alone} {busylock}");
}
