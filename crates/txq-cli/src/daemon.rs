//! `txq daemon` and `txq bridge`: forward between devices, and serve commands about them, until SIGINT or SIGTERM.
//!
//! One thread opens, watches and changes the devices: the main thread, in [`State`]. Requests to reload come to it from the
//! threads of the control server.

mod bridge;
mod generate;
mod live;
mod notify;
mod queues;
mod realtime;
mod reload;
mod replay;
pub(crate) mod socket;
mod state;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use crate::common::failure::refused;
use crate::common::out;
use crate::common::stop::Signals;
use anyhow::Context;
use signal_hook::consts::SIGHUP;
use txq_control::Access;

use crate::args::{BridgeArgs, DaemonArgs, Serving};
use crate::config::{self, Depth, Loaded, Purpose};
use crate::control;
use notify::Manager;
pub(crate) use realtime::Realtime;
pub(crate) use state::{Meters, State};

/// How often the daemon checks for signals.
const DAEMON_TICK: Duration = Duration::from_millis(20);

/// Serves commands, on the devices of a file if one is given.
pub(crate) fn daemon(args: &DaemonArgs) -> anyhow::Result<()> {
    if args.print_example {
        return out::write(config::DAEMON_EXAMPLE);
    }
    let loaded = args.config.as_deref().map(load).transpose()?;
    serve(&args.serving, loaded, args.config.clone(), args.strict)
}

/// Bridges two devices that the command line names.
pub(crate) fn bridge(args: &BridgeArgs) -> anyhow::Result<()> {
    serve(&args.serving, Some(config::of_bridge(args)?), None, true)
}

fn load(path: &Path) -> anyhow::Result<Loaded> {
    config::load_and_rehearse(path, Purpose::Daemon, Depth::First)
}

/// Serves until a signal. `strict` refuses interfaces that do not exist.
fn serve(args: &Serving, loaded: Option<Loaded>, file: Option<PathBuf>, strict: bool) -> anyhow::Result<()> {
    // Before there are threads, which inherit it.
    if let Some(nice) = args.nice {
        let refused =
            refused(format!("--nice {nice}: only root and programs with CAP_SYS_NICE may lower it"));
        rustix::process::setpriority_process(None, nice).map_err(std::io::Error::from).map_err(refused)?;
    }
    let realtime = Realtime::of(args.rt)?;
    let mut manager = Manager::of_environment();
    let signals = Signals::catch()?;
    let hangup = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(SIGHUP, hangup.clone()).context("SIGHUP cannot be caught")?;
    let access = args.group.as_deref().map(control::group).transpose()?.map_or(Access::Owner, Access::Group);
    let meters = Meters::default();
    let (ask, asked) = mpsc::channel::<mpsc::Sender<Result<String, String>>>();
    let counters = meters.clone();
    // Before the devices are opened, so that a second daemon opens none.
    let listener = control::builder(&args.at, Some(Box::new(move |dev| counters.of(dev))))
        .access(access)
        .program("txq daemon")
        .on_reload(move || {
            let (tell, told) = mpsc::channel();
            let ends = |_| "the daemon is ending";
            ask.send(tell).map_err(|_| "the daemon is ending")?;
            Ok(told.recv().map_err(ends)??)
        })
        .bind()
        .map_err(control::failed)?;
    if let Some(loaded) = loaded.as_ref().filter(|_| strict) {
        reload::interfaces_exist(&loaded.config.device)?;
    }
    let mut state = State::start(loaded, meters, realtime)?;
    let server = listener.serve().map_err(control::failed)?;
    state.serve(&server)?;
    if !args.quiet {
        eprintln!("txq: listening on {}", server.path().display());
    }
    manager.ready(&format!("serving {}", server.path().display()));
    while signals.seen().is_none() {
        let reload = |state: &mut State| reload(state, file.as_deref(), &server);
        match asked.recv_timeout(DAEMON_TICK) {
            // The caller may have gone.
            Ok(tell) => drop(tell.send(reload(&mut state))),
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {}
        }
        if hangup.swap(false, Relaxed) {
            match reload(&mut state) {
                Ok(said) => eprint!("{said}"),
                Err(why) => eprintln!("txq: {why}"),
            }
        }
        if state.tick() {
            state.serve(&server)?;
        }
        manager.alive();
    }
    manager.stopping();
    // A caller that waits for a reload hears of the end, and the server waits for the caller's thread.
    drop(asked);
    drop(server);
    Ok(())
}

/// Applies the file's difference; returns what has changed, or why nothing has.
fn reload(state: &mut State, file: Option<&Path>, server: &txq_control::Server) -> Result<String, String> {
    let file = file.ok_or("there is no file to read: start the daemon with --config FILE")?;
    let changed = load(file).and_then(|loaded| state.reload(loaded));
    // Devices may be new in either case: those that were opened again after a failure.
    let served = state.serve(server);
    changed.and_then(|said| served.map(|()| said)).map_err(|error| crate::failure::line(&error))
}
