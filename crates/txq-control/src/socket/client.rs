//! The client: a program that sends through a running txq.

use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};

use crate::socket::layout::Layout;
use crate::socket::memory::Memory;
use crate::socket::ring::{Broken, Descriptor, Producer};
use crate::socket::wire::{self, Heard};
use crate::socket::{Error, Reason};

/// A connection to a socket of a running txq, with a ring in shared memory.
///
/// Frames that were [flushed](Self::flush) are sent also if the program ends.
#[derive(Debug)]
pub struct Client {
    memory: Memory,
    socket: UnixStream,
    producer: Producer,
    /// Why the server has ended the connection.
    ended: Option<Option<Reason>>,
}

impl From<Broken> for Error {
    fn from(_: Broken) -> Self {
        Self::Protocol("its cursor is one that it cannot have".to_owned())
    }
}

impl Client {
    /// Connects to the socket at a path, and waits for the server's welcome.
    ///
    /// # Errors
    /// [`Error::Connect`] if nothing listens there or the file's permissions exclude the caller, [`Error::Refused`] if the server
    /// refuses, [`Error::Protocol`] if it is no such server or one of another version.
    pub fn connect(path: impl AsRef<Path>) -> Result<Self, Error> {
        let path = path.as_ref();
        let connected = UnixStream::connect(path);
        let socket = connected.map_err(|source| Error::Connect { path: path.to_owned(), source })?;
        let (fd, size) = wire::welcomed(&socket)?;
        let memory = Memory::receive(&fd, size).map_err(|error| Error::Protocol(error.to_string()))?;
        Ok(Self { memory, socket, producer: Producer::default(), ended: None })
    }

    /// Returns the dimensions of the ring, and the bounds of frames.
    pub fn layout(&self) -> &Layout {
        self.memory.layout()
    }

    /// Returns how many frames fit into the ring now.
    ///
    /// # Errors
    /// [`Error::Protocol`] if the server's cursor is wrong.
    pub fn room(&mut self) -> Result<u32, Error> {
        Ok(self.producer.room(self.memory.ring())?)
    }

    /// Returns how many frames the server has not taken yet.
    ///
    /// # Errors
    /// As [`room`](Self::room).
    pub fn pending(&mut self) -> Result<u32, Error> {
        Ok(self.producer.pending(self.memory.ring())?)
    }

    /// Returns how many descriptors the server has rejected, modulo 2^32: 0 for a client that uses this type alone.
    pub fn rejected(&self) -> u32 {
        self.memory.ring().rejected()
    }

    /// Puts a copy of a frame into the ring. The server sees it after [`flush`](Self::flush).
    ///
    /// # Errors
    /// [`Error::Full`], [`Error::Length`], [`Error::Priority`]; and [`Error::Protocol`] if the server's cursor is wrong.
    pub fn push(&mut self, frame: &[u8], priority: u32) -> Result<(), Error> {
        let layout = *self.layout();
        let (min, max) = (layout.frame_min(), layout.frame_max());
        if !(min as usize..=max as usize).contains(&frame.len()) {
            return Err(Error::Length { len: frame.len(), min, max });
        }
        if priority > layout.priority_max() {
            return Err(Error::Priority { priority, max: layout.priority_max() });
        }
        if self.room()? == 0 {
            return Err(Error::Full);
        }
        // Each slot has a place for its frame: it is free when the slot is.
        let place = self.producer.head() & (layout.slots() - 1);
        let offset = place * layout.stride() as u32;
        self.memory.copy_in(offset, frame);
        let descriptor = Descriptor { offset, len: frame.len() as u32, priority, flags: 0 };
        self.producer.push(self.memory.ring(), descriptor);
        Ok(())
    }

    /// Publishes the frames in the ring, and wakes the server if it sleeps.
    pub fn flush(&mut self) {
        if self.producer.publish(self.memory.ring()) && !wire::ring(&self.socket) {
            // The server has ended the connection, and may have said why.
            let _ = self.check();
        }
    }

    /// Rings, so that the server does not take the client as idle. Needed only at a socket with a time-out, by a client that sends
    /// more seldom.
    ///
    /// # Errors
    /// As [`check`](Self::check).
    pub fn keep_alive(&mut self) -> Result<(), Error> {
        wire::ring(&self.socket);
        self.check()
    }

    /// Sends a frame: waits while the ring is full.
    ///
    /// # Errors
    /// Those of [`push`](Self::push) and [`wait`](Self::wait), without [`Error::Full`].
    pub fn send(&mut self, frame: &[u8], priority: u32) -> Result<(), Error> {
        loop {
            match self.push(frame, priority) {
                Err(Error::Full) => drop(self.wait(None)?),
                pushed => {
                    pushed?;
                    self.flush();
                    return self.ended.map_or(Ok(()), |_| self.check());
                }
            }
        }
    }

    /// Flushes, and sleeps while the ring is full, or until the timeout; returns whether there is room.
    ///
    /// # Errors
    /// [`Error::Refused`] and [`Error::Gone`] if the server has ended the connection, [`Error::Io`] if the system refuses to wait.
    pub fn wait(&mut self, timeout: Option<Duration>) -> Result<bool, Error> {
        let end = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        while !self.poll_room()? {
            let left = end.map(|end| end.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                return Ok(false);
            }
            let left = left.and_then(|left| left.try_into().ok());
            match poll(&mut [PollFd::new(&self.socket, PollFlags::IN)], left.as_ref()) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(Error::Io(error.into())),
            }
        }
        Ok(true)
    }

    /// Flushes, and returns whether there is room, for an event loop. If it returns false, the socket ([`AsFd`]) becomes readable when
    /// at least half of the ring is free, or the server ends: then call it again.
    ///
    /// # Errors
    /// As [`wait`](Self::wait).
    pub fn poll_room(&mut self) -> Result<bool, Error> {
        self.flush();
        self.check()?;
        Ok(!self.producer.wait(self.memory.ring())?)
    }

    /// Returns an error if the server has ended the connection.
    ///
    /// # Errors
    /// [`Error::Refused`] and [`Error::Gone`].
    pub fn check(&mut self) -> Result<(), Error> {
        while self.ended.is_none() {
            match wire::listen(&self.socket) {
                Heard::Nothing => return Ok(()),
                Heard::Ring => {}
                Heard::End(reason) => self.ended = Some(reason),
            }
        }
        Err(self.ended.flatten().map_or(Error::Gone, Error::Refused))
    }
}

impl AsFd for Client {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
