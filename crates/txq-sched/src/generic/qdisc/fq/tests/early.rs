//! `offload_horizon`.

use std::time::Duration;

use super::*;

/// A device that keeps packets until their time gets them early, each with its departure time.
#[test]
fn packets_go_early_to_a_device_that_keeps_them() {
    let env = Env { pacing_horizon: Duration::from_millis(5), ..ENV };
    let mut bench = Bench::on("offload_horizon 5ms", env);
    let start = bench.now;
    let departures =
        |bench: &mut Bench| -> Vec<Nanos> { bench.take(9).iter().map(|p| p.departure() - start).collect() };
    for after in [7, 3, 5] {
        let _ = bench.send(1, 100, 0, Some(after * MS));
    }
    let _ = bench.send(2, 100, 0, Some(5 * MS + 1));
    assert_eq!(departures(&mut bench), [3 * MS, 5 * MS]);
    assert_eq!(bench.qdisc.next_event(), Some(start + 1 + 10_000), "with timer_slack");
    bench.later(2 * MS);
    assert_eq!(departures(&mut bench), [5 * MS + 1, 7 * MS]);

    // Each packet takes 1 ms, whether it leaves early or not.
    let mut bench = Bench::on("offload_horizon 5ms maxrate 8mbit low_rate_threshold 1gbit", env);
    bench.fill(9, 1, 1000, 0, None);
    assert_eq!(departures(&mut bench), [0, 1, 2, 3, 4, 5].map(|ms| ms * MS));
    bench.later(MS);
    assert_eq!(departures(&mut bench), [6 * MS]);
    // 3 ms late for the next one: all of that is made up for.
    bench.later(9 * MS);
    assert_eq!(departures(&mut bench), [0, 0]);
}
