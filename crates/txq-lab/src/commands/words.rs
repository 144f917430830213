//! Names of figures and fields for people, with their units.

/// Figures and their names.
const FIGURE_NAMES: &[(&str, &str)] = &[
    ("mpps", "throughput, Mpps"),
    ("mbps", "throughput, Mbit/s"),
    ("ktps", "transactions, thousands a second"),
    ("kreq", "requests, thousands a second"),
    ("cpu_ns_per_packet", "CPU time a packet, ns"),
    ("system_cpu_percent", "CPU time used, %"),
    ("spinning_percent", "CPU time spent spinning, %"),
    ("drops_percent", "dropped packets, %"),
    ("runnable", "runnable tasks"),
    ("switches_per_s", "context switches a second"),
    ("interrupt_cpus", "CPU time of interrupts, CPUs"),
    ("xmit_mode_ns", "most frequent time of a call of xmit, ns"),
    ("xmit_p50_ns", "median time of a call of xmit, ns"),
    ("xmit_p99_ns", "99th percentile of the times of calls of xmit, ns"),
    ("sojourn_p50_us", "median time from hand-in to wire, us"),
    ("sojourn_p99_us", "99th percentile of the times from hand-in to wire, us"),
    ("late_avg_us", "average delay of the hand-in, us"),
    ("ratio", "ratio of throughputs"),
];

/// Fields of a scenario and their names.
const FIELD_NAMES: &[(&str, &str)] = &[
    ("workload.senders", "senders"),
    ("workload.pairs", "pairs"),
    ("workload.threads", "threads"),
    ("workload.connections", "connections"),
    ("workload.batch", "packets a call"),
    ("workload.bytes", "frame, bytes"),
    ("workload.private", "own work of a sender on a packet, ns"),
    ("workload.credit", "send buffer, packets"),
    ("workload.offered_mpps", "offered load, Mpps"),
    ("workload.speed", "speed, factor on the capture's"),
    ("milliseconds", "measured time, ms"),
    ("warmup", "warm-up, ms"),
    ("device.txqs", "txqs"),
    ("device.gbit", "link, Gbit/s"),
    ("device.ring", "ring, packets"),
    ("device.coalesce_us", "interrupt period, us"),
    ("device.irq_cpus", "CPUs for interrupts"),
    ("path.discipline", "discipline"),
    ("path.default_qdisc", "qdisc"),
    ("path.qdisc", "root qdisc"),
    ("path.pool", "pool"),
    ("scale.lines", "factor on the transfer times of lines"),
    ("scale.hold", "factor on the hold of lines"),
];

/// Units by the ends of figures' names.
const UNITS: &[(&str, &str)] =
    &[("_ns", "ns"), ("_us", "us"), ("_ms", "ms"), ("_percent", "%"), ("_mpps", "Mpps"), ("_gbit", "Gbit/s")];

fn of(known: &[(&str, &str)], name: &str) -> String {
    if let Some((_, words)) = known.iter().find(|(known, _)| *known == name) {
        return (*words).to_owned();
    }
    let unit = UNITS.iter().find_map(|(end, unit)| Some((name.strip_suffix(end)?, unit)));
    unit.map_or_else(|| name.to_owned(), |(name, unit)| format!("{}, {unit}", name.replace('_', " ")))
}

/// Returns a figure's name and unit.
pub(super) fn figure(name: &str) -> String {
    of(FIGURE_NAMES, name)
}

/// Returns a field's name and unit.
pub(super) fn field(path: &str) -> String {
    of(FIELD_NAMES, path)
}

/// Returns a name without its unit.
pub(super) fn bare(words: &str) -> &str {
    words.split(',').next().unwrap_or(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_units() {
        assert_eq!(figure("mpps"), "throughput, Mpps");
        assert_eq!(figure("path_wait_avg_us"), "path wait avg, us");
        assert_eq!(figure("irq_reap_percent"), "irq reap, %");
        assert_eq!(field("workload.senders"), "senders");
        assert_eq!(field("path.txqueuelen"), "path.txqueuelen");
        assert_eq!(bare("throughput, Mpps"), "throughput");
    }
}
