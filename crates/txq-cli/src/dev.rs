//! `txq dev`: adds, removes and lists devices without a wire, in the syntax of `ip link`.

use std::process::ExitCode;

use crate::args::{self, DevArgs};
use crate::control::{connect, failed, tell};

/// Checks the command line and sends it to a running txq; prints the answer and returns its exit code.
pub(crate) fn dev(args: &DevArgs) -> anyhow::Result<ExitCode> {
    if args.words.first().is_some_and(|word| word == "help") {
        return args::help_of("dev");
    }
    if let Some(answer) = txq_control::dev::check(&args.words) {
        return tell(&answer);
    }
    tell(&connect(&args.target)?.dev(&args.words).map_err(failed)?)
}
