//! The packets of a capture: `tcpreplay`, from several threads.
//!
//! A packet has its length on the wire and its captured header bytes. Each flow belongs to one sender, by the hash of its
//! addresses and ports, so that its packets keep their order. A sender sleeps until its next packet is due. It runs later by
//! the duration of a wake-up, and then sends all packets that are due. The capture repeats after a gap of the packets' mean
//! distance.

use std::path::Path;
use std::rc::Rc;

use thiserror::Error;
use txq::flow::flow_hash;
use txq::xps::reciprocal_scale;
use txq_core::arch::Arch;
use txq_device::capture::{Capture, CaptureError};

use super::{BEGINNING, Done, HEAD, Port, send_frame, work};
use crate::sim::arch::Sim;
use crate::sim::machine::Picos;
use crate::sim::sim;

/// Length of an Ethernet header.
const SHORTEST_PACKET: u32 = 14;
/// Length of the longest packet that offloads produce, with its Ethernet header.
const LONGEST_PACKET: u32 = 65_549;
/// Maximum size of a pool's memory.
const MEMORY: u64 = 4 << 30;
/// Picoseconds in a nanosecond.
const PICOS: f64 = 1000.0;

/// Why a capture cannot be sent.
#[derive(Debug, Error)]
pub(crate) enum TraceError {
    /// The file cannot be read.
    #[error("workload.file: {0}")]
    Capture(#[from] CaptureError),
    /// It holds no frame.
    #[error("workload.file: capture \"{name}\" holds no frame: use another one")]
    Empty { name: String },
    /// A frame is longer than any card sends.
    #[error(
        "workload.file: capture \"{name}\", frame {frame}: {bytes} bytes on the wire, and {LONGEST_PACKET} are the most: \
         `editcap \"{name}\" OUT {frame}` copies all others"
    )]
    Long { name: String, frame: u64, bytes: u32 },
    /// The pool would need too much memory.
    #[error(
        "workload.file: capture \"{name}\" has frames of {bytes} bytes, and {buffers} buffers for such take more than \
         {} GiB: use fewer senders, a smaller credit, or a capture that was made with the card's offloads off",
        MEMORY >> 30
    )]
    Memory { name: String, bytes: u32, buffers: u32 },
}

/// A packet.
#[derive(Debug)]
struct Frame {
    /// Its time, in nanoseconds after the first frame.
    at: u64,
    bytes: u32,
    /// The part of the headers' bytes that is its own: offset and length.
    head: usize,
    kept: usize,
    hash: u32,
}

/// The frames of a capture, and their header bytes.
#[derive(Debug)]
pub(crate) struct Trace {
    frames: Vec<Frame>,
    heads: Vec<u8>,
}

impl Trace {
    pub(super) fn open(file: &Path) -> Result<Self, TraceError> {
        Self::of(&Capture::open(file)?)
    }

    fn of(capture: &Capture) -> Result<Self, TraceError> {
        let mut trace = Self { frames: Vec::new(), heads: Vec::new() };
        let mut frames = capture.frames();
        while frames.advance()? {
            let frame = frames.frame();
            let (name, bytes) = (capture.name(), frame.wire_len.max(SHORTEST_PACKET));
            if bytes > LONGEST_PACKET {
                return Err(TraceError::Long { name: name.to_owned(), frame: frame.number, bytes });
            }
            let kept = &frame.data[..frame.data.len().min(HEAD)];
            let head = trace.heads.len();
            trace.heads.extend_from_slice(kept);
            let hash = flow_hash(frame.data);
            trace.frames.push(Frame { at: frame.at.as_nanos() as u64, bytes, head, kept: kept.len(), hash });
        }
        match trace.frames.is_empty() {
            true => Err(TraceError::Empty { name: capture.name().to_owned() }),
            false => Ok(trace),
        }
    }

    /// Returns an error if the pool would need too much memory.
    pub(super) fn check_memory(&self, file: &Path, buffers: u32) -> Result<(), TraceError> {
        let bytes = self.longest();
        match u64::from(bytes) * u64::from(buffers) > MEMORY {
            true => Err(TraceError::Memory { name: file.display().to_string(), bytes, buffers }),
            false => Ok(()),
        }
    }

    /// Returns the length of the longest packet.
    pub(super) fn longest(&self) -> u32 {
        self.frames.iter().map(|frame| frame.bytes).max().unwrap_or(SHORTEST_PACKET)
    }

    /// Returns the frame numbers of each sender, in order.
    pub(super) fn deal(&self, senders: u32) -> Vec<Vec<u32>> {
        let mut dealt = vec![Vec::new(); senders as usize];
        for (number, frame) in (0..).zip(&self.frames) {
            dealt[reciprocal_scale(frame.hash, senders) as usize].push(number);
        }
        dealt
    }

