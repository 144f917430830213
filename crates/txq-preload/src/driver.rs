//! The driver: sends waiting datagrams, each through the socket of the program that it came from.
//!
//! A packet's cookie names its socket. Consecutive packets of one socket leave by one `sendmmsg`. Datagrams that the program
//! handed over as one message, for the kernel to cut (`UDP_SEGMENT`), are joined to messages again.

use std::cell::Cell;
use std::ffi::c_int;
use std::io;
use std::mem;
use std::net::IpAddr;
use std::ptr;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use txq::driver::{DeviceInfo, Driver, DriverQueue, Link, NoCompletions, Status, Transmit, TxCx};
use txq::drop::DropReason;
use txq::packet::{Packet, PacketList};
use txq_device::udp::Datagram;

use crate::message::{Control, UDP_SEGMENT, address, push};
use crate::process::DEVICE;
use crate::socket::{Socket, Sockets};
use crate::sys::{self, Address};

/// Maximum number of messages a call.
const MESSAGES: usize = 64;
/// Maximum number of datagrams a call.
const MAX_DATAGRAMS: usize = 256;
/// Maximum number of datagrams a message (`UDP_MAX_SEGMENTS` of kernels before 6.9).
const SEGMENTS: usize = 64;
/// Longest message of several datagrams, in bytes.
const MAX_SENT_MESSAGE_BYTES: usize = 65_535 - 48;
/// Time until the first retry of a datagram for which the kernel has no room, and the longest time.
const SOCKET_RETRY: (Duration, Duration) = (Duration::from_micros(50), Duration::from_millis(1));

/// Tries of a datagram for which the kernel has no memory, a millisecond apart: a longer one than a small send buffer takes in fragments
/// never gets it.
const MEMORY_TRIES: u32 = 100;

/// A packet's cookie: its socket, and what its headers do not say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Tag {
    pub(crate) socket: u16,
    /// The low 16 bits of [`Socket::uses`].
    pub(crate) uses: u16,
    /// The low 5 bits of [`Socket::peers`], if the datagram goes to the socket's peer.
    pub(crate) peer: Option<u8>,
    /// Whether the program states the source or the interface.
    pub(crate) is_pinned: bool,
    /// Whether the program let the kernel cut the message, into one datagram or more.
    pub(crate) is_cut: bool,
    /// The interface of a link-local address, or to leave by; 0 for none; less than [`Tag::MAX_INTERFACES`].
    pub(crate) interface: u32,
}

impl Tag {
    /// The number of interfaces that a tag can name.
    pub(crate) const MAX_INTERFACES: u32 = 1 << 24;
    const PINNED: u64 = 1 << 31;
    const PEER: u64 = 1 << 30;
    const CUT: u64 = 1 << 29;

    pub(crate) fn cookie(self) -> u64 {
        let mut bits = u64::from(self.uses) << 48 | u64::from(self.socket) << 32 | u64::from(self.interface);
        bits |= self.peer.map_or(0, |peer| Self::PEER | u64::from(peer & 31) << 24);
        bits |= if self.is_pinned { Self::PINNED } else { 0 };
        bits | if self.is_cut { Self::CUT } else { 0 }
    }

    fn of(cookie: u64) -> Self {
        Self {
            socket: (cookie >> 32) as u16,
            uses: (cookie >> 48) as u16,
            peer: (cookie & Self::PEER != 0).then_some((cookie >> 24) as u8 & 31),
            is_pinned: cookie & Self::PINNED != 0,
            is_cut: cookie & Self::CUT != 0,
            interface: cookie as u32 % Self::MAX_INTERFACES,
        }
    }
}

thread_local! {
    /// A socket, and the program's descriptor that the calling thread has found to name it, while the thread hands in datagrams.
    static VERIFIED: Cell<Option<(u32, c_int)>> = const { Cell::new(None) };
}

