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
}

impl<'c> Recording<'c> {
    /// Reads all frames of a capture; an error if it is damaged or has no frame.
    pub(crate) fn of(capture: &'c Capture) -> anyhow::Result<Self> {
        let mut recording = Self { frames: Vec::new(), link: Link::Ethernet, times: Vec::new(), cut: 0 };
        for frame in capture.frames() {
            let frame = frame?;
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
            recording.frames.push(frame.data);
            recording.times.push(frame.at);
            recording.cut += usize::from(frame.is_cut());
        }
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
        Recording { frames, link: Link::Ip, times: self.times.clone(), cut: self.cut }
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

    pub(crate) fn times(&self) -> impl Iterator<Item = u64> + '_ {
        self.times.iter().copied()
    }

    /// Returns the nanoseconds after which the recording repeats: its length plus the mean gap between two frames, which
    /// stands for the gap from the last frame to the first.
    pub(crate) fn pass(&self) -> f64 {
        let span = self.times.iter().max().copied().unwrap_or(0) as f64;
        let gaps = self.times.len().saturating_sub(1).max(1) as f64;
        span + span / gaps
    }

    pub(crate) fn longest(&self) -> usize {
        self.frames.iter().map(|frame| frame.len()).max().unwrap_or(0)
    }

    /// Returns a warning if some frames were captured only in part.
    pub(crate) fn warning(&self, file: &Path) -> Option<String> {
        (self.cut > 0).then(|| {
            let (cut, all) = (self.cut, self.frames.len());
            format!("{}: {cut} of {all} frames were captured in part and are sent so", file.display())
        })
    }
}
