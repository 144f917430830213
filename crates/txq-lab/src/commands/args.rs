//! The command line of `txq sim`.

mod cost;
mod plan;
mod qdiscs;
mod sweeps;

use std::path::PathBuf;

use crate::bench::overload::LinkRate;
use crate::sim::scenario::Change;
use clap::Subcommand;
use txq_cli::common::span::Span;
use txq_cli::common::within::Within;

pub(crate) use cost::CostArgs;
pub(crate) use plan::PlanArgs;
pub(crate) use qdiscs::QdiscsArgs;
pub(crate) use sweeps::{MergeArgs, Results, SweepArgs};

/// The examples that help shows after the commands.
pub const EXAMPLES: &str = "\
Examples:
  txq sim sweep p0-pinned --vary workload.senders=4..64*2 --vary path.discipline=busylock,llist \\
      --set milliseconds=0.5 --set warmup=0.5 --svg demo.svg
                                                 in 5 seconds: two disciplines on 480 CPUs, as a table and a drawing
  txq sim run p0-pinned                          busylock and llist with 240 senders on 480 CPUs
  txq sim published                              all published results beside simulated ones
  txq sim explain p1 --point before              where a packet's time goes there
  txq sim machines                               the machines that can be simulated
  txq sim machines epyc-9b45 > mine.toml         one of their files, to make another of it
  txq sim calibrate --out mine.toml              this machine's own
  txq sim sweep p0-pinned --vary workload.senders=1..480*2
  txq sim plan --cpus 64 --senders 64 --rate 20mpps
  txq sim cost -- ./sender --count {}            what a packet costs in a program of yours, for a plan
  txq sim host                                   how near the simulator comes to this machine";

/// The command line of `txq sim`.
#[derive(Debug, clap::Args)]
pub struct SimArgs {
    #[command(subcommand)]
    pub(crate) command: SimCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum SimCommand {
    /// Run a scenario and report as its results were published
    #[command(after_help = RUN_EXAMPLES)]
    Run(RunArgs),
    /// Run all built-in scenarios and compare them with the published results
    #[command(after_help = PUBLISHED_EXAMPLES)]
    Published(PublishedArgs),
    /// Show where the time of a packet goes, and the bottleneck of a scenario
    #[command(after_help = EXPLAIN_EXAMPLES)]
    Explain(ExplainArgs),
    /// Find the value of the one fitted field of a scenario
    #[command(after_help = FIT_EXAMPLES)]
    Fit(FitArgs),
    /// List the machines that can be simulated, or print the file of one
    #[command(after_help = MACHINES_EXAMPLES)]
    Machines(MachinesArgs),
    /// Measure the costs of this machine's cache lines, memory, clock and threads, and write its file
    #[command(after_help = CALIBRATE_EXAMPLES)]
    Calibrate(CalibrateArgs),
    /// Run a scenario at many points that differ in some fields
    #[command(after_help = sweeps::SWEEP_EXAMPLES)]
    Sweep(SweepArgs),
    /// Put the parts of a sweep together
    #[command(after_help = sweeps::MERGE_EXAMPLES)]
    Merge(MergeArgs),
    /// Find how few txqs, and which discipline and steering, reach a rate
    #[command(after_help = plan::PLAN_EXAMPLES)]
    Plan(PlanArgs),
    /// Measure the CPU time of a packet in a program of yours, for a plan
    #[command(after_help = cost::COST_EXAMPLES)]
    Cost(CostArgs),
    /// Compare the simulator with the machine that it runs on
    #[command(after_help = HOST_EXAMPLES)]
    Host(HostArgs),
    /// Measure the cache lines and the time that each qdisc's code uses, and write the simulator's file
    #[command(after_help = qdiscs::QDISCS_EXAMPLES)]
    Qdiscs(QdiscsArgs),
}

/// The scenario, its changes, and how it is run.
#[derive(Debug, clap::Args)]
pub(crate) struct ScenarioArgs {
    /// A built-in scenario, or a file
    pub(crate) scenario: String,
    /// Set a field of the scenario by its TOML path to another value; may be repeated
    #[arg(long = "set", value_name = "PATH=VALUE")]
    pub(crate) set: Vec<Change>,
    #[command(flatten)]
    pub(crate) host: RunsArgs,
}

/// How points are run.
#[derive(Debug, clap::Args)]
pub(crate) struct RunsArgs {
    /// Points to run side by side [default: as many as there are CPUs]
    #[arg(long, value_name = "N")]
    pub(crate) threads: Option<Within<1, 1024>>,
    /// Print no progress on stderr
    #[arg(long)]
    pub(crate) quiet: bool,
}

const RUN_EXAMPLES: &str = "\
Examples:
  txq sim run p0-unpinned                        all of its points
  txq sim run p0-pinned --point after --set workload.senders=64
  txq sim run p2 --lock-stat                     the locks as /proc/lock_stat has them
  txq sim run ./mine.toml --json | jq -r '[.point, .figures.mpps, .hash] | @tsv'

Built in are p0-unpinned, p0-pinned, p1, p2, p3-pktgen, p3-wrk, p4, p5-bulk, p6-pktgen, p7-pktgen, p7-forward and p8-dequeue. Equal
points have equal hashes in equal builds, each time and on every machine.";

#[derive(Debug, clap::Args)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    pub(crate) what: ScenarioArgs,
    /// Run only this point of the scenario; may be repeated
    #[arg(long = "point", value_name = "NAME")]
    pub(crate) points: Vec<String>,
    /// Print locks as /proc/lock_stat does, instead of perf's table
    #[arg(long, conflicts_with = "json")]
    pub(crate) lock_stat: bool,
    /// Print one JSON object for each point, a line each
    #[arg(long)]
    pub(crate) json: bool,
}

