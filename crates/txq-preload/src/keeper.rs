//! The keeper: the thread that serves the device's control socket, and ends the device when the program exits.
//!
//! Its descriptors are its own and its threads', not the program's: neither `close_range` nor `dup2` of the program reaches the control
//! socket, its lock or its connections, and children inherit none of them. The exit only asks the keeper and waits for a bounded
//! time, so it needs no lock and no memory, and nothing that the program has broken can hold it up.

use std::cell::Cell;
use std::io;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicU32, Ordering::*};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use txq::{NetDev, tc};
use txq_control::{Error, Place, Server};

use crate::process::{self, Process, Settings, record};
use crate::socket::left_sockets;
use crate::sys;

/// How long the exit waits for the report and the removal of the control socket, beside the time for draining.
const REPORT: Duration = Duration::from_secs(1);
/// The longest time between two loads of the word.
const WORD_CHECK: Duration = Duration::from_secs(60);

/// What the keeper does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Work {
    Serve,
    /// Drain, report, close the control socket.
    End,
    /// As `End`, and end the device with its threads.
    Leave,
    Done,
}

/// The word between the keeper and the threads that ask it. They change it from `Serve` to another work, and the keeper changes it to `Done`. Each
/// change is a release that pairs with an acquire by the side that waits for it.
pub(crate) struct Keeper(AtomicU32);

impl Keeper {
    pub(crate) const fn new() -> Self {
        Self(AtomicU32::new(Work::Serve as u32))
    }

    /// Asks the keeper for `work`, and waits until it is done, for `drain` and [`REPORT`] at most. Allocates nothing.
    pub(crate) fn ask(&self, work: Work, drain: Duration) {
        let _ = self.0.compare_exchange(Work::Serve as u32, work as u32, AcqRel, Acquire);
        sys::wake_all(&self.0);
        let until = txq::Instant::now() + drain + REPORT;
        loop {
            let is = self.0.load(Acquire);
            let left = until - txq::Instant::now();
            if is == Work::Done as u32 || left.is_zero() {
                return;
            }
            sys::sleep_while(&self.0, is, nanos(left));
        }
    }

    /// Waits until there is work other than to serve; returns whether it is `Leave`.
    fn wait(&self) -> bool {
        loop {
            let is = self.0.load(Acquire);
            if is != Work::Serve as u32 {
                return is == Work::Leave as u32;
            }
            sys::sleep_while(&self.0, is, nanos(WORD_CHECK));
        }
    }

    fn done(&self) {
        self.0.store(Work::Done as u32, Release);
        sys::wake_all(&self.0);
    }
}

thread_local! {
    /// Whether the thread is the keeper or one that it has started, whose descriptors are not the program's.
    static IS_INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// Returns whether the calling thread is the keeper, or one that it has started.
#[inline]
pub(crate) fn is_inside() -> bool {
    IS_INSIDE.get()
}

/// Marks the calling thread as one of the keeper's.
pub(crate) fn enter() {
    IS_INSIDE.set(true);
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Starts the keeper, and waits until it serves.
///
/// # Errors
/// If the system gives no thread.
pub(crate) fn start(process: &'static Process, settings: &'static Settings) -> io::Result<()> {
    let (ready, is_ready) = mpsc::channel();
    let keep = move || {
        if sys::separate_descriptors() {
            enter();
        }
        let server = serve(process, settings);
        let why = server.as_ref().err().cloned();
        // The starting thread waits for it.
        let _ = ready.send(why.flatten());
        let leaves = process.keeper.wait();
        end(process, settings);
        drop(server);
        if leaves {
            process.close();
        }
        process.keeper.done();
    };
    thread::Builder::new().name("txq-keeper".into()).spawn(keep)?;
    if let Ok(Some(why)) = is_ready.recv() {
        eprintln!("txq: `txq tc` does not reach {}: {why}", settings.program);
    }
    Ok(())
}

/// Starts the control server, and sets the process's name; the error is `None` if there is none to start.
fn serve(process: &Process, settings: &Settings) -> Result<Server, Option<String>> {
    let name = settings.name.as_ref().ok_or(None)?;
    let devices = process.devices.read().unwrap_or_else(PoisonError::into_inner);
    let devices = devices.as_ref().ok_or(None)?;
    let serve = |name: &str| {
        let server = Server::builder().at(Place::Name(name.to_owned())).program(&settings.program);
        devices.all().fold(server, |server, dev| server.device(dev)).start()
    };
    // Of several processes the first has the name itself.
    let own = format!("{name}-{}", sys::pid());
    let served = match serve(name) {
        Err(Error::InUse { .. }) => serve(&own).map(|server| (server, own)),
        served => served.map(|server| (server, name.clone())),
    };
    let (server, name) = served.map_err(|error| Some(error.to_string()))?;
    let _ = process.name.set(name);
    Ok(server)
}

/// Drains the device of what the program sends, and reports.
fn end(process: &Process, settings: &Settings) {
    let devices = process.devices.read().unwrap_or_else(PoisonError::into_inner);
    let Some(devices) = devices.as_ref() else { return };
    let since = Instant::now();
    while !devices.up.is_idle() && since.elapsed() < settings.drain {
        thread::sleep(Duration::from_micros(200));
    }
    let mut ended = json!({
        "event": "ended",
        "name": process.name.get(),
        "seconds": process.started.elapsed().as_secs_f64(),
    });
    let mut append = |more: Value| {
        if let (Some(all), Value::Object(more)) = (ended.as_object_mut(), more) {
            all.extend(more);
        }
    };
    append(counters(&devices.up));
    append(json!({
        "passed": process::passed(),
        "io_uring": process::has_io_uring(),
        "tcp": process::has_tcp(),
    }));
    if let Some(down) = &devices.down {
        append(json!({ "down": counters(down), "received_past": left_sockets() }));
    }
    record(settings, ended);
}

/// Returns the counters of a device, and its qdiscs as tc shows them.
fn counters(dev: &NetDev) -> Value {
    let (stats, qdiscs) = (dev.stats(), dev.qdiscs(Default::default()));
    let dropped: serde_json::Map<String, Value> =
        stats.dropped.iter().map(|(reason, n)| (reason.to_string(), n.into())).collect();
    json!({
        "accepted": stats.accepted,
        "created": stats.created,
        "sent": stats.sent,
        "bytes_sent": stats.bytes_sent,
        "dropped": dropped,
        "queued": stats.queued,
        "qdiscs": tc::show_json(&qdiscs, true),
        "text": tc::show_text(&qdiscs, true),
    })
}
