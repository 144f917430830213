//! `txq check`: checks a file without opening a device.

use crate::args::CheckArgs;
use crate::config::{self, Depth, Purpose};

/// Checks the file for `txq daemon` if it has a bridge or no sender, else for `txq run`.
pub(crate) fn check(args: &CheckArgs) -> anyhow::Result<()> {
    let load = |purpose| config::load_and_rehearse(&args.file, purpose, Depth::Whole);
    // A duration is for `txq run`, and needs a sender.
    match load(Purpose::Daemon) {
        Err(_) if load(Purpose::Run).is_ok() => Ok(()),
        done => done.map(drop),
    }
}
