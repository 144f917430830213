//! txq's own null device on the simulated machine.

use txq_lab::sim::Machine;
use txq_lab::sim::run::measure;
use txq_lab::sim::scenario::Setup;

/// Returns the CPU time of a packet of one sender.
fn ns(device: &str, write: bool) -> f64 {
    let text = format!(
        "machine = 'vm-2'\nmilliseconds = 1\nwarmup = 0.2\nlines = {{ packet = 2 }}\n\
         device = {{ {device}, completions = 'inline' }}\n\
         path = {{ qdisc = 'pfifo', discipline = 'lockless' }}\n\
         workload = {{ kind = 'udp-stream', senders = 1, bytes = 120, credit = 128, private = 0, pinned = true, \
         write = {write} }}\n"
    );
    let setup = Setup::of(text.parse().unwrap()).unwrap();
    let report = measure(&setup).unwrap();
    assert!(report.figures["mpps"] > 1.0);
    report.figures["cpu_ns_per_packet"]
}

#[test]
fn on_the_null_device_a_packet_costs_no_clock() {
    let clock = Machine::named("vm-2").unwrap().os.clock;
    let (card, null) = (ns("coalesce_us = 0, bql = false", true), ns("null = true", true));
    assert!(card > null + clock, "{card} {null}");
}

#[test]
fn a_packet_that_nobody_writes_costs_less() {
    let (written, bare) = (ns("null = true", true), ns("null = true", false));
    assert!(written > bare, "{written} {bare}");
}
