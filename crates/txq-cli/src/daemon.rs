//! `txq daemon`: serves commands about devices without senders.

use std::thread;
use std::time::Duration;

use txq_cli_common::stop::Signals;
use txq_control::Access;

use crate::args::DaemonArgs;
use crate::control;

/// How often the daemon checks for signals.
const TICK: Duration = Duration::from_millis(20);

/// Serves commands until SIGINT or SIGTERM.
pub(crate) fn daemon(args: &DaemonArgs) -> anyhow::Result<()> {
    let signals = Signals::catch()?;
    let access = args.group.as_deref().map(control::group).transpose()?.map_or(Access::Owner, Access::Group);
    let server =
        control::builder(&args.at).access(access).program("txq daemon").start().map_err(control::failed)?;
    if !args.quiet {
        eprintln!("txq: listening on {}", server.path().display());
    }
    while signals.seen().is_none() {
        thread::sleep(TICK);
    }
    Ok(())
}
