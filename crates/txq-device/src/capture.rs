//! Captures as a source of frames: pcap and pcapng files, of either byte order and any time resolution.
//!
//! The file is read whole, and its frames are borrowed from it, so that several threads may walk over one capture at a
//! time, and as often as they like, without copying it. Files come from anywhere: whatever the bytes are, the answer is
//! frames or one error that names the place. `pcap-file` takes the formats apart; lengths that it refuses although
//! captures have them (cut frames), and times, which it leaves in units of each interface, are handled here.

use std::fmt;
use std::io;
use std::path::Path;

use pcap_file::{DataLink, PcapError};
use thiserror::Error;
use txq::arch::Nanos;

mod classic;
mod pcapng;

use classic::Classic;
use pcapng::Ng;

/// A capture that cannot be read.
#[derive(Debug, Error)]
pub enum CaptureError {
    /// The file cannot be read.
    #[error("capture \"{name}\" cannot be read ({source}): check the path and its permissions")]
    Io {
        /// The file.
        name: String,
        /// What the system says.
        source: io::Error,
    },
    /// The file is something else.
    #[error(
        "\"{name}\" is not a capture: it {what}: use a pcap or pcapng file, as tcpdump and Wireshark write"
    )]
    NotACapture {
        /// The file.
        name: String,
        /// What it is.
        what: String,
    },
    /// The frames are not Ethernet's.
    #[error(
        "capture \"{name}\", {place}: link type {linktype}, not Ethernet (1): capture on an Ethernet interface \
         (not on \"any\")"
    )]
    LinkType {
        /// The file.
        name: String,
        /// Where it says so.
        place: Place,
        /// The number of the link type, as in tcpdump.org's list.
        linktype: u32,
    },
    /// The file is cut short or was altered.
    #[error(
        "capture \"{name}\", {place}: {what}: the frames before it are good; `editcap -r` copies them to a new file"
    )]
    Damaged {
        /// The file.
        name: String,
        /// Where.
        place: Place,
        /// What is wrong there.
        what: String,
    },
}

/// A place in a capture.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// The frame's number as Wireshark counts: the first is 1. 0 for the file's header.
    pub frame: u64,
    /// Bytes in the file before its record.
    pub offset: u64,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.frame {
            0 => write!(f, "header"),
            n => write!(f, "frame {n} at byte {}", self.offset),
        }
    }
}

/// A frame of a capture.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Frame<'a> {
    /// When it was captured, in nanoseconds after the first frame. Captures of several interfaces are not always in
    /// order; a frame that is older than the first has 0.
    pub at: Nanos,
    /// Its bytes, from the Ethernet header on, without preamble and check sequence.
    pub data: &'a [u8],
    /// How long it was on the wire, in bytes: more than `data` holds when the capture kept only its beginning.
    pub wire_len: u32,
}

impl Frame<'_> {
    /// Whether the capture kept only the beginning (`tcpdump -s`).
    pub fn is_cut(&self) -> bool {
        self.wire_len as usize > self.data.len()
    }
}

/// What a capture holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Summary {
    /// Frames.
    pub frames: u64,
    /// Their captured bytes.
    pub bytes: u64,
    /// Frames of which only the beginning was captured.
    pub cut: u64,
    /// The longest frame, in captured bytes.
    pub longest: usize,
    /// From the first frame to the last, in nanoseconds.
    pub span: Nanos,
}

/// A capture in memory.
#[derive(Debug, Clone)]
pub struct Capture {
    name: String,
    bytes: Vec<u8>,
}

