//! The repository's chores: the checkers, one subcommand each, and the tables of the documents.

#![forbid(unsafe_code)]

mod api;
mod bench;
mod book;
mod busy;
mod check;
mod deb;
mod dist;
mod layers;
mod licences;
mod package;
mod platforms;
mod ports;
mod tuning;
mod words;

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
    /// Run one of the checkers, or all that are available here
    #[command(after_help = check::EXAMPLES)]
    Check(check::CheckArgs),
    /// Run the criterion benchmarks and print their table
    Bench {
        /// Print the table of the last run without running again
        #[arg(long)]
        last: bool,
    },
    /// Build the Debian package
    Deb {
        /// Install it on this machine, use what it contains, and remove it
        #[arg(long = "try")]
        install: bool,
    },
    /// Build static binaries for x86_64 and aarch64
    Dist {
        /// Run this machine's binary in an empty folder
        #[arg(long = "try")]
        alone: bool,
        /// Build this machine's binary alone
        #[arg(long)]
        own: bool,
        /// The profile of Cargo.toml; `dev` compiles fastest
        #[arg(long, value_name = "NAME", default_value = "dist")]
        profile: String,
    },
}

fn main() -> ExitCode {
    let done = match Xtask::parse().chore {
        Chore::Check(args) => check::run(&args),
        Chore::Bench { last } => bench::run(last),
        Chore::Deb { install } => deb::deb(install),
        Chore::Dist { alone, own, profile } => dist::dist(&profile, alone, own),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Runs a command from the repository's root; returns an error if it fails.
fn run(command: &mut Command) -> Result<()> {
    let status = command.current_dir(root()).status().with_context(|| format!("cannot run {command:?}"))?;
    if !status.success() {
        bail!("{command:?}: {status}");
    }
    Ok(())
}

/// Returns the repository's root.
fn root() -> &'static str {
    concat!(env!("CARGO_MANIFEST_DIR"), "/..")
}

/// Returns a cargo command, of the nightly toolchain if `nightly`.
fn cargo(nightly: bool, args: &[&str]) -> Command {
    // The environment names the toolchain of the cargo that runs this program; rustup's own cargo finds the other one.
    let mut command = Command::new("cargo");
    if nightly {
        command.env_remove("RUSTUP_TOOLCHAIN").env_remove("CARGO").arg("+nightly");
    }
    command.args(args);
    command
}
