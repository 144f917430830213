//! The receiving half: raw sockets that get a copy of each frame that comes in on the interface.

use std::cell::Cell;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use txq::Sender;
use txq::driver::Link;
use txq::flow::dissect;
use txq::packet::{Packet, PacketList};
use txq::receive::{Receive, RxStats};

use super::AfPacket;
use super::blocks::{self, Blocks};
use super::recv::{self, Messages, Notes, RECEIVE_BATCH};
use super::socket::{self, Interface};
use crate::sys;
use crate::vnet::{Malformed, Vnet};

/// Frames that the machine sends go to no socket of the group (`PACKET_FANOUT_FLAG_IGNORE_OUTGOING`).
const FANOUT_IGNORE_OUTGOING: libc::c_uint = 0x4000;
/// Receive buffer of a socket, in bytes of frames with the kernel's overhead.
const FRAME_RECEIVE_BUFFER: libc::c_int = 8 << 20;

/// An rx queue of an interface: a socket that gets the frames that come in on it. The kernel's own stack gets them as well.
pub struct Receiver {
    fd: OwnedFd,
    ifname: String,
    /// Its number among the receivers of one call.
    queue: u16,
    source: Source,
    /// Whether packets get the time at which they came in.
    times: bool,
    /// Packets that exceed the budget of the call that received them: a frame may have been cut into many.
    ready: PacketList,
    /// An error after packets, which the next call returns.
    failure: Option<io::Error>,
    stats: RxStats,
    /// Frames that the kernel dropped, as far as they were read: a read sets the kernel's count to 0.
    missed: Cell<u64>,
}

/// How frames come from the kernel.
enum Source {
    /// By `recvmmsg`, into buffers for the next frames.
    Messages { messages: Messages, spare: PacketList },
    /// In shared memory.
    Blocks(Blocks),
}

impl std::fmt::Debug for Receiver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Receiver")
            .field("interface", &self.ifname)
            .field("queue", &self.queue)
            .finish_non_exhaustive()
    }
}

impl AfPacket {
    /// Opens `n` receivers of the interface. Each frame goes to one of them, all frames of a flow to the same one
    /// (`PACKET_FANOUT_HASH`). The interface is promiscuous while a receiver is open. Frames that this machine sends on the
    /// interface are not received.
    ///
    /// # Errors
    /// When the process may not receive on the interface, and when the kernel lacks one of the options (5.10 has all).
    pub fn receivers(&self, n: u16) -> io::Result<Vec<Receiver>> {
        let mut group = None;
        (0..n)
            .map(|queue| self.receiver_of(queue, n > 1, &mut group).map_err(|error| self.explain(error)))
            .collect()
    }

    fn receiver_of(&self, queue: u16, several: bool, group: &mut Option<u16>) -> io::Result<Receiver> {
        let fd = socket::open()?;
        let on = |option| sys::set::<libc::c_int>(&fd, libc::SOL_PACKET, option, 1);
        on(libc::PACKET_VNET_HDR)?;
        on(libc::PACKET_AUXDATA)?;
        on(libc::PACKET_IGNORE_OUTGOING)?;
        // Some kernels have no virtio-net headers in blocks, and each needs memory for them.
        let source = match if self.blocks { Blocks::map(&fd).ok() } else { None } {
            Some(blocks) => Source::Blocks(blocks),
            None => {
                sys::set_buffer(&fd, libc::SO_RCVBUFFORCE, libc::SO_RCVBUF, FRAME_RECEIVE_BUFFER)?;
                Source::Messages { messages: Messages::new(), spare: PacketList::new() }
            }
        };
        promiscuous(&fd, self.interface)?;
        socket::bind(&fd, self.interface, libc::ETH_P_ALL as u16)?;
        if several {
            join(&fd, group)?;
        }
        Ok(Receiver {
            fd,
            ifname: self.ifname.clone(),
            queue,
            source,
            times: false,
            ready: PacketList::new(),
            failure: None,
            stats: RxStats::default(),
            missed: Cell::new(0),
        })
    }

    fn explain(&self, error: io::Error) -> io::Error {
        let text = format!(
            "receiving on interface \"{}\" is not possible ({error}): it takes CAP_NET_RAW and Linux 5.10",
            self.ifname
        );
        io::Error::new(error.kind(), text)
    }
}

