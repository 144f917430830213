//! The command line.

mod kernel;
mod packaging;
mod target;
mod watch;
mod web;

use std::any::TypeId;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Arg, CommandFactory, FromArgMatches, Parser, Subcommand};
use txq::Discipline;
use txq_cli_common::rate::Rate;
use txq_cli_common::span::Span;
use txq_cli_common::within::{SpinUs, Threads, Txqs, Within};

use crate::xps::Xps;
pub(crate) use kernel::{DoctorArgs, XpsAction, XpsArgs};
pub(crate) use packaging::{CompletionsArgs, ManArgs};
pub(crate) use target::{At, RunningArgs, Target};
pub(crate) use watch::TopArgs;
pub(crate) use web::WebArgs;

/// tc for programs that left the kernel: sends traffic through Linux's multi-core transmit path in user space
#[derive(Debug, Parser)]
#[command(name = "txq", version, after_help = examples())]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Command,
}

const EXAMPLES: &str = "\
Examples:
  txq run                                        what the path costs: 4 threads, 2 txqs, a device without a wire
  txq replay traffic.pcap --dev eth0 --rate 10kpps
  txq exec --qdisc 'fq maxrate 20mbit' -- iperf3 -u -c 192.0.2.1 -b 100M
  txq bridge eth0 eth1 --up 'cake bandwidth 20mbit'
  txq daemon --config /etc/txq.toml              bridges that run for months; txq check, reload, save and tc for them
  txq ls                                         the running programs that tc reaches
  txq web                                        a page with the queues of one, and metrics for Prometheus
  txq top                                        the queues of a running program, live
  txq contention --discipline spinlock           who waits for whom, as perf lock contention
  txq hist                                       time in xmit, as bpftrace's hist()
";
const BENCH_EXAMPLE: &str = "  txq bench                                      how fast this machine is at it, in a minute of tables\n";
const SIM_EXAMPLE: &str =
    "  txq sim machines                               machines of hundreds of CPUs to simulate it on\n";
const EXIT_CODES: &str =
    "\nExit codes: 0 done, also after SIGINT and SIGTERM; 1 bad input; 2 the system refused.";

/// Returns the examples of the commands that this binary has.
fn examples() -> String {
    let bench = if cfg!(feature = "bench") { BENCH_EXAMPLE } else { "" };
    let sim = if cfg!(feature = "sim") { SIM_EXAMPLE } else { "" };
    [EXAMPLES, bench, sim, EXIT_CODES].concat()
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Send generated traffic that a TOML file describes, and report rates, drops and latency
    #[command(after_help = RUN_EXAMPLES)]
    Run(RunArgs),
    /// Send the frames of a capture, each flow in order, and report rates, drops and latency
    #[command(after_help = REPLAY_EXAMPLES)]
    Replay(ReplayArgs),
    /// Run a program whose UDP datagrams leave through a qdisc of txq, without a change of the program
    #[command(after_help = EXEC_EXAMPLES)]
    Exec(ExecArgs),
    /// Forward between the devices of a file, each through its qdisc, and serve `txq tc`, until SIGINT or SIGTERM
    #[command(after_help = DAEMON_EXAMPLES)]
    Daemon(DaemonArgs),
    /// Forward between two interfaces, each direction through its qdisc, and serve `txq tc`
    #[command(after_help = BRIDGE_EXAMPLES)]
    Bridge(BridgeArgs),
    /// Check a file of `txq daemon` or `txq run` without opening a device
    #[command(after_help = CHECK_EXAMPLES)]
    Check(CheckArgs),
    /// Make a running `txq daemon` apply the changes of its file
    #[command(after_help = RELOAD_EXAMPLES)]
    Reload(ReloadArgs),
    /// Print the qdiscs, classes and filters of a running txq as commands that restore them
    #[command(after_help = SAVE_EXAMPLES)]
    Save(SaveArgs),
    /// List the running programs that serve `txq tc` and `txq dev`
    #[command(after_help = LS_EXAMPLES)]
    Ls(LsArgs),
    /// Show and change the qdiscs, classes and filters of a running txq, in tc's syntax
    #[command(after_help = TC_HELP, disable_help_flag = true)]
    Tc(TcArgs),
    /// Add, remove and list devices without a wire in a running txq
    #[command(after_help = DEV_EXAMPLES)]
    Dev(DevArgs),
    /// Send the traffic of a file, and print how long threads waited for locks, as perf lock contention does
    #[command(after_help = CONTENTION_EXAMPLES)]
    Contention(ContentionArgs),
    /// Send the traffic of a file, and print a histogram of its latency, as bpftrace does
    #[command(after_help = HIST_EXAMPLES)]
    Hist(HistArgs),
    /// Print the counters of a running program's devices, a line each, as ethtool -S does
    #[command(after_help = STAT_EXAMPLES)]
    Stat(StatArgs),
    /// Serve a web page with a running program's queues, and their metrics for Prometheus
    #[command(after_help = web::EXAMPLES)]
    Web(WebArgs),
    /// Say what contends in the kernel's own device, and which command changes it
    #[command(after_help = kernel::DOCTOR_EXAMPLES)]
    Doctor(DoctorArgs),
    /// Show and set which CPUs use which txq of the kernel's own device
    #[command(after_help = kernel::XPS_EXAMPLES)]
    Xps(XpsArgs),
    /// Print completions of these commands for a shell
    #[command(after_help = packaging::COMPLETIONS_EXAMPLES)]
    Completions(CompletionsArgs),
    /// Write a manual page for each command into a folder
    #[command(after_help = packaging::MAN_EXAMPLES)]
    Man(ManArgs),
    /// Show the queues of a running program, with their rates, in a terminal, as htop shows processes
    #[command(after_help = watch::TOP_EXAMPLES)]
    Top(TopArgs),
    /// Measure the cost of the transmit path on this machine, beside DPDK and the kernel
    #[cfg(feature = "bench")]
    #[command(after_help = txq_bench::EXAMPLES)]
    Bench(txq_bench::BenchArgs),
    /// Run the transmit path on simulated machines of hundreds of CPUs
    #[cfg(feature = "sim")]
    #[command(after_help = txq_sim_cli::EXAMPLES)]
    Sim(txq_sim_cli::SimArgs),
}

