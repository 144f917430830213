//! `txq sim plan`: finds how few txqs, and which discipline and steering, reach a rate.
//!
//! Senders are the kernel's own, pinned to CPUs in turn, and completions come in interrupts that are spread over all CPUs.

mod scale;
mod ways;

use std::fmt::Write as _;
use std::time::Duration;

use anyhow::bail;
use serde_json::json;
use toml::{Table, Value};
use txq::Discipline;
use txq_cli_common::out;
use txq_cli_common::rate::{Rate, metric};
use txq_cli_common::span::Human;
use txq_cli_common::table::{align, number};
use txq_sim::machine::{Machine, Topology};
use txq_sim::scenario::{Change, Scenario};
use txq_sim::sweep::{Axis, Line, Sweep};

use super::args::PlanArgs;
use super::sweep::{plain, points};
use scale::scaled;
use ways::{Way, advice};

/// Ways in the table by default.
const SHOWN: usize = 15;
/// The warm-up before the measurement, as a part of the time.
const WARM_UP: f64 = 0.5;
/// Bounds of the time to simulate for each way.
const SHORTEST: Duration = Duration::from_micros(10);
const LONGEST: Duration = Duration::from_secs(10);
/// How long a thread that waits for a lock keeps its CPU, in nanoseconds: the kernel does not preempt it.
const SPIN: f64 = 1e8;
/// The steering rules.
const STEERING: [&str; 3] = ["near", "far", "hash"];

/// Simulates all ways, and prints the best.
pub(crate) fn plan(args: &PlanArgs) -> anyhow::Result<()> {
    let rate = match args.rate {
        Rate::Packets(pps) => pps / 1e6,
        Rate::Bits(bits) => bits / 8.0 / args.bytes.get() as f64 / 1e6,
        Rate::Max | Rate::Recorded => {
            bail!("--rate {}: a plan is for a rate, such as 20mpps or 100gbit", args.rate)
        }
    };
    if !(SHORTEST..=LONGEST).contains(&args.time.0) {
        let time = Human(u64::try_from(args.time.0.as_nanos()).unwrap_or(u64::MAX));
        bail!("--time {time}: too short or too long to simulate: use 10us to 10s");
    }
    let machine = Machine::find(&args.machine)?;
    let topology = scaled(&machine.topology, args.cpus.get() as u32);
    let text = scenario(args, &topology);
    let scenario = Scenario::parse("plan", &text)?;
    let mut lines = Vec::new();
    for (base, axes) in grid(args, topology.cpus()) {
        let sweep = Sweep::new(&scenario, "plan", base, axes)?;
        let threads = args.threads.map(|threads| threads.size());
        points(&sweep, plain, (0, 1), threads, args.quiet, |line| {
            lines.push(line);
            Ok(())
        })?;
    }
    let mut found: Vec<Way> = lines.iter().filter_map(|line| Way::of(line, rate)).collect();
    found.sort_by(Way::by_cost);
    if found.is_empty() {
        let why = lines.iter().find_map(|line| line.error.as_deref()).unwrap_or("no way was simulated");
        bail!("there is no way: {why}");
    }
    if args.json {
        return out::write(&found.iter().map(|way| json_line(way, args, rate)).collect::<String>());
    }
    out::write(&table(args, &machine, &topology, &lines, &found, rate))
}

/// Returns the scenario that all ways share.
fn scenario(args: &PlanArgs, topology: &Topology) -> String {
    let text = |text: &str| Value::String(text.to_owned()).to_string();
    let milliseconds = args.time.0.as_secs_f64() * 1e3;
    let topology = Table::try_from(topology).map(|table| table.to_string()).unwrap_or_default();
    format!(
        "name = \"plan\"\ntitle = \"a plan\"\n[setup]\nmachine = {}\nkernel = true\nmilliseconds = {milliseconds:?}\nwarmup = {:?}\n\
         [setup.tune.topology]\n{topology}\n[setup.tune.os]\nspin = {SPIN:?}\n[setup.device]\ncompletions = \"spread\"\n\
         [setup.path]\nqdisc = \"mq\"\ndefault_qdisc = {}\n\
         [setup.workload]\nkind = \"udp-stream\"\nsenders = {}\nbytes = {}\ncredit = 166\nprivate = {}\npinned = true\n",
        text(&args.machine),
        milliseconds * WARM_UP,
        text(&args.qdisc),
        args.senders,
        args.bytes,
        args.private,
    )
}

