//! Requests through a proxy.

use txq_lab::sim::run::run;
use txq_lab::sim::scenario::Setup;

/// The work of all programs on a request, in microseconds.
const WORK: f64 = 100.0;

/// Returns thousands of requests a second.
fn kreq(connections: u32, passes: u32) -> f64 {
    let text = format!(
        "machine = 'desktop-16'\nkernel = true\nmilliseconds = 50\nwarmup = 50\n\
         device = {{ txqs = 1, completions = 'inline', bql = false }}\n\
         path = {{ qdisc = 'pfifo_fast', discipline = 'spinlock' }}\n\
         workload = {{ kind = 'proxy', connections = {connections}, bytes = 700, passes = {passes}, private = {} }}\n",
        WORK * 1e3
    );
    run(&Setup::of(text.parse().unwrap()).unwrap()).unwrap().figures["kreq"]
}

/// Each program has one thread. One connection leaves it time to sleep; many connections send what the busiest thread can: the
/// proxy, which does half of the work. Without a proxy each of two programs does half.
#[test]
fn the_busiest_thread_is_the_limit_of_many_connections() {
    let most = 1e3 / (WORK / 2.0);
    let [one, some, many] = [1, 16, 64].map(|connections| kreq(connections, 4));
    assert!(one < 1e3 / WORK && one > 0.7 * 1e3 / WORK, "{one}");
    assert!(some <= most && some > 0.8 * most && (many / some - 1.0).abs() < 0.03, "{some} {many} {most}");
    let direct = kreq(16, 2);
    assert!(direct <= most * 1.02 && direct > 0.8 * most, "{direct} {most}");
}
