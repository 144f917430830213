//! The command line of `txq sim plan`.

use txq_cli_common::rate::Rate;
use txq_cli_common::span::Span;
use txq_cli_common::within::Within;

pub(super) const PLAN_EXAMPLES: &str = "\
Examples:
  txq sim plan --cpus 64 --senders 200 --rate 20mpps --qdisc fq
  txq sim plan --cpus 480 --senders 240 --rate 100gbit --bytes 1514 --machine xeon-6985p
  txq sim plan --cpus 16 --senders 16 --rate 8mpps --qdisc pfifo_fast --private 600 --json | head -1 | jq -r .discipline

Every discipline is simulated with 1, 2, 4 and so on up to as many txqs as there are CPUs, and with each way to choose one:
  near   XPS, neighbouring CPUs share a txq
  far    XPS, CPU n uses txq n modulo txqs, as drivers set it up that know nothing of the machine
  hash   no XPS, a flow's hash chooses
The wire is as fast as need be, so that what is found is what the CPUs can do. Fewer txqs are cheaper than more, for each is an
interrupt, a ring and its memory; of as many, those cost less that take less CPU time for a packet.

The machine is scaled to the CPUs that are asked for: complexes keep their cores and cores their threads, as far as that comes
out even. Give a machine like yours: txq sim machines lists some, txq sim calibrate measures one. What is found depends on
--private most of all; txq bench path and the socket's own cost tell what it is. Leave a margin: txq sim host tells how far
simulated times are from this machine's own, which is farthest where few senders share one txq.";

#[derive(Debug, clap::Args)]
pub(crate) struct PlanArgs {
    /// CPUs of the machine
    #[arg(long, value_name = "N")]
    pub(crate) cpus: Within<1, 4096>,
    /// Threads that send, each as fast as it can
    #[arg(long, value_name = "N")]
    pub(crate) senders: Within<1, 16384>,
    /// The rate that the senders should reach together: 20mpps, 100gbit
    #[arg(long, value_name = "RATE")]
    pub(crate) rate: Rate,
    /// The qdisc of each txq, in tc's words
    #[arg(long, value_name = "QDISC", default_value = "fq")]
    pub(crate) qdisc: String,
    /// Bytes of a frame
    #[arg(long, value_name = "N", default_value = "186")]
    pub(crate) bytes: Within<14, 1514>,
    /// A sender's own work on a packet, in nanoseconds: system call, socket, headers
    #[arg(long, value_name = "NS", default_value = "2000")]
    pub(crate) private: Within<0, 10_000_000>,
    /// The machine to scale: a name or a path
    #[arg(long, value_name = "NAME", default_value = "server-128")]
    pub(crate) machine: String,
    /// Virtual time to simulate for each way
    #[arg(long, value_name = "TIME", default_value = "1ms")]
    pub(crate) time: Span,
    /// Ways to simulate side by side [default: one for each CPU]
    #[arg(long, value_name = "N")]
    pub(crate) threads: Option<Within<1, 4096>>,
    /// Show all ways in the table, not only the best
    #[arg(long)]
    pub(crate) all: bool,
    /// Print one JSON object for each way, a line each, the best first
    #[arg(long)]
    pub(crate) json: bool,
    /// Print no progress on stderr
    #[arg(long)]
    pub(crate) quiet: bool,
}
