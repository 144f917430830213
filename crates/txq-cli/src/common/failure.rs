//! Failures of a program: one line with the problem, the place and the remedy, and tc's exit codes.
//!
//! 1 means that the input is wrong (an option, a file), 2 that the system refused (a device does not open, no memory).
//! An error counts as wrong input unless a [`Refused`] is among its causes.

use std::fmt::{self, Display};
use std::io::{self, Write};
use std::process::ExitCode;

use clap::error::ErrorKind;
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};

use crate::common::out::printable;

const BAD_INPUT: u8 = 1;
const REFUSED: u8 = 2;

/// The exit code of a program that SIGPIPE has ended, as a shell shows it.
const CLOSED_PIPE: u8 = 128 + 13;

/// Marks an error as the system's refusal.
#[derive(Debug)]
pub struct Refused(pub String);

impl Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Refused {}

/// Returns a function that maps a system error to [`Refused`], with `what` before it.
pub fn refused<E: Display>(what: impl Display) -> impl FnOnce(E) -> anyhow::Error {
    move |error| Refused(format!("{what}: {error}")).into()
}

/// Prints an error of a program and returns its exit code. Prints nothing if the reader of the output is gone
/// (`txq tc ... | head -1`).
pub fn tell(program: &str, error: &anyhow::Error) -> ExitCode {
    // Errors of sockets are texts by now, so this one is of stdout or stderr.
    let is_closed = |cause: &io::Error| cause.kind() == io::ErrorKind::BrokenPipe;
    if error.chain().filter_map(|cause| cause.downcast_ref()).any(is_closed) {
        return ExitCode::from(CLOSED_PIPE);
    }
    let is_full = |cause: &io::Error| {
        matches!(
            cause.kind(),
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge
        )
    };
    let refused =
        error.chain().any(|cause| cause.is::<Refused>() || cause.downcast_ref().is_some_and(is_full));
    eprintln!("{program}: {}", printable(&line(error)));
    ExitCode::from(if refused { REFUSED } else { BAD_INPUT })
}

/// Returns an error and its causes as one line, the outermost first. A cause that the line already quotes is left out. At a limit of
/// descriptors the line ends with the limit and the remedy.
pub fn line(error: &anyhow::Error) -> String {
    let mut line = error.to_string();
    for cause in error.chain().skip(1).map(ToString::to_string) {
        if !line.contains(&cause) {
            line = format!("{line}: {cause}");
        }
    }
    match limit_of_descriptors(&line) {
        Some(limit) => format!("{line}: {limit}"),
        None => line,
    }
}

/// Returns which limit of descriptors an error has met, and the remedy. Errors of drivers are texts by now, so the text decides.
fn limit_of_descriptors(line: &str) -> Option<String> {
    let says = |errno: Errno| line.contains(&format!("(os error {})", errno.raw_os_error()));
    if says(Errno::MFILE) {
        let limit = getrlimit(Resource::Nofile).current;
        let limit = limit.map_or("all".to_owned(), |limit| limit.to_string());
        return Some(format!(
            "this process has as many open descriptors as it may have, {limit}: raise `ulimit -n`, or LimitNOFILE= of its unit"
        ));
    }
    says(Errno::NFILE).then(|| {
        "the system has as many open files as it may have: end programs, or raise `sysctl fs.file-max`"
            .to_owned()
    })
}

/// Prints clap's answer to a command line of `program`, help to stdout, an error as one line and the usage to stderr; returns
/// the exit code.
pub fn usage(program: &clap::Command, error: &clap::Error) -> ExitCode {
    if !error.use_stderr() {
        // A closed pipe (`txq --help | head -1`) is no failure.
        let _ = write!(io::stdout(), "{}", error.render());
        return ExitCode::SUCCESS;
    }
    let (name, text) = (program.get_name(), error.render().to_string());
    let usage = text.lines().find(|line| line.starts_with("Usage:"));
    if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        return no_command(program, usage.unwrap_or_default());
    }
    let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let usage_at = |line: &&str| line.starts_with("Usage:") || line.starts_with("For more information");
    let what: Vec<&str> = lines.by_ref().take_while(|line| !usage_at(line)).collect();
    let what = what.join(" ");
    eprintln!("{name}: {}", what.strip_prefix("error: ").unwrap_or(&what));
    if let Some(usage) = usage {
        eprintln!("{usage}");
    }
    ExitCode::from(BAD_INPUT)
}

/// Prints that the command line, which `usage` describes, names no command of the program, or of one of its commands.
fn no_command(program: &clap::Command, usage: &str) -> ExitCode {
    let (mut command, mut of) = (program, String::new());
    for word in usage.split_whitespace().skip(2) {
        let Some(named) = command.find_subcommand(word) else { break };
        command = named;
        of =
            if of.is_empty() { format!(" of {} {word}", program.get_name()) } else { format!("{of} {word}") };
    }
    let names: Vec<_> = command.get_subcommands().map(|command| command.get_name()).collect();
    let names = match names.split_last() {
        Some((last, others)) => format!("{} or {last}", others.join(", ")),
        None => String::new(),
    };
    eprintln!("{}: no command{of}: use {names}, or --help to see more", program.get_name());
    ExitCode::from(BAD_INPUT)
}