const RUN_EXAMPLES: &str = "\
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

const EXEC_EXAMPLES: &str = "\
Examples:
  txq exec --qdisc 'fq maxrate 20mbit' -- iperf3 -u -c 192.0.2.1 -b 100M
  txq exec --qdisc 'tbf rate 1mbit burst 10k latency 50ms' -- dig @192.0.2.1 example.org
  txq exec --batch htb.tc -- ./server            commands of tc for the device udp0, a command a line
  txq exec --name web -- ./server                and meanwhile: txq tc --name web qdisc replace dev udp0 root fq_codel
  txq exec --json -- ./client 2>&1 >/dev/null | tail -1 | jq .processes

Each process of the program has one device, udp0, for all of its UDP sockets, from its first datagram on. The report goes to
stderr when the program ends. docs/exec.md says what a program notices.

Exit codes: the program's own, 128 + the number of the signal that ended it; 125 a wrong qdisc, or no library; 126 the program
cannot be run with the library (static, setuid, for another C library); 127 no such program. 1 a wrong option.";

#[derive(Debug, clap::Args)]
pub(crate) struct ExecArgs {
    /// The root qdisc, in tc's syntax
    #[arg(long, value_name = "QDISC", default_value = "pfifo_fast")]
    pub(crate) qdisc: String,
    /// Commands of tc for the device udp0, executed after --qdisc
    #[arg(long, value_name = "FILE")]
    pub(crate) batch: Option<PathBuf>,
    /// Name for `txq tc --name` and `txq ls`; a second process of the program is NAME-PID [default: the program's]
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// How long the program's exit waits for queued datagrams
    #[arg(long, value_name = "TIME", default_value = "1s")]
    pub(crate) drain: Span,
    /// Print the report as one JSON object, on the last line of stderr
    #[arg(long)]
    pub(crate) json: bool,
    /// Print no report
    #[arg(long, conflicts_with = "json")]
    pub(crate) quiet: bool,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "PROGRAM")]
    pub(crate) command: Vec<OsString>,
}

const DAEMON_EXAMPLES: &str = "\
Examples:
  txq daemon --config /etc/txq.toml              devices and bridges of a file; `txq daemon --print-example` prints one
  txq check /etc/txq.toml && txq reload          after a change of the file; SIGHUP does the same
  txq daemon &                                   no devices but those of `txq dev add`
  txq daemon --name lab                          lab.sock instead of control.sock: `txq tc --name lab ..`
  txq daemon --socket /tmp/mine.sock             there; say the same to `txq tc` and `txq dev`
  txq daemon --socket /run/lab/tc.sock --group netadmin

It ends on SIGINT and SIGTERM; its queued packets are dropped. Only its own user and root can talk to it, or the members of
--group. docs/daemon.md is the operator's guide.";

