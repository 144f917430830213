//! The device of what the process receives: a datagram that the qdisc releases goes to the stand-in of its socket, from which the program
//! receives it (`symbols/receives.rs`).
//!
//! A datagram of the stand-in begins with what the program's call returns beside the payload: a head, the source's address, and the
//! control messages. Their lengths are the same for all datagrams of a socket, so the kernel copies each to where the program wants it, and
//! all that a call does to the program's memory, and all errors of it, are the kernel's.

use std::ffi::c_int;
use std::io;
use std::net::IpAddr;
use std::ops::BitOrAssign;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{SystemTime, UNIX_EPOCH};

use txq::driver::{DeviceInfo, Driver, DriverQueue, Link, NoCompletions, Status, Transmit, TxCx};
use txq::drop::DropReason;
use txq::packet::{Packet, PacketList};
use txq_device::udp::Datagram;

use crate::message::{Control, address, control_len, push};
use crate::process::DOWN;
use crate::socket::{Sockets, Watched};
use crate::sys::{self, Answer};

/// The length of the head, in bytes: what the datagram is, and the length of its control messages.
pub(crate) const HEAD: usize = 4;
/// The length of the control messages, with the zeros behind them, in bytes.
pub(crate) const CONTROL: usize = size_of::<Control>();
/// The longest address, in bytes.
pub(crate) const MAX_NAME: usize = size_of::<libc::sockaddr_in6>();
/// The length of all that is in front of the payload, in bytes, for the longest address.
const MAX_PREFIX: usize = HEAD + MAX_NAME + CONTROL;

/// Returns the length of the source's address, in bytes.
pub(crate) fn name_len(is_v6: bool) -> usize {
    if is_v6 { MAX_NAME } else { size_of::<libc::sockaddr_in>() }
}

/// What a datagram of the stand-in is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Head {
    /// A datagram, with so many bytes of control messages.
    Datagram(usize),
    /// The socket has an error ([`Socket::error`]).
    Error,
}

impl Head {
    fn bytes(self) -> [u8; HEAD] {
        let (kind, control) = match self {
            Self::Datagram(control) => (0, control as u16),
            Self::Error => (1, 0),
        };
        let [low, high] = control.to_le_bytes();
        [kind, 0, low, high]
    }

    pub(crate) fn of([kind, _, low, high]: [u8; HEAD]) -> Self {
        if kind == 1 { Self::Error } else { Self::Datagram(u16::from_le_bytes([low, high]).into()) }
    }
}

/// The control messages that came with a datagram, a bit for each.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Kinds(u8);

impl Kinds {
    pub(crate) const PKTINFO_V4: Self = Self(1);
    pub(crate) const PKTINFO_V6: Self = Self(2);
    pub(crate) const TOS: Self = Self(4);
    pub(crate) const TCLASS: Self = Self(8);
    pub(crate) const TTL: Self = Self(16);
    pub(crate) const HOPLIMIT: Self = Self(32);
    pub(crate) const TIMESTAMP: Self = Self(64);
    pub(crate) const TIMESTAMPNS: Self = Self(128);

    fn has(self, kind: Self) -> bool {
        self.0 & kind.0 != 0
    }

    /// Takes the type of service of IPv4 and of IPv6 away.
    pub(crate) fn hide(&mut self, [v4, v6]: [bool; 2]) {
        for (kind, _) in [(Self::TOS, v4), (Self::TCLASS, v6)].into_iter().filter(|(_, hides)| *hides) {
            self.0 &= !kind.0;
        }
    }
}

impl BitOrAssign for Kinds {
    fn bitor_assign(&mut self, more: Self) {
        self.0 |= more.0;
    }
}

/// A packet's cookie: its socket, and what its headers do not say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Arrived {
    socket: u16,
    /// The low 16 bits of [`Socket::uses`].
    uses: u16,
    kinds: Kinds,
    ttl: u8,
    /// The interface that the datagram came by; 0 if its number is higher than this can say.
    interface: u16,
}

impl Arrived {
    pub(crate) fn new(socket: Watched, kinds: Kinds, ttl: u8, interface: u32) -> Self {
        let interface = u16::try_from(interface).unwrap_or(0);
        Self { socket: socket.index as u16, uses: socket.uses as u16, kinds, ttl, interface }
    }

