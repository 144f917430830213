//! The part of a capture that is in memory, and the file behind it.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};

use rustix::fs::{Advice, OFlags, fadvise};

/// The length of a window in bytes, unless a record is longer.
const WINDOW_BYTES: u64 = 128 << 10;

/// What a capture is read from. Threads read it at the same time, each at its own offset.
#[derive(Debug)]
pub(super) enum Source {
    Bytes(Vec<u8>),
    /// A file of this length, which cannot be a pipe.
    File(File, u64),
}

impl Source {
    /// Returns the source of a file. A pipe, which can be read once only, is copied.
    pub(super) fn of(file: File) -> io::Result<Self> {
        let found = file.metadata()?;
        if found.is_file() || found.is_dir() {
            return Ok(Self::File(file, found.len()));
        }
        let temporary = OFlags::TMPFILE.bits().try_into().expect("flags of open");
        let mut copy =
            OpenOptions::new().read(true).write(true).custom_flags(temporary).open(std::env::temp_dir())?;
        let len = io::copy(&mut &file, &mut copy)?;
        Ok(Self::File(copy, len))
    }

    fn len(&self) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::File(_, len) => *len,
        }
    }

    /// Reads some bytes from `at` on; returns their number, 0 at the end.
    fn read(&self, into: &mut [u8], at: u64) -> io::Result<usize> {
        let left = usize::try_from(self.len().saturating_sub(at)).unwrap_or(usize::MAX);
        let some = left.min(into.len());
        match self {
            Self::Bytes(bytes) => {
                let from = bytes.len() - left;
                into[..some].copy_from_slice(&bytes[from..from + some]);
                Ok(some)
            }
            Self::File(file, _) => loop {
                match file.read_at(&mut into[..some], at) {
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Ok(read) => {
                        // The kernel reads the next window while this one is used. A refusal costs time only.
                        let next = at + read as u64;
                        let _ =
                            fadvise(file, next, std::num::NonZeroU64::new(WINDOW_BYTES), Advice::WillNeed);
                        return Ok(read);
                    }
                    error => return error,
                }
            },
        }
    }
}

/// A window of a source, which moves forward.
pub(super) struct Window<'s> {
    source: &'s Source,
    buffer: Vec<u8>,
    /// The bytes in the buffer that are not consumed.
    head: usize,
    tail: usize,
    /// The offset in the source of the next byte to read.
    next: u64,
}

impl<'s> Window<'s> {
    /// Returns a window at the source's beginning, which is empty.
    pub(super) fn of(source: &'s Source) -> Self {
        Self { source, buffer: Vec::new(), head: 0, tail: 0, next: 0 }
    }

    #[cfg(test)]
    pub(super) fn capacity(&self) -> usize {
        self.buffer.capacity()
    }

    /// Returns the bytes that are not consumed.
    #[inline]
    pub(super) fn bytes(&self) -> &[u8] {
        &self.buffer[self.head..self.tail]
    }

    /// Returns the offset in the source of the first byte that is not consumed.
    #[inline]
    pub(super) fn offset(&self) -> u64 {
        self.next - (self.tail - self.head) as u64
    }

    /// Returns whether all bytes of the source are consumed, and no more than it has.
    pub(super) fn is_at_end(&self) -> bool {
        self.offset() == self.source.len()
    }

    /// Consumes bytes, which may be more than the window has; returns where in the [buffer](Self::at) they begin.
    #[inline]
    pub(super) fn consume(&mut self, bytes: u64) -> usize {
        let (head, held) = (self.head, (self.tail - self.head) as u64);
        if bytes <= held {
            self.head += bytes as usize;
        } else {
            (self.head, self.tail) = (0, 0);
            self.next = self.next.saturating_add(bytes - held);
        }
        head
    }

    /// Returns consumed bytes, until the next call of [`fill`](Self::fill).
    #[inline]
    pub(super) fn at(&self, range: std::ops::Range<usize>) -> &[u8] {
        &self.buffer[range]
    }

    /// Reads on behind the bytes that are not consumed; returns whether there was more to read. The window grows if it is full.
    pub(super) fn fill(&mut self) -> io::Result<bool> {
        let left = self.source.len().saturating_sub(self.next);
        if left == 0 {
            return Ok(false);
        }
        self.buffer.copy_within(self.head..self.tail, 0);
        (self.head, self.tail) = (0, self.tail - self.head);
        if self.tail == self.buffer.len() {
            let more = left.min(WINDOW_BYTES.max(self.tail as u64));
            self.buffer.resize(self.tail + more as usize, 0);
        }
        let read = self.source.read(&mut self.buffer[self.tail..], self.next)?;
        self.tail += read;
        self.next += read as u64;
        Ok(read > 0)
    }

    /// Moves to the source's beginning. A window that still has it is not read again.
    pub(super) fn rewind(&mut self) {
        if self.next == self.tail as u64 {
            self.head = 0;
        } else {
            (self.head, self.tail, self.next) = (0, 0, 0);
        }
    }
}
