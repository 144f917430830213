//! The laboratory of txq: its data plane measured on this machine, and run on simulated ones.
//!
//! | module | contents |
//! |---|---|
//! | [`mod@bench`] | `txq-lab bench`: what the path costs on this machine, suite by suite, beside DPDK and the kernel |
//! | [`sim`] | the simulated machine: the data plane's own code, in virtual time, on up to 512 CPUs |
//! | [`commands`] | `txq-lab sim`: the commands that run it |
//! | `thread_clock` | the CPU time of threads that run, without delay |
//! | `tree` | the qdiscs that both take: one, or a tree, in tc's words |
//! | [`plot`] | SVG drawings of both |
//!
//! `txq bench` and `txq sim` of the command `txq` run this program.

mod args;
pub mod bench;
pub mod commands;
pub mod plot;
pub mod sim;
mod thread_clock;
mod tree;

use std::process::ExitCode;

use txq_cli::common::{failure, packaging};

use args::{Args, Command};

/// Runs the command that the program's arguments name, and returns its exit code.
pub fn main() -> ExitCode {
    let args = match Args::read() {
        Ok(args) => args,
        Err(error) => return failure::usage(&Args::program(), &error),
    };
    let done = match &args.command {
        Command::Bench(args) => bench::bench(args),
        Command::Sim(args) => commands::sim(args),
        Command::Completions { shell } => packaging::completions(*shell, Args::program()),
        Command::Man { folder } => packaging::man(folder, Args::program()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failure::tell(args::NAME, &error),
    }
}
