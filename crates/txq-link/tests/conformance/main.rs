//! The tables of `txq_link::conformance` for txq's qdiscs, and for queues with one fault each.

mod codel;
mod dualq;
mod fq_codel;
mod txq;

use txq_link::conformance::Report;

/// Asserts that exactly these cases fail.
fn fails(what: &str, report: &Report, expected: &[&str]) {
    let failed: Vec<_> = report.failed().map(|outcome| outcome.name).collect();
    assert_eq!(failed, expected, "{what}\n{report}");
}
