//! The frames of a capture, one after the other.

use std::fmt;
use std::ops::Range;
use std::time::Duration;

use txq::flow::Link;

use super::classic::Classic;
use super::pcapng::Ng;
use super::window::Window;
use super::{Begin, Capture, CaptureError, Frame, Place, Raw, Record, Wrong};

/// The most records in a row that hold no frame: the search for the next frame then ends.
const MAX_EMPTY_RECORDS: u32 = 1 << 20;

/// The frames of a [`Capture`]: [`advance`](Self::advance) moves to the next, and [`frame`](Self::frame) returns it.
pub struct Frames<'c> {
    capture: &'c Capture,
    window: Window<'c>,
    /// `None` before the header is read.
    format: Option<Format>,
    ended: bool,
    /// The number of frames so far.
    number: u64,
    /// Nanoseconds from 1970 to the first frame.
    first: Option<i128>,
    skipped: u64,
    /// The frame moved to: its time, what it begins with, where it is in the window, and its length on the wire.
    at: Duration,
    link: Link,
    data: Range<usize>,
    wire_len: u32,
}

enum Format {
    Classic(Classic),
    Ng(Ng),
}

impl Format {
    /// Reads the header at the beginning of a file; returns its length, too.
    fn of(bytes: &[u8]) -> Result<(usize, Self), Wrong> {
        let foreign = |what: &str| Err(Wrong::Foreign(what.to_owned()));
        match bytes {
            [0x0a, 0x0d, 0x0d, 0x0a, ..] => Ng::new(bytes).map(|(len, format)| (len, Self::Ng(format))),
            [0xa1, 0xb2, 0xc3 | 0x3c, 0xd4 | 0x4d, ..] | [0xd4 | 0x4d, 0xc3 | 0x3c, 0xb2, 0xa1, ..] => {
                Classic::new(bytes).map(|(len, format)| (len, Self::Classic(format)))
            }
            [] => foreign("is empty"),
            [0x1f, 0x8b, ..] => foreign("is compressed (unpack it with gunzip)"),
            [0x28, 0xb5, 0x2f, 0xfd, ..] => foreign("is compressed (unpack it with zstd -d)"),
            other => {
                let head: Vec<String> = other.iter().take(4).map(|b| format!("{b:02x}")).collect();
                Err(Wrong::Foreign(format!("begins with the bytes {}", head.join(" "))))
            }
        }
    }

    /// Parses the record at the beginning of some bytes; [`Wrong::Cut`] if it needs more of them.
    fn record(&mut self, bytes: &[u8]) -> Result<Record, Wrong> {
        match self {
            Self::Classic(format) => format.record(bytes),
            Self::Ng(format) => format.record(bytes),
        }
    }
}

impl<'c> Frames<'c> {
    pub(super) fn of(capture: &'c Capture) -> Self {
        Self {
            capture,
            window: Window::of(&capture.source),
            format: None,
            ended: false,
            number: 0,
            first: None,
            skipped: 0,
            at: Duration::ZERO,
            link: Link::Ethernet,
            data: 0..0,
            wire_len: 0,
        }
    }

    /// Moves to the next frame; returns whether there is one. There is none after an error.
    ///
    /// # Errors
    /// When the file is damaged or cannot be read, or the frame's link type is unknown. The error names the frame.
    pub fn advance(&mut self) -> Result<bool, CaptureError> {
        if self.ended {
            return Ok(false);
        }
        if self.format.is_none() {
            self.check_header()?;
        }
        let mut left = MAX_EMPTY_RECORDS;
        loop {
            match self.next_raw(&mut left) {
                Ok(Some(raw)) => {
                    if self.open(raw) {
                        return Ok(true);
                    }
                    self.skipped += 1;
                }
                Ok(None) => {
                    self.ended = true;
                    return Ok(false);
                }
                Err(wrong) => {
                    self.ended = true;
                    let place = Place { frame: self.number + 1, offset: self.window.offset() };
                    return Err(self.capture.error(place, wrong));
                }
            }
        }
    }

