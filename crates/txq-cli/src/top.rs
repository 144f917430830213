//! `txq top`: the queues of a running program in a terminal.

use crate::common::failure::Refused;
use crate::common::out;
use crate::watch::top::{self, Error, Options};

use crate::args::TopArgs;
use crate::control;

/// Shows the queues until the user ends it, or prints one table.
pub(crate) fn top(args: &TopArgs) -> anyhow::Result<()> {
    let options = Options {
        place: args.target.at.place(),
        timeout: args.target.timeout.0,
        delay: args.delay.0,
        selection: args.selection(),
        // https://no-color.org: any value but the empty one.
        colour: std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()),
    };
    if args.once {
        return out::write(&top::once(&options, args.json).map_err(failed)?);
    }
    top::run(&options).map_err(failed)
}

/// Converts an error: into wrong input, or into the system's refusal.
fn failed(error: Error) -> anyhow::Error {
    match error {
        Error::Program(error) => control::failed(error),
        Error::NoTerminal => error.into(),
        _ => Refused(error.to_string()).into(),
    }
}
