//! Captures as a source of frames: pcap and pcapng files, of either byte order and any time resolution.
//!
//! A file of any size is read as its frames are: [`Frames`] holds a window of it, which is as long as the longest record and at
//! least 128 KiB. Several threads may have frames of one capture at the same time, each with a window of its own, and read them
//! repeatedly. Files come from anywhere: whatever the bytes are, the result is frames or one error that names the place, in
//! bounded memory. `pcap-file` parses the formats. Two things are handled here: frame lengths that it refuses although captures
//! have them (cut frames), and times, which it leaves in each interface's units.

use std::fmt;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::time::Duration;

use pcap_file::{DataLink, PcapError};
use thiserror::Error;
use txq::flow::Link;

mod classic;
mod frames;
mod pcapng;
mod window;

pub use frames::Frames;
use window::Source;

/// The longest record of a frame, in bytes: four times what tcpdump captures of one.
const MAX_RECORD_BYTES: usize = 1 << 20;

/// Why a capture cannot be read.
#[derive(Debug, Error)]
pub enum CaptureError {
    /// The file cannot be read.
    #[error("capture \"{name}\" cannot be read ({source}): check the path and its permissions")]
    Io {
        /// The file.
        name: String,
        /// The system's error.
        source: io::Error,
    },
    /// The file is not a capture.
    #[error(
        "\"{name}\" is not a capture: it {what}: use a pcap or pcapng file, as tcpdump and Wireshark write"
    )]
    NotACapture {
        /// The file.
        name: String,
        /// What the file is instead, as the end of a sentence.
        what: String,
    },
    /// The frames begin neither with an Ethernet header nor with an IP header or Linux's cooked one.
    #[error(
        "capture \"{name}\", {place}: link type {linktype}, not Ethernet (1), IP (101) or Linux cooked (113, 276): \
         capture on an Ethernet interface, a tunnel or \"any\""
    )]
    LinkType {
        /// The file.
        name: String,
        /// The place that says so.
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
        /// The place of the damage.
        place: Place,
        /// The problem there.
        what: String,
    },
}

/// A place in a capture.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// The frame's number as Wireshark counts: the first is 1; 0 is the file's header.
    pub frame: u64,
    /// Offset of its record in the file, in bytes.
    pub offset: u64,
}

/// The error of the last frame of a file that ends too early.
const TRUNCATED: &str = "the file ends within it";

impl CaptureError {
    /// Returns whether the file ends within a frame, as that of a capture which was killed or whose disk was full. The frames before
    /// it are whole.
    pub fn is_truncated(&self) -> bool {
        matches!(self, Self::Damaged { what, .. } if what == TRUNCATED)
    }
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
    /// Its number as Wireshark counts: the first is 1.
    pub number: u64,
    /// The time from the first frame to this one; zero if it is older than the first frame, as may happen in captures of several
    /// interfaces.
    pub at: Duration,
    /// What it begins with.
    pub link: Link,
    /// Its bytes, from the Ethernet header or IP header on, without preamble and check sequence.
    pub data: &'a [u8],
    /// Its length on the wire, in bytes: more than `data` holds when the capture kept only its beginning.
    pub wire_len: u32,
}

impl Frame<'_> {
    /// Whether the capture kept only the beginning (`tcpdump -s`).
    pub fn is_cut(&self) -> bool {
        self.wire_len as usize > self.data.len()
    }
}

/// Counts over the frames of a capture.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Summary {
    /// Number of frames.
    pub frames: u64,
    /// Sum of their captured bytes.
    pub bytes: u64,
    /// Number of frames that the capture cut.
    pub cut: u64,
    /// The longest frame, in captured bytes.
    pub longest: usize,
    /// Time from the first frame to the last.
    pub span: Duration,
}

/// A capture that is open.
#[derive(Debug)]
pub struct Capture {
    name: String,
    source: Source,
}

