//! A capture that was read and checked, and that several replays and threads may share.

use std::net::SocketAddr;
use std::path::Path;

use txq::driver::Link;
use txq_device::capture::Capture;

use super::file::Recording;

/// The most frames of a capture: of a file of short records, their index would be longer than the file.
const MOST_FRAMES: usize = 1 << 23;

/// A capture without damage, and what a device must be able to send.
#[derive(Debug)]
pub(crate) struct Tape {
    capture: Capture,
    link: Link,
    longest: usize,
    warning: Option<String>,
}

impl Tape {
    /// Reads a file. Its frames are the payload of datagrams if `remote` is given.
    pub(crate) fn read(file: &Path, remote: Option<SocketAddr>) -> anyhow::Result<Self> {
        let capture = Capture::open(file)?;
        let recording = Recording::of(&capture, MOST_FRAMES)?;
        let (link, mut longest) = (recording.link(), recording.longest());
        if let Some(remote) = remote {
            longest = recording.datagrams(remote)?.iter().map(Vec::len).max().unwrap_or(0);
        }
        let warning = recording.warning(file);
        Ok(Self { capture, link, longest, warning })
    }

    /// Returns what all frames begin with.
    pub(crate) fn link(&self) -> Link {
        self.link
    }

    /// Returns the length of the longest packet, in bytes.
    pub(crate) fn longest(&self) -> usize {
        self.longest
    }

    /// Returns a warning if some frames were captured only in part.
    pub(crate) fn warning(&self) -> Option<&str> {
        self.warning.as_deref()
    }

    /// Returns the frames; [`Tape::read`] has found no error in them.
    pub(crate) fn recording(&self) -> anyhow::Result<Recording<'_>> {
        Recording::of(&self.capture, MOST_FRAMES)
    }

    /// Returns whether both have the same frames at the same times.
    pub(crate) fn is_like(&self, other: &Self) -> bool {
        match (self.recording(), other.recording()) {
            (Ok(one), Ok(other)) => one == other,
            _ => false,
        }
    }
}