/// Makes the interface take frames for every address, until the socket is closed.
fn promiscuous(fd: &OwnedFd, interface: Interface) -> io::Result<()> {
    let request = libc::packet_mreq {
        mr_ifindex: interface.index,
        mr_type: libc::PACKET_MR_PROMISC as _,
        mr_alen: 0,
        mr_address: [0; 8],
    };
    sys::set(fd, libc::SOL_PACKET, libc::PACKET_ADD_MEMBERSHIP, request)
}

/// Adds a bound socket to the group whose id is in `group`, and makes one first if there is none.
fn join(fd: &OwnedFd, group: &mut Option<u16>) -> io::Result<()> {
    // The group has a setting of its own beside PACKET_IGNORE_OUTGOING of its sockets.
    let hash = (libc::PACKET_FANOUT_HASH | FANOUT_IGNORE_OUTGOING) << 16;
    match *group {
        Some(id) => sys::set(fd, libc::SOL_PACKET, libc::PACKET_FANOUT, u32::from(id) | hash),
        None => {
            let unique = (libc::PACKET_FANOUT_FLAG_UNIQUEID << 16) | hash;
            sys::set(fd, libc::SOL_PACKET, libc::PACKET_FANOUT, unique)?;
            let made: u32 = sys::get(fd, libc::SOL_PACKET, libc::PACKET_FANOUT)?;
            *group = Some(made as u16);
            Ok(())
        }
    }
}

/// Why a frame was dropped.
enum Fault {
    /// It is longer than a buffer.
    TooLong,
    /// Its headers make no sense.
    Malformed,
}

impl Receiver {
    /// Returns whether frames come in memory that the kernel shares ([`AfPacket::blocks`]).
    pub fn has_blocks(&self) -> bool {
        matches!(self.source, Source::Blocks(_))
    }

    /// Receives at most `budget` frames and keeps their packets in `ready`. Returns whether there may be more.
    fn refill(&mut self, budget: usize, sender: &mut Sender) -> io::Result<bool> {
        let Self { source, ready, stats, .. } = self;
        let mark = Mark { queue: self.queue, times: self.times };
        let mut take = |packets: Result<PacketList, Fault>| match packets {
            Ok(mut packets) => ready.append(&mut packets),
            Err(Fault::TooLong) => stats.too_long += 1,
            Err(Fault::Malformed) => stats.malformed += 1,
        };
        match source {
            Source::Messages { messages, spare } => {
                let want = budget.min(RECEIVE_BATCH);
                if spare.len() < want {
                    let room = sender.pool().room();
                    // Without buffers, frames stay in the socket.
                    let _ = sender.alloc_batch(want - spare.len(), room, spare);
                }
                let mut buffers = PacketList::new();
                spare.move_front(want, &mut buffers);
                let offered = buffers.len();
                if offered == 0 {
                    return Ok(false);
                }
                let got = messages.receive(&self.fd, &mut buffers);
                for n in 0..*got.as_ref().unwrap_or(&0) {
                    let mut packet = buffers.pop_front().expect("as many as were offered");
                    let frame = messages.frame(n, packet.len());
                    take(if frame.len > packet.len() {
                        cut(&[packet.data(), frame.beyond].concat(), frame.len, frame.vnet, sender)
                            .and_then(|packets| mark.all(packets, frame.notes))
                    } else {
                        packet.truncate(frame.len);
                        mark.whole(packet, frame.vnet, frame.notes)
                    });
                }
                spare.append(&mut buffers);
                got.map(|got| got == offered)
            }
            Source::Blocks(blocks) => {
                let room = sender.pool().room();
                for _ in 0..budget {
                    let Some(frame) = blocks.peek() else {
                        return blocks::error_of(&self.fd).map(|()| false);
                    };
                    take(if frame.len > room {
                        cut(frame.data, frame.len, frame.vnet, sender)
                            .and_then(|packets| mark.all(packets, frame.notes))
                    } else if frame.data.len() < frame.len {
                        Err(Fault::TooLong)
                    } else {
                        // Without a buffer, the frame stays in its block.
                        let Ok(mut packet) = sender.alloc(frame.len) else { return Ok(false) };
                        packet.data_mut().copy_from_slice(frame.data);
                        mark.whole(packet, frame.vnet, frame.notes)
                    });
                    blocks.pop();
                }
                Ok(true)
            }
        }
    }
}

/// What every packet of a receiver gets.
#[derive(Clone, Copy)]
struct Mark {
    queue: u16,
    times: bool,
}

