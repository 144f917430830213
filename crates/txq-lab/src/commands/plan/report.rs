//! What a plan prints: a table and the advice, or JSON.

use std::fmt::Write;

use crate::sim::machine::{Machine, Topology};
use serde_json::{Value, json};
use txq_cli::common::rate::metric;
use txq_cli::common::span::Human;
use txq_cli::common::table::{align, number};

use super::scale;
use super::stages::Found;
use super::ways::{Way, advice};
use super::{Own, PlanArgs, span};
use crate::commands::spread::Spread;

/// Ways in the table by default, if more than the measured ones are few.
const SHOWN: usize = 15;

/// Returns a way as one JSON object.
pub(super) fn json_line(way: &Way, args: &PlanArgs, own: Own, rate: f64) -> String {
    let Spread { low, median, high } = way.most();
    let at_rate = |name: &str| way.at_rate(name);
    let offered = (!way.at_rate.is_empty()).then(|| {
        json!({
            "mpps": at_rate("mpps"),
            "cpu_ns_per_packet": at_rate("cpu_ns_per_packet"),
            "interrupt_cpus": at_rate("interrupt_cpus"),
            "xmit_p50_ns": at_rate("xmit_p50_ns"),
            "xmit_p99_ns": at_rate("xmit_p99_ns"),
            "sojourn_p50_us": at_rate("sojourn_p50_us"),
            "sojourn_p99_us": at_rate("sojourn_p99_us"),
        })
    });
    let line: Value = json!({
        "txqs": way.choice.txqs,
        "discipline": way.choice.discipline.name(),
        "steering": way.choice.steering.unwrap_or("-"),
        "qdisc": args.qdisc,
        "private_ns": own.nanos,
        "private_assumed": own.is_assumed,
        "asked_mpps": rate,
        "seeds": way.runs.len(),
        "mpps": median,
        "mpps_low": low,
        "mpps_high": high,
        "margin": way.margin(rate),
        "meets": way.meets(rate),
        "cpu_ns_per_packet": way.figure("cpu_ns_per_packet"),
        "spinning_percent": way.figure("spinning_percent"),
        "at_rate": offered,
    });
    format!("{line}\n")
}

/// Returns the machine, the table and the advice.
pub(super) fn text(
    args: &PlanArgs,
    own: Own,
    (machine, topology): (&Machine, &Topology),
    found: &Found,
    rate: f64,
) -> String {
    let cpus = args.cpus.get() as u32;
    let mut text = scale::described(&args.machine, &machine.topology, topology, cpus) + "\n";
    let link = args.link.map_or(String::new(), |link| format!(", a link of {link}"));
    let irqs = match args.irq_cpus.get() {
        0 => String::new(),
        n => format!(", interrupts on {n} of the CPUs alone"),
    };
    let assumed = if own.is_assumed { " (assumed)" } else { "" };
    let _ = writeln!(
        text,
        "{} senders, {} ns of their own{assumed} for each packet of {} bytes{link}{irqs}; {}pps asked for through {}\n",
        args.senders,
        own.nanos,
        args.bytes,
        metric(rate * 1e6),
        args.qdisc
    );
    let measured = found.ways.iter().filter(|way| way.is_measured()).count();
    let shown = if args.all { found.ways.len() } else { measured.min(SHOWN) };
    table(&mut text, &found.ways[..shown], rate);
    let _ = writeln!(
        text,
        "\nMpps, low and high: as fast as the senders can, the median of {} seeds, and the lowest and highest; margin: of the \
         lowest.\nThe columns behind the margin: at {} Mpps.",
        args.seeds,
        number(rate)
    );
    if shown < found.ways.len() {
        let _ = writeln!(
            text,
            "{} more ways were screened with a short run; --all shows them.",
            found.ways.len() - shown
        );
    }
    if found.left_out > 0 {
        let _ = writeln!(
            text,
            "{} runs were left out after {}; --within gives them more time.",
            found.left_out,
            span(args.within)
        );
    }
    for (choice, error) in &found.errors {
        let _ = writeln!(text, "not simulated: {}: {error}", choice.words());
    }
    let _ = writeln!(text, "\n{}", advice(&found.ways, rate, found.cause.as_deref()));
    if own.is_assumed {
        let by = found.by_private.iter().map(|(ns, mpps)| format!("{} Mpps with {ns:.0} ns", number(*mpps)));
        let by = by.collect::<Vec<_>>().join(", ");
        let by = if by.is_empty() { by } else { format!(" This way sends {by}.") };
        let _ = writeln!(
            text,
            "The {} ns of own work are assumed.{by} Measure yours and set --private: txq sim cost -- PROGRAM {{}}",
            own.nanos
        );
    }
    text
}

fn table(text: &mut String, ways: &[Way], rate: f64) {
    let heads = [
        "txqs",
        "discipline",
        "steering",
        "Mpps",
        "low",
        "high",
        "margin",
        "CPU ns",
        "irq CPUs",
        "xmit p50",
        "p99",
        "sojourn p50",
        "p99",
    ];
    let or_dash = |value: Option<String>| value.unwrap_or_else(|| "-".into());
    let cells = ways.iter().map(|way| {
        let Spread { low, median, high } = way.most();
        let human = |ns: f64| Human(ns.round() as u64).to_string();
        let ns = |name: &str| or_dash(way.at_rate(name).map(human));
        let us = |name: &str| or_dash(way.at_rate(name).map(|us| human(us * 1e3)));
        vec![
            way.choice.txqs.to_string(),
            way.choice.discipline.to_string(),
            way.choice.steering.unwrap_or("-").to_owned(),
            number(median),
            number(low),
            number(high),
            format!("{:+.0} %", way.margin(rate) * 100.0),
            or_dash(way.at_rate("cpu_ns_per_packet").map(number)),
            or_dash(way.at_rate("interrupt_cpus").map(number)),
            ns("xmit_p50_ns"),
            ns("xmit_p99_ns"),
            us("sojourn_p50_us"),
            us("sojourn_p99_us"),
        ]
    });
    align(text, heads.map(str::to_owned).to_vec(), cells.collect());
}
