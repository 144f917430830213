//! The options of `txq daemon` and `txq bridge`, and of the commands on their files and state.

use std::path::PathBuf;

use crate::common::within::Txqs;

use super::{At, Target};

pub(super) const DAEMON_EXAMPLES: &str = "\
Examples:
  txq daemon --config /etc/txq.toml              devices and bridges of a file; `txq daemon --print-example` prints one
  txq check /etc/txq.toml && txq reload          after a change of the file; SIGHUP does the same
  txq daemon &                                   no devices but those of `txq dev add`
  txq daemon --name lab                          lab.sock instead of control.sock: `txq tc --name lab ..`
  txq daemon --socket /tmp/mine.sock             there; say the same to `txq tc` and `txq dev`
  txq daemon --socket /run/lab/tc.sock --group netadmin

It ends on SIGINT and SIGTERM; its queued packets are dropped. Only its own user and root can talk to it, or the members of
--group. docs/daemon.md is the operator's guide.";

pub(super) const BRIDGE_EXAMPLES: &str = "\
Examples:
  txq bridge eth0 eth1 --up 'cake bandwidth 20mbit' --down 'cake bandwidth 100mbit'
  txq bridge eth0 eth1 --preset lte              a link that many people have; or a file with lines 'up QDISC' and 'down QDISC'
  txq bridge af_xdp:eth0 tap:vm0
  txq bridge tun:vpn0 tun:vpn1 --up 'netem delay 40ms'
  txq bridge eth0 eth1 --client-socket /run/txq/wan.sock --client-group users
  txq tc qdisc change dev eth1 root cake bandwidth 30mbit      meanwhile; also `txq tc -s qdisc show` and `txq stat`

Frames pass with their VLAN tags. Interfaces of a bridge should have no IP address: the kernel would answer, too. The bridge
ends on SIGINT and SIGTERM. `txq daemon --config` has more: classes, filters, several bridges, reload.";

#[derive(Debug, clap::Args)]
pub(crate) struct BridgeArgs {
    /// The first end: IFACE, af_packet:IFACE, af_xdp:IFACE, tap:NAME or tun:NAME
    pub(crate) first: String,
    /// The second end
    pub(crate) second: String,
    /// The qdisc from the first end to the second, that is of the second device, or several: 'tbf .. | netem ..' [default: fq_codel]
    #[arg(long, value_name = "QDISC")]
    pub(crate) up: Option<String>,
    /// The qdisc from the second end to the first, that is of the first device [default: fq_codel]
    #[arg(long, value_name = "QDISC")]
    pub(crate) down: Option<String>,
    /// A link that many people have: dsl, cable, 3g, lte, starlink, geo, wifi or conference; or a file with a line "up QDISC" and a line
    /// "down QDISC". --up and --down take the place of its lines
    #[arg(long, value_name = "NAME|FILE")]
    pub(crate) preset: Option<String>,
    /// Number of queues of each interface, each with a receiving thread
    #[arg(long, value_name = "N", default_value = "1")]
    pub(crate) txqs: Txqs,
    /// Pass packets of several segments whole instead of cutting them before the qdisc
    #[arg(long)]
    pub(crate) keep_segments: bool,
    /// A Unix socket at which local programs hand in packets, too: they leave at the second end (docs/socket.md)
    #[arg(long, value_name = "PATH")]
    pub(crate) client_socket: Option<PathBuf>,
    /// A group whose members may use that socket: a name or a number [default: the own user and root alone]
    #[arg(long, value_name = "GROUP", requires = "client_socket")]
    pub(crate) client_group: Option<String>,
    #[command(flatten)]
    pub(crate) serving: Serving,
}

#[derive(Debug, clap::Args)]
pub(crate) struct DaemonArgs {
    /// A TOML file of devices, bridges and senders, which `txq reload` and SIGHUP read again
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// End with an error if an interface of the file does not exist, instead of waiting for it
    #[arg(long, requires = "config")]
    pub(crate) strict: bool,
    /// Print an example of a file with all keys of bridges, and do nothing else
    #[arg(long, exclusive = true)]
    pub(crate) print_example: bool,
    #[command(flatten)]
    pub(crate) serving: Serving,
}

pub(super) const CHECK_EXAMPLES: &str = "\
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

pub(super) const RELOAD_EXAMPLES: &str = "\
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

pub(super) const SAVE_EXAMPLES: &str = "\
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
    /// The niceness of all threads, -20 to 19: below 0 its timers are less late beside busy programs; needs root or CAP_SYS_NICE
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = clap::value_parser!(i32).range(-20..=19))]
    pub(crate) nice: Option<i32>,
    /// The real-time priority (SCHED_RR) of the threads that move packets, 1 to 99: no program without it delays their timers; needs
    /// root, CAP_SYS_NICE or `ulimit -r`
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=99))]
    pub(crate) rt: Option<u8>,
    /// Do not print the socket's path on stderr
    #[arg(long)]
    pub(crate) quiet: bool,
}