impl Mark {
    /// Returns the packet of a frame that is in it as a whole.
    fn whole(self, mut packet: Packet, vnet: Vnet, notes: Notes) -> Result<PacketList, Fault> {
        let segments = vnet.complete(packet.data_mut(), Link::Ethernet);
        if let Some((size, segs)) = segments.map_err(|Malformed| Fault::Malformed)? {
            packet.set_gso(size, segs);
        }
        let mut packets = PacketList::new();
        packets.push_back(packet);
        self.all(packets, notes)
    }

    /// Gives the packets of a frame what the kernel has noted about it.
    fn all(self, mut packets: PacketList, notes: Notes) -> Result<PacketList, Fault> {
        let mut tagged = true;
        packets.for_each_mut(|packet| {
            packet.set_rx_queue(self.queue);
            tagged &= notes.vlan.is_none_or(|vlan| recv::tag(packet, vlan));
            if let Some(time) = notes.time.filter(|_| self.times) {
                packet.set_cookie(time);
            }
        });
        if tagged { Ok(packets) } else { Err(Fault::Malformed) }
    }
}

/// Cuts a frame of `len` bytes, of which `bytes` are here, into packets of its segments. An error if it has none, and if there are no
/// buffers for them.
fn cut(bytes: &[u8], len: usize, vnet: Vnet, sender: &mut Sender) -> Result<PacketList, Fault> {
    let size = vnet.gso_size().filter(|_| bytes.len() >= len).ok_or(Fault::TooLong)?;
    let packets = txq::generic::qdisc::cut_bytes(bytes, &dissect(bytes), size, |headers, part| {
        let mut segment = sender.alloc(headers.len() + part.len()).ok()?;
        let (head, rest) = segment.data_mut().split_at_mut(headers.len());
        head.copy_from_slice(headers);
        rest.copy_from_slice(part);
        Some(segment.0)
    });
    packets.map(PacketList).ok_or(Fault::TooLong)
}

impl Receive for Receiver {
    fn link(&self) -> Link {
        Link::Ethernet
    }

    fn receive(&mut self, budget: usize, sender: &mut Sender, batch: &mut PacketList) -> io::Result<usize> {
        let (before, bytes) = (batch.len(), batch.bytes());
        let mut failure = self.failure.take();
        let mut more = failure.is_none();
        loop {
            let left = budget - (batch.len() - before);
            self.ready.move_front(left, batch);
            let left = budget - (batch.len() - before);
            if !more || left == 0 {
                break;
            }
            match self.refill(left, sender) {
                Ok(may_have_more) => more = may_have_more,
                Err(error) => (more, failure) = (false, Some(error)),
            }
        }
        let received = batch.len() - before;
        self.stats.received(received as u64, batch.bytes() - bytes);
        match failure {
            Some(error) if received == 0 => return Err(self.lost(error)),
            // The packets come before the error, which the kernel reports only once.
            failure => self.failure = failure,
        }
        Ok(received)
    }

    fn wait(&mut self, timeout: Option<Duration>) -> io::Result<bool> {
        let is_filled = match &mut self.source {
            Source::Blocks(blocks) => blocks.has_frames(),
            Source::Messages { .. } => false,
        };
        if is_filled || !self.ready.is_empty() || self.failure.is_some() {
            return Ok(true);
        }
        sys::wait_readable(&self.fd, timeout)
    }

    fn release(&mut self) {
        self.ready = PacketList::new();
        if let Source::Messages { spare, .. } = &mut self.source {
            *spare = PacketList::new();
        }
    }

    fn stats(&self) -> RxStats {
        let kernel = sys::get::<libc::tpacket_stats>(&self.fd, libc::SOL_PACKET, libc::PACKET_STATISTICS);
        let dropped = kernel.map_or(0, |kernel| kernel.tp_drops);
        self.missed.set(self.missed.get() + u64::from(dropped));
        let mut stats = self.stats;
        stats.missed = self.missed.get();
        stats
    }

    fn prefer_busy_poll(&mut self, time: Duration) {
        sys::busy_poll(&self.fd, time);
    }

    fn record_times(&mut self) -> io::Result<()> {
        self.times = true;
        // Blocks have it without being asked.
        if self.has_blocks() { Ok(()) } else { sys::record_times(&self.fd) }
    }
}

impl Receiver {
    fn lost(&self, error: io::Error) -> io::Error {
        let text = match error.raw_os_error() {
            Some(libc::ENETDOWN) => {
                format!("interface \"{0}\" is down: `ip link set {0} up` starts it", self.ifname)
            }
            _ => format!("interface \"{}\" gives no frames ({error}): see `ip link` and dmesg", self.ifname),
        };
        io::Error::new(error.kind(), text)
    }
}

impl AsFd for Receiver {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
