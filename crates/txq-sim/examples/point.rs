//! Runs the points of a scenario and prints their figures: `cargo run --release -p txq-sim --example point -- p0-pinned`.

use txq_sim::ledger::Phase;
use txq_sim::run;
use txq_sim::scenario::{Change, Scenario};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let scenario = Scenario::open(&args.next().unwrap_or_else(|| "p0-pinned".into()))?;
    let changes = args.map(|text| text.parse::<Change>()).collect::<Result<Vec<_>, _>>()?;
    for point in scenario.points() {
        let began = std::time::Instant::now();
        let report = run::run(&scenario.setup(point, &changes)?)?;
        let took = began.elapsed();
        println!("{point}: {} accesses in {took:.1?}, hash {:016x}", report.accesses, report.hash);
        for (who, ledger) in [("senders", &report.senders), ("interrupts", &report.interrupts)] {
            for phase in Phase::ALL {
                let (spent, packets) = (ledger.of(phase), report.figures["mpps"] * report.seconds * 1e9);
                let [work, lines, waits] = [spent.work, spent.lines, spent.waits].map(|t| t as f64 / packets);
                println!("  {who:12}{:14}{work:10.1}{lines:10.1}{waits:10.1} ns a packet", phase.name());
            }
        }
        report.figures.iter().for_each(|(name, value)| println!("  {name:28}{value:14.3}"));
    }
    Ok(())
}
