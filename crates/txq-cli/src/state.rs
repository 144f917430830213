//! `txq reload` and `txq save`: the state of a running program.

use std::process::ExitCode;

use crate::args::{ReloadArgs, SaveArgs};
use crate::control::{connect, failed, tell};

/// Makes a daemon read its file again; prints what has changed.
pub(crate) fn reload(args: &ReloadArgs) -> anyhow::Result<ExitCode> {
    let answer = connect(&args.target)?.reload().map_err(failed)?;
    if answer.rc == 0 {
        return tell(&answer);
    }
    // Text of the daemon, which has no name of its own in front.
    eprint!("txq: {}", answer.err);
    Ok(ExitCode::from(answer.rc))
}

/// Prints the qdiscs, classes and filters as commands.
pub(crate) fn save(args: &SaveArgs) -> anyhow::Result<ExitCode> {
    tell(&connect(&args.target)?.save(args.dev.as_deref()).map_err(failed)?)
}
