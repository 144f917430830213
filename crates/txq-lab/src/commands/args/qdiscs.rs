//! The command line of `txq sim qdiscs`.

use std::path::PathBuf;

pub(super) const QDISCS_EXAMPLES: &str = "\
Examples:
  txq sim qdiscs                                 to stdout, in a minute
  txq sim qdiscs --out crates/txq-lab/qdiscs.toml

It needs valgrind (Debian's package valgrind). One thread enqueues and dequeues packets of 200 flows, and valgrind's lackey prints
the address of each access. A line of memory counts if a call writes it, unless it is a packet's or the stack's.";

#[derive(Debug, clap::Args)]
pub(crate) struct QdiscsArgs {
    /// The file to write [default: stdout]
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
    /// Print no progress on stderr
    #[arg(long)]
    pub(crate) quiet: bool,
    /// Make the calls of this qdisc for a trace, and measure nothing
    #[arg(long, value_name = "QDISC", hide = true)]
    pub(crate) traced: Option<String>,
}
