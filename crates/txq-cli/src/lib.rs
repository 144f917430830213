//! `txq`: Linux's transmit path from the command line.
//!
//! `txq run` sends the generated traffic that a TOML file describes; `txq replay` sends a capture. Both end in the same
//! report: counts of sent, dropped and queued packets, their latency and their cost. `txq contention` and `txq hist` print
//! the waits and the latency of such a run. `txq bench` and `txq sim` run the program `txq-lab`, which measures the path itself and
//! runs it on simulated machines.
//!
//! `txq daemon` and `txq bridge` forward between devices, each direction through its qdisc. `txq check`, `txq reload` and
//! `txq save` check the daemon's file, apply it anew, and print its state as commands.
//!
//! `txq exec` runs a program whose UDP datagrams leave through a qdisc, and `txq shell` one behind a link with a qdisc in each direction.
//!
//! `txq web` shows a running program in a browser and to Prometheus. `txq doctor` and `txq xps` inspect the kernel's own devices.
//!
//! `txq tc` and `txq dev` show and change the devices of a running program: `txq daemon`, `txq run`, or any that serves
//! them by the crate `txq-control`. `txq ls` lists these programs. `txq top` shows their queues in a terminal,
//! `txq trace` the steps of their packets. `txq top` and `txq web` need the feature `watch`.
//!
//! It is a library so that the laboratory, the crate `txq-lab`, has [`common`], and the fuzzer reaches the parts that read files.
//! Programs use the crates `txq` and `txq-control`.

#![forbid(unsafe_code)]

#[macro_use]
#[path = "common/closed.rs"]
mod closed;

mod added;
mod args;
mod check;
#[doc(hidden)]
pub mod common;
mod config;
mod contention;
mod control;
mod daemon;
mod dev;
mod device;
mod exec;
mod failure;
mod frames;
mod hist;
mod kernel;
mod lab;
mod load;
mod ls;
mod pace;
mod packaging;
mod progress;
mod pump;
mod replay;
mod report;
mod run;
mod session;
mod shell;
mod stat;
mod state;
mod tc;
#[cfg(feature = "watch")]
mod top;
mod trace;
#[cfg(feature = "watch")]
#[doc(hidden)]
pub mod watch;
#[cfg(feature = "watch")]
mod web;
#[cfg(not(feature = "watch"))]
mod without;
mod xps;

use std::process::ExitCode;
use std::sync::Arc;

use args::{Args, Command};

/// Runs the command that the program's arguments name, and returns its exit code.
pub fn main() -> ExitCode {
    // A file that reaches the limit of its size is an error of the write, as a full disk is, and does not end the process. Programs that
    // this one executes have the signal's own action again.
    let _ = signal_hook::flag::register(signal_hook::consts::SIGXFSZ, Arc::default());
    let args = match Args::read() {
        Ok(args) => args,
        Err(error) => return failure::usage(&error),
    };
    let done = match &args.command {
        Command::Tc(args) => return end(tc::tc(args)),
        Command::Dev(args) => return end(dev::dev(args)),
        Command::Exec(args) => return exec::exec(args),
        Command::Shell(args) => return end(shell::shell(args)),
        Command::Daemon(args) => daemon::daemon(args),
        Command::Bridge(args) => daemon::bridge(args),
        Command::Check(args) => check::check(args),
        Command::Reload(args) => return end(state::reload(args)),
        Command::Save(args) => return end(state::save(args)),
        Command::Ls(args) => ls::ls(args),
        Command::Run(args) => run::run(args),
        Command::Replay(args) => replay::replay(args),
        Command::Contention(args) => contention::contention(args),
        Command::Hist(args) => hist::hist(args),
        Command::Stat(args) => stat::stat(args),
        Command::Trace(args) => trace::trace(args),
        #[cfg(feature = "watch")]
        Command::Web(args) => web::web(args),
        #[cfg(feature = "watch")]
        Command::Top(args) => top::top(args),
        #[cfg(not(feature = "watch"))]
        Command::Web(_) => Err(without::watch("web")),
        #[cfg(not(feature = "watch"))]
        Command::Top(_) => Err(without::watch("top")),
        Command::Completions(args) => packaging::completions(args),
        Command::Man(args) => packaging::man(args),
        Command::Doctor(args) => kernel::doctor::doctor(args),
        Command::Xps(args) => kernel::xps::xps(args),
        Command::Bench(_) | Command::Sim(_) => Err(lab::become_lab()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failure::tell(&error),
    }
}

/// Checks the text of a configuration file as `txq check` does, except for the captures that it names, which are not read.
/// Opens no device. An error is one that `txq check` prints for a file of this name.
#[doc(hidden)]
pub fn check_config(name: &str, text: &str) -> Result<(), String> {
    config::check_text(name, text).map_err(|error| failure::line(&error))
}

/// Returns the exit code that the command chose, or prints its error and returns the error's exit code.
fn end(done: anyhow::Result<ExitCode>) -> ExitCode {
    done.unwrap_or_else(|error| failure::tell(&error))
}
