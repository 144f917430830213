//! Options of the commands that watch a running program.

use crate::common::span::Span;

use super::Target;

pub(super) const TOP_EXAMPLES: &str = "\
Examples:
  txq top                                        of `txq daemon`
  txq top --name shaper --delay 500ms            of the program that serves its devices as \"shaper\" (`txq ls`)
  txq top --once                                 one table, for scripts and logs
  txq top --dev eth0 --kind htb --depth 2        of many customers, the first levels of one device
  txq top --once --delay 10s --json | jq '.devices[] | {device, bits_per_second, p99_to_driver_ns}'

Keys: arrows select, left and right collapse and expand, < and > sort, / filters, c shows waits between threads, d drops by
reason, s senders, h all keys, q ends. A dash stands for an unknown number, as of a row that is new, or whose counters began again.
The variable NO_COLOR switches colours off.";

#[derive(Debug, clap::Args)]
pub(crate) struct TopArgs {
    #[command(flatten)]
    pub(crate) target: Target,
    /// The time between two snapshots
    #[arg(long, value_name = "TIME", default_value = "1s")]
    pub(crate) delay: Span,
    /// Show only this device; may be given several times
    #[arg(long, value_name = "NAME")]
    pub(crate) dev: Vec<String>,
    /// Show only qdiscs and classes of this kind, and those above them; may be given several times
    #[arg(long, value_name = "KIND")]
    pub(crate) kind: Vec<String>,
    /// Show only queues with at most so many above them; 0 shows roots
    #[arg(long, value_name = "N")]
    pub(crate) depth: Option<usize>,
    /// Print one table after two snapshots, and end; needs no terminal
    #[arg(long)]
    pub(crate) once: bool,
    /// Print one JSON object with the rates instead of the table
    #[arg(long, requires = "once")]
    pub(crate) json: bool,
}

impl TopArgs {
    /// Returns the devices and queues to show.
    #[cfg(feature = "watch")]
    pub(crate) fn selection(&self) -> crate::watch::select::Selection {
        crate::watch::select::Selection {
            devices: self.dev.clone(),
            kinds: self.kind.clone(),
            depth: self.depth,
        }
    }
}
