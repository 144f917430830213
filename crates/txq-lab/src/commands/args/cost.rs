//! The command line of `txq sim cost`.

use std::ffi::OsString;

use txq_cli::common::within::Within;

pub(super) const COST_EXAMPLES: &str = "\
Examples:
  txq sim cost -- ./sender --count {}
  txq sim cost --packets 1000000 -- docs/lab/send 10.9.9.2 {}
  txq sim plan --cpus 16 --senders 16 --rate 4mpps \\
      --private $(txq sim cost --json -- ./sender --count {} | jq '.cpu_ns_per_packet | round')

The program sends as many packets as the argument in place of {} says. It runs with --packets and with twice as many, and the
difference of the CPU times, divided by --packets, is the cost of a packet. The kernel's work for the program is part of it;
work of other processes is not.

The planner simulates qdisc and driver itself, so let the program send to a device that has neither, in a network namespace:
  unshare -rn sh -c 'ip link add d0 type dummy; ip addr add 10.9.9.1/24 dev d0; ip link set d0 up;
      ip neigh add 10.9.9.2 lladdr 2:2:2:2:2:2 dev d0; txq sim cost -- ./sender 10.9.9.2 {}'
A program without a count of its own: docs/lab/send.c sends UDP packets; put the work of yours into its work().";

#[derive(Debug, clap::Args)]
pub(crate) struct CostArgs {
    /// Packets of the shorter runs
    #[arg(long, value_name = "N", default_value = "200000")]
    pub(crate) packets: Within<1, 1_000_000_000>,
    /// Rounds of the measurement, each with a shorter and a longer run
    #[arg(long, value_name = "N", default_value = "7")]
    pub(crate) rounds: Within<1, 1000>,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
    /// Print no progress on stderr
    #[arg(long)]
    pub(crate) quiet: bool,
    /// The program and its arguments, with {} in place of the number of packets
    #[arg(last = true, required = true, value_name = "PROGRAM")]
    pub(crate) program: Vec<OsString>,
}
