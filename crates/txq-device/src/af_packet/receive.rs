//! The receiving half: raw sockets that get a copy of each frame that comes in on the interface.

use std::cell::Cell;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use txq::driver::Link;
use txq::flow::dissect;
use txq::packet::{Packet, PacketList};
use txq::receive::{Receive, RxStats};
use txq::{Sender, qdisc};
use txq_core::arch::Arch;

use super::AfPacket;
use super::recv::{self, BATCH, Messages};
use super::sys::{self, Interface};

/// Frames that the machine sends go to no socket of the group (`PACKET_FANOUT_FLAG_IGNORE_OUTGOING`).
const FANOUT_IGNORE_OUTGOING: libc::c_uint = 0x4000;
/// Receive buffer of a socket, in bytes of frames with the kernel's overhead.
const RECEIVE_BUFFER: libc::c_int = 8 << 20;

/// An rx queue of an interface: a socket that gets the frames that come in on it. The kernel's own stack gets them as well.
pub struct Receiver<A: Arch = txq_core::arch::Native> {
    fd: OwnedFd,
    ifname: String,
    /// Its number among the receivers of one call.
    queue: u16,
    messages: Messages,
    /// Buffers for the next frames.
    spare: PacketList<A>,
    stats: RxStats,
    /// Frames that the kernel dropped, as far as they were read: a read sets the kernel's count to 0.
    missed: Cell<u64>,
}

impl<A: Arch> std::fmt::Debug for Receiver<A> {
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
    pub fn receivers<A: Arch>(&self, n: u16) -> io::Result<Vec<Receiver<A>>> {
        let mut group = None;
        (0..n)
            .map(|queue| self.receiver_of(queue, n > 1, &mut group).map_err(|error| self.explain(error)))
            .collect()
    }

    fn receiver_of<A: Arch>(
        &self,
        queue: u16,
        several: bool,
        group: &mut Option<u16>,
    ) -> io::Result<Receiver<A>> {
        let fd = sys::open()?;
        let on = |option| sys::set::<libc::c_int>(&fd, libc::SOL_PACKET, option, 1);
        on(libc::PACKET_VNET_HDR)?;
        on(libc::PACKET_AUXDATA)?;
        on(libc::PACKET_IGNORE_OUTGOING)?;
        sys::set(&fd, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, RECEIVE_BUFFER)
            .or_else(|_| sys::set(&fd, libc::SOL_SOCKET, libc::SO_RCVBUF, RECEIVE_BUFFER))?;
        promiscuous(&fd, self.interface)?;
        sys::bind(&fd, self.interface, libc::ETH_P_ALL as u16)?;
        if several {
            join(&fd, group)?;
        }
        let messages = Messages::new();
        let (ifname, spare, stats) = (self.ifname.clone(), PacketList::new(), RxStats::default());
        Ok(Receiver { fd, ifname, queue, messages, spare, stats, missed: Cell::new(0) })
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
            // SAFETY: the option is an integer.
            let made: u32 = unsafe { sys::get(fd, libc::SOL_PACKET, libc::PACKET_FANOUT) }?;
            *group = Some(made as u16);
            Ok(())
        }
    }
}