    /// Returns the frame that [`advance`](Self::advance) has moved to.
    #[inline]
    pub fn frame(&self) -> Frame<'_> {
        let data = self.window.at(self.data.clone());
        Frame { number: self.number, at: self.at, link: self.link, data, wire_len: self.wire_len }
    }

    /// Moves before the first frame again.
    pub fn rewind(&mut self) {
        self.window.rewind();
        let window = std::mem::replace(&mut self.window, Window::of(&self.capture.source));
        *self = Self { window, ..Self::of(self.capture) };
    }

    /// Returns the number of frames so far that were left out: those behind a cooked header that are no IP packets, as ARP's. They have
    /// no link-layer header to send them with.
    pub fn skipped(&self) -> u64 {
        self.skipped
    }

    /// Returns the bytes that its window takes.
    #[cfg(test)]
    pub(super) fn window_bytes(&self) -> usize {
        self.window.capacity()
    }

    /// Reads the file's header.
    pub(super) fn check_header(&mut self) -> Result<(), CaptureError> {
        let done = loop {
            match Format::of(self.window.bytes()) {
                Err(Wrong::Cut | Wrong::Foreign(_)) if self.window.bytes().len() < 4 => {
                    match self.window.fill() {
                        Ok(true) => {}
                        Ok(false) => break Format::of(self.window.bytes()),
                        Err(error) => break Err(Wrong::Io(error)),
                    }
                }
                Err(Wrong::Cut) => match self.window.fill() {
                    Ok(true) => {}
                    Ok(false) => break Err(Wrong::Cut),
                    Err(error) => break Err(Wrong::Io(error)),
                },
                done => break done,
            }
        };
        match done {
            Ok((len, format)) => {
                self.window.consume(len as u64);
                self.format = Some(format);
                Ok(())
            }
            Err(wrong) => {
                self.ended = true;
                Err(self.capture.error(Place { frame: 0, offset: 0 }, wrong))
            }
        }
    }

    /// Moves behind the next record with a frame, of `left` records at most; returns it, with its place in the window, or `None` at the
    /// end of the file.
    fn next_raw(&mut self, left: &mut u32) -> Result<Option<Raw>, Wrong> {
        let format = self.format.as_mut().expect("the header is read");
        loop {
            match format.record(self.window.bytes()) {
                Ok(Record { len, frame }) => {
                    let begin = self.window.consume(len);
                    *left = left.checked_sub(1).ok_or_else(|| {
                        Wrong::Field(format!("no frame is in the {MAX_EMPTY_RECORDS} records before it"))
                    })?;
                    if let Some(mut raw) = frame {
                        raw.data = begin + raw.data.start..begin + raw.data.end;
                        self.number += 1;
                        return Ok(Some(raw));
                    }
                }
                Err(Wrong::Cut) => {
                    if !self.window.fill().map_err(Wrong::Io)? {
                        return if self.window.is_at_end() { Ok(None) } else { Err(Wrong::Cut) };
                    }
                }
                Err(wrong) => return Err(wrong),
            }
        }
    }

    /// Becomes a frame or, behind a cooked header, its IP packet; returns whether there is one.
    fn open(&mut self, raw: Raw) -> bool {
        // A frame without a time gets the time of the frame before.
        if let Some(time) = raw.time {
            let first = *self.first.get_or_insert(time);
            self.at = Duration::from_nanos(u64::try_from((time - first).max(0)).unwrap_or(u64::MAX));
        }
        (self.data, self.wire_len) = (raw.data, raw.wire_len);
        match raw.begin {
            Begin::Link(link) => self.link = link,
            Begin::Cooked { protocol, len } => {
                let data = self.window.at(self.data.clone());
                let is_ip = matches!(data.get(protocol..protocol + 2), Some([0x08, 0x00] | [0x86, 0xdd]));
                if !is_ip || data.len() < len {
                    return false;
                }
                self.link = Link::Ip;
                self.data.start += len;
                self.wire_len = self.wire_len.saturating_sub(len as u32);
            }
        }
        true
    }
}

impl fmt::Debug for Frames<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Frames").field("number", &self.number).finish_non_exhaustive()
    }
}
