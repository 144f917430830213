//! Execution of requests.

use std::error::Error as StdError;
use std::fmt;
use std::io::ErrorKind;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};
use std::{io, process};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

use super::connection::{self, send_some};
use super::streaming::Streaming;
use crate::answer::{Answer, INPUT, REFUSED};
use crate::devices::Devices;
use crate::info::{Info, InfoDevice};
use crate::message::{Request, VERSION};
use crate::peer::{Access, Peer};
use crate::record::{self, Recordings};
use crate::tc::Show;
use crate::{Limits, dev, monitor, stat, tc, trace};

/// The length at which a part of a batch's answer is sent.
const ANSWER_PART_BYTES: usize = 64 << 10;

/// An event that other threads wait for in a `poll`.
#[derive(Debug)]
pub(super) struct Event(OwnedFd);

impl Event {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?))
    }

    pub(super) fn set(&self) {
        // It fails only if the counter is at its end, which also wakes.
        let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }

    pub(super) fn clear(&self) {
        let _ = rustix::io::read(&self.0, &mut [0u8; 8]);
    }

    pub(super) fn is_set(&self) -> bool {
        let mut ready = [PollFd::new(&self.0, PollFlags::IN)];
        matches!(poll(&mut ready, Some(&timespec(Duration::ZERO))), Ok(1..))
    }

    pub(super) fn fd(&self) -> &OwnedFd {
        &self.0
    }
}

/// The program's function that reads its configuration again; returns what it has to say.
pub(super) struct Reload(pub(super) Box<ReloadFn>);

pub(super) type ReloadFn =
    dyn Fn() -> Result<String, Box<dyn StdError + Send + Sync>> + Send + Sync + 'static;

impl fmt::Debug for Reload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Reload")
    }
}

/// The state that all threads of a server share.
#[derive(Debug)]
pub(super) struct Service {
    pub(super) devices: Devices,
    pub(super) program: String,
    pub(super) limits: Limits,
    pub(super) recordings: Recordings,
    pub(super) reload: Option<Reload>,
    /// The number of recordings that run. The threads that execute requests add and subtract; the order does not matter,
    /// because the number guards no other data.
    pub(super) recording: AtomicUsize,
    /// The number of threads that wait for a reader, likewise.
    pub(super) unread: AtomicUsize,
    /// Set once, when the server stops.
    pub(super) stop: Event,
}

impl Service {
    /// Executes a line of `client`; returns the last bytes of the answer. Those before, of a batch or a stream, are sent.
    ///
    /// # Errors
    /// The client is gone or does not read, or the server stops.
    pub(super) fn answer(&self, line: &[u8], client: &UnixStream) -> io::Result<Vec<u8>> {
        match Request::parse(line) {
            Ok(Request::Batch { commands, show, force }) => self.batch(&commands, &show, force, client),
            Ok(request) => connection::line(&caught(|| self.execute(request, client))),
            Err(answer) => connection::line(&answer),
        }
    }

    fn execute(&self, request: Request, client: &UnixStream) -> Answer {
        match request {
            Request::Tc { words, show } => tc::run(&self.devices, &words, &show, is_owner(client)),
            Request::Batch { .. } => unreachable!("its answer is sent in parts"),
            Request::Dev { words } => dev::run(&self.devices, &words, is_owner(client)),
            Request::Info {} => Answer::of(self.info()),
            Request::Stat { dev } => stat::stat(&self.devices, dev.as_deref()),
            Request::Reload {} => self.reload(),
            Request::Save { dev } => tc::save_devices(&self.devices, dev.as_deref()),
            Request::Contention(recording) => self.record(recording.ms, |time| {
                let wait = || self.wait(time, client);
                record::contention(&self.devices, &self.recordings, recording.dev.as_deref(), wait)
            }),
            Request::Hist { what, dev, ms: 0 } => {
                record::hist(&self.devices, dev.as_deref(), what, Duration::ZERO, || true)
            }
            Request::Hist { what, dev, ms } => self.record(ms, |time| {
                record::hist(&self.devices, dev.as_deref(), what, time, || self.wait(time, client))
            }),
            Request::Monitor {} => self.record(0, |_| {
                let patience = self.limits.answer_time;
                monitor::monitor(&self.devices, &mut Streaming { client, stop: &self.stop, patience })
            }),
            Request::Trace(options) => self.record(options.ms.unwrap_or(0), |_| {
                let patience = self.limits.answer_time;
                trace::trace(&self.devices, &options, &mut Streaming { client, stop: &self.stop, patience })
            }),
        }
    }