/// Returns the sweeps. With one txq there is no steering and no mq.
fn grid(args: &PlanArgs, cpus: u32) -> Vec<(Vec<Change>, Vec<Axis>)> {
    let texts = |texts: &[&str]| texts.iter().map(|&text| Value::String(text.to_owned())).collect();
    let axis = |path: &str, values: Vec<Value>| Axis { path: path.to_owned(), values };
    let names: Vec<_> = Discipline::ALL.iter().map(|discipline| discipline.name()).collect();
    let disciplines = || axis("path.discipline", texts(&names));
    let root = Change { path: "path.qdisc".into(), value: Value::String(args.qdisc.clone()) };
    let mut grid = vec![(vec![root], vec![axis("device.txqs", vec![Value::Integer(1)]), disciplines()])];
    let mut txqs: Vec<i64> = (1..).map(|power| 1 << power).take_while(|&n| n < i64::from(cpus)).collect();
    if cpus > 1 {
        txqs.push(cpus.into());
        let txqs = axis("device.txqs", txqs.into_iter().map(Value::Integer).collect());
        grid.push((Vec::new(), vec![txqs, disciplines(), axis("steering", texts(&STEERING))]));
    }
    grid
}

fn json_line(way: &Way, args: &PlanArgs, rate: f64) -> String {
    let line = json!({
        "txqs": way.txqs,
        "discipline": way.discipline.name(),
        "steering": way.steering,
        "qdisc": args.qdisc,
        "mpps": way.mpps,
        "asked_mpps": rate,
        "margin": way.margin,
        "meets": way.meets(),
        "cpu_ns_per_packet": way.cpu_ns,
        "spinning_percent": way.spinning,
    });
    format!("{line}\n")
}

fn table(
    args: &PlanArgs,
    machine: &Machine,
    topology: &Topology,
    lines: &[Line],
    found: &[Way],
    rate: f64,
) -> String {
    let mut text = String::new();
    let _ =
        writeln!(text, "{}", scale::told(&args.machine, &machine.topology, topology, args.cpus.get() as u32));
    let _ = writeln!(
        text,
        "{} senders, {} ns of their own for each packet of {} bytes; {}pps asked for through {}\n",
        args.senders,
        args.private,
        args.bytes,
        metric(rate * 1e6),
        args.qdisc
    );
    let heads = ["txqs", "discipline", "steering", "Mpps", "margin", "CPU ns", "spinning"].map(str::to_owned);
    let shown = if args.all { found.len() } else { SHOWN.min(found.len()) };
    let cells = found[..shown].iter().map(|way| {
        vec![
            way.txqs.to_string(),
            way.discipline.to_string(),
            way.steering.clone(),
            number(way.mpps),
            format!("{:+.0} %", way.margin * 100.0),
            way.cpu_ns.map_or_else(|| "-".into(), number),
            format!("{:.0} %", way.spinning),
        ]
    });
    align(&mut text, heads.to_vec(), cells.collect());
    if shown < found.len() {
        let _ = writeln!(text, "and {} more, which --all shows", found.len() - shown);
    }
    let mut told: Vec<&str> = Vec::new();
    for line in lines {
        if let Some(error) = line.error.as_deref().filter(|error| !told.contains(error)) {
            told.push(error);
            let at = line.at.0.iter().map(|(path, value)| format!("{path}={}", super::outcome::plain(value)));
            let _ = writeln!(text, "not simulated: {}: {error}", at.collect::<Vec<_>>().join(", "));
        }
    }
    let own = args.private.get() as f64;
    let most = (own > 0.0).then(|| args.senders.get().min(topology.cpus().into()) as f64 * 1e3 / own);
    let _ = writeln!(text, "\n{}", advice(found, rate, most));
    text
}
