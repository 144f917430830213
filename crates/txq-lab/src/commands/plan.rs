//! `txq sim plan`: finds how few txqs, and which discipline and steering, reach a rate.
//!
//! Senders are the kernel's own, pinned to CPUs in turn. Completions come in interrupts, spread over all CPUs or kept to
//! some of their own.

mod report;
mod scale;
mod stages;
mod ways;

use std::time::{Duration, Instant};

use crate::sim::machine::{Machine, Topology};
use crate::sim::scenario::Scenario;
use anyhow::bail;
use toml::{Table, Value};
use txq_cli::common::out;
use txq_cli::common::rate::Rate;
use txq_cli::common::span::{Human, Span};
use txq_cli::common::stop::Signals;
use txq_cli::common::table::number;
use txq_cli::common::tell::Tell;

use super::args::PlanArgs;
use super::parallel::cpus;
use stages::Stages;
use ways::{Choice, Way};

/// Bounds of the virtual time of a run.
const SHORTEST_VIRTUAL_RUN: Duration = Duration::from_micros(10);
const LONGEST_VIRTUAL_RUN: Duration = Duration::from_secs(10);
/// By default a run lasts as long as this number of packets at the rate, within bounds in milliseconds.
const PACKETS: f64 = 20_000.0;
const DEFAULT_TIME: std::ops::RangeInclusive<f64> = 0.5..=4.0;
/// How long a thread that waits for a lock keeps its CPU, in nanoseconds: the kernel does not preempt it.
const SPIN: f64 = 1e8;
/// A sender's own work on a packet if the user gives none, in nanoseconds.
const ASSUMED: u64 = 2000;
/// Bytes that an Ethernet frame takes on the wire in addition to its own.
const WIRE: f64 = 24.0;

/// A sender's own work on a packet.
#[derive(Clone, Copy, Debug)]
struct Own {
    nanos: u64,
    /// Whether the user gave none.
    is_assumed: bool,
}

/// Simulates the ways, and prints the best.
pub(crate) fn plan(args: &PlanArgs) -> anyhow::Result<()> {
    let started = Instant::now();
    let bytes = args.bytes.get() as f64;
    let rate = match args.rate {
        Rate::Packets(pps) => pps / 1e6,
        Rate::Bits(bits) => bits / 8.0 / bytes / 1e6,
        Rate::Max | Rate::Recorded => {
            bail!("--rate {}: a plan is for a rate, such as 20mpps or 100gbit", args.rate)
        }
    };
    let gbit = match args.link {
        None => 0.0,
        Some(Rate::Bits(bits)) => bits / 1e9,
        Some(link) => bail!("--link {link}: a link has bits per second, such as 25gbit"),
    };
    let most = gbit * 1e3 / 8.0 / (bytes + WIRE);
    if gbit > 0.0 && most < rate {
        bail!(
            "--rate {}: the link of {gbit} Gbit/s carries {} Mpps of {bytes} bytes at most, and {} are asked for: give a \
             faster --link or a lower --rate",
            args.rate,
            number(most),
            number(rate)
        );
    }
    let time = match args.time {
        None => (PACKETS / rate / 1e3).clamp(*DEFAULT_TIME.start(), *DEFAULT_TIME.end()),
        Some(time) if (SHORTEST_VIRTUAL_RUN..=LONGEST_VIRTUAL_RUN).contains(&time.0) => {
            time.0.as_secs_f64() * 1e3
        }
        Some(time) => {
            let time = span(time);
            bail!("--time {time}: too short or too long to simulate: use 10us to 10s");
        }
    };
    let machine = Machine::find(&args.machine)?;
    let smt = args.smt.map(|threads| threads.get() as u32);
    let topology = scale::scaled(&machine.topology, args.cpus.get() as u32, smt);
    if args.irq_cpus.get() >= topology.cpus().into() {
        bail!("--irq-cpus {}: leaves none of {} CPUs for senders", args.irq_cpus, topology.cpus());
    }
    let own = Own {
        nanos: args.private.map_or(ASSUMED, |private| private.get()),
        is_assumed: args.private.is_none(),
    };
    let scenario = Scenario::parse("plan", &scenario(args, own, gbit, time, &topology))?;
    let stages = Stages {
        scenario: &scenario,
        qdisc: &args.qdisc,
        rate,
        time,
        seeds: args.seeds.get(),
        threads: args.threads.map_or_else(cpus, |threads| threads.size()),
        until: started + args.within.0,
        tell: Tell::new(args.quiet),
        signals: Signals::catch()?,
        left_out: 0,
    };
    let txqs = args.txqs.clone().map_or_else(|| powers(topology.cpus()), |txqs| txqs.0);
    let mut found = stages.run(&Choice::all(&txqs), own.is_assumed.then_some(own.nanos as f64))?;
    if found.ways.is_empty() {
        match found.errors.first() {
            Some((_, error)) => bail!("there is no way: {error}"),
            None => {
                bail!("there is no way: no run ended within {}: give --within more time", span(args.within))
            }
        }
    }
    let senders = args.senders.get().min(u64::from(topology.cpus()) - args.irq_cpus.get());
    let most = senders as f64 * 1e3 / own.nanos as f64;
    if most < rate && found.cause.is_some() {
        found.cause = Some(format!(
            "The senders' own work allows {} Mpps at most, whatever is between them and the wire.",
            number(most)
        ));
    }
    if args.json {
        let line = |way: &Way| report::json_line(way, args, own, rate);
        return out::write(&found.ways.iter().map(line).collect::<String>());
    }
    out::write(&report::text(args, own, (&machine, &topology), &found, rate))
}

fn span(Span(time): Span) -> Human {
    Human(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))
}

/// Returns 1, 2, 4 and so on up to the number of CPUs, and that number.
fn powers(cpus: u32) -> Vec<u16> {
    let cpus = u16::try_from(cpus).unwrap_or(u16::MAX).min(4096);
    (0..16).map(|power| 1 << power).take_while(|&n| n < cpus).chain([cpus]).collect()
}

/// Returns the scenario that all ways share.
fn scenario(args: &PlanArgs, own: Own, gbit: f64, milliseconds: f64, topology: &Topology) -> String {
    let text = |text: &str| Value::String(text.to_owned()).to_string();
    let topology = Table::try_from(topology).map(|table| table.to_string()).unwrap_or_default();
    format!(
        "name = \"plan\"\ntitle = \"a plan\"\n[setup]\nmachine = {}\nkernel = true\nmilliseconds = {milliseconds:?}\n\
         [setup.tune.topology]\n{topology}\n[setup.tune.os]\nspin = {SPIN:?}\n\
         [setup.device]\ncompletions = \"spread\"\ngbit = {gbit:?}\nirq_cpus = {}\n\
         [setup.path]\nqdisc = \"mq\"\ndefault_qdisc = {}\n\
         [setup.workload]\nkind = \"udp-stream\"\nsenders = {}\nbytes = {}\ncredit = 166\nprivate = {}\npinned = true\n",
        text(&args.machine),
        args.irq_cpus,
        text(&args.qdisc),
        args.senders,
        args.bytes,
        own.nanos,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn txqs_double_up_to_one_for_each_cpu() {
        assert_eq!(powers(1), [1]);
        assert_eq!(powers(2), [1, 2]);
        assert_eq!(powers(12), [1, 2, 4, 8, 12]);
        assert_eq!(powers(100_000).last(), Some(&4096));
    }
}
