//! A warning where senders do little but sleep and wake.

use std::fmt::Write;

use crate::sim::scenario::setup::Workload;
use txq_cli::common::table::number;

use super::super::points::Point;

/// The part of the CPU time from which on context switches are worth a warning.
const MANY: f64 = 0.2;

/// Returns a line for each point whose CPUs spend much of their time on switches that the senders' pace causes.
pub(super) fn warnings(points: &[Point<'_>]) -> String {
    let mut text = String::new();
    for point in points {
        let report = &point.report;
        let (switches, each) = report.switches;
        let used = (report.used.busy + report.used.spinning) as f64 / 1e3;
        let part = paced_part(report.sleeps, switches, each, used);
        if part < MANY {
            continue;
        }
        let (key, remedy) = match &point.setup.workload {
            Workload::UdpStream { offered_mpps, senders, .. } => (
                format!("workload.offered_mpps={offered_mpps} of workload.senders={senders}"),
                "fewer workload.senders or a larger workload.batch sleep less often",
            ),
            Workload::Trace { speed, senders, .. } => (
                format!("workload.speed={speed} of workload.senders={senders}"),
                "fewer workload.senders or a higher workload.speed sleep less often",
            ),
            _ => continue,
        };
        let _ = writeln!(
            text,
            "\n{}: on a real machine, {:.0} % of the CPU time would be context switches of senders that sleep between packets ({} million \
             a second, {} ns each; the table's CPU time lacks those on idle CPUs), at {key}; {remedy}",
            point.name,
            part * 100.0,
            number(2.0 * report.sleeps as f64 / report.seconds / 1e6),
            number(each)
        );
    }
    text
}

/// Returns the part of the CPU time that goes to context switches for `sleeps`: one from the sender and one to it. `each` is the time of
/// a switch, and `used` the CPU time without switches, in nanoseconds.
fn paced_part(sleeps: u64, switches: u64, each: f64, used: f64) -> f64 {
    2.0 * sleeps as f64 * each / (switches as f64 * each + used).max(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sleep_is_two_switches() {
        // 1000 sleeps, 4000 switches of 1 us, and 4 ms of other work.
        assert_eq!(paced_part(1000, 4000, 1000.0, 4e6), 0.25);
        assert_eq!(paced_part(0, 0, 1000.0, 0.0), 0.0);
    }
}
