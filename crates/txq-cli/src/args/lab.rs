//! The options of `txq bench` and `txq sim`, which are those of `txq-lab bench` and `txq-lab sim`.

use std::ffi::OsString;

pub(super) const BENCH_HELP: &str = "\
`txq bench --help` is the help of `txq-lab bench`: suites, options and examples.

Examples:
  txq bench                                      the usual suites, in about a minute
  txq bench overload --rate 10gbit               links that senders at max fill, in about a minute";

pub(super) const SIM_HELP: &str = "\
`txq sim --help` is the help of `txq-lab sim`: commands, options and examples.

Examples:
  txq sim machines                               the machines that can be simulated
  txq sim run p0-pinned                          busylock and llist with 240 senders on 480 CPUs";

/// The command lines of these two commands, which `txq-lab` parses. The program passes its own arguments on, not these words:
/// clap removes a leading `--`.
#[derive(Debug, clap::Args)]
pub(crate) struct LabArgs {
    /// The words of `txq-lab`
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<OsString>,
}
