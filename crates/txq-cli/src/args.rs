//! The command line.

use std::path::PathBuf;

use clap::{Parser, Subcommand};

use crate::rate::Rate;
use crate::span::Span;
use crate::within::{Threads, Txqs, Within};
use crate::xps::Xps;

/// tc for programs that left the kernel: sends traffic through Linux's multi-core transmit path in user space.
#[derive(Debug, Parser)]
#[command(name = "txq", version, after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Command,
}

const EXAMPLES: &str = "\
Examples:
  txq run                                        what the path costs: 4 threads, 2 txqs, a device without a wire
  txq replay traffic.pcap --dev eth0 --rate 10kpps

Exit codes: 0 done, also after SIGINT and SIGTERM; 1 bad input; 2 the system refused.";

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Send made-up traffic as a TOML file describes, and report what became of it.
    #[command(after_help = RUN_EXAMPLES)]
    Run(RunArgs),
    /// Send the frames of a capture, each flow in order, and report what became of them.
    #[command(after_help = REPLAY_EXAMPLES)]
    Replay(ReplayArgs),
}

const RUN_EXAMPLES: &str = "\
Examples:
  txq run                                        the built-in example, for 5 seconds
  txq run --print-example > my.toml              where to start from: all common keys, explained
  txq run my.toml --duration 10s
  txq run my.toml --discipline spinlock --json | tail -1 | jq .mpps";

#[derive(Debug, clap::Args)]
pub(crate) struct RunArgs {
    /// What to run; a built-in example without it
    pub(crate) file: Option<PathBuf>,
    /// Print the built-in example and do nothing else
    #[arg(long, exclusive = true)]
    pub(crate) print_example: bool,
    /// How long to send, in place of the file's duration: 5s, 300ms
    #[arg(long, value_name = "TIME")]
    pub(crate) duration: Option<Span>,
    /// The enqueue discipline of all devices, in place of the file's
    #[arg(long, value_name = "NAME")]
    pub(crate) discipline: Option<String>,
    #[command(flatten)]
    pub(crate) output: Output,
}

const REPLAY_EXAMPLES: &str = "\
Examples:
  txq replay traffic.pcap                        to nowhere, as fast as possible: what the path costs
  txq replay traffic.pcapng --dev eth0 --rate recorded
  txq replay traffic.pcap --dev eth0 --threads 4 --txqs 2 --xps 1:2 --rate 20kpps --loop 0 --duration 60s
  txq replay traffic.pcap --dev pcap:out.pcap --qdisc 'pfifo limit 100' --rate 1gbit

A rated replay offers each frame at its time, whatever the device does: what is too much, the qdisc drops. A replay at
max waits for buffers instead.";

#[derive(Debug, clap::Args)]
pub(crate) struct ReplayArgs {
    /// The capture: pcap or pcapng, Ethernet
    pub(crate) file: PathBuf,
    /// null, pcap:FILE, or a network interface
    #[arg(long, default_value = "null")]
    pub(crate) dev: String,
    /// Sending threads; each flow stays on one
    #[arg(long, value_name = "N", default_value = "1")]
    pub(crate) threads: Threads,
    /// Transmit queues of the device
    #[arg(long, value_name = "N", default_value = "1")]
    pub(crate) txqs: Txqs,
    /// auto: by the machine's caches; none: by flow hash; or a CPU mask for each txq as in sysfs, a colon between two
    #[arg(long, value_name = "auto|none|MASK[:MASK..]", default_value = "none")]
    pub(crate) xps: Xps,
    /// The root qdisc in tc's words; mq over the default qdisc with several txqs
    #[arg(long, value_name = "QDISC")]
    pub(crate) qdisc: Option<String>,
    /// What mq gives each txq [default: pfifo_fast]
    #[arg(long, value_name = "QDISC")]
    pub(crate) default_qdisc: Option<String>,
    /// How threads reach a qdisc: llist, spinlock ..
    #[arg(long, value_name = "NAME")]
    pub(crate) discipline: Option<String>,
    /// Of all threads together: 10kpps, 1mpps, 100mbit, 1gbit, recorded or max
    #[arg(long, default_value = "max", allow_hyphen_values = true)]
    pub(crate) rate: Rate,
    /// How many times to send the file; 0 is for ever
    #[arg(long = "loop", value_name = "N", default_value = "1", allow_hyphen_values = true)]
    pub(crate) passes: u64,
    /// How long to send at most: 5s, 300ms
    #[arg(long, value_name = "TIME")]
    pub(crate) duration: Option<Span>,
    /// Go through the interface's own qdisc as well, in the kernel
    #[arg(long)]
    pub(crate) kernel_qdisc: bool,
    /// Packets that the pool holds [default: as many as the queues]
    #[arg(long, value_name = "N")]
    pub(crate) buffers: Option<Within<1, { i32::MAX as u64 }>>,
    #[command(flatten)]
    pub(crate) output: Output,
}

#[derive(Debug, Clone, Copy, clap::Args)]
pub(crate) struct Output {
    /// Report as one JSON object, on the last line of stdout
    #[arg(long)]
    pub(crate) json: bool,
    /// No progress on stderr
    #[arg(long)]
    pub(crate) quiet: bool,
}
