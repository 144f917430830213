//! A capture that a daemon has opened.

use std::fs::{self, Metadata};
use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use anyhow::Context;
use txq::driver::Link;
use txq_device::capture::Capture;

use super::packets::Packets;

/// A capture whose first frame was read.
#[derive(Debug)]
pub(crate) struct Tape {
    capture: Capture,
    link: Link,
    file: Metadata,
}

impl Tape {
    /// Opens a file, and reads its first frame.
    pub(crate) fn open(path: &Path) -> anyhow::Result<Self> {
        let capture = Capture::open(path)?;
        let mut packets = Packets::of(&capture, None);
        packets.first()?;
        let link = packets.link();
        drop(packets);
        let file = fs::metadata(path)
            .with_context(|| format!("capture \"{}\" cannot be read: check the path", path.display()))?;
        Ok(Self { capture, link, file })
    }

    /// Reads all frames; returns the length of the longest packet in bytes, or the first error. The packets are datagrams if `remote`
    /// is given.
    pub(crate) fn read(&self, remote: Option<SocketAddr>) -> anyhow::Result<usize> {
        let mut packets = Packets::of(&self.capture, remote);
        while packets.advance()? {}
        Ok(packets.seen().longest)
    }

    pub(crate) fn capture(&self) -> &Capture {
        &self.capture
    }

    /// Returns what the first frame begins with.
    pub(crate) fn link(&self) -> Link {
        self.link
    }

    /// Returns whether both are the same file, which nobody has written in between.
    pub(crate) fn is_like(&self, other: &Self) -> bool {
        let of = |file: &Metadata| {
            (
                file.dev(),
                file.ino(),
                file.len(),
                file.mtime(),
                file.mtime_nsec(),
                file.ctime(),
                file.ctime_nsec(),
            )
        };
        of(&self.file) == of(&other.file)
    }
}
