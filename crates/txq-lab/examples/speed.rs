//! Measures how fast the simulation is at a scenario's points: `cargo run --release -p txq-lab --example speed [SCENARIO
//! [POINT [MILLISECONDS]]]`.

use rustix::time::{ClockId, clock_gettime};
use txq_lab::sim::run::measure;
use txq_lab::sim::scenario::Scenario;

/// Returns the CPU time of this process, in seconds.
fn cpu() -> f64 {
    let now = clock_gettime(ClockId::ProcessCPUTime);
    now.tv_sec as f64 + now.tv_nsec as f64 / 1e9
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let scenario =
        Scenario::open(args.first().map_or("p0-pinned", |arg| arg)).unwrap_or_else(|e| panic!("{e}"));
    for point in scenario.points() {
        if args.get(1).is_some_and(|only| only != point) {
            continue;
        }
        let mut setup = scenario.setup(point, &[]).unwrap_or_else(|e| panic!("{e}"));
        if let Some(ms) = args.get(2).and_then(|arg| arg.parse().ok()) {
            setup.milliseconds = ms;
        }
        let before = cpu();
        let report = measure(&setup).unwrap_or_else(|e| panic!("{e}"));
        let (took, accesses) = (cpu() - before, report.accesses as f64 / 1e6);
        println!(
            "{} {point}: {:.3} Mpps {:016x} {accesses:6.2} M accesses in {took:5.2} s, {:4.1} M/s; 10 ms in {:5.2} s",
            scenario.name,
            report.figures["mpps"],
            report.hash,
            accesses / took,
            0.010 / report.whole * took
        );
    }
}