impl Capture {
    /// Opens a file. What the file has now is read, as frames are; a later end is not. A pipe is copied into a temporary file
    /// first.
    ///
    /// # Errors
    /// When the file cannot be read, is not a capture, or is of an unknown link type. Errors behind the header are found when
    /// its frames are read.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, CaptureError> {
        let path = path.as_ref();
        let name = path.display().to_string();
        let source = File::open(path).and_then(Source::of);
        Self::of(&name, source.map_err(|source| CaptureError::Io { name: name.clone(), source })?)
    }

    /// Makes a capture of a file's content; `name` is its name in messages.
    ///
    /// # Errors
    /// As [`Capture::open`].
    pub fn from_bytes(name: &str, bytes: impl Into<Vec<u8>>) -> Result<Self, CaptureError> {
        Self::of(name, Source::Bytes(bytes.into()))
    }

    fn of(name: &str, source: Source) -> Result<Self, CaptureError> {
        let capture = Self { name: name.to_owned(), source };
        capture.frames().check_header()?;
        Ok(capture)
    }

    /// Returns its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns its frames, before the first.
    pub fn frames(&self) -> Frames<'_> {
        Frames::of(self)
    }

    /// Counts the frames.
    ///
    /// # Errors
    /// The first error in the file.
    pub fn summary(&self) -> Result<Summary, CaptureError> {
        let mut sum = Summary::default();
        let mut frames = self.frames();
        while frames.advance()? {
            let frame = frames.frame();
            sum.frames += 1;
            sum.bytes += frame.data.len() as u64;
            sum.cut += u64::from(frame.is_cut());
            sum.longest = sum.longest.max(frame.data.len());
            sum.span = sum.span.max(frame.at);
        }
        Ok(sum)
    }

    fn error(&self, place: Place, wrong: Wrong) -> CaptureError {
        let name = self.name.clone();
        match wrong {
            Wrong::Foreign(what) => CaptureError::NotACapture { name, what },
            Wrong::LinkType(linktype) => CaptureError::LinkType { name, place, linktype },
            Wrong::Io(source) if place.frame == 0 => CaptureError::Io { name, source },
            Wrong::Cut if place.frame == 0 => {
                CaptureError::NotACapture { name, what: "ends within its header".into() }
            }
            Wrong::Field(what) if place.frame == 0 => {
                CaptureError::NotACapture { name, what: format!("has a damaged header ({what})") }
            }
            Wrong::Io(error) => {
                CaptureError::Damaged { name, place, what: format!("it cannot be read ({error})") }
            }
            Wrong::Cut => CaptureError::Damaged { name, place, what: TRUNCATED.into() },
            Wrong::Field(what) => CaptureError::Damaged { name, place, what },
        }
    }
}

/// An error in a file, before its place is added.
#[derive(Debug)]
enum Wrong {
    /// The file is not a capture; the text says what it is.
    Foreign(String),
    /// A link type other than Ethernet and IP.
    LinkType(u32),
    /// The bytes end before the record does: of the window, or of the file.
    Cut,
    /// The file cannot be read.
    Io(io::Error),
    /// A field has an invalid value.
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

/// A record at the beginning of some bytes.
struct Record {
    /// Its length in bytes, which may be more than there are if it holds no frame.
    len: u64,
    frame: Option<Raw>,
}

/// A frame as stored in a file.
struct Raw {
    /// Nanoseconds since 1970, if the frame has a time.
    time: Option<i128>,
    begin: Begin,
    /// Where its data lie in the record.
    data: Range<usize>,
    wire_len: u32,
}

/// What the frames of a link type begin with.
#[derive(Clone, Copy)]
enum Begin {
    Link(Link),
    /// A header of this length that Linux writes instead of the link layer's, and where it has the protocol.
    Cooked {
        protocol: usize,
        len: usize,
    },
}

/// Returns what frames of a link type begin with (tcpdump.org/linktypes.html).
fn begin_of(linktype: DataLink) -> Result<Begin, Wrong> {
    // The upper half says whether frames end with their check sequence; it is no part of the type.
    match u32::from(linktype) & 0xffff {
        1 => Ok(Begin::Link(Link::Ethernet)),
        // LINKTYPE_RAW, its older numbers (DLT_RAW of several systems), LINKTYPE_IPV4 and LINKTYPE_IPV6.
        101 | 12 | 14 | 228 | 229 => Ok(Begin::Link(Link::Ip)),
        // LINKTYPE_LINUX_SLL and LINKTYPE_LINUX_SLL2, of captures on "any".
        113 => Ok(Begin::Cooked { protocol: 14, len: 16 }),
        276 => Ok(Begin::Cooked { protocol: 0, len: 20 }),
        other => Err(Wrong::LinkType(other)),
    }
}

#[cfg(test)]
mod tests;
