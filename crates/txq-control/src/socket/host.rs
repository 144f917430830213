//! The server's end of a ring: it believes nothing that the client writes.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use crate::socket::layout::Layout;
use crate::socket::memory::{Memory, give_back};
use crate::socket::ring::{Broken, Consumer, Descriptor};

/// Why a descriptor is skipped. Its slot returns to the client, and nothing is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Rejection {
    /// The offset is no multiple of eight, or the frame ends beyond the data.
    Offset,
    /// The frame is shorter than its header, or longer than the longest.
    Length,
    /// The priority is above the highest.
    Priority,
    /// The flags are not 0.
    Flags,
}

impl Rejection {
    /// All of them, in the order of their counters.
    pub const ALL: [Self; 4] = [Self::Offset, Self::Length, Self::Priority, Self::Flags];

    /// Returns it in a word, as counters name it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Offset => "offset",
            Self::Length => "length",
            Self::Priority => "priority",
            Self::Flags => "flags",
        }
    }
}

/// A frame whose descriptor was checked. The copy is the server's: the client cannot change it any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    offset: u32,
    len: u32,
    priority: u32,
}

impl Frame {
    /// Returns the length, in bytes.
    pub fn len(&self) -> usize {
        self.len as usize
    }

    /// Returns whether it has no byte; no checked frame is.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the priority.
    pub fn priority(&self) -> u32 {
        self.priority
    }
}

/// The server's end of a client's ring.
#[derive(Debug)]
pub struct Host {
    memory: Memory,
    fd: OwnedFd,
    consumer: Consumer,
}

impl Host {
    /// Makes the memory of a new ring.
    ///
    /// # Errors
    /// When the system has no memory or no descriptor left.
    pub fn new(layout: &Layout) -> io::Result<Self> {
        let (memory, fd) = Memory::create(layout)?;
        Ok(Self { memory, fd, consumer: Consumer::default() })
    }

    /// Returns the memory's descriptor, for the client.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Returns the layout.
    pub fn layout(&self) -> &Layout {
        self.memory.layout()
    }

    /// Reads the client's cursor; returns the number of descriptors that wait.
    ///
    /// # Errors
    /// [`Broken`]: the client's cursor is wrong.
    pub fn pending(&mut self) -> Result<u32, Broken> {
        self.consumer.refresh(self.memory.ring())
    }

    /// Takes the next descriptor, loading each of its words once, and checks it; `None` if none waits.
    ///
    /// # Errors
    /// [`Broken`]: the client's cursor is wrong.
    #[expect(clippy::should_implement_trait, reason = "it may fail")]
    pub fn next(&mut self) -> Result<Option<Result<Frame, Rejection>>, Broken> {
        let ring = self.memory.ring();
        if self.consumer.pending(ring)? == 0 {
            return Ok(None);
        }
        let found = check(self.memory.layout(), self.consumer.pop(ring));
        if found.is_err() {
            self.consumer.reject();
        }
        Ok(Some(found))
    }

    /// Copies a frame. The client may write to it meanwhile: then the copy has some of both.
    ///
    /// # Panics
    /// If `into` is longer than the frame.
    pub fn copy(&self, frame: &Frame, into: &mut [u8]) {
        assert!(into.len() <= frame.len(), "{} bytes of a frame of {}", into.len(), frame.len());
        self.memory.copy_out(frame.offset, into);
    }

    /// Returns all slots to the client but the last `held`; returns whether the client sleeps, and the caller must ring.
    #[must_use]
    pub fn release(&mut self, held: u32) -> bool {
        self.consumer.publish(self.memory.ring(), held)
    }

    /// Asks the client to ring at its next frame, before the server reads the cursor for the last time.
    pub(crate) fn ask(&self) {
        self.consumer.ask(self.memory.ring());
    }

    /// Frees the memory's pages, all of them or all but the header's. The ring is not used any more.
    pub(crate) fn give_back(&self, but_header: bool) {
        give_back(&self.fd, self.memory.layout().size(), but_header);
    }

    /// Asks the client to ring; returns whether the ring is still empty, so that the caller may sleep.
    ///
    /// # Errors
    /// [`Broken`]: the client's cursor is wrong.
    pub fn wait(&mut self) -> Result<bool, Broken> {
        self.consumer.wait(self.memory.ring())
    }
}

/// Checks a descriptor, of which the caller has a copy of its own.
fn check(layout: &Layout, found: Descriptor) -> Result<Frame, Rejection> {
    let Descriptor { offset, len, priority, flags } = found;
    if flags != 0 {
        return Err(Rejection::Flags);
    }
    if !(layout.frame_min()..=layout.frame_max()).contains(&len) {
        return Err(Rejection::Length);
    }
    // In 64 bits: the sum does not wrap.
    if !offset.is_multiple_of(8) || u64::from(offset) + u64::from(len) > layout.data_len() as u64 {
        return Err(Rejection::Offset);
    }
    if priority > layout.priority_max() {
        return Err(Rejection::Priority);
    }
    Ok(Frame { offset, len, priority })
}

#[cfg(test)]
mod tests;