const PUBLISHED_EXAMPLES: &str = "\
Examples:
  txq sim published                              one table, in a minute or a few
  txq sim published --scenario p0-pinned --scenario p1
  txq sim published --svg drawings               a drawing of each scenario in drawings/
  txq sim published --json | jq -c 'select(.holds | not)'

A figure holds by its rule: 25 % is no farther off than that, order is within a factor of the square root of ten, direction is
to the same side of the scenario's first variant, bucket is the same power of two or a neighbour of it.";

#[derive(Debug, clap::Args)]
pub(crate) struct PublishedArgs {
    /// Run only this scenario, by its name or its file; may be repeated
    #[arg(long = "scenario", value_name = "NAME")]
    pub(crate) scenarios: Vec<String>,
    /// Draw each scenario into this folder, which is created if need be
    #[arg(long, value_name = "DIR")]
    pub(crate) svg: Option<PathBuf>,
    /// Print one JSON object for each figure, a line each
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) host: RunsArgs,
}

const EXPLAIN_EXAMPLES: &str = "\
Examples:
  txq sim explain p0-pinned                      both variants, and what differs
  txq sim explain p1 --point before
  txq sim explain p0-pinned --point after --set tune.access.other_socket=400

Work is instructions and lines that the core had, lines are those that had to come from another core or from memory, waits
are for locks and other words that somebody else had to write. Times are a packet's, of all senders, of all softirqs, which run
queues on for senders, and of all interrupts.";

#[derive(Debug, clap::Args)]
pub(crate) struct ExplainArgs {
    #[command(flatten)]
    pub(crate) what: ScenarioArgs,
    /// Run only this point of the scenario; may be repeated
    #[arg(long = "point", value_name = "NAME")]
    pub(crate) points: Vec<String>,
    /// Print one JSON object for each point, a line each
    #[arg(long)]
    pub(crate) json: bool,
}

const FIT_EXAMPLES: &str = "\
Examples:
  txq sim fit p0-pinned
  txq sim fit p0-unpinned --set milliseconds=5   for a first impression
  txq sim fit p4 --json | jq .value

Of each scenario at most one field is fitted, to one published figure; its [fit] says which. Values are tried by bisection.";

