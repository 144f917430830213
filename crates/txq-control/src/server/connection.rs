//! One connection: its bytes up to a whole line, and answers.

use std::io::{self, ErrorKind, Read};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::SendFlags;

use super::service::timespec;
use crate::answer::Answer;

/// How much is read at a time.
const CHUNK: usize = 16 << 10;

/// The state of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// It waits for a request, or for the rest of one.
    Open,
    /// A thread executes its request. The next one is not read before.
    Busy,
    /// The last answer is sent. The rest of the client's bytes is discarded, because closing before would make the client's
    /// next write fail, and the client might not read the answer.
    Closing,
}

/// The result of reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Arrival {
    /// A whole line has arrived.
    Line,
    /// The rest has not arrived yet.
    Part,
    /// The line is longer than a request may be.
    TooLong,
    /// The client has closed the connection.
    End,
}

/// A connection.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) id: u64,
    pub(super) client: Arc<UnixStream>,
    pub(super) state: State,
    /// When the state, or the present request, began. More bytes of a request do not change it.
    pub(super) since: Instant,
    buffer: Vec<u8>,
    /// The number of bytes in `buffer` without a line break.
    searched: usize,
}

impl Connection {
    pub(super) fn new(id: u64, client: UnixStream) -> Self {
        let (client, since) = (Arc::new(client), Instant::now());
        Self { id, client, state: State::Open, since, buffer: Vec::new(), searched: 0 }
    }

    /// Returns whether a part of a request has arrived.
    pub(super) fn has_part(&self) -> bool {
        !self.buffer.is_empty()
    }

    /// Changes the state.
    pub(super) fn enter(&mut self, state: State) {
        (self.state, self.since) = (state, Instant::now());
    }

    /// Reads what has arrived, up to a whole line or to `longest` bytes.
    pub(super) fn fill(&mut self, longest: usize) -> Arrival {
        let mut chunk = [0; CHUNK];
        loop {
            if self.find_end().is_some() {
                return Arrival::Line;
            }
            let room = longest.saturating_sub(self.buffer.len()).min(CHUNK);
            if room == 0 {
                return Arrival::TooLong;
            }
            match (&*self.client).read(&mut chunk[..room]) {
                Ok(0) => return Arrival::End,
                Ok(length) => {
                    if self.buffer.is_empty() {
                        self.since = Instant::now();
                    }
                    self.buffer.extend_from_slice(&chunk[..length]);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Arrival::Part,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return Arrival::End,
            }
        }
    }

    fn find_end(&mut self) -> Option<usize> {
        let found = self.buffer[self.searched..].iter().position(|&byte| byte == b'\n');
        let end = found.map(|at| self.searched + at);
        self.searched = end.unwrap_or(self.buffer.len());
        end
    }

    /// Takes the first line, with its end, if it has arrived.
    pub(super) fn take_line(&mut self) -> Option<Vec<u8>> {
        let end = self.find_end()?;
        let rest = self.buffer.split_off(end + 1);
        self.searched = 0;
        Some(std::mem::replace(&mut self.buffer, rest))
    }

    /// Sends the last answer, if the client's socket has room for it, and begins to close.
    pub(super) fn close_with(&mut self, answer: Answer) {
        let _ = send(&self.client, &answer.closing(), Duration::ZERO);
        let _ = self.client.shutdown(Shutdown::Write);
        (self.buffer, self.searched) = (Vec::new(), 0);
        self.enter(State::Closing);
    }

    /// Discards what has arrived; returns whether more may arrive.
    pub(super) fn discard(&self) -> bool {
        match (&*self.client).read(&mut [0; CHUNK]) {
            Ok(length) => length > 0,
            Err(error) => matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted),
        }
    }
}

/// Sends an answer. The socket does not block; the client has `patience` to make room.
pub(super) fn send(client: &UnixStream, answer: &Answer, patience: Duration) -> io::Result<()> {
    let mut line = serde_json::to_vec(answer)?;
    line.push(b'\n');
    let (mut rest, end) = (&line[..], Instant::now() + patience);
    while !rest.is_empty() {
        // Without SIGPIPE, which would end a program that has not disabled it.
        match rustix::net::send(client, rest, SendFlags::NOSIGNAL).map_err(io::Error::from) {
            Ok(sent) => rest = &rest[sent..],
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                let left = end.saturating_duration_since(Instant::now());
                let mut ready = [PollFd::new(client, PollFlags::OUT)];
                if left.is_zero() || matches!(poll(&mut ready, Some(&timespec(left))), Ok(0)) {
                    return Err(ErrorKind::TimedOut.into());
                }
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
