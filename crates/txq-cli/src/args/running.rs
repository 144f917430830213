//! The options of the commands that reach a running program.

use std::path::PathBuf;

use crate::common::span::Span;

use super::Target;

pub(super) const LS_EXAMPLES: &str = "\
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

pub(super) const TC_HELP: &str = "\
Options, before the object, as short as you like:
  -s[tatistics]  -d[etails]  -r[aw]  -iec  -j[son]  -p[retty]  -b[atch] FILE  -f[orce]  -V[ersion]  -h[elp]
  -g[raph]       classes as a tree
  -o[neline]     each object on one line
  -N[umeric]     protocols as numbers
  -ec[ho]        print what a command has changed
  -t[imestamp]   the time of each change of `monitor`; -ts: in front of it
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
  txq tc filter get dev d0 parent 1: protocol ip pref 1 handle 800::800 u32
  txq tc -ts monitor                             each change that commands make, until Ctrl-C

Exit codes are tc's: 0 done; 255 a word is wrong; 1 an option of a qdisc, or a device, is wrong, or a batch failed; 2 refused.";

#[derive(Debug, clap::Args)]
pub(crate) struct TcArgs {
    /// A command in tc's syntax: `OPTIONS` and `qdisc|class|filter add|change|replace|del|show ..`
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    pub(crate) words: Vec<String>,
}

pub(super) const STAT_EXAMPLES: &str = "\
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

pub(super) const DEV_EXAMPLES: &str = "\
Examples:
  txq dev add d0                                 takes everything, sends nothing
  txq dev add d1 type dummy numtxqueues 4 txqueuelen 500 mtu 9000
  txq dev add up0 numtxqueues 2 type af_packet interface eth0
  txq dev add vpn0 type tun namespace blue
  txq dev add t0 type udp remote 192.0.2.1:4789
  txq dev add c0 type af_packet interface eth1 socket /run/txq/c0.sock clients 4 idle_timeout 1h
                                                 with the keys of a [[socket]]; it closes with the device
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
