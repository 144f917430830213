//! The threads that ask the program: one takes snapshots, one records waits while they are shown. The screen waits for neither.

use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use txq_control::{Client, Error};

use super::Options;
use super::state::{Link, News, Recorded};

/// The longest time between two attempts to reach a program that is gone.
const LONGEST_RECONNECT: Duration = Duration::from_secs(1);

/// What a thread reports.
#[derive(Debug)]
pub(super) enum Update {
    News(News),
    /// The recorded waits of a device.
    Waits(String, Box<Recorded>),
}

/// The threads.
#[derive(Debug)]
pub(super) struct Threads {
    pub(super) reports: Receiver<Update>,
    /// The device whose waits are to be recorded; `None` for none.
    wanted: Sender<Option<String>>,
    last: Option<String>,
}

impl Threads {
    /// Starts the threads. They end after this value, at the latest when the program's answer is due.
    pub(super) fn start(options: &Options, client: Client, start: Instant) -> io::Result<Self> {
        let (report, reports) = channel();
        let (wanted, wants) = channel();
        let (own, waits) = (options.clone(), report.clone());
        thread::Builder::new()
            .name("top-sampler".to_owned())
            .spawn(move || sample(&own, client, start, &report))?;
        let own = options.clone();
        thread::Builder::new().name("top-waits".to_owned()).spawn(move || record(&own, &wants, &waits))?;
        Ok(Self { reports, wanted, last: None })
    }

    /// Sets the device whose waits are to be recorded.
    pub(super) fn want(&mut self, device: Option<&str>) {
        if self.last.as_deref() != device {
            self.last = device.map(str::to_owned);
            // Without its thread nothing is recorded; the other thread's end ends the program.
            let _ = self.wanted.send(self.last.clone());
        }
    }
}

/// Takes a snapshot of the program each `delay`, and connects again when the program is back.
fn sample(options: &Options, client: Client, start: Instant, report: &Sender<Update>) {
    let mut client = Some(client);
    loop {
        let asked = Instant::now();
        if report.send(Update::News(News::Asked(asked - start))).is_err() {
            return;
        }
        let connected = client.take().map_or_else(|| options.connect(), Ok);
        let (at, time) = (start.elapsed(), SystemTime::now());
        let seen = connected.and_then(|mut connected| {
            let seen = options.snapshot(&mut connected)?;
            client = Some(connected);
            Ok(seen)
        });
        let (news, pause) = match seen {
            Ok(seen) => (News::Snapshot(Box::new(seen), at, time), options.delay),
            Err(error) => (News::Failed(link(error)), options.delay.min(LONGEST_RECONNECT)),
        };
        if report.send(Update::News(news)).is_err() {
            return;
        }
        // A program whose answer takes longer than the delay has as much time without a request.
        let took = asked.elapsed();
        thread::sleep(pause.saturating_sub(took).max(took.min(pause)));
    }
}

/// Returns what an error says about the program.
fn link(error: Error) -> Link {
    match error {
        Error::NotRunning(_) | Error::Lost { .. } => Link::Gone,
        Error::Silent { pid: Some(pid), stopped: true, .. } => {
            Link::Silent(Some(format!("process {pid} is stopped: `kill -CONT {pid}` continues it")))
        }
        Error::Silent { .. } => Link::Silent(None),
        other => Link::Refused(other.to_string()),
    }
}

/// Records the waits of the wanted device, again and again.
fn record(options: &Options, wants: &Receiver<Option<String>>, report: &Sender<Update>) {
    let (mut client, mut wanted) = (None, None);
    loop {
        if let Some(newest) = wants.try_iter().last() {
            wanted = newest;
        }
        let Some(device) = wanted.clone() else {
            client = None;
            match wants.recv() {
                Ok(next) => wanted = next,
                Err(_) => return,
            }
            continue;
        };
        let recorded = one(options, &mut client, &device);
        let failed = recorded.is_err();
        if report.send(Update::Waits(device, Box::new(recorded))).is_err() {
            return;
        }
        if failed {
            client = None;
            match wants.recv_timeout(LONGEST_RECONNECT) {
                Ok(next) => wanted = next,
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }
}

/// Records the waits of a device for the time between two snapshots.
fn one(options: &Options, client: &mut Option<Client>, device: &str) -> Recorded {
    let mut connected = match client.take() {
        Some(connected) => connected,
        None => options.connect().map_err(|error| error.to_string())?,
    };
    let found = connected.contention(Some(device), options.delay).map_err(|error| error.to_string())?;
    *client = Some(connected);
    found.into_iter().find(|found| found.device == device).ok_or_else(|| "the device has gone".to_owned())
}