    pub(crate) fn cookie(self) -> u64 {
        let ([a, b], [c, d], [e, f]) =
            (self.socket.to_le_bytes(), self.uses.to_le_bytes(), self.interface.to_le_bytes());
        u64::from_le_bytes([a, b, c, d, e, f, self.kinds.0, self.ttl])
    }

    fn of(cookie: u64) -> Self {
        let [a, b, c, d, e, f, kinds, ttl] = cookie.to_le_bytes();
        let [socket, uses, interface] = [[a, b], [c, d], [e, f]].map(u16::from_le_bytes);
        Self { socket, uses, kinds: Kinds(kinds), ttl, interface }
    }

    /// Writes the control messages of a datagram; returns their length.
    fn control(self, datagram: &Datagram, is_v6: bool, to: &mut Control) -> usize {
        let mut writer = Writer::new(self.kinds, to);
        // When it would have come in, behind the link.
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let [micros, nanos] =
            [now.subsec_micros(), now.subsec_nanos()].map(|part| [now.as_secs() as i64, part.into()]);
        writer.add(Kinds::TIMESTAMP, libc::SOL_SOCKET, libc::SCM_TIMESTAMP, micros);
        writer.add(Kinds::TIMESTAMPNS, libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS, nanos);
        let (ip, tos, interface) = (datagram.destination().ip(), datagram.traffic_class(), self.interface);
        if let IpAddr::V4(ip) = ip {
            let to = libc::in_addr { s_addr: u32::from_ne_bytes(ip.octets()) };
            // Answers to a group or to all do not come from there.
            let is_own = !ip.is_multicast() && !ip.is_broadcast();
            let ipi_spec_dst = if is_own { to } else { libc::in_addr { s_addr: 0 } };
            let info = libc::in_pktinfo { ipi_ifindex: interface.into(), ipi_spec_dst, ipi_addr: to };
            writer.add(Kinds::PKTINFO_V4, libc::IPPROTO_IP, libc::IP_PKTINFO, info);
        }
        if is_v6 {
            let ip = match ip {
                IpAddr::V4(ip) => ip.to_ipv6_mapped(),
                IpAddr::V6(ip) => ip,
            };
            let ipi6_addr = libc::in6_addr { s6_addr: ip.octets() };
            let info = libc::in6_pktinfo { ipi6_addr, ipi6_ifindex: interface.into() };
            writer.add(Kinds::PKTINFO_V6, libc::IPPROTO_IPV6, libc::IPV6_PKTINFO, info);
        }
        writer.add(Kinds::TTL, libc::IPPROTO_IP, libc::IP_TTL, c_int::from(self.ttl));
        writer.add(Kinds::HOPLIMIT, libc::IPPROTO_IPV6, libc::IPV6_HOPLIMIT, c_int::from(self.ttl));
        // As the kernel: one byte for IPv4.
        writer.add(Kinds::TOS, libc::IPPROTO_IP, libc::IP_TOS, tos);
        writer.add(Kinds::TCLASS, libc::IPPROTO_IPV6, libc::IPV6_TCLASS, c_int::from(tos));
        control_len(&writer.message)
    }
}

/// The control messages of a datagram, of certain kinds.
struct Writer<'c> {
    kinds: Kinds,
    space: &'c mut Control,
    message: libc::msghdr,
}

impl<'c> Writer<'c> {
    fn new(kinds: Kinds, space: &'c mut Control) -> Self {
        // SAFETY: all zeros are a message without anything.
        Self { kinds, space, message: unsafe { std::mem::zeroed() } }
    }

    /// Appends a control message if it is of one of the kinds.
    fn add<T: Copy>(&mut self, kind: Kinds, level: c_int, name: c_int, value: T) {
        if self.kinds.has(kind) {
            push(self.space, &mut self.message, level, name, value);
        }
    }
}

