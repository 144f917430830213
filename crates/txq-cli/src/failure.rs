//! Failures of the command: one line with the problem, the place and the remedy, and tc's exit codes.
//!
//! 1 means that the input is wrong (an option, a file), 2 that the system refused (a device does not open, no memory).
//! An error counts as wrong input unless a [`Refused`] is among its causes.

use std::io::{self, Write};
use std::process::ExitCode;

use crate::args::Args;
use clap::CommandFactory;
use clap::error::ErrorKind;
use txq_cli_common::failure::Refused;

const BAD_INPUT: u8 = 1;
const REFUSED: u8 = 2;

/// The exit code of a program that SIGPIPE has ended, as a shell shows it.
const CLOSED_PIPE: u8 = 128 + 13;

/// Prints an error and returns its exit code. Prints nothing if the reader of the output is gone (`txq tc ... | head -1`).
pub(crate) fn tell(error: &anyhow::Error) -> ExitCode {
    // Errors of sockets are texts by now, so this one is of stdout or stderr.
    let is_closed = |cause: &io::Error| cause.kind() == io::ErrorKind::BrokenPipe;
    if error.chain().filter_map(|cause| cause.downcast_ref()).any(is_closed) {
        return ExitCode::from(CLOSED_PIPE);
    }
    let refused = error.chain().any(|cause| cause.is::<Refused>());
    eprintln!("txq: {}", line(error));
    ExitCode::from(if refused { REFUSED } else { BAD_INPUT })
}

/// Returns an error and its causes as one line, the outermost first. A cause that the line already quotes is left out.
pub(crate) fn line(error: &anyhow::Error) -> String {
    let mut line = error.to_string();
    for cause in error.chain().skip(1).map(ToString::to_string) {
        if !line.contains(&cause) {
            line = format!("{line}: {cause}");
        }
    }
    line
}

/// Returns the names of the commands, for the error of a command line without one.
fn commands() -> String {
    let commands = Args::command();
    let names: Vec<_> = commands.get_subcommands().map(|command| command.get_name().to_owned()).collect();
    match names.split_last() {
        Some((last, others)) => format!("{} or {last}", others.join(", ")),
        None => String::new(),
    }
}

/// Prints clap's answer to a command line, help to stdout, an error as one line and the usage to stderr; returns the exit
/// code.
pub(crate) fn usage(error: &clap::Error) -> ExitCode {
    if !error.use_stderr() {
        // A closed pipe (`txq --help | head -1`) is no failure.
        let _ = write!(io::stdout(), "{}", error.render());
        return ExitCode::SUCCESS;
    }
    if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        #[cfg(feature = "sim")]
        if error.render().to_string().contains("Usage: txq sim ") {
            return no_command(" of txq sim", txq_sim_cli::COMMANDS);
        }
        return no_command("", &commands());
    }
    let text = error.render().to_string();
    let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let usage_at = |line: &&str| line.starts_with("Usage:") || line.starts_with("For more information");
    let what: Vec<&str> = lines.by_ref().take_while(|line| !usage_at(line)).collect();
    let what = what.join(" ");
    eprintln!("txq: {}", what.strip_prefix("error: ").unwrap_or(&what));
    if let Some(usage) = text.lines().find(|line| line.starts_with("Usage:")) {
        eprintln!("{usage}");
    }
    ExitCode::from(BAD_INPUT)
}

/// Prints that the command of txq, or the one `of` a part of it, is missing.
fn no_command(of: &str, commands: &str) -> ExitCode {
    eprintln!("txq: no command{of}: use {commands}, or --help to see more");
    ExitCode::from(BAD_INPUT)
}
