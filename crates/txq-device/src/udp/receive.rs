//! Receiving: `recvmmsg` fills areas of the receiver, which are cut into packets.

use std::io::{self, ErrorKind};
use std::mem;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::Arc;
use std::time::Duration;

use txq::Sender;
use txq::driver::Link;
use txq::packet::PacketList;
use txq::pool::AllocError;
use txq::receive::{Receive, RxStats};

use super::control::{Control, Received};
use super::datagram::{Datagram, canonical};
use super::socket::{Address, UDP_GRO};
use crate::sys;

/// Maximum number of messages a call.
const RECEIVE_MESSAGES: usize = 32;
/// Longest message, and the distance of one area from the next: not a multiple of a page, so that the first lines of the areas
/// fall into different sets of a cache. A page takes memory at its first use.
const AREA_BYTES: usize = 65_536;
const AREA_STRIDE: usize = AREA_BYTES + 4096 + 192;
/// How often a call asks again after an error that an earlier datagram has caused.
const ERROR_TRIES: usize = 16;

/// The receiving half of a [`Udp`](super::Udp) device ([`Udp::receiver`](super::Udp::receiver)). Its descriptor
/// ([`AsFd`]) is readable when there are datagrams, also to epoll; a call of [`receive`](Receive::receive) that returned its whole
/// budget may have left datagrams in the receiver, so an event loop calls until fewer are returned.
pub struct Receiver {
    socket: Arc<UdpSocket>,
    rx_queue: u16,
    /// The address that datagrams were sent to if they do not say.
    local: SocketAddr,
    headers: Box<[libc::mmsghdr]>,
    addresses: Box<[Address]>,
    controls: Box<[Control]>,
    parts: Box<[libc::iovec]>,
    data: Box<[u8]>,
    /// Messages received, of which those before `next` have become packets.
    filled: usize,
    next: usize,
    /// The message at `next`.
    current: Option<Current>,
    stats: RxStats,
    /// The socket's count of dropped datagrams when a message was last received.
    missed: u32,
    /// An error that came after packets, for the next call.
    error: Option<io::Error>,
}

/// A message that is being cut into packets.
#[derive(Debug, Clone, Copy)]
struct Current {
    datagram: Datagram,
    /// Its payload in `data`, less that of earlier packets.
    at: usize,
    left: usize,
    /// Bytes of payload of each packet but the last.
    segment: usize,
    /// When it came in, if the socket records it.
    time: Option<u64>,
}

// SAFETY: the pointers in it lead to its own boxes, and are written anew before each call that uses them.
unsafe impl Send for Receiver {}

impl std::fmt::Debug for Receiver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Receiver")
            .field("local", &self.local)
            .field("stats", &self.stats)
            .finish_non_exhaustive()
    }
}

impl Receiver {
    /// Creates the receiver of a socket, and makes the socket report what a packet's headers need.
    pub(super) fn new(socket: Arc<UdpSocket>, rx_queue: u16, joins: bool) -> io::Result<Self> {
        let local = socket.local_addr()?;
        let on = |level, option| sys::set::<libc::c_int>(&*socket, level, option, 1);
        on(libc::IPPROTO_IP, libc::IP_PKTINFO)?;
        on(libc::IPPROTO_IP, libc::IP_RECVTOS)?;
        if local.is_ipv6() {
            on(libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO)?;
            on(libc::IPPROTO_IPV6, libc::IPV6_RECVTCLASS)?;
        }
        on(libc::SOL_SOCKET, libc::SO_RXQ_OVFL)?;
        // Kernels before 5.0 do not join datagrams.
        let _ = sys::set(&*socket, libc::SOL_UDP, UDP_GRO, libc::c_int::from(joins));
        // SAFETY: all zeros are a valid message without address, data and control data.
        let header = |_| unsafe { mem::zeroed() };
        let part = |_| libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
        Ok(Self {
            socket,
            rx_queue,
            local,
            headers: (0..RECEIVE_MESSAGES).map(header).collect(),
            addresses: vec![Address::empty(); RECEIVE_MESSAGES].into(),
            controls: vec![Control::EMPTY; RECEIVE_MESSAGES].into(),
            parts: (0..RECEIVE_MESSAGES).map(part).collect(),
            data: vec![0; RECEIVE_MESSAGES * AREA_STRIDE].into(),
            filled: 0,
            next: 0,
            current: None,
            stats: RxStats::default(),
            missed: 0,
            error: None,
        })
    }

    /// Receives up to `budget` messages; returns false if there are none.
    fn refill(&mut self, budget: usize) -> io::Result<bool> {
        (self.filled, self.next) = (0, 0);
        let n = budget.min(RECEIVE_MESSAGES);
        let areas = self.data.chunks_exact_mut(AREA_STRIDE);
        let places = self.addresses.iter_mut().zip(&mut self.controls).zip(&mut self.parts).zip(areas);
        for (header, (((address, control), part), area)) in self.headers.iter_mut().zip(places).take(n) {
            *part = libc::iovec { iov_base: area.as_mut_ptr().cast(), iov_len: AREA_BYTES };
            let header = &mut header.msg_hdr;
            (header.msg_name, header.msg_namelen) = ((&raw mut *address).cast(), Address::LEN);
            (header.msg_iov, header.msg_iovlen, header.msg_flags) = (part, 1, 0);
            control.offer(header);
        }
        for _ in 0..ERROR_TRIES {
            // SAFETY: each of the `n` messages was just pointed at an address, a part, an area and a space of its own.
            match unsafe { sys::receive_messages(&*self.socket, &mut self.headers[..n]) } {
                Ok(n) => {
                    self.filled = n;
                    return Ok(n > 0);
                }
                Err(error) => match error.kind() {
                    ErrorKind::WouldBlock => return Ok(false),
                    // The answer to a datagram that a connected socket has sent.
                    ErrorKind::ConnectionRefused
                    | ErrorKind::HostUnreachable
                    | ErrorKind::NetworkUnreachable => {}
                    _ => return Err(error),
                },
            }
        }
        Ok(false)
    }

