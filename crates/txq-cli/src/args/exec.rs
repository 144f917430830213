//! The options of `txq exec`.

use std::ffi::OsString;
use std::path::PathBuf;

use crate::common::span::Span;

pub(super) const EXEC_EXAMPLES: &str = "\
Examples:
  txq exec --qdisc 'fq maxrate 20mbit' -- iperf3 -u -c 192.0.2.1 -b 100M
  txq exec --qdisc 'tbf rate 1mbit burst 10k latency 50ms' -- dig @192.0.2.1 example.org
  txq exec --up 'netem delay 20ms' --down 'netem delay 30ms loss 1%' -- ./client
  txq exec --preset lte -- ./client              a link that many people have
  txq exec --batch htb.tc -- ./server            commands of tc for the device udp0, a command a line
  txq exec --name web -- ./server                and meanwhile: txq tc --name web qdisc replace dev udp0 root fq_codel
  txq exec --json -- ./client 2>&1 >/dev/null | tail -1 | jq .processes

Each process of the program has one device, udp0, for all of its UDP sockets, from its first datagram on; with --down also the device
down, for what it receives. TCP is not touched: `txq shell` has all protocols. The report goes to stderr when the program ends. docs/exec.md says what a program notices.

Exit codes: the program's own, 128 + the number of the signal that ended it; 125 a wrong qdisc, or no library; 126 the program
cannot be run with the library (static, setuid, for another C library); 127 no such program. 1 a wrong option.";

#[derive(Debug, clap::Args)]
pub(crate) struct ExecArgs {
    /// The qdisc of what the program sends, in tc's words, or several: 'tbf .. | netem ..' [default: pfifo_fast]
    #[arg(long, value_name = "QDISC")]
    pub(crate) qdisc: Option<String>,
    /// As --qdisc
    #[arg(long, value_name = "QDISC", conflicts_with = "qdisc")]
    pub(crate) up: Option<String>,
    /// The qdisc of what the program receives [default: none, the kernel's sockets as they are]
    #[arg(long, value_name = "QDISC")]
    pub(crate) down: Option<String>,
    /// A link that many people have: dsl, cable, 3g, lte, starlink, geo, wifi or conference; or a file with a line "up QDISC" and a line
    /// "down QDISC". --up and --down take the place of its lines
    #[arg(long, value_name = "NAME|FILE")]
    pub(crate) preset: Option<String>,
    /// Commands of tc for the devices udp0 and down, executed after the qdiscs
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