impl<A: Arch> Receiver<A> {
    /// Appends what was received as frame number `n`, in `packet` or beyond it, to `batch`.
    fn take(&mut self, n: usize, mut packet: Packet<A>, sender: &mut Sender<A>, batch: &mut PacketList<A>) {
        let frame = self.messages.frame(n, packet.len());
        let before = (batch.len(), batch.bytes());
        if frame.len > packet.len() {
            let long = [packet.data(), frame.beyond].concat();
            let cut = frame.vnet.gso_size().filter(|_| long.len() == frame.len).and_then(|size| {
                qdisc::cut_bytes(&long, &dissect(&long), size, |headers, part| {
                    let mut segment = sender.alloc(headers.len() + part.len()).ok()?;
                    let (head, rest) = segment.data_mut().split_at_mut(headers.len());
                    head.copy_from_slice(headers);
                    rest.copy_from_slice(part);
                    Some(segment)
                })
            });
            match cut {
                Some(mut segments) => batch.append(&mut segments),
                None => self.stats.too_long += 1,
            }
        } else {
            packet.truncate(frame.len);
            match frame.vnet.gso_size() {
                Some(size) => packet.set_gso(size, segments(&packet, size)),
                None if frame.vnet.complete(packet.data_mut()) => {}
                None => {
                    self.stats.malformed += 1;
                    return;
                }
            }
            batch.push_back(packet);
        }
        if let Some(vlan) = frame.vlan {
            let mut tagged = PacketList::new();
            batch.move_front(before.0, &mut tagged);
            while let Some(mut packet) = batch.pop_front() {
                match recv::tag(&mut packet, vlan) {
                    true => tagged.push_back(packet),
                    false => self.stats.malformed += 1,
                }
            }
            batch.append(&mut tagged);
        }
        self.stats.received((batch.len() - before.0) as u64, batch.bytes() - before.1);
    }
}

/// Returns the number of segments of a packet with `size` bytes of payload in each.
fn segments<A: Arch>(packet: &Packet<A>, size: u16) -> u16 {
    const TCP: u8 = 6;
    let found = packet.dissect();
    let transport = usize::from(found.transport_offset);
    let header = match found.ip_proto {
        TCP => packet.data().get(transport + 12).map_or(20, |&byte| usize::from(byte >> 4) * 4),
        _ => 8,
    };
    let payload = packet.len().saturating_sub(transport + header);
    u16::try_from(payload.div_ceil(size.into())).unwrap_or(u16::MAX)
}

impl<A: Arch> Receive<A> for Receiver<A> {
    fn link(&self) -> Link {
        Link::Ethernet
    }

    fn receive(
        &mut self,
        budget: usize,
        sender: &mut Sender<A>,
        batch: &mut PacketList<A>,
    ) -> io::Result<usize> {
        let before = batch.len();
        let mut left = budget;
        while left > 0 {
            let want = left.min(BATCH);
            if self.spare.len() < want {
                let room = sender.pool().room();
                // Without buffers, frames stay in the socket.
                let _ = sender.alloc_batch(want - self.spare.len(), room, &mut self.spare);
            }
            let mut buffers = PacketList::new();
            self.spare.move_front(want, &mut buffers);
            let offered = buffers.len();
            if offered == 0 {
                break;
            }
            let got = self.messages.receive(&self.fd, &mut buffers);
            let got = match got {
                Ok(got) => got,
                Err(error) => {
                    self.spare.append(&mut buffers);
                    return Err(self.lost(error));
                }
            };
            for n in 0..got {
                let mut packet = buffers.pop_front().expect("as many as were offered");
                packet.set_rx_queue(self.queue);
                self.take(n, packet, sender, batch);
            }
            self.spare.append(&mut buffers);
            left -= got;
            if got < offered {
                break;
            }
        }
        Ok(batch.len() - before)
    }

    fn wait(&mut self, timeout: Option<Duration>) -> io::Result<bool> {
        let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
        let mut fds = [PollFd::new(&self.fd, PollFlags::IN)];
        match poll(&mut fds, timeout.as_ref()) {
            Ok(n) => Ok(n > 0),
            Err(rustix::io::Errno::INTR) => Ok(true),
            Err(error) => Err(error.into()),
        }
    }

    fn stats(&self) -> RxStats {
        // SAFETY: the option is a struct of integers.
        let kernel =
            unsafe { sys::get::<libc::tpacket_stats>(&self.fd, libc::SOL_PACKET, libc::PACKET_STATISTICS) };
        let dropped = kernel.map_or(0, |kernel| kernel.tp_drops);
        self.missed.set(self.missed.get() + u64::from(dropped));
        let mut stats = self.stats;
        stats.missed = self.missed.get();
        stats
    }
}

impl<A: Arch> Receiver<A> {
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

impl<A: Arch> AsFd for Receiver<A> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
