//! The receiving half: one `readv` a packet.

use std::io::{self, ErrorKind, IoSliceMut};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use rustix::io::{Errno, readv};
use txq::Sender;
use txq::flow::Link;
use txq::packet::{Packet, PacketList};
use txq::receive::{Receive, RxStats};

use super::Interface;
use crate::sys;
use crate::vnet::{self, Malformed, Vnet};

/// Longest packet that the kernel delivers, in bytes: the longest IP packet behind an Ethernet header and a VLAN tag.
const MAX_TUN_FRAME_BYTES: usize = 65_535 + 14 + 4;

/// An rx queue of a [`Tun`](super::Tun). The interface exists while a receiver or the device does.
#[derive(Debug)]
pub struct Receiver {
    queue: Arc<OwnedFd>,
    interface: Arc<Interface>,
    index: u16,
    stats: RxStats,
}

/// The result of a read.
enum Read {
    /// A packet of this many bytes.
    Packet(usize),
    TooLong,
    Malformed,
}

impl Receiver {
    pub(super) fn new(queue: Arc<OwnedFd>, interface: Arc<Interface>, index: u16) -> Self {
        Self { queue, interface, index, stats: RxStats::default() }
    }

    /// Returns the name of the interface, as it was when it was created.
    pub fn name(&self) -> &str {
        &self.interface.name
    }

    /// Returns the length of the buffers to read into, in bytes.
    fn room(&self, sender: &Sender) -> io::Result<usize> {
        let room = sender.pool().room();
        if self.interface.gro && room < MAX_TUN_FRAME_BYTES {
            let what = format!(
                "interface \"{}\" receives packets of up to {MAX_TUN_FRAME_BYTES} bytes, and the pool's buffers hold {room}: set \
                 PoolConfig::room to {MAX_TUN_FRAME_BYTES}, or do not ask for `gro`",
                self.interface.name
            );
            return Err(io::Error::new(ErrorKind::InvalidInput, what));
        }
        Ok(room.min(MAX_TUN_FRAME_BYTES))
    }

    /// Reads one packet into `packet`, and completes it.
    fn read(&self, packet: &mut Packet) -> Result<Read, Errno> {
        // The kernel cuts a packet that is too long. A byte beyond the buffer tells.
        let (mut header, mut beyond) = ([0; vnet::LEN], [0; 1]);
        let data = packet.data_mut();
        let room = data.len();
        let len = if self.interface.has_header {
            let mut parts = [&mut header[..], data, &mut beyond].map(IoSliceMut::new);
            readv(&*self.queue, &mut parts)?.saturating_sub(vnet::LEN)
        } else {
            let mut parts = [data, &mut beyond].map(IoSliceMut::new);
            readv(&*self.queue, &mut parts)?
        };
        if len > room {
            return Ok(Read::TooLong);
        }
        let data = &mut packet.data_mut()[..len];
        match Vnet::from_bytes(header).complete(data, self.interface.kind.link()) {
            Ok(None) => {}
            Ok(Some((size, segs))) => packet.set_gso(size, segs),
            Err(Malformed) => return Ok(Read::Malformed),
        }
        packet.truncate(len);
        Ok(Read::Packet(len))
    }

    fn failed(&self, error: Errno) -> io::Error {
        let what = if matches!(error, Errno::BADFD | Errno::NODEV) { "is gone" } else { "cannot be read" };
        let error = io::Error::from(error);
        let text = format!("interface \"{}\" {what} ({error}): see `ip link` and dmesg", self.interface.name);
        io::Error::new(error.kind(), text)
    }
}

impl Receive for Receiver {
    fn link(&self) -> Link {
        self.interface.kind.link()
    }

    fn receive(&mut self, budget: usize, sender: &mut Sender, batch: &mut PacketList) -> io::Result<usize> {
        let room = self.room(sender)?;
        let mut n = 0;
        let mut bytes = 0;
        let mut failure = None;
        for _ in 0..budget {
            let Ok(mut packet) = sender.alloc(room) else { break };
            match self.read(&mut packet) {
                Ok(Read::Packet(len)) => {
                    packet.set_link(self.interface.kind.link());
                    packet.set_rx_queue(self.index);
                    batch.push_back(packet);
                    n += 1;
                    bytes += len as u64;
                }
                Ok(Read::TooLong) => self.stats.too_long += 1,
                Ok(Read::Malformed) => self.stats.malformed += 1,
                Err(Errno::AGAIN) => break,
                Err(Errno::INTR) => {}
                Err(error) => {
                    failure = Some(error);
                    break;
                }
            }
        }
        self.stats.received(n as u64, bytes);
        match failure {
            Some(error) if n == 0 => Err(self.failed(error)),
            _ => Ok(n),
        }
    }

    fn wait(&mut self, timeout: Option<Duration>) -> io::Result<bool> {
        sys::wait_readable(&*self.queue, timeout)
    }

    fn stats(&self) -> RxStats {
        self.stats
    }
}

impl AsFd for Receiver {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.queue.as_fd()
    }
}
