//! Clients: requests to a running txq.

use std::io::{self, ErrorKind, Read};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SendFlags, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use serde::de::DeserializeOwned;

use crate::answer::{Answer, owned};
use crate::info::Info;
use crate::message::{Recording, Request};
use crate::peer::{Peer, is_stopped};
use crate::record::{Contention, Times};
use crate::stat::Counters;
use crate::tc::Show;
use crate::{Error, Interval, Place};

mod monitoring;
mod tracing;

pub use monitoring::{Monitored, Monitoring};
pub use tracing::{Traced, Tracing};

/// How long a client waits for an answer, unless the caller sets another time.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// The longest answer that is read, in bytes. A list of 65,535 classes with their counters has a third of it.
const MAX_ANSWER_BYTES: usize = 64 << 20;

/// A connection to a running txq.
///
/// ```no_run
/// use txq_control::{Client, tc::Show};
///
/// let mut client = Client::connect("shaper")?;
/// let answer = client.tc(&["qdisc", "replace", "dev", "wan", "root", "fq_codel"], Show::default())?;
/// assert_eq!(answer.rc, 0, "{}", answer.err);
/// println!("{:?}", client.info()?.devices);
/// # Ok::<(), txq_control::Error>(())
/// ```
#[derive(Debug)]
pub struct Client {
    path: PathBuf,
    stream: UnixStream,
    timeout: Duration,
    /// Bytes behind the last answer.
    read: Vec<u8>,
}

impl Client {
    /// Connects to a socket by its name, or by a path with a `/`. The client waits 10 s for each answer.
    ///
    /// # Errors
    /// [`Error::NotRunning`] if no server has the socket, [`Error::Denied`] if it is another user's, [`Error::Silent`] if the
    /// server does not accept, [`Error::Lost`] if the system refuses, [`Error::Name`] for a name that no socket can have.
    pub fn connect(place: impl Into<Place>) -> Result<Self, Error> {
        Self::connect_within(place, ANSWER_TIMEOUT)
    }

    /// Connects, and waits `timeout` for the connection and for each answer; without end for zero.
    ///
    /// # Errors
    /// Those of [`connect`](Self::connect).
    pub fn connect_within(place: impl Into<Place>, timeout: Duration) -> Result<Self, Error> {
        let path = place.into().path()?.into_owned();
        let stream = open(&path, timeout).map_err(|error| match error.kind() {
            ErrorKind::NotFound | ErrorKind::ConnectionRefused => Error::NotRunning(path.clone()),
            ErrorKind::PermissionDenied => Error::Denied(path.clone()),
            // The kernel's list of connections that the server has not accepted is full.
            ErrorKind::WouldBlock => Error::Silent { path: path.clone(), timeout, pid: None, stopped: false },
            _ => Error::lost(&path, error),
        })?;
        Ok(Self { path, stream, timeout, read: Vec::new() })
    }

    /// Returns the path of the socket.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the process that serves the socket; `None` for one in another PID namespace.
    pub fn pid(&self) -> Option<u32> {
        Peer::of(&self.stream).ok().and_then(|peer| peer.pid)
    }

    /// Executes a command in tc's syntax, without tc's options; `show` stands for these.
    ///
    /// # Errors
    /// [`Error::Silent`] if no answer arrives in time, [`Error::Lost`] if the connection ends. An error of tc is an answer.
    pub fn tc<W: AsRef<str>>(&mut self, words: &[W], show: Show) -> Result<Answer, Error> {
        self.ask(&Request::Tc { words: owned(words), show }, Duration::ZERO)
    }

    /// Executes commands in tc's syntax in one exchange, as [`tc`](Self::tc) does each: all of them with `force`, else up to the
    /// first that fails. Returns an answer for each that was executed. The client waits its timeout for each command.
    ///
    /// # Errors
    /// Those of [`tc`](Self::tc).
    pub fn batch(&mut self, commands: &[Vec<String>], show: Show, force: bool) -> Result<Vec<Answer>, Error> {
        if let [_, _, ..] = commands {
            let request = Request::Batch { commands: commands.to_vec(), show, force };
            let answer = self.ask(&request, self.timeout.saturating_mul(commands.len() as u32 - 1))?;
            if answer.data.is_some() {
                return self.result(answer);
            }
            // The server has executed none: it knows no batches, or takes no request that long.
            if answer.closed {
                *self = Self::connect_within(self.path.clone(), self.timeout)?;
            }
        }
        let mut answers: Vec<Answer> = Vec::with_capacity(commands.len());
        for words in commands {
            answers.push(self.tc(words, show)?);
            if !force && answers.last().is_some_and(|answer| answer.rc != 0) {
                break;
            }
        }
        Ok(answers)
    }

