//! Options of the commands that watch a running program.

use crate::common::span::Span;

use super::Target;

pub(super) const TOP_EXAMPLES: &str = "\
Examples:
  txq top                                        of `txq daemon`
  txq top --name shaper --delay 500ms            of the program that serves its devices as \"shaper\" (`txq ls`)
  txq top --once                                 one table, for scripts and logs
  txq top --once --delay 10s --json | jq '.devices[] | {device, bits_per_second, p99_to_driver_ns}'

Keys: arrows select, left and right collapse and expand, < and > sort, / filters, c shows waits between threads, d drops by
reason, s senders, h all keys, q ends. A dash stands for an unknown number, as of a row that is new, or whose counters began again.
The variable NO_COLOR switches colours off.";

#[derive(Debug, clap::Args)]
pub(crate) struct TopArgs {
    #[command(flatten)]
    pub(crate) target: Target,
    /// The time between two looks
    #[arg(long, value_name = "TIME", default_value = "1s")]
    pub(crate) delay: Span,
    /// Print one table after two looks, and end; needs no terminal
    #[arg(long)]
    pub(crate) once: bool,
    /// Print one JSON object with the rates instead of the table
    #[arg(long, requires = "once")]
    pub(crate) json: bool,
}