const BRIDGE_EXAMPLES: &str = "\
Examples:
  txq bridge eth0 eth1 --up 'cake bandwidth 20mbit' --down 'cake bandwidth 100mbit'
  txq bridge af_xdp:eth0 tap:vm0
  txq bridge tun:vpn0 tun:vpn1 --up 'netem delay 40ms'
  txq tc qdisc change dev eth1 root cake bandwidth 30mbit      meanwhile; also `txq tc -s qdisc show` and `txq stat`

Frames pass with their VLAN tags. Interfaces of a bridge should have no IP address: the kernel would answer, too. The bridge
ends on SIGINT and SIGTERM. `txq daemon --config` has more: classes, filters, several bridges, reload.";

#[derive(Debug, clap::Args)]
pub(crate) struct BridgeArgs {
    /// The first end: IFACE, af_packet:IFACE, af_xdp:IFACE, tap:NAME or tun:NAME
    pub(crate) first: String,
    /// The second end
    pub(crate) second: String,
    /// The qdisc from the first end to the second, that is of the second device [default: fq_codel]
    #[arg(long, value_name = "QDISC")]
    pub(crate) up: Option<String>,
    /// The qdisc from the second end to the first, that is of the first device [default: fq_codel]
    #[arg(long, value_name = "QDISC")]
    pub(crate) down: Option<String>,
    /// Number of queues of each interface, each with a receiving thread
    #[arg(long, value_name = "N", default_value = "1")]
    pub(crate) txqs: Txqs,
    /// Pass packets of several segments whole instead of cutting them before the qdisc
    #[arg(long)]
    pub(crate) keep_segments: bool,
    #[command(flatten)]
    pub(crate) serving: Serving,
}

const LS_EXAMPLES: &str = "\
Examples:
  txq ls
  txq ls /run/user/1000/txq /tmp/mine.sock       other folders and sockets
  txq ls --json | jq -r '.[] | select(.state == \"live\") | .path'

STATE is live; silent: listens and does not answer; refused: speaks another version of the protocol; denied: another user's.
A stale socket, whose program is dead, is named on stderr.";