    /// Executes commands: all of them with `force`, else up to the first that fails. The answer's data are their answers, which are sent
    /// as they come; returns the last bytes.
    fn batch(
        &self,
        commands: &[Vec<String>],
        show: &Show,
        force: bool,
        client: &UnixStream,
    ) -> io::Result<Vec<u8>> {
        let mut line = br#"{"out":"","err":"","rc":0,"data":["#.to_vec();
        // The answer's time is for all parts together.
        let mut patience = self.limits.answer_time;
        for (at, words) in commands.iter().enumerate() {
            if self.stop.is_set() {
                return Err(ErrorKind::Interrupted.into());
            }
            let answer = caught(|| tc::run(&self.devices, words, show, is_owner(client)));
            if at > 0 {
                line.push(b',');
            }
            serde_json::to_writer(&mut line, &answer)?;
            if answer.rc != 0 && !force {
                break;
            }
            if line.len() > ANSWER_PART_BYTES {
                self.send(&mut line, client, &mut patience)?;
            }
        }
        line.extend_from_slice(b"]}\n");
        Ok(line)
    }

    /// Sends all of `line`, and subtracts the time that the client took from `patience`.
    fn send(&self, line: &mut Vec<u8>, client: &UnixStream, patience: &mut Duration) -> io::Result<()> {
        let sent = send_some(client, line)?;
        if sent < line.len() {
            // Half of the threads never wait for a reader: they are for clients that read.
            let (_one, number) = One::of(&self.unread);
            if number > (self.limits.commands / 2).max(1) {
                return Err(ErrorKind::TimedOut.into());
            }
            let start = Instant::now();
            Streaming { client, stop: &self.stop, patience: *patience }.send_within(&line[sent..])?;
            *patience = patience.saturating_sub(start.elapsed());
        }
        line.clear();
        Ok(())
    }

    fn info(&self) -> Info {
        Info {
            program: self.program.clone(),
            pid: process::id(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            protocol: VERSION,
            devices: self.devices.all(InfoDevice::of),
        }
    }

    fn reload(&self) -> Answer {
        match &self.reload {
            Some(Reload(reload)) => match reload() {
                Ok(out) => Answer::good(out),
                Err(error) => Answer::bad(REFUSED, &error.to_string(), None),
            },
            None => {
                let remedy = "this program reads no configuration again: restart it";
                Answer::bad(REFUSED, "RTNETLINK answers: Operation not supported", Some(remedy))
            }
        }
    }

    /// Calls `f` with the time of a recording, unless it is too long or too many run.
    fn record(&self, ms: u64, f: impl FnOnce(Duration) -> Answer) -> Answer {
        let (time, longest) = (Duration::from_millis(ms), self.limits.recording_time);
        if time > longest {
            return Answer::bad(
                INPUT,
                &format!("{time:?} is too long a recording"),
                Some(&format!("use at most {longest:?}")),
            );
        }
        let (_one, number) = One::of(&self.recording);
        if number > self.limits.recordings {
            return Answer::bad(REFUSED, "too many recordings at a time", Some("wait for the end of one"));
        }
        f(time)
    }

    /// Waits; returns false at once when the client is gone or the server stops.
    fn wait(&self, time: Duration, client: &impl AsFd) -> bool {
        let end = Instant::now() + time;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return true;
            }
            // No events: only the end of the connection, in both directions, wakes.
            let mut ready =
                [PollFd::new(client, PollFlags::empty()), PollFd::new(self.stop.fd(), PollFlags::IN)];
            match poll(&mut ready, Some(&timespec(left))) {
                Ok(0) | Err(rustix::io::Errno::INTR) => {}
                _ => return false,
            }
        }
    }
}

/// Counts one more while it lives, and when a panic drops it, too.
struct One<'a>(&'a AtomicUsize);

impl<'a> One<'a> {
    /// Returns the one, and the number with it.
    fn of(number: &'a AtomicUsize) -> (Self, usize) {
        let before = number.fetch_add(1, Relaxed);
        (Self(number), before + 1)
    }
}

impl Drop for One<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

/// Returns whether a client's user is the program's own, or root.
fn is_owner(client: &UnixStream) -> bool {
    let own = rustix::process::geteuid().as_raw();
    Peer::of(client).is_ok_and(|peer| Access::Owner.allows(peer, own))
}

/// Returns the answer to a command, also if it panics: a panic of a qdisc or a driver must not end the server.
fn caught(command: impl FnOnce() -> Answer) -> Answer {
    catch_unwind(AssertUnwindSafe(command)).unwrap_or_else(|_| {
        Answer::bad(REFUSED, "the command panicked", Some("the program's stderr says where"))
    })
}

/// Returns a time for `poll`, at most a day.
pub(super) fn timespec(time: Duration) -> Timespec {
    let time = time.min(Duration::from_secs(86_400));
    Timespec { tv_sec: time.as_secs() as i64, tv_nsec: time.subsec_nanos().into() }
}
