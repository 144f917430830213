//! The options of `txq run`, `txq contention` and `txq hist`, which send the traffic of a file.

use std::path::PathBuf;

use crate::common::span::Span;
use crate::common::within::SpinUs;
use txq::Discipline;

use super::{At, Output, RunningArgs};

pub(super) const RUN_EXAMPLES: &str = "\
Examples:
  txq run                                        the built-in example, for 5 seconds
  txq run --print-example > my.toml              where to start from: all common keys, explained
  txq run --print-keys                           all keys, with their values and defaults
  txq run my.toml --duration 10s
  txq run my.toml --discipline spinlock --json | tail -1 | jq .mpps
  txq run my.toml --control                      and meanwhile: txq tc qdisc replace dev null0 root fq_codel
  txq run my.toml --control=/tmp/my.sock         there; the same as --socket /tmp/my.sock

What is not known is - in the report, and null in JSON: a quantile of fewer samples than it takes (1000 for p99.9, 100 for
p99, 10 for p90, 2 for p50), and the cost of a packet where all senders keep to a rate or fewer than 1000 packets are sent.

A sender at a rate offers each packet at its time, whatever the device does: a packet without a buffer is refused, one that
its thread does not get to before the end is missed, and all others are accepted. So offered, which is what the schedule
holds, refused, and sent are three numbers. A sender at max waits for buffers instead, and offers what it sends.";

#[derive(Debug, clap::Args)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    pub(crate) workload: Workload,
    /// Print the built-in example and do nothing else
    #[arg(long, exclusive = true)]
    pub(crate) print_example: bool,
    /// Print all keys of a file with their values and defaults, and do nothing else
    #[arg(long, exclusive = true)]
    pub(crate) print_keys: bool,
    /// Print the JSON Schema of a file, for editors, and do nothing else
    #[arg(long, exclusive = true)]
    pub(crate) print_schema: bool,
    /// Serve `txq tc` and `txq dev` during the run, on this socket or the default one. --socket and --name serve them, too
    #[arg(long, value_name = "PATH", num_args = 0..=1, require_equals = true)]
    pub(crate) control: Option<Option<PathBuf>>,
    #[command(flatten)]
    pub(crate) at: At,
    #[command(flatten)]
    pub(crate) output: Output,
}

/// The traffic to send, for all commands that read it from a file.
#[derive(Debug, clap::Args)]
pub(crate) struct Workload {
    /// A TOML file of devices and senders [default: the built-in example]
    pub(crate) file: Option<PathBuf>,
    /// How long to send, such as 5s or 300ms; replaces the file's duration
    #[arg(long, value_name = "TIME")]
    pub(crate) duration: Option<Span>,
    /// The enqueue discipline of all devices; replaces the file's
    #[arg(long, value_name = "NAME")]
    pub(crate) discipline: Option<Discipline>,
    /// How long before a packet's time workers begin to poll the clock, in microseconds; replaces the file's spin_us
    #[arg(long, value_name = "N")]
    pub(crate) spin_us: Option<SpinUs>,
}

pub(super) const CONTENTION_EXAMPLES: &str = "\
Examples:
  txq contention --discipline spinlock           the built-in example: what one lock for all costs
  txq contention my.toml --duration 1s --discipline llist
  txq contention my.toml --lock-stat             as /proc/lock_stat of a kernel with CONFIG_LOCK_STAT
  txq contention my.toml --json | tail -1 | jq '.sites[] | {caller, contended}'
  txq contention --name shaper --duration 5s     of a running program, which sends its own traffic (`txq ls`)

The first table is perf's: it has only the sites at which a thread waited, and says what to do if none did (senders wait
under --discipline spinlock; under combine and llist they hardly do). The second has every site: how often it took its lock, how long it held
it, and how many others waited for it. Recording costs two or three readings of the clock for each lock taken, so the
rates of such a run are not those of `txq run`.";

#[derive(Debug, clap::Args)]
pub(crate) struct ContentionArgs {
    #[command(flatten)]
    pub(crate) workload: Workload,
    #[command(flatten)]
    pub(crate) running: RunningArgs,
    /// Print the locks in the layout of /proc/lock_stat
    #[arg(long, conflicts_with = "json")]
    pub(crate) lock_stat: bool,
    #[command(flatten)]
    pub(crate) output: Output,
}

pub(super) const HIST_EXAMPLES: &str = "\
Examples:
  txq hist                                       time in xmit, as bpftrace has it of __dev_queue_xmit
  txq hist my.toml --what completion --duration 1s
  txq hist --json | tail -1 | jq '.buckets[] | [.min, .count]'
  txq hist --name shaper --what completion       of a running program, for 5 seconds
  txq hist --name shaper --what driver --since-start
  txq hist --name shaper --what lateness         how late shaped packets leave; recorded always

A call of xmit hands in one batch; say batch = 1 in the file to measure single packets. The time includes one reading of
the clock.";

#[derive(Debug, clap::Args)]
pub(crate) struct HistArgs {
    #[command(flatten)]
    pub(crate) workload: Workload,
    #[command(flatten)]
    pub(crate) running: RunningArgs,
    /// Which time to measure
    #[arg(long, value_enum, default_value_t = What::Xmit)]
    pub(crate) what: What,
    /// Print all times that the running program has measured, at once
    #[arg(long, conflicts_with_all = ["duration", "file"])]
    pub(crate) since_start: bool,
    #[command(flatten)]
    pub(crate) output: Output,
}

/// The times that `txq hist` can measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum What {
    /// From the start to the end of each call of xmit, on the sender's thread
    Xmit,
    /// From xmit until the driver takes the packet
    Driver,
    /// From xmit until the device completes the packet
    Completion,
    /// From the time at which a shaping qdisc has a packet to send until it leaves
    Lateness,
}

impl What {
    /// Returns the option's word, which is also the name of the histogram.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Xmit => "xmit",
            Self::Driver => "driver",
            Self::Completion => "completion",
            Self::Lateness => "lateness",
        }
    }
}