#[derive(Debug, clap::Args)]
pub(crate) struct LsArgs {
    /// Sockets, and folders of sockets [default: $XDG_RUNTIME_DIR/txq, or /run/txq]
    pub(crate) paths: Vec<PathBuf>,
    /// How long to wait for each program
    #[arg(long, value_name = "TIME", default_value = "1s")]
    pub(crate) timeout: Span,
    /// Print one JSON array, with stale sockets, too
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct DaemonArgs {
    /// A TOML file of devices, bridges and senders, which `txq reload` and SIGHUP read again
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Print an example of a file with all keys of bridges, and do nothing else
    #[arg(long, exclusive = true)]
    pub(crate) print_example: bool,
    #[command(flatten)]
    pub(crate) serving: Serving,
}

const CHECK_EXAMPLES: &str = "\
Examples:
  txq check /etc/txq.toml
  txq check my.toml && txq run my.toml

It opens nothing but the file. Qdiscs, classes and filters are tried on devices without a wire. Whether the interfaces exist is
not checked. Exit codes: 0 right, 1 wrong.";

#[derive(Debug, clap::Args)]
pub(crate) struct CheckArgs {
    /// A file of `txq daemon` or `txq run`
    pub(crate) file: PathBuf,
}

const RELOAD_EXAMPLES: &str = "\
Examples:
  txq check /etc/txq.toml && txq reload
  txq reload --name lab

The daemon applies what differs from the file as it was last read. Queues that the difference does not concern keep their
packets and counters. If the file is wrong, or a device does not open, nothing changes. Exit codes: 0 done, 2 nothing has changed.";

#[derive(Debug, clap::Args)]
pub(crate) struct ReloadArgs {
    #[command(flatten)]
    pub(crate) target: Target,
}

const SAVE_EXAMPLES: &str = "\
Examples:
  txq save > state.tc
  txq tc -batch state.tc                         restores it, also after a restart
  txq save --name shaper eth0                    of one device of the program that serves it as \"shaper\"";

#[derive(Debug, clap::Args)]
pub(crate) struct SaveArgs {
    #[command(flatten)]
    pub(crate) target: Target,
    /// The device [default: all]
    pub(crate) dev: Option<String>,
}

/// How a daemon serves commands.
#[derive(Debug, clap::Args)]
pub(crate) struct Serving {
    #[command(flatten)]
    pub(crate) at: At,
    /// Serve the members of this group, too: a name or a number
    #[arg(long, value_name = "GROUP")]
    pub(crate) group: Option<String>,
    /// Do not print the socket's path on stderr
    #[arg(long)]
    pub(crate) quiet: bool,
}

const TC_HELP: &str = "\
Options, before the object, as short as you like:
  -s[tatistics]  -d[etails]  -r[aw]  -iec  -j[son]  -p[retty]  -b[atch] FILE  -f[orce]  -V[ersion]  -h[elp]
  --name NAME    the running program, as `txq ls` lists it
  --socket PATH  the socket of the running program, if it has no name
  --timeout TIME how long to wait for an answer [default: 10s]
  --check        only say whether the text is right; needs no running txq

Examples:
  txq tc qdisc replace dev d0 root handle 1: tbf rate 10mbit burst 10k latency 50ms
  txq tc -s qdisc show dev d0
  txq tc -j -p qdisc show
  txq tc --name shaper qdisc show                of the program that serves its devices as \"shaper\"
  txq tc -batch my.tc                            a command a line; - for stdin; -force goes on after an error
  txq tc --check -batch my.tc

Exit codes are tc's: 0 done; 255 a word is wrong; 1 an option of a qdisc, or a device, is wrong, or a batch failed; 2 refused.";

#[derive(Debug, clap::Args)]
pub(crate) struct TcArgs {
    /// A command in tc's syntax: `OPTIONS` and `qdisc|class|filter add|change|replace|del|show ..`
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    pub(crate) words: Vec<String>,
}

const STAT_EXAMPLES: &str = "\
Examples:
  txq stat
  txq stat --name shaper null0                   one device of the program that serves it as \"shaper\"
  txq stat --json | jq '.[0].counters.tx_dropped'";

#[derive(Debug, clap::Args)]
pub(crate) struct StatArgs {
    #[command(flatten)]
    pub(crate) target: Target,
    /// The device [default: all]
    pub(crate) dev: Option<String>,
    /// Print one JSON array, an object for each device
    #[arg(long)]
    pub(crate) json: bool,
}

const DEV_EXAMPLES: &str = "\
Examples:
  txq dev add d0                                 takes everything, sends nothing
  txq dev add d1 type dummy numtxqueues 4 txqueuelen 500 mtu 9000
  txq dev add up0 numtxqueues 2 type af_packet interface eth0
  txq dev add vpn0 type tun namespace blue
  txq dev add t0 type udp remote 192.0.2.1:4789
  txq dev show
  txq dev --name shaper show                     the devices of the program that serves them as \"shaper\"
  txq dev del d0";

#[derive(Debug, clap::Args)]
pub(crate) struct DevArgs {
    #[command(flatten)]
    pub(crate) target: Target,
    /// `add NAME [numtxqueues N] [txqueuelen N] [mtu N] [type KIND [KEY VALUE]..]`, `del NAME`, or `show [NAME]`
    #[arg(allow_negative_numbers = true)]
    pub(crate) words: Vec<String>,
}

impl Args {
    /// Parses the command line; returns clap's error, which may also be a request for help.
    pub(crate) fn read() -> Result<Self, clap::Error> {
        let matches = hyphens(Self::command()).try_get_matches()?;
        Self::from_arg_matches(&matches)
    }
}

/// Lets values that begin with a hyphen reach the parsers of times, rates and counts, in all subcommands. Their errors
/// explain what is wrong with `-5s`; clap alone takes such a value for an option.
fn hyphens(command: clap::Command) -> clap::Command {
    command.mut_subcommands(hyphens).mut_args(|arg| {
        let passed = is_parsed(&arg) || arg.is_allow_hyphen_values_set();
        arg.allow_hyphen_values(passed)
    })
}

/// Returns whether the argument is an option whose value is neither a string nor a path.
fn is_parsed(arg: &Arg) -> bool {
    let of = arg.get_value_parser().type_id();
    let named = of == TypeId::of::<String>() || of == TypeId::of::<PathBuf>();
    !arg.is_positional() && arg.get_action().takes_values() && !named
}

/// Prints the same text as `txq help COMMAND`.
pub(crate) fn help_of(command: &str) -> anyhow::Result<ExitCode> {
    let mut whole = Args::command();
    whole.build();
    if let Some(command) = whole.find_subcommand_mut(command) {
        command.print_help()?;
    }
    Ok(ExitCode::SUCCESS)
}

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

const CONTENTION_EXAMPLES: &str = "\
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

const HIST_EXAMPLES: &str = "\
Examples:
  txq hist                                       time in xmit, as bpftrace has it of __dev_queue_xmit
  txq hist my.toml --what completion --duration 1s
  txq hist --json | tail -1 | jq '.buckets[] | [.min, .count]'
  txq hist --name shaper --what completion       of a running program, for 5 seconds
  txq hist --name shaper --what driver --since-start

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
}

