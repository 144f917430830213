//! The receiving half: gives buffers to the kernel, and takes them back with frames in them.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use txq::Sender;
use txq::driver::Link;
use txq::packet::{Packet, PacketList};
use txq::pool::{AllocError, Cache};
use txq::receive::{Receive, RxStats};

use super::program::Program;
use super::queue::Queue;
use super::rings::{Consumer, Producer};
use super::socket::{self, Desc};
use super::umem::Use;
use crate::sys;

/// The least number of buffers that the fill ring is refilled by.
const REFILL: u32 = 32;
/// Calls without a frame between two checks of the interface.
const CHECK: u32 = 64;

/// The receiving half of one queue of an AF_XDP device ([`AfXdp::receivers`](super::AfXdp::receivers)).
///
/// The first call of [`receive`](Receive::receive) gives buffers to the kernel and takes the queue's frames from it. Before,
/// and after the receiver is dropped, the kernel gets them. Frames lie in the pool's own buffers, and a sender of the same
/// pool sends them on without a copy. For a sender of another pool they are copied.
///
/// The buffers that wait for frames count against the sender's limit ([`Sender::set_limit`]).
pub struct Receiver {
    rx: Consumer<Desc>,
    fill: Producer<u64>,
    /// Buffers to keep in the kernel.
    keep: u32,
    /// Buffers in the kernel.
    filled: u32,
    /// Where buffers come from if the sender's pool is another one.
    own: Option<Cache>,
    started: bool,
    idle: u32,
    stats: RxStats,
    program: Arc<Program>,
    queue: Arc<Queue>,
}

impl fmt::Debug for Receiver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Receiver").field("queue", &self.queue.index).finish_non_exhaustive()
    }
}

impl Receiver {
    /// Returns the receiving half of a queue, which must have no other one and was opened to receive. It keeps `keep` buffers
    /// in the kernel, which the fill ring has slots for.
    pub(super) fn new(queue: Arc<Queue>, program: Arc<Program>, keep: u32) -> Self {
        let rings = queue.rings();
        let ring = rings.rx.expect("opened to receive");
        // SAFETY: the caller's promise; the kernel writes only free slots, any integers are a descriptor, and `queue` keeps
        // the ring mapped.
        let rx = unsafe { Consumer::new(ring) };
        // SAFETY: as above; the kernel reads only slots between the cursors.
        let fill = unsafe { Producer::new(rings.fill) };
        let stats = RxStats::default();
        Self { rx, fill, keep, filled: 0, own: None, started: false, idle: 0, stats, program, queue }
    }

    /// Returns the index of the rx queue.
    pub fn queue(&self) -> u32 {
        self.queue.index
    }