    /// Returns the nanoseconds between two repetitions: the capture's length, and a gap.
    fn pass(&self) -> f64 {
        let span = self.frames.iter().map(|frame| frame.at).max().unwrap_or(0) as f64;
        span + span / (self.frames.len() - 1).max(1) as f64
    }
}

/// A sender.
pub(super) struct Replay {
    pub(super) trace: Rc<Trace>,
    /// The numbers of its frames.
    pub(super) frames: Vec<u32>,
    pub(super) speed: f64,
    pub(super) private: f64,
}

impl Replay {
    pub(super) fn run(self, port: &mut Port, done: &Done) {
        if self.frames.is_empty() {
            return;
        }
        let length = self.trace.pass();
        for pass in 0_u64.. {
            for &number in &self.frames {
                let frame = &self.trace.frames[number as usize];
                let due = self.due(pass as f64 * length + frame.at as f64);
                if let Some(due) = due
                    && due > sim::now()
                {
                    done.sleep_until(due);
                }
                work(self.private);
                if let Some(due) = due {
                    done.handed_in(sim::now().saturating_sub(due));
                }
                while !self.send(port, frame) {
                    if !port.sender.wait_credit(None) {
                        // There is credit, so the pool is empty.
                        Sim::relax();
                    }
                }
            }
        }
    }

    /// Returns the time when a packet is due; `None` if its time does not matter.
    fn due(&self, nanos: f64) -> Option<Picos> {
        (self.speed > 0.0).then(|| BEGINNING + (nanos * PICOS / self.speed) as Picos)
    }

    fn send(&self, port: &mut Port, frame: &Frame) -> bool {
        send_frame(port, frame.bytes as usize, &self.trace.heads[frame.head..frame.head + frame.kept])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A capture of frames: time in microseconds, source port, length on the wire, and captured length.
    fn capture(frames: &[(u32, u16, u32, usize)]) -> Capture {
        let mut bytes = Vec::new();
        let words = |words: &[u32]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<_>>();
        bytes.extend(words(&[0xa1b2_c3d4, 0x0004_0002, 0, 0, 65535, 1]));
        for &(at, port, len, captured) in frames {
            bytes.extend(words(&[at / 1_000_000, at % 1_000_000, captured as u32, len]));
            let mut frame = crate::sim::workload::frame(port.into()).to_vec();
            frame.resize(captured, 0xFF);
            bytes.extend(frame);
        }
        Capture::from_bytes("x.pcap", bytes).expect("a capture")
    }

    #[test]
    fn a_flow_is_one_sender_s_and_in_order() {
        let frames: Vec<_> = (0..400).map(|n| (n * 10, (n % 40) as u16, 60 + n, 60)).collect();
        let trace = Trace::of(&capture(&frames)).unwrap();
        let dealt = trace.deal(3);
        assert_eq!(dealt.iter().map(Vec::len).sum::<usize>(), 400);
        for (number, share) in dealt.iter().enumerate() {
            assert!(share.len() > 20, "sender {number} has {}", share.len());
            assert!(share.is_sorted());
            let others = dealt.iter().enumerate().filter(|(other, _)| *other != number);
            let theirs: Vec<_> = others.flat_map(|(_, share)| share).map(|n| n % 40).collect();
            assert!(share.iter().all(|n| !theirs.contains(&(n % 40))), "a flow of two senders");
        }
        assert_eq!(trace.longest(), 459, "the length on the wire, whatever was captured");
        assert_eq!(trace.frames[1].at, 10_000);
        assert_eq!(trace.pass(), 400.0 * 10_000.0);
    }

    #[test]
    fn what_cannot_be_sent_is_named() {
        let said = |frames: &[_]| Trace::of(&capture(frames)).unwrap_err().to_string();
        let empty = said(&[]);
        assert_eq!(empty, "workload.file: capture \"x.pcap\" holds no frame: use another one");
        let long = said(&[(0, 1, 60, 60), (1, 1, 70_000, 60)]);
        assert!(
            long.contains("frame 2: 70000 bytes on the wire, and 65549 are the most: `editcap"),
            "{long}"
        );
        // A runt is sent as long as its header.
        let trace = Trace::of(&capture(&[(0, 1, 4, 4)])).unwrap();
        assert_eq!((trace.longest(), trace.pass()), (14, 0.0));
        let large = trace.check_memory(Path::new("x.pcap"), u32::MAX).unwrap_err().to_string();
        assert!(large.contains("more than 4 GiB: use fewer senders"), "{large}");
        trace.check_memory(Path::new("x.pcap"), 1000).unwrap();
    }
}
