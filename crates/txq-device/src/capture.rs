//! Captures as a source of frames: pcap and pcapng files, of either byte order and any time resolution.
//!
//! The file is read as a whole, and frames borrow from it, so several threads may iterate over one capture at the same time,
//! and repeatedly, without copying it. Files come from anywhere: whatever the bytes are, the result is frames or one error
//! that names the place. `pcap-file` parses the formats. Two things are handled here: frame lengths that it refuses although
//! captures have them (cut frames), and times, which it leaves in each interface's units.

use std::fmt;
use std::io;
use std::path::Path;

use pcap_file::{DataLink, PcapError};
use thiserror::Error;
use txq::Nanos;
use txq::flow::Link;

mod classic;
mod pcapng;

use classic::Classic;
use pcapng::Ng;

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
    /// When it was captured, in nanoseconds after the first frame; 0 if it is older than the first frame, as may happen in
    /// captures of several interfaces.
    pub at: Nanos,
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
    /// Time from the first frame to the last, in nanoseconds.
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
    /// When the file cannot be read, is not a capture, or is of an unknown link type. Errors behind the header are found when
    /// iteration reaches their frame.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, CaptureError> {
        let path = path.as_ref();
        let name = path.display().to_string();
        let bytes = std::fs::read(path).map_err(|source| CaptureError::Io { name: name.clone(), source })?;
        Self::from_bytes(&name, bytes)
    }

    /// Reads a capture from a file's content; `name` is its name in messages.
    ///
    /// # Errors
    /// As [`Capture::open`].
    pub fn from_bytes(name: &str, bytes: impl Into<Vec<u8>>) -> Result<Self, CaptureError> {
        let capture = Self { name: name.to_owned(), bytes: bytes.into() };
        capture.reader().map(|_| ()).map_err(|wrong| capture.error(Place { frame: 0, offset: 0 }, wrong))?;
        Ok(capture)
    }

    /// Returns its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns an iterator over its frames. It ends after an error.
    pub fn frames(&self) -> Frames<'_> {
        let reader = self.reader().expect("checked when the capture was made");
        Frames { capture: self, reader: Some(reader), frame: 0, first: None, last: 0, skipped: 0 }
    }

    /// Counts the frames.
    ///
    /// # Errors
    /// The first error in the file.
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
            Wrong::Cut => CaptureError::Damaged { name, place, what: TRUNCATED.into() },
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

    /// Returns the number of unread bytes.
    fn rest(&self) -> usize {
        match self {
            Reader::Classic(reader) => reader.rest.len(),
            Reader::Ng(reader) => reader.rest.len(),
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
    /// The file ends before its content does.
    Cut,
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

/// A frame as stored in a file.
struct Raw<'a> {
    /// Nanoseconds since 1970, if the frame has a time.
    time: Option<i128>,
    begin: Begin,
    data: &'a [u8],
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

impl<'a> Raw<'a> {
    /// Returns the link and the bytes of the frame or, behind a cooked header, of its IP packet, and the length on the wire; `None` if
    /// there is another packet behind it.
    fn open(&self) -> Option<(Link, &'a [u8], u32)> {
        match self.begin {
            Begin::Link(link) => Some((link, self.data, self.wire_len)),
            Begin::Cooked { protocol, len } => match self.data.get(protocol..protocol + 2)? {
                [0x08, 0x00] | [0x86, 0xdd] => {
                    Some((Link::Ip, self.data.get(len..)?, self.wire_len.saturating_sub(len as u32)))
                }
                _ => None,
            },
        }
    }
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

/// The frames of a [`Capture`].
pub struct Frames<'a> {
    capture: &'a Capture,
    /// None once iteration has ended.
    reader: Option<Reader<'a>>,
    frame: u64,
    /// Nanoseconds from 1970 to the first frame.
    first: Option<i128>,
    last: Nanos,
    skipped: u64,
}

impl Frames<'_> {
    /// Returns the number of frames so far that were left out: those behind a cooked header that are no IP packets, as ARP's. They have
    /// no link-layer header to send them with.
    pub fn skipped(&self) -> u64 {
        self.skipped
    }
}

impl fmt::Debug for Frames<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Frames").finish_non_exhaustive()
    }
}

impl<'a> Iterator for Frames<'a> {
    type Item = Result<Frame<'a>, CaptureError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let reader = self.reader.as_mut()?;
            let offset = (self.capture.bytes.len() - reader.rest()) as u64;
            self.frame += 1;
            match reader.next() {
                Ok(Some(raw)) => {
                    // A frame without a time gets the time of the frame before.
                    if let Some(time) = raw.time {
                        let first = *self.first.get_or_insert(time);
                        self.last = Nanos::try_from((time - first).max(0)).unwrap_or(Nanos::MAX);
                    }
                    match raw.open() {
                        Some((link, data, wire_len)) => {
                            return Some(Ok(Frame { at: self.last, link, data, wire_len }));
                        }
                        None => self.skipped += 1,
                    }
                }
                Ok(None) => {
                    self.reader = None;
                    return None;
                }
                Err(wrong) => {
                    self.reader = None;
                    return Some(Err(self.capture.error(Place { frame: self.frame, offset }, wrong)));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
