//! One connection: its bytes up to a whole line, and answers.

use std::io::{self, ErrorKind, Read};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Instant;

use rustix::net::SendFlags;

use crate::answer::Answer;

/// How much is read at a time.
const READ_BYTES: usize = 16 << 10;

/// The state of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// It waits for a request, or for the rest of one.
    Open,
    /// A thread executes its request. The next one is not read before.
    Busy,
    /// A part of its answer waits until the client reads.
    Sending,
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
    /// The rest of the answer.
    unsent: Vec<u8>,
}

impl Connection {
    pub(super) fn new(id: u64, client: UnixStream) -> Self {
        let (client, since) = (Arc::new(client), Instant::now());
        Self { id, client, state: State::Open, since, buffer: Vec::new(), searched: 0, unsent: Vec::new() }
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
        let mut chunk = [0; READ_BYTES];
        loop {
            if self.find_end().is_some() {
                return Arrival::Line;
            }
            let room = longest.saturating_sub(self.buffer.len()).min(READ_BYTES);
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
        let _ = send(&self.client, &answer.closing());
        let _ = self.client.shutdown(Shutdown::Write);
        (self.buffer, self.searched) = (Vec::new(), 0);
        self.enter(State::Closing);
    }

    /// Takes the rest of an answer, to be sent when the client reads.
    pub(super) fn hold(&mut self, rest: Vec<u8>) {
        self.unsent = rest;
        self.enter(State::Sending);
    }

    /// Returns the number of bytes of the answer that wait.
    pub(super) fn unsent(&self) -> usize {
        self.unsent.len()
    }

    /// Sends what the client has room for; returns whether all is sent.
    ///
    /// # Errors
    /// The client is gone.
    pub(super) fn go_on(&mut self) -> io::Result<bool> {
        let sent = send_some(&self.client, &self.unsent)?;
        self.unsent.drain(..sent);
        Ok(self.unsent.is_empty())
    }

    /// Discards what has arrived; returns whether more may arrive.
    pub(super) fn discard(&self) -> bool {
        match (&*self.client).read(&mut [0; READ_BYTES]) {
            Ok(length) => length > 0,
            Err(error) => matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted),
        }
    }
}

/// Returns the line of an answer.
pub(super) fn line(answer: &Answer) -> io::Result<Vec<u8>> {
    let mut line = serde_json::to_vec(answer)?;
    line.push(b'\n');
    Ok(line)
}

/// Sends an answer, as much of it as the client's socket has room for.
pub(super) fn send(client: &UnixStream, answer: &Answer) -> io::Result<()> {
    send_some(client, &line(answer)?).map(drop)
}

/// Sends bytes until the client's socket has no room; returns how many. The socket does not block.
///
/// # Errors
/// The client is gone.
pub(super) fn send_some(client: &UnixStream, bytes: &[u8]) -> io::Result<usize> {
    let mut sent = 0;
    while sent < bytes.len() {
        // Without SIGPIPE, which would end a program that has not disabled it.
        match rustix::net::send(client, &bytes[sent..], SendFlags::NOSIGNAL).map_err(io::Error::from) {
            Ok(more) => sent += more,
            Err(error) if error.kind() == ErrorKind::WouldBlock => break,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(sent)
}
