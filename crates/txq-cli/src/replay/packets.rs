//! The packets of a capture, read as they are sent: its frames, or the datagrams that carry them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;

use anyhow::{Context, ensure};
use txq::driver::Link;
use txq::flow::public_hash;
use txq_device::capture::{Capture, Frames};
use txq_device::udp::Datagram;

use crate::pump::Count;

/// The packets of a capture, one after the other.
pub(crate) struct Packets<'c> {
    capture: &'c Capture,
    frames: Frames<'c>,
    /// What all frames begin with, once there was one.
    link: Option<Link>,
    /// The peer of the datagrams.
    remote: Option<SocketAddr>,
    datagram: Vec<u8>,
    seen: CaptureCounts,
}

/// Counts over the packets of a capture so far.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CaptureCounts {
    /// The packets and their bytes.
    pub(crate) all: Count,
    /// The length of the longest packet, in bytes.
    pub(crate) longest: usize,
    /// The frames that were captured only in part.
    cut: u64,
    /// The frames that are left out, because they are no IP packets behind a cooked header.
    skipped: u64,
}

impl<'c> Packets<'c> {
    /// Returns the frames of a capture, each as the payload of a datagram to `remote` if there is one.
    pub(crate) fn of(capture: &'c Capture, remote: Option<SocketAddr>) -> Self {
        Self {
            capture,
            frames: capture.frames(),
            link: None,
            remote,
            datagram: Vec::new(),
            seen: CaptureCounts::default(),
        }
    }

    /// Moves to the next packet; returns whether there is one.
    pub(crate) fn advance(&mut self) -> anyhow::Result<bool> {
        let more = self.frames.advance();
        self.seen.skipped = self.frames.skipped();
        if !more? {
            return Ok(false);
        }
        let frame = self.frames.frame();
        let link = *self.link.get_or_insert(frame.link);
        ensure!(
            frame.link == link,
            "capture \"{}\", frame {}: it begins with {}, and the frames before with {link}: split the capture by interface, \
             with `tshark -Y frame.interface_id==0 -w FILE`",
            self.capture.name(),
            frame.number,
            frame.link
        );
        self.seen.cut += u64::from(frame.is_cut());
        if let Some(remote) = self.remote {
            wrap(&mut self.datagram, remote, link, frame.data).with_context(|| {
                let (name, number, len) = (self.capture.name(), frame.number, frame.data.len());
                format!(
                    "capture \"{name}\", frame {number}: its {len} bytes are more than a datagram takes: capture with \
                     segmentation offload switched off"
                )
            })?;
        }
        let len = self.data().len();
        self.seen.all.add(len);
        self.seen.longest = self.seen.longest.max(len);
        Ok(true)
    }

    /// Returns the packet moved to.
    #[inline]
    pub(crate) fn data(&self) -> &[u8] {
        if self.remote.is_some() { &self.datagram } else { self.frames.frame().data }
    }

    /// Returns the time of the packet moved to, in nanoseconds since the first.
    pub(crate) fn at(&self) -> u64 {
        self.frames.frame().at.as_nanos() as u64
    }

    /// Returns the number of its frame in the capture.
    pub(crate) fn number(&self) -> u64 {
        self.frames.frame().number
    }

    /// Returns what the packets begin with.
    pub(crate) fn link(&self) -> Link {
        if self.remote.is_some() { Link::Ip } else { self.link.unwrap_or_default() }
    }

    /// Returns what was read since the beginning.
    pub(crate) fn seen(&self) -> CaptureCounts {
        self.seen
    }

    /// Returns to the beginning.
    pub(crate) fn rewind(&mut self) {
        self.frames.rewind();
        self.seen = CaptureCounts::default();
    }

    /// Moves to the first packet; an error if there is none.
    pub(crate) fn first(&mut self) -> anyhow::Result<()> {
        let name = self.capture.name();
        let found = self.advance()?;
        ensure!(found, "capture \"{name}\" holds no frame: use another one");
        Ok(())
    }
}

impl CaptureCounts {
    /// Returns a warning if the file does not hold all frames, or not all of them whole; `torn` is the frame that it ends within.
    pub(crate) fn warning(&self, file: &Path, torn: Option<u64>) -> Option<String> {
        let (all, cut, skipped) = (self.all.packets, self.cut, self.skipped);
        let warnings = [
            (cut > 0).then(|| format!("{cut} of {all} frames were captured in part and are sent so")),
            (skipped > 0).then(|| {
                format!("{skipped} frames without a link-layer header are no IP packets and are left out")
            }),
            torn.map(|frame| format!("the file ends within frame {frame}; the {all} before it are sent")),
        ];
        let warnings: Vec<_> = warnings.into_iter().flatten().collect();
        (!warnings.is_empty()).then(|| format!("{}: {}", file.display(), warnings.join("; ")))
    }
}

/// Writes a frame as the payload of a datagram to `remote`, with its headers; `None` if it is too long. As in VXLAN (RFC 7348,
/// section 5), the source port is a hash of the frame's flow, so qdiscs still tell the flows apart.
fn wrap(datagram: &mut Vec<u8>, remote: SocketAddr, link: Link, frame: &[u8]) -> Option<()> {
    let any: IpAddr =
        if remote.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let port = public_hash(&link.dissect(frame).keys) as u16 | 0xc000;
    let headers = Datagram::new(remote).from(SocketAddr::new(any, port));
    datagram.clear();
    datagram.resize(headers.header_len(), 0);
    datagram.extend_from_slice(frame);
    headers.write(datagram)
}
