//! `txq check`: checks a file without opening a device.

use crate::args::CheckArgs;
use crate::config::{self, Purpose};

/// Checks the file for `txq daemon` if it has a bridge or no sender, else for `txq run`.
pub(crate) fn check(args: &CheckArgs) -> anyhow::Result<()> {
    let loaded = config::load_and_rehearse(&args.file, Purpose::Daemon);
    // A duration is for `txq run`, and needs a sender.
    match loaded {
        Err(_) if config::load_and_rehearse(&args.file, Purpose::Run).is_ok() => Ok(()),
        done => done.map(drop),
    }
}
