//! A device that sends everything at once, a folder for its socket, and raw connections to it.

#![allow(dead_code, reason = "each test uses a part")]

#[path = "../../../../tests/support/tempdir.rs"]
mod tempdir;

use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempdir::TempDir;
use txq::NetDev;
use txq::driver::{DeviceInfo, Driver, DriverQueue, NoCompletions, Status, Transmit, TxCx};
use txq::packet::PacketList;

/// A bound that no test reaches on a working server, however slow the machine is.
pub(crate) const LONG: Duration = Duration::from_secs(120);

pub(crate) struct Sink(pub(crate) String);

impl Driver for Sink {
    fn info(&self) -> DeviceInfo {
        DeviceInfo::new(&self.0)
    }

    fn open(&mut self, _: u16) -> io::Result<DriverQueue> {
        Ok(DriverQueue::new(Self(String::new()), NoCompletions))
    }
}

impl Transmit for Sink {
    fn start_xmit(&mut self, batch: &mut PacketList, cx: &mut TxCx<'_>) -> Status {
        while let Some(packet) = batch.pop_front() {
            cx.sent(packet);
        }
        Status::Ok
    }
}

/// Starts a device.
pub(crate) fn device(name: &str) -> NetDev {
    NetDev::builder(Sink(name.to_owned())).qdisc("pfifo limit 10").start().expect("a device")
}

/// A folder that is removed when its guard is dropped, and the place of a socket in it.
pub(crate) struct Folder(TempDir);

impl Folder {
    pub(crate) fn new() -> Self {
        Self(TempDir::new())
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.path().join("control.sock")
    }
}

/// A connection without a client's care.
pub(crate) struct Raw(BufReader<UnixStream>);

impl Raw {
    pub(crate) fn new(socket: &Path) -> Self {
        let stream = UnixStream::connect(socket).expect("a connection");
        stream.set_read_timeout(Some(LONG)).expect("a timeout");
        Self(BufReader::new(stream))
    }

    /// Writes bytes; the server may refuse them.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.get_mut().write_all(bytes)
    }

    pub(crate) fn stream(&self) -> &UnixStream {
        self.0.get_ref()
    }

    /// Returns the next answer; `None` at the end of the connection.
    pub(crate) fn answer(&mut self) -> Option<Value> {
        let mut line = String::new();
        match self.0.read_line(&mut line) {
            Ok(0) => None,
            Ok(_) => Some(serde_json::from_str(&line).expect("JSON")),
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => None,
            Err(error) => panic!("no answer: {error}"),
        }
    }

    pub(crate) fn ask(&mut self, line: &str) -> Option<Value> {
        self.write(line.as_bytes()).and_then(|()| self.write(b"\n")).expect("sent");
        self.answer()
    }
}

/// Polls `done` until it is true; fails after [`LONG`].
#[track_caller]
pub(crate) fn wait_for(what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < LONG, "{what}: not within {LONG:?}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Splits a command into words.
pub(crate) fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}
