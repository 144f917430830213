//! The command line.

use std::path::PathBuf;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use txq_cli::common::options::hyphens;

use crate::bench::{self, BenchArgs};
use crate::commands::{self, SimArgs};

/// The name of the program.
pub(crate) const NAME: &str = "txq-lab";

const EXAMPLES: &str = "\
Examples:
  txq-lab bench                                  how fast this machine is at it, in a minute of tables
  txq-lab bench peers --repeat 5                 the same work by DPDK and by this machine's kernel
  txq-lab sim machines                           machines of hundreds of CPUs to simulate it on
  txq-lab sim published                          all published results beside simulated ones

`txq bench` and `txq sim` run this program.

Exit codes: 0 done, also after SIGINT and SIGTERM; 1 bad input; 2 the system refused.";

/// The laboratory of txq: measures its data plane on this machine, and runs it on simulated ones
#[derive(Debug, Parser)]
#[command(name = NAME, version, after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Command,
}

const COMPLETIONS_EXAMPLES: &str = "\
Examples:
  source <(txq-lab completions bash)             for this shell
  txq-lab completions zsh > ~/.zfunc/_txq-lab";

const MAN_EXAMPLES: &str = "\
Examples:
  txq-lab man ~/.local/share/man/man1; man txq-lab-bench
  txq-lab man /tmp/man; man -l /tmp/man/txq-lab-sim-plan.1";

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Measure the cost of the transmit path on this machine, beside DPDK and the kernel
    #[command(after_help = bench::EXAMPLES)]
    Bench(BenchArgs),
    /// Run the transmit path on simulated machines of hundreds of CPUs
    #[command(after_help = commands::EXAMPLES)]
    Sim(SimArgs),
    /// Print completions of these commands for a shell
    #[command(after_help = COMPLETIONS_EXAMPLES)]
    Completions {
        /// The shell
        #[arg(value_enum)]
        shell: clap_complete::Shell,
    },
    /// Write a manual page for each command into a folder
    #[command(after_help = MAN_EXAMPLES)]
    Man {
        /// The folder, which is made if it does not exist
        folder: PathBuf,
    },
}

impl Args {
    /// Returns the program's commands and options.
    pub(crate) fn program() -> clap::Command {
        Self::command()
    }

    /// Parses the command line; returns clap's error, which may also be a request for help.
    pub(crate) fn read() -> Result<Self, clap::Error> {
        Self::from_arg_matches(&hyphens(Self::program()).try_get_matches()?)
    }
}