#[derive(Debug, clap::Args)]
pub(crate) struct FitArgs {
    #[command(flatten)]
    pub(crate) what: ScenarioArgs,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

const MACHINES_EXAMPLES: &str = "\
Examples:
  txq sim machines                               a table; times in nanoseconds
  txq sim machines xeon-6985p                    its file, where every number says where it is from
  txq sim machines ./mine.toml                   whether a file is right
  txq sim machines --json | jq -r 'select(.cpus > 100).machine'

In the table, core is the way of a line between two threads of a core, complex between two cores that share their last-level
cache, then within a die, within a socket, and to another socket.";

#[derive(Debug, clap::Args)]
pub(crate) struct MachinesArgs {
    /// The machine whose file to print: a name, or a path (with a / or ending in .toml)
    pub(crate) name: Option<String>,
    /// Print one JSON object for each machine, a line each
    #[arg(long)]
    pub(crate) json: bool,
}

const CALIBRATE_EXAMPLES: &str = "\
Examples:
  txq sim calibrate                              to stdout, in a few seconds
  txq sim calibrate --out mine.toml --duration 20s
  taskset -c 0-7 txq sim calibrate               of eight CPUs only
  txq sim calibrate --fill server-128            where to take from what this machine does not have

Leave the machine alone meanwhile. Each number is a median; the comment beside it says how far the rounds spread. What this
machine cannot show, such as the way to another socket when it has one only, is what was measured of something like it, times
the ratio of the two in another machine's file.";

#[derive(Debug, clap::Args)]
pub(crate) struct CalibrateArgs {
    /// The file to write [default: stdout]
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
    /// Time of all measurements together: 20s, 500ms
    #[arg(long, value_name = "TIME", default_value = "4s")]
    pub(crate) duration: Span,
    /// Rounds of the measurement
    #[arg(long, value_name = "N", default_value = "7")]
    pub(crate) rounds: Within<1, 1000>,
    /// The machine's name in reports [default: that of its CPUs]
    #[arg(long, value_name = "TEXT")]
    pub(crate) name: Option<String>,
    /// The machine that supplies the values that this one lacks: a name or a path [default: by the CPUs' maker]
    #[arg(long, value_name = "NAME")]
    pub(crate) fill: Option<String>,
    /// Print no progress on stderr
    #[arg(long)]
    pub(crate) quiet: bool,
}

const HOST_EXAMPLES: &str = "\
Examples:
  txq sim host                                   every discipline with 1 and 2 senders, in a minute or two
  txq sim host --machine mine.toml               with what txq sim calibrate measured before
  txq sim host --qdisc cake --qdisc fq_codel --duration 50ms --repeat 3
                                                 two qdiscs under combine and spinlock, with 1, 2 and 8 senders
  txq sim host --qdisc 'fq limit 64' --link 100mbit --duration 50ms --repeat 3
                                                 the same above a link that sends less than they hand in, so that fq drops
  txq sim host --duration 100ms --repeat 3 --json | jq -c '[.discipline, .threads, .deviation]'

Senders stay on a CPU each and send single packets of 120 bytes through one txq with a pfifo to a device without a wire; the
simulated ones do the same with the same code. These are measured for the simulation, and nothing else is:
  the machine    txq sim calibrate measures it, now or before (--machine)
  a line's way   between the two CPUs, before and after each native measurement, for a hypervisor that moves virtual CPUs
                 changes it; each measurement is simulated with its own
  prices         of an access to a line in the CPU's cache, with the code around it, and of the rest of a call of xmit, so that
                 one sender through spinlock and one through combine take the time that they took natively, before and after
                 each native measurement, with as many senders; these two rows are no predictions
Times are CPU time of all senders per packet handed in. A measurement does not count if others had more than a tenth of the senders'
CPUs meanwhile, or if a line's way or a price changed by more than a quarter. A configuration of which less than half of the
measurements count is measured further, at most as often again. A deviation is the middle of those that count.";

#[derive(Debug, clap::Args)]
pub(crate) struct HostArgs {
    /// This machine's file from txq sim calibrate: a name or a path [default: measured now]
    #[arg(long, value_name = "FILE")]
    pub(crate) machine: Option<String>,
    /// Qdiscs to measure instead of a pfifo, each with 1, 2 and 8 senders of 200 flows: fq, cake, a tree; may be repeated
    #[arg(long, value_name = "QDISC")]
    pub(crate) qdisc: Vec<String>,
    /// Rate of a link below the qdiscs: 100mbit. A qdisc with less room than 96 packets drops what the link does not send
    #[arg(long, value_name = "RATE", requires = "qdisc")]
    pub(crate) link: Option<LinkRate>,
    /// Work of a sender between two packets: 1us. The queue is not full then; the report has the time beside the work
    #[arg(long, value_name = "TIME", requires = "qdisc")]
    pub(crate) work: Option<Span>,
    /// Time to measure each configuration: 1s, 300ms
    #[arg(long, value_name = "TIME", default_value = "250ms")]
    pub(crate) duration: Span,
    /// Measurements of each configuration; the report shows medians and spread
    #[arg(long, value_name = "N", default_value = "9")]
    pub(crate) repeat: Within<1, 1000>,
    /// Print one JSON object for each configuration, a line each
    #[arg(long)]
    pub(crate) json: bool,
    /// Print no progress on stderr
    #[arg(long)]
    pub(crate) quiet: bool,
}
