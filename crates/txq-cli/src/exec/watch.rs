//! Reads the counters of the program's devices twice a second, so that the report of a program that a signal kills has the last ones.
//! Removes the control sockets of such programs.

use std::collections::HashMap;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use serde_json::Value;
use txq_control::tc::Show;
use txq_control::{Access, Client, Error, Place, Socket};

/// The time between two readings.
const READING_PERIOD: Duration = Duration::from_millis(500);
/// How long a device may take to answer.
const DEVICE_TIMEOUT: Duration = Duration::from_millis(500);

/// The text of `tc -s qdisc show` of each process, as of the last reading.
pub(super) type LastCounters = HashMap<u64, String>;

/// The thread that reads the counters.
pub(super) struct Watch {
    stop: Sender<()>,
    thread: Option<JoinHandle<LastCounters>>,
}

impl Watch {
    /// Starts to read the counters of the devices whose records appear in the file at `path`.
    pub(super) fn start(path: String) -> Self {
        let (stop, stopped) = mpsc::channel();
        let watch = move || {
            let mut seen = LastCounters::new();
            while stopped.recv_timeout(READING_PERIOD) == Err(RecvTimeoutError::Timeout) {
                read_counters(&path, &mut seen);
            }
            read_counters(&path, &mut seen);
            seen
        };
        // Without the thread the report has no counters of killed programs.
        let thread = thread::Builder::new().name("watch".into()).spawn(watch).ok();
        Self { stop, thread }
    }

    /// Ends the thread; returns the texts.
    pub(super) fn end(self) -> LastCounters {
        drop(self.stop);
        self.thread.and_then(|thread| thread.join().ok()).unwrap_or_default()
    }
}

fn read_counters(path: &str, seen: &mut LastCounters) {
    let Ok(text) = std::fs::read_to_string(path) else { return };
    let records: Vec<Value> = super::report::records(&text).collect();
    let ended = |pid: &Value| records.iter().any(|other| other["event"] == "ended" && other["pid"] == *pid);
    for record in records.iter().filter(|record| record["event"] == "started" && !ended(&record["pid"])) {
        let (Some(pid), Some(name)) = (record["pid"].as_u64(), record["name"].as_str()) else { continue };
        let show = Show { stats: true, ..Show::default() };
        let place = Place::Name(name.to_owned());
        let asked = Client::connect_within(place.clone(), DEVICE_TIMEOUT);
        match asked.and_then(|mut client| client.tc(&["qdisc", "show"], show)) {
            Ok(answer) => drop(seen.insert(pid, answer.out)),
            Err(Error::NotRunning(_)) => remove(&place),
            Err(_) => {}
        }
    }
}

/// Removes the control socket of a process that is dead, and its lock.
fn remove(place: &Place) {
    if place.path().is_ok_and(|path| path.exists()) {
        // A server removes its socket when it is dropped. If another process has the name meanwhile, this is an error.
        drop(Socket::open(place, Access::Owner));
    }
}
