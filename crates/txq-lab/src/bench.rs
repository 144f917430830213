//! `txq bench`: measures the path on this machine's CPUs, suite by suite, and beside it the kernel and DPDK.
//!
//! Every configuration runs for the same time, not for the same number of packets; the result is the packets that the
//! device sent in that time. Repetitions are the outer loop, so that noise of the machine affects all configurations alike.
//!
//! | number | meaning |
//! |---|---|
//! | `mpps` | packets that the driver took, in millions a second |
//! | `ns_per_packet`, `cpu_ns_per_packet` | wall time, and CPU time of all threads of the process, divided by those packets |
//! | `waited` | the share of the time in which the threads wanted a CPU that they waited for one; more threads than CPUs wait for each other |
//! | `p99_ns` | the 99th percentile of calls of xmit, each with a whole batch; one call in 61 is timed |
//! | `worst_xmit_us` | the longest time that one sender spent in one call: of the timed calls, and of all calls seen in two samples a millisecond apart |
//! | `worst_stall_us` | the longest span of samples between which no packet left the driver; 0 if no span took a millisecond |
//! | `dropped` | the share of the packets handed in that the queue layer dropped |
//! | `p50_ns`, `max_ns`, `rate_error`, `cpu_share` | how late packets left, the error of the rate, and the share of CPU used; only in `timing`, and the error of the rate in `rate` |
//! | `worst_flood_us` | in `isolation` the longest call of a flooding sender; `p50_ns`, `p99_ns`, `max_ns` and `worst_xmit_us` are the probe's there |
//! | `share` | packets sent, divided by those that the links, or a tbf above them, can send; only with finite links; in `bql` divided by those offered |
//! | `in_flight_bytes`, `limit_bytes`, `needed_bytes` | bytes in flight on average, their limit at the end, and the bytes that the link needs; only in `bql` |
//! | `bytes_per_flow` | memory that a qdisc takes for each of its many flows, without the packets |
//! | `flows` | flows of all senders together, in `crowd`, `overload` and `qdisc` |
//! | `offered_mpps` | packets handed in, where senders offer at a rate: `load` times the peak, of `flows` flows |
//!
//! The first line of the output has the conditions of the run (`conditions.rs`).
//!
//! Both worst times are lower bounds: a call or stall that begins and ends between two samples is not seen. Time that other
//! programs take from the CPU counts as stall too, because packets wait for it as well.

#![forbid(unsafe_code)]

mod aqm;
mod args;
mod bql;
mod case;
mod child;
mod conditions;
mod costly;
mod cpu;
mod crowd;
mod dpdk;
mod exact;
mod free;
mod isolation;
mod kernel;
mod lab;
mod meter;
mod native;
mod offer;
pub(crate) mod overload;
mod path;
mod peers;
mod plan;
mod pool;
mod qdisc;
mod rate;
mod report;
mod rig;
mod shaper;
mod shares;
pub mod state;
mod svg;
mod timing;
mod turns;
mod work;
mod xps;

use std::time::Duration;

use txq::Discipline;

use case::{Case, Key, Row, Sample};
use conditions::Begin;
use lab::Lab;
use plan::Plan;
use rig::Rig;
use svg::Drawing;
use turns::Turns;

pub use args::{BenchArgs, EXAMPLES};
pub use native::{Asked, NATIVE, Native, Point, Same, native, path_ns};

/// The suite of single qdiscs.
const QDISC: &str = "qdisc";
/// The suite of the same work done by DPDK and by the kernel.
const PEERS: &str = "peers";
/// The default time of a whole run, without the time around each measurement.
const RUN: Duration = Duration::from_secs(48);
/// The same with `--quick`.
const QUICK: Duration = Duration::from_secs(4);
/// The bounds of a measurement's default time.
const SHORTEST_MEASUREMENT: Duration = Duration::from_millis(20);
const LONGEST_MEASUREMENT: Duration = Duration::from_secs(2);

/// Runs the suites of the command line, and prints the results.
pub fn bench(args: &BenchArgs) -> anyhow::Result<()> {
    check(args)?;
    let lab = Lab::new(args.pin)?;
    let cases = Plan { args, lab: &lab }.cases()?;
    let keys = || cases.iter().map(|case| &case.key);
    let drawing = args.svg.as_deref().map(|path| Drawing::open(path, keys())).transpose()?;
    let runs = cases.len() as u32 * args.repeat.get() as u32;
    let rare = cases.iter().all(|case| [isolation::ISOLATION, bql::BQL].contains(&case.key.suite));
    let longest = if rare { isolation::ISOLATION_TIME } else { LONGEST_MEASUREMENT };
    let whole = if args.quick { QUICK } else { RUN };
    let usual = || (whole / runs.max(1)).clamp(SHORTEST_MEASUREMENT, longest);
    let time = args.duration.map_or_else(usual, |span| span.0);
    let begin = Begin::of(&lab)?;
    let measured = measure(args, &lab, &cases, time)?;
    let spare = measured.iter().filter(|(key, _)| key.threads <= lab.cpus.len() as u64);
    let conditions = begin.end(spare.flat_map(|(_, samples)| samples))?;
    let rows: Vec<Row> = measured.into_iter().filter_map(|(key, samples)| Row::of(key, &samples)).collect();
    if let Some(drawing) = drawing {
        drawing.draw(&rows)?;
    }
    report::print(&rows, args, &lab, time, &conditions)
}

/// Refuses wrong qdiscs before the first measurement.
fn check(args: &BenchArgs) -> anyhow::Result<()> {
    for qdisc in args.qdisc.iter().filter(|qdisc| !plan::OWN.contains(&qdisc.as_str())) {
        Rig::new(Discipline::default(), rig::Queue::text(qdisc), 1, 1).check()?;
    }
    Ok(())
}

/// Measures all configurations in turn, once for each repetition; returns the samples of each. A signal ends the measurement
/// early, with the samples taken by then.
fn measure(
    args: &BenchArgs,
    lab: &Lab,
    cases: &[Case],
    time: Duration,
) -> anyhow::Result<Vec<(Key, Vec<Sample>)>> {
    let repeat = args.repeat.size();
    let mut turns = Turns::new(args.quiet, cases.len() * repeat);
    let mut samples: Vec<Vec<Sample>> = vec![Vec::with_capacity(repeat); cases.len()];
    'all: for _ in 0..repeat {
        for (case, samples) in cases.iter().zip(&mut samples) {
            if lab.signals.seen().is_some() {
                break 'all;
            }
            turns.next(&case.key);
            let measured = (case.run)(lab, time);
            if lab.signals.seen().is_some() {
                break 'all;
            }
            samples.push(measured?);
        }
    }
    turns.end();
    Ok(cases.iter().map(|case| case.key.clone()).zip(samples).collect())
}