    /// Executes a command in the syntax of `txq dev`.
    ///
    /// # Errors
    /// Those of [`tc`](Self::tc).
    pub fn dev<W: AsRef<str>>(&mut self, words: &[W]) -> Result<Answer, Error> {
        self.ask(&Request::Dev { words: owned(words) }, Duration::ZERO)
    }

    /// Returns the program and its devices.
    ///
    /// # Errors
    /// Those of [`tc`](Self::tc), and [`Error::Refused`] if the server speaks another version of the protocol.
    pub fn info(&mut self) -> Result<Info, Error> {
        self.data(&Request::Info {}, Duration::ZERO)
    }

    /// Returns the counters of a device, or of all devices.
    ///
    /// # Errors
    /// Those of [`info`](Self::info), and [`Error::Refused`] if there is no such device.
    pub fn stat(&mut self, dev: Option<&str>) -> Result<Vec<Counters>, Error> {
        self.data(&Request::Stat { dev: dev.map(str::to_owned) }, Duration::ZERO)
    }

    /// Makes the program read its configuration again ([`Builder::on_reload`](crate::Builder::on_reload)). The answer's output says
    /// what changed, or its error why nothing did.
    ///
    /// # Errors
    /// Those of [`tc`](Self::tc).
    pub fn reload(&mut self) -> Result<Answer, Error> {
        self.ask(&Request::Reload {}, Duration::ZERO)
    }

    /// Returns the qdiscs, classes and filters of a device, or of all devices, as commands of tc ([`tc::save`](crate::tc::save)).
    ///
    /// # Errors
    /// Those of [`tc`](Self::tc). A device that does not exist is an answer.
    pub fn save(&mut self, dev: Option<&str>) -> Result<Answer, Error> {
        self.ask(&Request::Save { dev: dev.map(str::to_owned) }, Duration::ZERO)
    }

    /// Records the waits between threads in a device, or in all devices, for a time; returns a record for each device.
    ///
    /// The server stops recording when the time is over or the client is gone. If the program itself records, the result
    /// begins when the program began.
    ///
    /// # Errors
    /// Those of [`tc`](Self::tc), and [`Error::Refused`] if there is no such device, another client records it, or too many
    /// recordings run.
    pub fn contention(&mut self, dev: Option<&str>, time: Duration) -> Result<Vec<Contention>, Error> {
        let dev = dev.map(str::to_owned);
        self.data(&Request::Contention(Recording { dev, ms: millis(time) }), time)
    }

    /// Counts times of a device, or of all devices, for a time; without a time, since the devices were built.
    ///
    /// # Errors
    /// Those of [`contention`](Self::contention).
    pub fn hist(&mut self, what: Interval, dev: Option<&str>, time: Duration) -> Result<Vec<Times>, Error> {
        let dev = dev.map(str::to_owned);
        self.data(&Request::Hist { what, dev, ms: millis(time) }, time)
    }

    /// Sends a request and returns the result in its answer.
    fn data<T: DeserializeOwned>(&mut self, request: &Request, more: Duration) -> Result<T, Error> {
        let answer = self.ask(request, more)?;
        self.result(answer)
    }

    /// Returns the result in an answer.
    fn result<T: DeserializeOwned>(&self, answer: Answer) -> Result<T, Error> {
        match answer.data {
            Some(data) if answer.rc == 0 => serde_json::from_value(*data)
                .map_err(|error| Error::lost(&self.path, format!("not an answer: {error}"))),
            _ => Err(self.refused(&answer)),
        }
    }

    fn refused(&self, answer: &Answer) -> Error {
        Error::Refused { path: self.path.clone(), why: answer.err.trim_end().replace('\n', "; ") }
    }

    fn parse(&self, line: &[u8]) -> Result<Answer, Error> {
        serde_json::from_slice(line)
            .map_err(|error| Error::lost(&self.path, format!("not an answer: {error}")))
    }

