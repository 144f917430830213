//! The command line.

mod daemon;
mod exec;
mod groups;
mod kernel;
mod lab;
mod packaging;
mod replay;
mod running;
mod shell;
mod target;
mod trace;
mod watch;
mod web;
mod workload;

use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

use crate::common::options::hyphens;

pub(crate) use daemon::{BridgeArgs, CheckArgs, DaemonArgs, ReloadArgs, SaveArgs, Serving};
pub(crate) use exec::ExecArgs;
pub(crate) use kernel::{DoctorArgs, XpsAction, XpsArgs};
pub(crate) use lab::LabArgs;
pub(crate) use packaging::{CompletionsArgs, ManArgs};
pub(crate) use replay::ReplayArgs;
pub(crate) use running::{DevArgs, LsArgs, StatArgs, TcArgs};
pub(crate) use shell::ShellArgs;
pub(crate) use target::{At, RunningArgs, Target};
pub(crate) use trace::TraceArgs;
pub(crate) use watch::TopArgs;
pub(crate) use web::WebArgs;
pub(crate) use workload::{ContentionArgs, HistArgs, RunArgs, What, Workload};

/// tc for programs that left the kernel: sends traffic through Linux's multi-core transmit path in user space
#[derive(Debug, Parser)]
#[command(name = "txq", version, help_template = groups::template(), after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Command,
}

const EXAMPLES: &str = "\
Examples:
  txq run                                        what the path costs: 4 threads, 2 txqs, a device without a wire
  txq replay traffic.pcap --dev eth0 --rate 10kpps
  txq exec --qdisc 'fq maxrate 20mbit' -- iperf3 -u -c 192.0.2.1 -b 100M
  txq shell --up 'netem delay 50ms loss 1%'      a shell behind a bad link, without root
  txq bridge eth0 eth1 --up 'cake bandwidth 20mbit'
  txq daemon --config /etc/txq.toml              bridges that run for months; txq check, reload, save and tc for them
  txq ls                                         the running programs that tc reaches
  txq web                                        a page with the queues of one, and metrics for Prometheus
  txq top                                        the queues of a running program, live
  txq trace --event kfree_skb                    which of its packets are dropped, and why
  txq contention --discipline spinlock           who waits for whom, as perf lock contention
  txq hist                                       time in xmit, as bpftrace's hist()
  txq bench                                      how fast this machine is at it, in a minute of tables
  txq sim machines                               machines of hundreds of CPUs to simulate it on

Exit codes: 0 done, also after SIGINT and SIGTERM; 1 bad input; 2 the system refused.";

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Send generated traffic that a TOML file describes, and report rates, drops and latency
    #[command(after_help = workload::RUN_EXAMPLES)]
    Run(RunArgs),
    /// Send the frames of a capture, each flow in order, and report rates, drops and latency
    #[command(after_help = replay::REPLAY_EXAMPLES)]
    Replay(ReplayArgs),
    /// Run a program whose UDP datagrams leave through a qdisc of txq, without a change of the program
    #[command(after_help = exec::EXEC_EXAMPLES)]
    Exec(ExecArgs),
    /// Run a program in a network namespace behind a link with a qdisc in each direction, as root or as an ordinary user
    #[command(after_help = shell::SHELL_EXAMPLES)]
    Shell(ShellArgs),
    /// Forward between the devices of a file, each through its qdisc, and serve `txq tc`, until SIGINT or SIGTERM
    #[command(after_help = daemon::DAEMON_EXAMPLES)]
    Daemon(DaemonArgs),
    /// Forward between two interfaces, each direction through its qdisc, and serve `txq tc`
    #[command(after_help = daemon::BRIDGE_EXAMPLES)]
    Bridge(BridgeArgs),
    /// Check a file of `txq daemon` or `txq run` without opening a device
    #[command(after_help = daemon::CHECK_EXAMPLES)]
    Check(CheckArgs),
    /// Make a running `txq daemon` apply the changes of its file
    #[command(after_help = daemon::RELOAD_EXAMPLES)]
    Reload(ReloadArgs),
    /// Print the qdiscs, classes and filters of a running txq as commands that restore them
    #[command(after_help = daemon::SAVE_EXAMPLES)]
    Save(SaveArgs),
    /// List the running programs that serve `txq tc` and `txq dev`
    #[command(after_help = running::LS_EXAMPLES)]
    Ls(LsArgs),
    /// Show and change the qdiscs, classes and filters of a running txq, in tc's syntax
    #[command(after_help = running::TC_HELP, disable_help_flag = true)]
    Tc(TcArgs),
    /// Add, remove and list devices without a wire in a running txq
    #[command(after_help = running::DEV_EXAMPLES)]
    Dev(DevArgs),
    /// Send the traffic of a file, and print how long threads waited for locks, as perf lock contention does
    #[command(after_help = workload::CONTENTION_EXAMPLES)]
    Contention(ContentionArgs),
    /// Send the traffic of a file, and print a histogram of its latency, as bpftrace does
    #[command(after_help = workload::HIST_EXAMPLES)]
    Hist(HistArgs),
    /// Print the counters of a running program's devices, a line each, as ethtool -S does
    #[command(after_help = running::STAT_EXAMPLES)]
    Stat(StatArgs),
    /// Print each step of a running program's packets: enqueued, dequeued, sent, dropped and why, as perf trace and tcpdump do
    #[command(after_help = trace::EXAMPLES)]
    Trace(TraceArgs),
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
    /// Measure the cost of the transmit path on this machine, beside DPDK and the kernel; runs `txq-lab`
    #[command(after_help = lab::BENCH_HELP, disable_help_flag = true)]
    Bench(LabArgs),
    /// Run the transmit path on simulated machines of hundreds of CPUs; runs `txq-lab`
    #[command(after_help = lab::SIM_HELP, disable_help_flag = true)]
    Sim(LabArgs),
}

impl Args {
    /// Parses the command line; returns clap's error, which may also be a request for help.
    pub(crate) fn read() -> Result<Self, clap::Error> {
        let matches = hyphens(Self::command()).try_get_matches()?;
        Self::from_arg_matches(&matches)
    }
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

#[derive(Debug, Clone, Copy, clap::Args)]
pub(crate) struct Output {
    /// Print the report as one JSON object, on the last line of stdout
    #[arg(long)]
    pub(crate) json: bool,
    /// Print no progress on stderr
    #[arg(long)]
    pub(crate) quiet: bool,
}
