//! Classes of one htb on 16 and 64 simulated CPUs have their shares of a rate that is reached: `docs/lab/one-rate-shares.toml`.

use txq_lab::sim::run::measure;
use txq_lab::sim::scenario::{Change, Scenario};

/// 60 % of the rate are left to borrow, of which two classes have one part and two.
const SHARES: [(&str, f64); 3] = [("1:10", 30.0), ("1:20", 60.0), ("1:30", 10.0)];

/// Runs a point for less time than its file says.
fn shares(point: &str, milliseconds: u32) {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/lab/one-rate-shares.toml");
    let scenario = Scenario::open(file).unwrap_or_else(|error| panic!("{error}"));
    let shorter: Change = format!("milliseconds={milliseconds}").parse().unwrap();
    let report = measure(&scenario.setup(point, &[shorter]).unwrap()).unwrap();
    let figure = |name: &str| report.figures[name];
    assert!((figure("mbps") - 10_000.0).abs() <= 50.0, "{point}: {} Mbit/s", figure("mbps"));
    for (class, expected) in SHARES {
        let share = figure(&format!("share_{class}_percent"));
        assert!((share - expected).abs() <= expected * 0.02, "{point}: {class} has {share:.2} %");
    }
}

#[test]
fn classes_on_16_cpus_share_by_quantum() {
    shares("16 CPUs", 40);
}

#[test]
fn classes_on_64_cpus_share_by_quantum() {
    shares("64 CPUs", 15);
}