    /// Sends a request and returns its answer, for which the client waits `more` than its timeout. Connects again if the
    /// server had closed the idle connection.
    fn ask(&mut self, request: &Request, more: Duration) -> Result<Answer, Error> {
        let line = request.line().map_err(|error| Error::lost(&self.path, error))?;
        let first = self.exchange(&line, more)?;
        if !first.closed {
            return Ok(first);
        }
        // The server did not read the request: it says so by `closed`. A second refusal is the answer.
        match Self::connect_within(self.path.clone(), self.timeout) {
            Ok(again) => *self = again,
            Err(_) => return Ok(first),
        }
        self.exchange(&line, more)
    }

    fn exchange(&mut self, line: &[u8], more: Duration) -> Result<Answer, Error> {
        let answer = self.exchange_line(line, more)?;
        self.parse(&answer)
    }

    /// Sends a line and returns the next one.
    fn exchange_line(&mut self, line: &[u8], more: Duration) -> Result<Vec<u8>, Error> {
        let end = (!self.timeout.is_zero()).then(|| Instant::now() + self.timeout + more);
        // A server that refuses may have closed its side already: its answer is read all the same.
        let sent = self.send(line, end);
        if let Err(error) = &sent
            && error.kind() == ErrorKind::WouldBlock
        {
            return Err(self.silent());
        }
        match self.receive(end) {
            Ok(answer) => Ok(answer),
            Err(error) if error.kind() == ErrorKind::WouldBlock => Err(self.silent()),
            Err(error) => Err(Error::lost(&self.path, sent.err().unwrap_or(error))),
        }
    }

    fn silent(&self) -> Error {
        let pid = self.pid();
        let stopped = pid.is_some_and(is_stopped);
        Error::Silent { path: self.path.clone(), timeout: self.timeout, pid, stopped }
    }

    fn send(&self, line: &[u8], end: Option<Instant>) -> io::Result<()> {
        let mut rest = line;
        while !rest.is_empty() {
            set_socket_timeout(&self.stream, Timeout::Send, left(end)?)?;
            match rustix::net::send(&self.stream, rest, SendFlags::NOSIGNAL) {
                Ok(sent) => rest = &rest[sent..],
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Returns the next line.
    fn receive(&mut self, end: Option<Instant>) -> io::Result<Vec<u8>> {
        let mut searched = 0;
        loop {
            if let Some(at) = self.read[searched..].iter().position(|&byte| byte == b'\n') {
                let rest = self.read.split_off(searched + at + 1);
                return Ok(std::mem::replace(&mut self.read, rest));
            }
            searched = self.read.len();
            if searched > MAX_ANSWER_BYTES {
                let text = format!("the answer is longer than {} MiB", MAX_ANSWER_BYTES >> 20);
                return Err(io::Error::new(ErrorKind::InvalidData, text));
            }
            set_socket_timeout(&self.stream, Timeout::Recv, left(end)?)?;
            let mut chunk = [0; 16 << 10];
            match (&self.stream).read(&mut chunk) {
                Ok(0) => {
                    return Err(io::Error::new(
                        ErrorKind::UnexpectedEof,
                        "the connection ended before the answer",
                    ));
                }
                Ok(length) => self.read.extend_from_slice(&chunk[..length]),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}

/// Returns a connected socket.
fn open(path: &Path, timeout: Duration) -> io::Result<UnixStream> {
    let address = SocketAddrUnix::new(path)?;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    // `connect` waits like a write while the server's list of connections is full.
    set_socket_timeout(&socket, Timeout::Send, (!timeout.is_zero()).then_some(timeout))?;
    while let Err(error) = connect(&socket, &address) {
        if error != rustix::io::Errno::INTR {
            return Err(error.into());
        }
    }
    Ok(socket.into())
}

/// Returns the time until `end`, for a socket's timeout; an error if there is none left.
fn left(end: Option<Instant>) -> io::Result<Option<Duration>> {
    let left = end.map(|end| end.saturating_duration_since(Instant::now()));
    match left {
        Some(left) if left.is_zero() => Err(ErrorKind::WouldBlock.into()),
        // A socket's timeout has microseconds, and 0 waits without end.
        _ => Ok(left.map(|left| left.max(Duration::from_micros(1)))),
    }
}

fn millis(time: Duration) -> u64 {
    time.as_millis().try_into().unwrap_or(u64::MAX)
}
