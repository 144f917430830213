//! The frames of a capture, all read before the first is sent: the disk does not affect the pace, and a damaged file is
//! refused before a device is opened.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;

use anyhow::{Context, ensure};
use txq::driver::Link;
use txq::flow::public_hash;
use txq_device::capture::Capture;
use txq_device::udp::Datagram;

/// Frames and their times, borrowed from a capture.
#[derive(PartialEq, Eq)]
pub(crate) struct Recording<'c> {
    frames: Vec<&'c [u8]>,
    /// What all frames begin with.
    link: Link,
    /// Nanoseconds since the first frame.
    times: Vec<u64>,
    /// The number of frames that were captured only in part.
    cut: usize,
    /// The number of frames that are left out, because they are no IP packets behind a cooked header.
    skipped: u64,
    /// The number of the frame that the file ends within.
    torn: Option<usize>,
}

impl<'c> Recording<'c> {
    /// Reads all frames of a capture; an error if it is damaged or has no frame, or more than `most`.
    pub(crate) fn of(capture: &'c Capture, most: usize) -> anyhow::Result<Self> {
        Self::read(capture, false, most)
    }

    /// As [`of`](Self::of), of a capture that may end within its last frame, which is left out.
    pub(crate) fn of_torn(capture: &'c Capture) -> anyhow::Result<Self> {
        Self::read(capture, true, usize::MAX)
    }

    fn read(capture: &'c Capture, may_be_torn: bool, most: usize) -> anyhow::Result<Self> {
        let mut recording = Self {
            frames: Vec::new(),
            link: Link::Ethernet,
            times: Vec::new(),
            cut: 0,
            skipped: 0,
            torn: None,
        };
        let mut frames = capture.frames();
        for frame in frames.by_ref() {
            let frame = match frame {
                Err(error) if may_be_torn && error.is_truncated() && !recording.frames.is_empty() => {
                    recording.torn = Some(recording.frames.len() + 1);
                    break;
                }
                frame => frame?,
            };
            if recording.frames.is_empty() {
                recording.link = frame.link;
            }
            ensure!(
                frame.link == recording.link,
                "capture \"{}\" has frames that begin with {} and frames that begin with {}: split it by interface, with \
                 `tshark -Y frame.interface_id==0 -w FILE`",
                capture.name(),
                recording.link,
                frame.link
            );
            ensure!(
                recording.frames.len() < most,
                "capture \"{}\" has more than {most} frames, of which each takes memory: cut it, with `editcap -r`",
                capture.name()
            );
            recording.frames.push(frame.data);
            recording.times.push(frame.at);
            recording.cut += usize::from(frame.is_cut());
        }
        recording.skipped = frames.skipped();
        ensure!(
            !recording.frames.is_empty(),
            "capture \"{}\" holds no frame: use another one",
            capture.name()
        );
        Ok(recording)
    }

    /// Returns each frame as the payload of a datagram to `remote`, with its headers. As in VXLAN (RFC 7348, section 5), the
    /// source port is a hash of the frame's flow, so qdiscs still tell the flows apart.
    pub(crate) fn datagrams(&self, remote: SocketAddr) -> anyhow::Result<Vec<Vec<u8>>> {
        let any: IpAddr =
            if remote.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
        let datagram = |frame: &[u8]| {
            let port = public_hash(&self.link.dissect(frame).keys) as u16 | 0xc000;
            let headers = Datagram::new(remote).from(SocketAddr::new(any, port));
            let mut packet = vec![0; headers.header_len()];
            packet.extend(frame);
            let len = frame.len();
            headers.write(&mut packet).with_context(|| {
                format!("a frame of {len} bytes is longer than a datagram: capture with segmentation offload switched off")
            })?;
            Ok(packet)
        };
        self.frames().map(datagram).collect()
    }

    /// Returns the same recording of other packets, which begin with IP.
    pub(crate) fn with_packets<'p>(&self, packets: &'p [Vec<u8>]) -> Recording<'p> {
        let frames = packets.iter().map(Vec::as_slice).collect();
        Recording { frames, link: Link::Ip, times: self.times.clone(), ..*self }
    }

    pub(crate) fn frames(&self) -> impl ExactSizeIterator<Item = &'c [u8]> + '_ {
        self.frames.iter().copied()
    }

    /// Returns what all frames begin with.
    pub(crate) fn link(&self) -> Link {
        self.link
    }

    #[inline]
    pub(crate) fn frame(&self, index: usize) -> &'c [u8] {
        self.frames[index]
    }

    /// Returns each frame's time, and after how long the recording repeats, in nanoseconds: its length plus the mean gap between two
    /// frames, which stands for the gap from the last frame to the first. A gap beyond `max_gap` counts as `max_gap`, and a clock that
    /// is set back by more than that as no gap; the last value is their number.
    pub(crate) fn paced(&self, max_gap: u64) -> (Vec<u64>, f64, usize) {
        let (mut before, mut span, mut shift, mut bounded) = (0_u64, 0_u64, 0_i128, 0);
        let mut pace = |at: u64| {
            let is_long = at > before.saturating_add(max_gap);
            if is_long || at.saturating_add(max_gap) < before {
                let due = if is_long { span.saturating_add(max_gap) } else { span };
                (before, shift) = (at, i128::from(due) - i128::from(at));
                bounded += 1;
            }
            let due = u64::try_from(i128::from(at) + shift).unwrap_or(0);
            (before, span) = (before.max(at), span.max(due));
            due
        };
        let due: Vec<u64> = self.times.iter().map(|&at| pace(at)).collect();
        let (span, gaps) = (span as f64, due.len().saturating_sub(1).max(1) as f64);
        (due, span + span / gaps, bounded)
    }

    pub(crate) fn longest(&self) -> usize {
        self.frames.iter().map(|frame| frame.len()).max().unwrap_or(0)
    }

    /// Returns a warning if the file does not hold all frames, or not all of them whole.
    pub(crate) fn warning(&self, file: &Path) -> Option<String> {
        let (cut, all) = (self.cut, self.frames.len());
        let warnings = [
            (cut > 0).then(|| format!("{cut} of {all} frames were captured in part and are sent so")),
            (self.skipped > 0).then(|| {
                format!(
                    "{} frames without a link-layer header are no IP packets and are left out",
                    self.skipped
                )
            }),
            self.torn
                .map(|frame| format!("the file ends within frame {frame}; the {all} before it are sent")),
        ];
        let warnings: Vec<_> = warnings.into_iter().flatten().collect();
        (!warnings.is_empty()).then(|| format!("{}: {}", file.display(), warnings.join("; ")))
    }
}
