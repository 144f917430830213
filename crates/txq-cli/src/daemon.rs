//! `txq daemon`: serves commands about devices without senders.

use std::thread;
use std::time::Duration;

use txq_cli_common::stop::{Signals, Stop};

use crate::args::DaemonArgs;
use crate::control::{Devices, Listener};

/// How often the daemon checks for signals.
const TICK: Duration = Duration::from_millis(20);

/// Serves commands until SIGINT or SIGTERM.
pub(crate) fn daemon(args: &DaemonArgs) -> anyhow::Result<()> {
    let signals = Signals::catch()?;
    let listener = Listener::open(args.socket.as_deref())?;
    if !args.quiet {
        eprintln!("txq: listening on {}", listener.path().display());
    }
    let (devices, stop) = (Devices::default(), Stop::default());
    thread::scope(|scope| {
        scope.spawn(|| listener.serve(&devices, &stop));
        while signals.seen().is_none() {
            thread::sleep(TICK);
        }
        stop.ask();
    });
    Ok(())
}
