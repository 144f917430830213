//! The options of `txq shell`.

use std::ffi::OsString;
use std::net::IpAddr;
use std::path::PathBuf;

use crate::common::within::Within;

pub(super) const SHELL_EXAMPLES: &str = "\
Examples:
  txq shell --up 'netem delay 20ms rate 10mbit' --down 'netem delay 20ms rate 50mbit'
  txq shell --up 'netem delay 50ms loss 1%' -- ping -c 3 192.0.2.1
  txq shell --serve 'iperf3 -s' --up 'tbf rate 5mbit burst 10k latency 50ms' -- sh -c 'iperf3 -c $TXQ_FAR'
  txq shell --peer --name lab                    and in another terminal, the other end: txq shell --far lab
  txq shell --preset lte --peer                  a link that many people have
  txq shell --preset ./link.tc --peer            a file with the lines 'up QDISC' and 'down QDISC'
  txq tc --name shell qdisc change dev up root netem delay 80ms          meanwhile; also `txq top` and `txq trace`

CMD (default: $SHELL) runs in network, mount and process namespaces of its own. All its packets, of any protocol, pass the devices
\"up\" and \"down\" of txq. All processes, interfaces and rules end with it, also if txq is killed.

What is at the other end of the link:
  --peer, --serve   a second namespace, and nothing else; no privilege is needed
  root              the machine, which must forward (`sysctl -w net.ipv4.ip_forward=1`); txq adds a masquerade rule to nftables while it runs
  other users       the machine, through the sockets of `pasta` (Debian's package passt)
  in a txq shell    the shell: the links are a chain

DNS works by the machine's resolv.conf, and with pasta by the machine's resolver. As root beside a resolver on 127.0.0.53, txq takes the
servers of systemd-resolved; --dns names others. Between two ends there is no DNS: use $TXQ_FAR and $TXQ_NEAR, the addresses of the link.

Exit codes: CMD's own, 128 + the number of the signal that ended it; 126 CMD cannot be run; 127 there is no CMD; 1 wrong options; 2 the system
refused.";

#[derive(Debug, clap::Args)]
pub(crate) struct ShellArgs {
    /// The qdisc of what leaves the shell, in tc's words, or several: 'tbf .. | netem ..' [default: fq_codel]
    #[arg(long, value_name = "QDISC")]
    pub(crate) up: Option<String>,
    /// The qdisc of what the shell receives [default: fq_codel]
    #[arg(long, value_name = "QDISC")]
    pub(crate) down: Option<String>,
    /// A link that many people have: dsl, cable, 3g, lte, starlink, geo, wifi or conference; or a file with a line "up QDISC" and a line
    /// "down QDISC". --up and --down take the place of its lines
    #[arg(long, value_name = "NAME|FILE")]
    pub(crate) preset: Option<String>,
    /// Have a second namespace at the other end of the link, which `txq shell --far` enters, instead of the machine
    #[arg(long)]
    pub(crate) peer: bool,
    /// As --peer, and run this command there by `sh`, its output on stderr. CMD starts when it listens, or after 5 s
    #[arg(long, value_name = "SERVER")]
    pub(crate) serve: Option<String>,
    /// Enter the other end of the running shell of this name, and make no link
    #[arg(long, value_name = "NAME", conflicts_with_all = ["up", "down", "preset", "peer", "serve", "mtu", "name", "dns"])]
    pub(crate) far: Option<String>,
    /// The link's MTU, in bytes; below 1280 it has no IPv6
    #[arg(long, value_name = "BYTES", default_value = "1500")]
    pub(crate) mtu: Within<68, 65535>,
    /// Name for `txq tc --name`, `txq top`, `txq trace` and `txq ls` [default: shell, or shell-2 and so on if that is in use]
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// A DNS server for /etc/resolv.conf in the shell
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) dns: Option<IpAddr>,
    /// Print no line about the link on stderr
    #[arg(long)]
    pub(crate) quiet: bool,
    /// The program and its arguments [default: $SHELL]
    #[arg(trailing_var_arg = true, value_name = "CMD")]
    pub(crate) command: Vec<OsString>,
    /// The first process of a namespace, which reads its orders from this pipe
    #[arg(long, hide = true, exclusive = true)]
    pub(crate) stage: Option<PathBuf>,
}