impl Capture {
    /// Reads a file.
    ///
    /// # Errors
    /// The file cannot be read, is not a capture, or not one of Ethernet. What is wrong behind the header is found when
    /// its frame is reached.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, CaptureError> {
        let path = path.as_ref();
        let name = path.display().to_string();
        let bytes = std::fs::read(path).map_err(|source| CaptureError::Io { name: name.clone(), source })?;
        Self::from_bytes(&name, bytes)
    }

    /// Takes the content of a file; `name` is for messages.
    ///
    /// # Errors
    /// As [`Capture::open`].
    pub fn from_bytes(name: &str, bytes: impl Into<Vec<u8>>) -> Result<Self, CaptureError> {
        let capture = Self { name: name.to_owned(), bytes: bytes.into() };
        capture.reader().map(|_| ()).map_err(|wrong| capture.error(Place { frame: 0, offset: 0 }, wrong))?;
        Ok(capture)
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its frames, from the first on. Ends after an error.
    pub fn frames(&self) -> Frames<'_> {
        let reader = self.reader().expect("checked when the capture was made");
        Frames { capture: self, reader: Some(reader), frame: 0, first: None, last: 0 }
    }

    /// Counts the frames.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn summary(&self) -> Result<Summary, CaptureError> {
        let mut sum = Summary::default();
        for frame in self.frames() {
            let frame = frame?;
            sum.frames += 1;
            sum.bytes += frame.data.len() as u64;
            sum.cut += u64::from(frame.is_cut());
            sum.longest = sum.longest.max(frame.data.len());
            sum.span = sum.span.max(frame.at);
        }
        Ok(sum)
    }

    fn reader(&self) -> Result<Reader<'_>, Wrong> {
        let bytes = self.bytes.as_slice();
        match bytes {
            [0x0a, 0x0d, 0x0d, 0x0a, ..] => Ok(Reader::Ng(Ng::new(bytes)?)),
            [0xa1, 0xb2, 0xc3 | 0x3c, 0xd4 | 0x4d, ..] | [0xd4 | 0x4d, 0xc3 | 0x3c, 0xb2, 0xa1, ..] => {
                Ok(Reader::Classic(Classic::new(bytes)?))
            }
            [] => Err(Wrong::Foreign("is empty".into())),
            [0x1f, 0x8b, ..] => Err(Wrong::Foreign("is compressed (unpack it with gunzip)".into())),
            [0x28, 0xb5, 0x2f, 0xfd, ..] => {
                Err(Wrong::Foreign("is compressed (unpack it with zstd -d)".into()))
            }
            other => {
                let head: Vec<String> = other.iter().take(4).map(|b| format!("{b:02x}")).collect();
                Err(Wrong::Foreign(format!("begins with the bytes {}", head.join(" "))))
            }
        }
    }

    fn error(&self, place: Place, wrong: Wrong) -> CaptureError {
        let name = self.name.clone();
        match wrong {
            Wrong::Foreign(what) => CaptureError::NotACapture { name, what },
            Wrong::LinkType(linktype) => CaptureError::LinkType { name, place, linktype },
            Wrong::Cut if place.frame == 0 => {
                CaptureError::NotACapture { name, what: "ends within its header".into() }
            }
            Wrong::Field(what) if place.frame == 0 => {
                CaptureError::NotACapture { name, what: format!("has a damaged header ({what})") }
            }
            Wrong::Cut => CaptureError::Damaged { name, place, what: "the file ends within it".into() },
            Wrong::Field(what) => CaptureError::Damaged { name, place, what },
        }
    }
}

enum Reader<'a> {
    Classic(Classic<'a>),
    Ng(Ng<'a>),
}

impl<'a> Reader<'a> {
    fn next(&mut self) -> Result<Option<Raw<'a>>, Wrong> {
        match self {
            Reader::Classic(reader) => reader.next(),
            Reader::Ng(reader) => reader.next(),
        }
    }

    /// Bytes not read yet.
    fn rest(&self) -> usize {
        match self {
            Reader::Classic(reader) => reader.rest.len(),
            Reader::Ng(reader) => reader.rest.len(),
        }
    }
}

/// What is wrong with a file, before its place is known.
#[derive(Debug)]
enum Wrong {
    /// It is not a capture but this.
    Foreign(String),
    /// A link type other than Ethernet.
    LinkType(u32),
    /// The file ends before its content does.
    Cut,
    /// A field that cannot be.
    Field(String),
}

impl From<PcapError> for Wrong {
    fn from(error: PcapError) -> Self {
        match error {
            PcapError::IncompleteBuffer => Wrong::Cut,
            PcapError::InvalidField(what) => Wrong::Field(what.to_owned()),
            other => Wrong::Field(other.to_string()),
        }
    }
}

/// A frame as a file has it.
struct Raw<'a> {
    /// Nanoseconds since 1970, if the frame has a time.
    time: Option<i128>,
    data: &'a [u8],
    wire_len: u32,
}

/// Refuses link types other than Ethernet.
fn require_ethernet(linktype: DataLink) -> Result<(), Wrong> {
    // The upper half tells whether frames end with their check sequence, and is no part of the type.
    match u32::from(linktype) & 0xffff {
        1 => Ok(()),
        other => Err(Wrong::LinkType(other)),
    }
}

/// The frames of a [`Capture`].
pub struct Frames<'a> {
    capture: &'a Capture,
    /// None once it has ended.
    reader: Option<Reader<'a>>,
    frame: u64,
    /// Nanoseconds from 1970 to the first frame.
    first: Option<i128>,
    last: Nanos,
}

impl<'a> Iterator for Frames<'a> {
    type Item = Result<Frame<'a>, CaptureError>;

    fn next(&mut self) -> Option<Self::Item> {
        let reader = self.reader.as_mut()?;
        let offset = (self.capture.bytes.len() - reader.rest()) as u64;
        self.frame += 1;
        match reader.next() {
            Ok(Some(Raw { time, data, wire_len })) => {
                // A frame without a time of its own is as old as the one before.
                if let Some(time) = time {
                    let first = *self.first.get_or_insert(time);
                    self.last = Nanos::try_from((time - first).max(0)).unwrap_or(Nanos::MAX);
                }
                Some(Ok(Frame { at: self.last, data, wire_len }))
            }
            Ok(None) => {
                self.reader = None;
                None
            }
            Err(wrong) => {
                self.reader = None;
                Some(Err(self.capture.error(Place { frame: self.frame, offset }, wrong)))
            }
        }
    }
}

#[cfg(test)]
mod tests;
