//! A network device that keeps one packet: SLIP (RFC 1055) over a pseudo-terminal whose other end is ours.
//!
//! The kernel's `slip` stops its queue with each packet and wakes it when the terminal's reader has read the packet. So
//! reading one packet is one completion, and a reader that does not read is a link that stands still.

use std::fs::File;
use std::io::Read;
use std::os::fd::AsFd;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags, open};
use rustix::pty::{OpenptFlags, openpt, ptsname, unlockpt};
use rustix::termios::{OptionalActions, tcgetattr, tcsetattr};

use crate::sys;

const END: u8 = 0xc0;
const ESC: u8 = 0xdb;
const ESC_END: u8 = 0xdc;
const ESC_ESC: u8 = 0xdd;

/// How long to wait for a packet that should be there by now: the kernel's work for it is ready to run, and runs before a
/// sleeping process.
const SETTLE: Duration = Duration::from_millis(2);

pub(crate) struct Line {
    reader: File,
    _device: File,
    /// Bytes read beyond the last returned packet.
    rest: Vec<u8>,
}

impl Line {
    /// Opens a device, the first one of its kind: `sl0`.
    pub(crate) fn open() -> Result<Self> {
        let reader = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).context("no pseudo-terminal")?;
        unlockpt(&reader)?;
        let name = ptsname(&reader, Vec::new())?;
        let device = open(&name, OFlags::RDWR | OFlags::NOCTTY, Mode::empty())?;
        for end in [&reader, &device] {
            let mut how = tcgetattr(end)?;
            how.make_raw();
            tcsetattr(end, OptionalActions::Now, &how)?;
        }
        sys::make_slip(&device).context("the kernel has no slip")?;
        Ok(Self { reader: reader.into(), _device: device.into(), rest: Vec::new() })
    }

    /// Reads a packet if one arrives within `patience`, and waits until the device has taken the next one if there is one.
    pub(crate) fn read(&mut self, patience: Duration) -> Result<Option<Vec<u8>>> {
        let mut packet = Vec::new();
        if self.rest.is_empty() && !self.readable(patience)? {
            return Ok(None);
        }
        loop {
            if self.rest.is_empty() {
                // The whole packet is readable once all runnable kernel work has run.
                std::thread::sleep(SETTLE / 4);
                if !self.readable(Duration::from_secs(1))? {
                    bail!("half a packet came and no more: {packet:02x?}");
                }
                let mut bytes = [0; 4096];
                let n = self.reader.read(&mut bytes)?;
                self.rest.extend_from_slice(&bytes[..n]);
            }
            let end = self.rest.iter().position(|&byte| byte == END);
            let taken: Vec<u8> = self.rest.drain(..end.map_or(self.rest.len(), |at| at + 1)).collect();
            packet.extend_from_slice(&taken);
            // A packet also begins with an END, which ends any noise before it.
            if packet == [END] {
                packet.clear();
            } else if end.is_some() {
                packet.pop();
                return Ok(Some(unescape(&packet)));
            }
        }
    }

    /// Reads a packet if there is one now.
    pub(crate) fn read_now(&mut self) -> Result<Option<Vec<u8>>> {
        self.read(SETTLE)
    }

    fn readable(&self, patience: Duration) -> Result<bool> {
        let timeout = Timespec::try_from(patience)?;
        let fd = self.reader.as_fd();
        Ok(poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&timeout))? > 0)
    }
}

fn unescape(bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.iter();
    let mut packet = Vec::with_capacity(bytes.len());
    while let Some(&byte) = bytes.next() {
        packet.push(match byte {
            ESC => match bytes.next() {
                Some(&ESC_END) => END,
                Some(&ESC_ESC) => ESC,
                other => other.copied().unwrap_or(ESC),
            },
            byte => byte,
        });
    }
    packet
}
