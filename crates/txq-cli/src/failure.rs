//! Failures of the command, as [`crate::common::failure`] prints them.

use std::process::ExitCode;

use clap::CommandFactory;

use crate::args::Args;
use crate::common::failure;

pub(crate) use crate::common::failure::line;

/// Prints an error and returns its exit code.
pub(crate) fn tell(error: &anyhow::Error) -> ExitCode {
    failure::tell("txq", error)
}

/// Prints clap's answer to a command line; returns the exit code.
pub(crate) fn usage(error: &clap::Error) -> ExitCode {
    failure::usage(&Args::command(), error)
}
