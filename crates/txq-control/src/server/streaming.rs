//! An answer of many lines: a trace, or a monitor.

use std::io::{self, ErrorKind};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::SendFlags;

use super::service::{Event, timespec};
use crate::trace::Stream;

/// A client that gets lines until it ends its side of the connection.
pub(super) struct Streaming<'s> {
    pub(super) client: &'s UnixStream,
    pub(super) stop: &'s Event,
    /// The longest time that the client may take to read.
    pub(super) patience: Duration,
}

impl Stream for Streaming<'_> {
    fn send(&mut self, bytes: &[u8]) -> bool {
        let sent = self.send_all(bytes).is_ok();
        if !sent {
            // A part of a line may be sent: nothing may follow it.
            let _ = self.client.shutdown(Shutdown::Both);
        }
        sent
    }

    fn wait(&mut self, time: Duration) -> bool {
        // The end of the client's side, or of both: a client that wants the last line keeps its other side open.
        let mut ready =
            [PollFd::new(self.client, PollFlags::RDHUP), PollFd::new(self.stop.fd(), PollFlags::IN)];
        matches!(poll(&mut ready, Some(&timespec(time))), Ok(0) | Err(rustix::io::Errno::INTR))
    }
}

impl Streaming<'_> {
    /// Sends bytes; the client may take its time for each part that it reads.
    fn send_all(&self, bytes: &[u8]) -> io::Result<()> {
        self.send_by(bytes, |end| *end = Instant::now() + self.patience)
    }

    /// Sends bytes; the client may take its time for all of them together.
    pub(super) fn send_within(&self, bytes: &[u8]) -> io::Result<()> {
        self.send_by(bytes, |_| {})
    }

    /// Sends bytes, and calls `read` with the end of the client's time when it has read some.
    fn send_by(&self, mut rest: &[u8], read: impl Fn(&mut Instant)) -> io::Result<()> {
        let mut end = Instant::now() + self.patience;
        while !rest.is_empty() {
            match rustix::net::send(self.client, rest, SendFlags::NOSIGNAL).map_err(io::Error::from) {
                Ok(sent) => {
                    rest = &rest[sent..];
                    read(&mut end);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    let left = end.saturating_duration_since(Instant::now());
                    let mut ready = [
                        PollFd::new(self.client, PollFlags::OUT),
                        PollFd::new(self.stop.fd(), PollFlags::IN),
                    ];
                    let polled = poll(&mut ready, Some(&timespec(left)));
                    if left.is_zero() || polled == Ok(0) || self.stop.is_set() {
                        return Err(ErrorKind::TimedOut.into());
                    }
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}