    /// Allocates a buffer of the device's pool: of the sender, if it uses that pool.
    fn alloc(&mut self, sender: &mut Sender) -> Result<Packet, AllocError> {
        let pool = &self.queue.umem.pool;
        if self.own.is_none() {
            match sender.alloc(pool.room()) {
                Ok(packet) if pool.owns(&packet) => return Ok(packet),
                Ok(_) | Err(AllocError::TooLong { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        let own = self.own.get_or_insert_with(|| pool.cache("af_xdp received", 0));
        own.alloc(pool.room())
    }

    /// Gives buffers to the kernel.
    fn refill(&mut self, sender: &mut Sender) {
        let want = self.keep.saturating_sub(self.filled);
        if want < REFILL.min(self.keep) {
            return;
        }
        for _ in 0..want.min(self.fill.room(want)) {
            let Ok(packet) = self.alloc(sender) else { break };
            let Queue { umem, uses, .. } = &*self.queue;
            let buffer = umem.pool.take_offset(packet) / umem.stride;
            uses.set(buffer, Use::Fill);
            self.fill.push((buffer * umem.stride) as u64);
            self.filled += 1;
        }
        self.fill.publish();
        if self.queue.need_wakeup && self.fill.ring().needs_wakeup() {
            // An error is found by `check`.
            let _ = socket::kick_rx(self.queue.as_fd());
        }
    }

    /// Takes a buffer back from the kernel; returns the packet that it holds. `None` if it holds no whole frame.
    fn take(&mut self, desc: Desc) -> Option<Packet> {
        let Queue { umem, uses, .. } = &*self.queue;
        let (buffer, at) = umem.locate(desc.address)?;
        if !uses.take_if(buffer, Use::Fill) {
            return None;
        }
        self.filled -= 1;
        // SAFETY: the table names the buffers that `take_offset` gave to the kernel, and has returned this one just now.
        let mut packet = unsafe { umem.pool.packet_at(buffer * umem.stride) };
        // The packet begins at the pool's headroom. The kernel leaves as much free, and no less than its own.
        let headroom = at - buffer * umem.stride;
        let (skip, len) = (headroom.checked_sub(packet.headroom())?, desc.len as usize);
        if packet.pull(skip).is_none() || packet.len() < len {
            self.stats.too_long += 1;
            return None;
        }
        packet.truncate(len);
        packet.set_rx_queue(self.queue.index as u16);
        Some(packet)
    }

    /// Returns an error if the interface is down or gone.
    fn check(&self) -> io::Result<()> {
        let Err(error) = socket::kick_rx(self.queue.as_fd()) else { return Ok(()) };
        let Queue { interface, index, .. } = &*self.queue;
        let text =
            |what| format!("queue {index} of interface \"{}\" {what}: `ip link` shows it", interface.name);
        let text = match error.raw_os_error() {
            Some(libc::EAGAIN | libc::EINTR | libc::ENOBUFS | libc::EBUSY) => return Ok(()),
            Some(libc::ENXIO | libc::ENODEV) => text("is gone"),
            Some(libc::ENETDOWN) => text("is down"),
            _ => text(&format!("does not receive ({error})")),
        };
        Err(io::Error::new(error.kind(), text))
    }

    /// Takes frames from the kernel, up to `budget`.
    fn harvest(&mut self, budget: usize, sender: &mut Sender, batch: &mut PacketList) -> usize {
        let (mut packets, mut bytes) = (0, 0);
        while packets < budget
            && let Some(desc) = self.rx.peek()
        {
            let copy = match &self.own {
                None => None,
                // The frame waits in the ring for a buffer of the sender.
                Some(_) => match sender.alloc(desc.len as usize) {
                    Ok(copy) => Some(copy),
                    Err(AllocError::TooLong { .. }) => {
                        self.rx.pop();
                        drop(self.take(desc));
                        self.stats.too_long += 1;
                        continue;
                    }
                    Err(_) => break,
                },
            };
            self.rx.pop();
            let Some(mut packet) = self.take(desc) else { continue };
            if let Some(mut copy) = copy {
                copy.data_mut().copy_from_slice(packet.data());
                copy.set_rx_queue(self.queue.index as u16);
                packet = copy;
            }
            bytes += packet.len() as u64;
            packets += 1;
            batch.push_back(packet);
        }
        self.rx.publish();
        self.stats.received(packets as u64, bytes);
        packets
    }
}

impl Receive for Receiver {
    fn link(&self) -> Link {
        Link::Ethernet
    }

    fn receive(&mut self, budget: usize, sender: &mut Sender, batch: &mut PacketList) -> io::Result<usize> {
        let packets = self.harvest(budget, sender, batch);
        self.refill(sender);
        if !self.started && self.filled > 0 {
            self.program.add(self.queue.index, self.queue.as_fd())?;
            self.started = true;
        }
        self.idle = if packets > 0 { 0 } else { self.idle + 1 };
        if self.idle == CHECK {
            self.idle = 0;
            self.check()?;
        }
        Ok(packets)
    }

    fn wait(&mut self, timeout: Option<Duration>) -> io::Result<bool> {
        if !self.started || self.rx.peek().is_some() {
            return Ok(true);
        }
        let readable = sys::wait_readable(&*self.queue, timeout)?;
        if self.rx.peek().is_none() {
            // The kernel wakes a sleeper when the interface goes.
            self.check()?;
        }
        Ok(readable || self.rx.peek().is_some())
    }

    fn stats(&self) -> RxStats {
        let of = socket::statistics(self.queue.as_fd()).unwrap_or_default();
        let mut stats = self.stats;
        // In copy mode the kernel drops a frame without a buffer, which it counts as an empty fill ring, too, and a frame that
        // is longer than a buffer. In zero-copy mode it drops neither itself.
        let starved = of.starved.min(of.rx_dropped);
        stats.missed = starved + of.rx_ring_full;
        stats.too_long += of.rx_dropped - starved;
        stats
    }

    fn prefer_busy_poll(&mut self, time: Duration) {
        sys::busy_poll(&*self.queue, time);
    }
}

/// Readable while there are frames.
impl AsFd for Receiver {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.queue.as_fd()
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        if self.started {
            self.program.remove(self.queue.index);
        }
    }
}