/// Calls `f`; datagrams of the socket that the calling thread sends meanwhile leave through the program's descriptor `fd`, which names it.
pub(crate) fn with_verified<R>(index: u32, fd: c_int, f: impl FnOnce() -> R) -> R {
    struct Reset;
    impl Drop for Reset {
        fn drop(&mut self) {
            VERIFIED.set(None);
        }
    }
    VERIFIED.set(Some((index, fd)));
    let _reset = Reset;
    f()
}

/// The device.
pub(crate) struct Out(pub(crate) &'static Sockets);

impl Driver for Out {
    fn info(&self) -> DeviceInfo {
        DeviceInfo::new(DEVICE).link(Link::Ip)
    }

    fn open(&mut self, _txq: u16) -> io::Result<DriverQueue> {
        Ok(DriverQueue::new(Tx::new(self.0), NoCompletions))
    }
}

/// A message of the current call.
#[derive(Debug, Clone, Copy, Default)]
struct Message {
    /// Its datagrams, each of which is one part.
    datagrams: usize,
    /// The length of each but the last, which may be shorter.
    segment: usize,
    bytes: usize,
    /// Whether the kernel is told the segment also of a single datagram: it refuses one that is longer than the route's MTU.
    states_segment: bool,
    /// Whether no more datagrams join it.
    closed: bool,
}

struct Tx {
    sockets: &'static Sockets,
    headers: Box<[libc::mmsghdr]>,
    addresses: Box<[Address]>,
    controls: Box<[Control]>,
    parts: Box<[libc::iovec]>,
    messages: Box<[Message]>,
    /// Time until the next retry.
    retry: Duration,
    /// How often the kernel had no memory for the message in front.
    tries: u32,
    /// Whether the message in front met an earlier datagram's error.
    was_refused: bool,
}

// SAFETY: the pointers in it are used only within `send`, which sets them before.
unsafe impl Send for Tx {}

/// Why the first packet was not sent.
enum Failed {
    /// It cannot be sent.
    Bad,
    /// The program has closed the socket, and so has somebody this library's descriptor of it.
    Closed,
    /// The kernel's error, and the message.
    Error(c_int, Message),
}

impl Tx {
    fn new(sockets: &'static Sockets) -> Self {
        // SAFETY: all zeros are a valid message without address, data and control data.
        let header = |_| unsafe { mem::zeroed() };
        let part = |_| libc::iovec { iov_base: ptr::null_mut(), iov_len: 0 };
        Self {
            sockets,
            headers: (0..MESSAGES).map(header).collect(),
            addresses: vec![Address::empty(); MESSAGES].into(),
            controls: vec![Control::EMPTY; MESSAGES].into(),
            parts: (0..MAX_DATAGRAMS).map(part).collect(),
            messages: vec![Message::default(); MESSAGES].into(),
            retry: SOCKET_RETRY.0,
            tries: 0,
            was_refused: false,
        }
    }

    /// Returns the socket of a packet; `None` if the program has closed it, and a qdisc kept a copy.
    fn socket(&self, packet: &Packet) -> Option<(&'static Socket, Tag)> {
        let tag = Tag::of(packet.cookie());
        let socket = self.sockets.get(tag.socket.into())?;
        (socket.uses.load(Relaxed) as u16 == tag.uses).then_some((socket, tag))
    }

    /// Sends the first packets of a batch, all of one socket; returns how many.
    fn send(&mut self, batch: &PacketList, socket: &Socket) -> Result<usize, Failed> {
        let n = self.fill(batch, socket).ok_or(Failed::Bad)?;
        let index = batch.front().map_or(u32::MAX, |front| Tag::of(front.cookie()).socket.into());
        let headers = &mut self.headers[..n];
        // SAFETY: `fill` has pointed each message at bytes of packets in the batch, and at addresses, parts and control messages
        // of `self`.
        let mut send = |fd| unsafe { sys::send_messages(fd, headers) };
        let sent = match VERIFIED.get() {
            Some((own, fd)) if own == index => Some(send(fd)),
            _ => self.sockets.with_own(index, socket, send),
        };
        let sent = sent.ok_or(Failed::Closed)?.map_err(|error| Failed::Error(error, self.messages[0]))?;
        Ok(self.messages[..sent].iter().map(|message| message.datagrams).sum())
    }

    /// Fills messages with packets of one socket, from the first; returns how many messages, or `None` if the first packet is no
    /// datagram.
    fn fill(&mut self, batch: &PacketList, socket: &Socket) -> Option<usize> {
        let (mut n, mut parts) = (0, 0);
        let mut open: Option<(Datagram, u64)> = None;
        let own = batch.front()?.cookie() >> 32;
        for packet in batch.iter().take(MAX_DATAGRAMS) {
            let cookie = packet.cookie();
            if cookie >> 32 != own {
                break;
            }
            let Ok((header, payload)) = Datagram::parse(packet.data()) else { break };
            let joins = open == Some((header, cookie)) && self.messages[n - 1].takes(payload.len());
            if !joins {
                if n == MESSAGES {
                    break;
                }
                let tag = Tag::of(cookie);
                self.begin(n, header, tag, socket);
                let is_stated = tag.is_cut && !payload.is_empty() && !socket.uncut.load(Relaxed);
                let (segment, states_segment) = (payload.len(), is_stated);
                self.messages[n] =
                    Message { segment, states_segment, closed: !tag.is_cut, ..Message::default() };
                self.headers[n].msg_hdr.msg_iov = self.parts[parts..].as_mut_ptr();
                open = Some((header, cookie));
                n += 1;
            }
            self.parts[parts] =
                libc::iovec { iov_base: payload.as_ptr().cast_mut().cast(), iov_len: payload.len() };
            parts += 1;
            let message = &mut self.messages[n - 1];
            message.datagrams += 1;
            message.bytes += payload.len();
            message.closed |= payload.len() < message.segment || socket.uncut.load(Relaxed);
        }
        for i in 0..n {
            let (message, header) = (self.messages[i], &mut self.headers[i].msg_hdr);
            header.msg_iovlen = message.datagrams as _;
            if message.datagrams > 1 || message.states_segment {
                push(&mut self.controls[i], header, libc::SOL_UDP, UDP_SEGMENT, message.segment as u16);
            }
        }
        (n > 0).then_some(n)
    }

    /// Begins a message: its address, and the control messages of its first datagram.
    fn begin(&mut self, i: usize, header: Datagram, tag: Tag, socket: &Socket) {
        let control = &mut self.controls[i];
        let to = &mut self.headers[i].msg_hdr;
        (to.msg_control, to.msg_controllen) = (ptr::null_mut(), 0);
        let is_v4 = header.destination().is_ipv4();
        if tag.peer == Some(socket.peers.load(Relaxed) as u8 & 31) {
            (to.msg_name, to.msg_namelen) = (ptr::null_mut(), 0);
        } else {
            let (address, len) = address(header.destination(), socket.is_v6.load(Relaxed), tag.interface);
            self.addresses[i] = address;
            (to.msg_name, to.msg_namelen) = ((&raw mut self.addresses[i]).cast(), len);
        }
        let tos = socket.tos.load(Relaxed).to_le_bytes();
        if header.traffic_class() != tos[usize::from(!is_v4)] {
            let (level, kind) = if is_v4 {
                (libc::IPPROTO_IP, libc::IP_TOS)
            } else {
                (libc::IPPROTO_IPV6, libc::IPV6_TCLASS)
            };
            push(control, to, level, kind, c_int::from(header.traffic_class()));
        }
        if tag.is_pinned {
            match header.source().ip() {
                IpAddr::V4(ip) => {
                    let source = libc::in_addr { s_addr: u32::from_ne_bytes(ip.octets()) };
                    let info = libc::in_pktinfo {
                        ipi_ifindex: tag.interface as _,
                        ipi_spec_dst: source,
                        ipi_addr: libc::in_addr { s_addr: 0 },
                    };
                    push(control, to, libc::IPPROTO_IP, libc::IP_PKTINFO, info);
                }
                IpAddr::V6(ip) => {
                    let ipi6_addr = libc::in6_addr { s6_addr: ip.octets() };
                    let info = libc::in6_pktinfo { ipi6_addr, ipi6_ifindex: tag.interface as _ };
                    push(control, to, libc::IPPROTO_IPV6, libc::IPV6_PKTINFO, info);
                }
            }
        }
    }

    /// Decides about a message that the kernel refused: the time of the next try (zero for at once), or the reason of its drop.
    fn refused(&mut self, error: c_int, message: Message, socket: &Socket) -> Result<Duration, DropReason> {
        let is_cut = message.datagrams > 1 || message.states_segment;
        if is_cut && matches!(error, libc::EIO | libc::EINVAL) {
            socket.uncut.store(true, Relaxed);
            return Ok(Duration::ZERO);
        }
        match error {
            libc::EAGAIN | libc::ENOBUFS | libc::ENOMEM
                if error == libc::EAGAIN || self.tries < MEMORY_TRIES =>
            {
                self.tries += u32::from(error != libc::EAGAIN);
                let after = self.retry;
                self.retry = (after * 2).min(SOCKET_RETRY.1);
                return Ok(after);
            }
            _ => socket.error.store(error, Relaxed),
        }
        if error == libc::ECONNREFUSED && !mem::replace(&mut self.was_refused, true) {
            // Of an earlier datagram. The kernel has not processed this one.
            return Ok(Duration::ZERO);
        }
        (self.was_refused, self.tries) = (false, 0);
        Err(match error {
            libc::ECONNREFUSED => DropReason::NoSocket,
            libc::EMSGSIZE => DropReason::PktTooBig,
            libc::EPERM => DropReason::NetfilterDrop,
            libc::ENOBUFS | libc::ENOMEM => DropReason::NoMem,
            libc::ENETUNREACH | libc::EHOSTUNREACH | libc::ENETDOWN | libc::EHOSTDOWN | libc::EACCES => {
                DropReason::IpOutnoroutes
            }
            _ => DropReason::NotSpecified,
        })
    }
}

impl Message {
    /// Returns whether a datagram of `len` bytes can be one more of this message.
    fn takes(&self, len: usize) -> bool {
        !self.closed
            && (1..=self.segment).contains(&len)
            && self.datagrams < SEGMENTS
            && self.bytes + len <= MAX_SENT_MESSAGE_BYTES
    }
}

impl Transmit for Tx {
    fn start_xmit(&mut self, batch: &mut PacketList, cx: &mut TxCx<'_>) -> Status {
        let mut done = PacketList::new();
        while let Some(front) = batch.front() {
            let Some((socket, _)) = self.socket(front) else {
                if let Some(packet) = batch.pop_front() {
                    cx.drop(packet, DropReason::NoSocket);
                }
                continue;
            };
            let (packets, reason) = match self.send(batch, socket) {
                Ok(sent) => {
                    (self.retry, self.tries, self.was_refused) = (SOCKET_RETRY.0, 0, false);
                    batch.move_front(sent, &mut done);
                    cx.sent_all(&mut done);
                    self.sockets.left(socket, sent as i32);
                    continue;
                }
                Err(Failed::Bad) => (1, DropReason::HdrTrunc),
                Err(Failed::Closed) => (1, DropReason::NoSocket),
                Err(Failed::Error(error, message)) => match self.refused(error, message, socket) {
                    Ok(Duration::ZERO) => continue,
                    Ok(after) => return Status::Busy { retry: Some(after) },
                    Err(reason) => (message.datagrams, reason),
                },
            };
            for packet in (0..packets).map_while(|_| batch.pop_front()) {
                cx.drop(packet, reason);
            }
            self.sockets.left(socket, packets as i32);
        }
        Status::Ok
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_is_its_cookie() {
        let plain = Tag {
            socket: 65_535,
            uses: 7,
            peer: None,
            is_pinned: false,
            is_cut: true,
            interface: Tag::MAX_INTERFACES - 1,
        };
        for tag in [plain, Tag { peer: Some(31), is_pinned: true, is_cut: false, interface: 0, ..plain }] {
            assert_eq!(Tag::of(tag.cookie()), tag);
        }
    }
}