    /// Reads the addresses of the next message; `None` if the kernel has written none of IP.
    fn read(&mut self) -> Option<Current> {
        let header = &self.headers[self.next];
        // SAFETY: the kernel has filled this message, and nothing has changed it since.
        let control = unsafe { Received::read(&header.msg_hdr) };
        let left = (header.msg_len as usize).min(AREA_BYTES);
        if let Some(missed) = control.missed {
            self.stats.missed += u64::from(missed.wrapping_sub(self.missed));
            self.missed = missed;
        }
        let from = canonical(self.addresses[self.next].read()?);
        let to = SocketAddr::new(control.to.unwrap_or(self.local.ip()), self.local.port());
        // As seen by `Datagram::from`, an address of the other family is unspecified.
        let to = if canonical(to).is_ipv4() == from.is_ipv4() { to } else { unspecified(from, to.port()) };
        let datagram = Datagram::new(to).from(from).tos(control.tos);
        let segment = control.segment.filter(|&segment| segment > 0 && segment < left).unwrap_or(left);
        Some(Current { datagram, at: self.next * AREA_STRIDE, left, segment, time: control.time })
    }

    /// Appends packets of the current message to `batch`, at most `budget`; returns how many, or `None` without a buffer.
    fn cut(
        &mut self,
        mut current: Current,
        budget: usize,
        sender: &mut Sender,
        batch: &mut PacketList,
    ) -> Option<usize> {
        let head = current.datagram.header_len();
        let all = current.left.div_ceil(current.segment.max(1)).max(1);
        let mut fresh = PacketList::new();
        match sender.alloc_batch(all.min(budget), head + current.segment, &mut fresh) {
            Ok(_) => {}
            Err(AllocError::TooLong { .. }) => {
                self.stats.too_long += all as u64;
                self.finish_current();
                return Some(0);
            }
            Err(_) => return None,
        }
        let (got, mut bytes) = (fresh.len(), 0);
        while let Some(mut packet) = fresh.pop_front() {
            let len = current.segment.min(current.left);
            packet.truncate(head + len);
            packet.set_link(Link::Ip);
            packet.set_rx_queue(self.rx_queue);
            if let Some(time) = current.time {
                packet.set_cookie(time);
            }
            let to = packet.data_mut();
            to[head..].copy_from_slice(&self.data[current.at..current.at + len]);
            let written = current.datagram.write(to);
            debug_assert!(written.is_some(), "the system has received a datagram that IP can carry");
            (current.at, current.left) = (current.at + len, current.left - len);
            bytes += (head + len) as u64;
            batch.push_back(packet);
        }
        self.stats.received(got as u64, bytes);
        if got == all {
            self.finish_current();
        } else {
            self.current = Some(current);
        }
        Some(got)
    }

    fn finish_current(&mut self) {
        self.current = None;
        self.next += 1;
    }

    /// Returns whether messages wait in the receiver.
    fn has_messages(&self) -> bool {
        self.next < self.filled || self.error.is_some()
    }
}

fn unspecified(like: SocketAddr, port: u16) -> SocketAddr {
    let ip = if like.is_ipv4() { [0; 4].into() } else { [0_u8; 16].into() };
    SocketAddr::new(ip, port)
}

impl Receive for Receiver {
    fn link(&self) -> Link {
        Link::Ip
    }

    fn receive(&mut self, budget: usize, sender: &mut Sender, batch: &mut PacketList) -> io::Result<usize> {
        if let Some(error) = self.error.take() {
            return Err(error);
        }
        let mut got = 0;
        while got < budget {
            if self.next == self.filled {
                match self.refill(budget - got) {
                    Ok(true) => {}
                    Ok(false) => break,
                    Err(error) if got == 0 => return Err(error),
                    Err(error) => {
                        self.error = Some(error);
                        break;
                    }
                }
            }
            let Some(current) = self.current.or_else(|| self.read()) else {
                self.stats.malformed += 1;
                self.finish_current();
                continue;
            };
            self.current = Some(current);
            match self.cut(current, budget - got, sender, batch) {
                Some(n) => got += n,
                None => break,
            }
        }
        Ok(got)
    }

    fn wait(&mut self, timeout: Option<Duration>) -> io::Result<bool> {
        if self.has_messages() {
            return Ok(true);
        }
        sys::wait_readable(&*self.socket, timeout)
    }

    fn stats(&self) -> RxStats {
        self.stats
    }

    fn prefer_busy_poll(&mut self, time: Duration) {
        sys::busy_poll(&*self.socket, time);
    }

    fn record_times(&mut self) -> io::Result<()> {
        sys::record_times(&*self.socket)
    }
}

impl AsFd for Receiver {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl AsRawFd for Receiver {
    fn as_raw_fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }
}
