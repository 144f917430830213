//! `txq sim`: runs the data plane on simulated machines. Each command has a file.

#![deny(unsafe_code)]

mod args;
mod calibrate;
mod cost;
mod explain;
mod fit;
mod host;
mod machines;
mod merge;
mod outcome;
mod parallel;
mod plan;
mod points;
mod published;
mod qdiscs;
mod rows;
mod run;
mod spread;
mod svg;
mod sweep;
mod words;

pub use args::{EXAMPLES, SimArgs};

use args::SimCommand;

/// Runs the command of `txq sim` that the command line names.
pub fn sim(args: &SimArgs) -> anyhow::Result<()> {
    match &args.command {
        SimCommand::Run(args) => run::run(args),
        SimCommand::Published(args) => published::published(args),
        SimCommand::Explain(args) => explain::explain(args),
        SimCommand::Fit(args) => fit::fit(args),
        SimCommand::Machines(args) => machines::machines(args),
        SimCommand::Calibrate(args) => calibrate::calibrate(args),
        SimCommand::Sweep(args) => sweep::sweep(args),
        SimCommand::Merge(args) => merge::merge(args),
        SimCommand::Plan(args) => plan::plan(args),
        SimCommand::Cost(args) => cost::cost(args),
        SimCommand::Host(args) => host::host(args),
        SimCommand::Qdiscs(args) => qdiscs::qdiscs(args),
    }
}
