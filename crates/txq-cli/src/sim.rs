//! `txq sim`: the data plane on simulated machines. A file for each of its commands.

mod args;
mod calibrate;
mod host;
mod machines;
mod points;
mod rows;
mod run;

pub(crate) use args::{COMMANDS, EXAMPLES, SimArgs};

use args::SimCommand;

/// Does what the command line asks for.
pub(crate) fn sim(args: &SimArgs) -> anyhow::Result<()> {
    match &args.command {
        SimCommand::Run(args) => run::run(args),
        SimCommand::Machines(args) => machines::machines(args),
        SimCommand::Calibrate(args) => calibrate::calibrate(args),
        SimCommand::Host(args) => host::host(args),
    }
}
