//! The repository's own chores: the checkers, one subcommand each, and the tables of the documents.

#![forbid(unsafe_code)]

mod bench;
mod check;

use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail};
use clap::{Parser, Subcommand};

/// Chores of the txq repository.
#[derive(Parser)]
#[command(name = "cargo xtask")]
struct Xtask {
    #[command(subcommand)]
    chore: Chore,
}

#[derive(Subcommand)]
enum Chore {
    /// Run one of the checkers, or all that this machine has
    Check {
        /// Which one
        #[arg(value_enum)]
        checker: check::Checker,
        /// Explore as far as it goes, for hours if need be
        #[arg(long)]
        deep: bool,
        /// Also those of the oracle's scripts that take long
        #[arg(long)]
        long: bool,
        /// Of the oracle's scripts only those with this in their names
        filter: Option<String>,
    },
    /// Run the criterion benchmarks and print their table
    Bench {
        /// Print the table of the last run without running again
        #[arg(long)]
        last: bool,
    },
}

fn main() -> ExitCode {
    let done = match Xtask::parse().chore {
        Chore::Check { checker, deep, long, filter } => check::run(checker, deep, long, filter.as_deref()),
        Chore::Bench { last } => bench::run(last),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Runs a command from the repository's root and fails if it does.
fn run(command: &mut Command) -> Result<()> {
    let status = command.current_dir(root()).status().with_context(|| format!("cannot run {command:?}"))?;
    if !status.success() {
        bail!("{command:?}: {status}");
    }
    Ok(())
}

/// The repository's root.
fn root() -> &'static str {
    concat!(env!("CARGO_MANIFEST_DIR"), "/..")
}

/// A cargo command, of the nightly toolchain if `nightly`.
fn cargo(nightly: bool, args: &[&str]) -> Command {
    // The cargo that runs us says which toolchain it is of; rustup's own finds the other one.
    let mut command = Command::new("cargo");
    if nightly {
        command.env_remove("RUSTUP_TOOLCHAIN").env_remove("CARGO").arg("+nightly");
    }
    command.args(args);
    command
}