/// The device.
pub(crate) struct In(pub(crate) &'static Sockets);

impl Driver for In {
    fn info(&self) -> DeviceInfo {
        DeviceInfo::new(DOWN).link(Link::Ip)
    }

    fn open(&mut self, _txq: u16) -> io::Result<DriverQueue> {
        Ok(DriverQueue::new(Rx(self.0), NoCompletions))
    }
}

struct Rx(&'static Sockets);

impl Rx {
    /// Gives a datagram to the stand-in of its socket.
    fn deliver(&self, packet: &Packet) -> Result<(), DropReason> {
        let arrived = Arrived::of(packet.cookie());
        let socket = self.0.get(arrived.socket.into()).ok_or(DropReason::NoSocket)?;
        if socket.uses.load(Relaxed) as u16 != arrived.uses {
            // The program has closed the socket, and a qdisc kept the datagram.
            return Err(DropReason::NoSocket);
        }
        let (datagram, payload) = Datagram::parse(packet.data())?;
        let is_v6 = socket.is_v6.load(Relaxed);
        let mut control = Control::EMPTY;
        let len = arrived.control(&datagram, is_v6, &mut control);
        let (name, _) = address(datagram.source(), is_v6, arrived.interface.into());
        let prefix = prefix(Head::Datagram(len), &name.bytes()[..name_len(is_v6)], &control);
        let sent = self.0.with_stand_in(socket, |[_, far]| give(far, &prefix, payload));
        match sent {
            Some(Ok(())) => Ok(()),
            // As in the kernel, the program has not received what came before.
            Some(Err(libc::EAGAIN | libc::EMSGSIZE | libc::ENOBUFS)) => Err(DropReason::SocketRcvbuff),
            _ => Err(DropReason::NoSocket),
        }
    }
}

impl Transmit for Rx {
    fn start_xmit(&mut self, batch: &mut PacketList, cx: &mut TxCx<'_>) -> Status {
        while let Some(packet) = batch.pop_front() {
            match self.deliver(&packet) {
                Ok(()) => cx.sent(packet),
                Err(reason) => cx.drop(packet, reason),
            }
        }
        Status::Ok
    }
}

/// The bytes in front of the payload.
struct Prefix {
    bytes: [u8; MAX_PREFIX],
    len: usize,
}

fn prefix(head: Head, name: &[u8], control: &Control) -> Prefix {
    let mut prefix = Prefix { bytes: [0; MAX_PREFIX], len: 0 };
    for part in [&head.bytes()[..], name, control.bytes()] {
        prefix.bytes[prefix.len..prefix.len + part.len()].copy_from_slice(part);
        prefix.len += part.len();
    }
    prefix
}

fn give(far: c_int, prefix: &Prefix, payload: &[u8]) -> Answer<()> {
    let part =
        |bytes: &[u8]| libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    let mut parts = [part(&prefix.bytes[..prefix.len]), part(payload)];
    // SAFETY: all zeros are a message without anything.
    let mut message: libc::mmsghdr = unsafe { std::mem::zeroed() };
    (message.msg_hdr.msg_iov, message.msg_hdr.msg_iovlen) = (parts.as_mut_ptr(), parts.len() as _);
    // SAFETY: the message's parts are bytes that live during the call.
    unsafe { sys::send_messages(far, &mut [message]) }.map(|_| ())
}

impl Sockets {
    /// Lets the program meet an error of a socket.
    pub(crate) fn tell_error(&self, of: Watched, error: c_int) {
        self.with_watched(of, |socket, _| {
            socket.error.store(error, Relaxed);
            let name = [0; MAX_NAME];
            let name = &name[..name_len(socket.is_v6.load(Relaxed))];
            socket.ends().map(|[_, far]| give(far, &prefix(Head::Error, name, &Control::EMPTY), &[]))
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_datagram_is_its_cookie_and_its_head() {
        let mut kinds = Kinds::TTL;
        kinds |= Kinds::TOS;
        let arrived = Arrived { socket: 65_535, uses: 7, kinds, ttl: 64, interface: 300 };
        assert_eq!(Arrived::of(arrived.cookie()), arrived);
        for head in [Head::Error, Head::Datagram(0), Head::Datagram(CONTROL)] {
            assert_eq!(Head::of(head.bytes()), head);
        }
        kinds.hide([true, false]);
        assert_eq!(kinds, Kinds::TTL);
    }

    #[test]
    fn all_control_messages_fit() {
        let (arrived, from) = (Arrived::of(u64::MAX), "[fe80::1]:9".parse().unwrap());
        for to in ["192.0.2.1:5", "[fe80::2]:5"] {
            let datagram = Datagram::new(to.parse().unwrap()).from(from).tos(3);
            let len = arrived.control(&datagram, true, &mut Control::EMPTY.clone());
            assert!((200..=CONTROL).contains(&len), "{len}");
        }
    }
}
