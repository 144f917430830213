//! Looks at the program's devices twice a second, so that the report of a program that a signal kills has the last counters. Removes the
//! control sockets of such programs.

use std::collections::HashMap;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use serde_json::Value;
use txq_control::tc::Show;
use txq_control::{Access, Client, Error, Place, Socket};

/// The time between two looks.
const PERIOD: Duration = Duration::from_millis(500);
/// How long a device may take to answer.
const ANSWER: Duration = Duration::from_millis(500);

/// The text of `tc -s qdisc show` of each process, as of the last look.
pub(super) type Seen = HashMap<u64, String>;

/// A thread that looks.
pub(super) struct Watch {
    stop: Sender<()>,
    thread: Option<JoinHandle<Seen>>,
}

impl Watch {
    /// Starts to look at the devices whose records appear in the file at `path`.
    pub(super) fn start(path: String) -> Self {
        let (stop, stopped) = mpsc::channel();
        let look = move || {
            let mut seen = Seen::new();
            while stopped.recv_timeout(PERIOD) == Err(RecvTimeoutError::Timeout) {
                look(&path, &mut seen);
            }
            look(&path, &mut seen);
            seen
        };
        // Without the thread the report has no counters of killed programs.
        let thread = thread::Builder::new().name("watch".into()).spawn(look).ok();
        Self { stop, thread }
    }

    /// Ends the thread; returns the texts.
    pub(super) fn end(self) -> Seen {
        drop(self.stop);
        self.thread.and_then(|thread| thread.join().ok()).unwrap_or_default()
    }
}

fn look(path: &str, seen: &mut Seen) {
    let Ok(text) = std::fs::read_to_string(path) else { return };
    let records: Vec<Value> = super::report::records(&text).collect();
    let ended = |pid: &Value| records.iter().any(|other| other["event"] == "ended" && other["pid"] == *pid);
    for record in records.iter().filter(|record| record["event"] == "started" && !ended(&record["pid"])) {
        let (Some(pid), Some(name)) = (record["pid"].as_u64(), record["name"].as_str()) else { continue };
        let show = Show { stats: true, ..Show::default() };
        let place = Place::Name(name.to_owned());
        let asked = Client::connect_within(place.clone(), ANSWER);
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
