//! Options of `txq trace`.

use std::path::PathBuf;

use crate::common::span::Span;
use crate::common::within::Within;

use super::Target;

pub(super) const EXAMPLES: &str = "\
Examples:
  txq trace                                      each step of each packet of `txq daemon`, until Ctrl-C
  txq trace -i wan -c 20 udp dst port 53         20 steps of DNS queries on one device
  txq trace --event kfree_skb                    only drops, with their reason
  txq trace --reason QDISC_OVERLIMIT             only drops of a full queue
  txq trace --handle 1:2 --event qdisc_dequeue   how long packets were in the qdisc of one class of mq
  txq trace --name shaper --json | jq 'select(.sojourn_ns > 5000000)'
  txq trace -w drops.pcapng --event kfree_skb    for Wireshark, with a comment on each packet

Events are named as the kernel's tracepoints: qdisc_enqueue, qdisc_dequeue, qdisc_requeue, net_dev_start_xmit, kfree_skb.
An expression is a part of tcpdump's: ip, ip6, arp, tcp, udp, sctp, icmp, icmp6, proto N, [src|dst] host ADDRESS,
[src|dst] net ADDRESS/BITS, [src|dst] port N, [src|dst] portrange N-N, vlan [ID], less N, greater N; not, and, or, ( ).
A trace that is too slow loses events, and the last line says how many; the program's packets never wait for it. Received
frames that are too long for a buffer are no packets: their number is on stderr.";

#[derive(Debug, clap::Args)]
pub(crate) struct TraceArgs {
    #[command(flatten)]
    pub(crate) target: Target,
    /// Trace only this device
    #[arg(short = 'i', long, value_name = "NAME")]
    pub(crate) dev: Option<String>,
    /// Trace only this txq
    #[arg(long, value_name = "N")]
    pub(crate) txq: Option<Within<0, 65_535>>,
    /// Trace only the queue of this qdisc (8001:), or of this class of mq or mqprio (1:2)
    #[arg(long, value_name = "HANDLE")]
    pub(crate) handle: Option<String>,
    /// Print only events of this name; several names add up
    #[arg(long = "event", value_name = "EVENT")]
    pub(crate) events: Vec<String>,
    /// Print only drops for this reason; several reasons add up
    #[arg(long = "reason", value_name = "REASON")]
    pub(crate) reasons: Vec<String>,
    /// End after this many events
    #[arg(short = 'c', long, value_name = "N")]
    pub(crate) count: Option<Within<1, { u64::MAX }>>,
    /// End after this time
    #[arg(long, value_name = "TIME")]
    pub(crate) duration: Option<Span>,
    /// Print one JSON object a line; the last one has the numbers of events and losses
    #[arg(long, conflicts_with = "write")]
    pub(crate) json: bool,
    /// Write a pcapng file instead; - for stdout
    #[arg(short = 'w', long, value_name = "FILE")]
    pub(crate) write: Option<PathBuf>,
    /// Trace only packets that match, as tcpdump's expressions do
    pub(crate) expression: Vec<String>,
}