impl What {
    /// Returns the option's word, which is also the name of the histogram.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Xmit => "xmit",
            Self::Driver => "driver",
            Self::Completion => "completion",
        }
    }
}

const REPLAY_EXAMPLES: &str = "\
Examples:
  txq replay traffic.pcap                        to nowhere, as fast as possible: what the path costs
  txq replay traffic.pcapng --dev eth0 --rate recorded
  txq replay traffic.pcap --dev eth0 --threads 4 --txqs 2 --xps 1:2 --rate 20kpps --loop 0 --duration 60s
  txq replay traffic.pcap --dev pcap:out.pcap --qdisc 'pfifo limit 100' --rate 1gbit
  txq replay traffic.pcap --dev af_xdp:eth0 --txqs 4 --qdisc mq --default-qdisc fq
  txq replay tunnel.pcap --dev tun:vpn0          packets that begin with IP, into a tunnel that the kernel receives from
  txq replay traffic.pcap --dev udp:192.0.2.1:4789 --qdisc 'cake bandwidth 20mbit'

Frames of an Ethernet capture need an Ethernet device, IP packets one of IP; null, pcap and udp take both. Over udp each
frame is the payload of a datagram.

A rated replay offers each frame at its time, whatever the device does: what is too much, the qdisc drops, and a frame that
finds no buffer (--buffers) is refused. The report has offered, refused and sent, each with its count and rate. A replay at
max waits for buffers instead, and refuses nothing. What is not known is - in the report, and null in JSON, as `txq run --help` explains.";

#[derive(Debug, clap::Args)]
pub(crate) struct ReplayArgs {
    /// The capture: a pcap or pcapng file of Ethernet frames or IP packets
    pub(crate) file: PathBuf,
    /// null, pcap:FILE, IFACE, af_packet:IFACE, af_xdp:IFACE, tap:NAME, tun:NAME, or udp:ADDRESS:PORT
    #[arg(long, default_value = "null")]
    pub(crate) dev: String,
    /// Number of sending threads; each flow stays on one of them
    #[arg(long, value_name = "N", default_value = "1")]
    pub(crate) threads: Threads,
    /// Number of the device's transmit queues
    #[arg(long, value_name = "N", default_value = "1")]
    pub(crate) txqs: Txqs,
    /// How a packet's txq is chosen; auto: by CPU, txqs dealt to CPUs by their caches; none: by flow hash; or a CPU mask for
    /// each txq as in sysfs, separated by colons
    #[arg(long, value_name = "auto|none|MASK[:MASK..]", default_value = "auto")]
    pub(crate) xps: Xps,
    /// The root qdisc in tc's syntax [default: the default qdisc; with several txqs, mq over it]
    #[arg(long, value_name = "QDISC")]
    pub(crate) qdisc: Option<String>,
    /// The default qdisc, which mq attaches to each txq [default: pfifo_fast]
    #[arg(long, value_name = "QDISC")]
    pub(crate) default_qdisc: Option<String>,
    /// The enqueue discipline: combine, llist, lockless, busylock or spinlock
    #[arg(long, value_name = "NAME")]
    pub(crate) discipline: Option<Discipline>,
    /// The rate of all threads together: 10kpps, 1mpps, 100mbit, 1gbit, recorded or max
    #[arg(long, default_value = "max")]
    pub(crate) rate: Rate,
    /// How many times to send the file; 0 repeats it without end
    #[arg(long = "loop", value_name = "N", default_value = "1")]
    pub(crate) passes: Within<0, { u64::MAX }>,
    /// How long to send at most, such as 5s or 300ms
    #[arg(long, value_name = "TIME")]
    pub(crate) duration: Option<Span>,
    /// Send through the interface's own qdisc in the kernel too
    #[arg(long)]
    pub(crate) kernel_qdisc: bool,
    /// Size of the pool, in packets [default: as many as the queues hold]
    #[arg(long, value_name = "N")]
    pub(crate) buffers: Option<Within<1, { i32::MAX as u64 }>>,
    #[command(flatten)]
    pub(crate) output: Output,
}

#[derive(Debug, Clone, Copy, clap::Args)]
pub(crate) struct Output {
    /// Print the report as one JSON object, on the last line of stdout
    #[arg(long)]
    pub(crate) json: bool,
    /// Print no progress on stderr
    #[arg(long)]
    pub(crate) quiet: bool,
}
