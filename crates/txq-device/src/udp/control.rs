//! Control messages: what a message carries beside its data and address (RFC 3542, `cmsg(3)`).

use std::mem;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ptr;

use txq::Instant;

use super::socket::{SO_TXTIME, UDP_GRO, UDP_SEGMENT};
use crate::sys;

/// Space for control messages: more than one message has in either direction.
#[repr(C, align(8))]
#[derive(Clone, Copy)]
pub(super) struct Control([u8; 256]);

impl Control {
    pub(super) const EMPTY: Self = Self([0; 256]);

    /// Points a message at the whole space, for the kernel to fill.
    pub(super) fn offer(&mut self, to: &mut libc::msghdr) {
        to.msg_control = self.0.as_mut_ptr().cast();
        to.msg_controllen = size_of::<Self>() as _;
    }
}

/// The control messages that a message to send gets, appended one by one.
pub(super) struct Writer<'c> {
    space: &'c mut Control,
    used: usize,
}

impl<'c> Writer<'c> {
    /// Begins behind the first `used` bytes.
    pub(super) fn new(space: &'c mut Control, used: usize) -> Self {
        Self { space, used }
    }

    /// Returns the length of all control messages, which is the message's `msg_controllen`.
    pub(super) fn used(&self) -> usize {
        self.used
    }

    /// The type of service, in the family's own words.
    pub(super) fn tos(&mut self, tos: u8, is_v4: bool) {
        let (level, kind) =
            if is_v4 { (libc::IPPROTO_IP, libc::IP_TOS) } else { (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) };
        self.push(level, kind, libc::c_int::from(tos));
    }

    /// The source address.
    pub(super) fn source(&mut self, source: IpAddr) {
        match source {
            IpAddr::V4(ip) => {
                let source = libc::in_addr { s_addr: u32::from_ne_bytes(ip.octets()) };
                let any = libc::in_addr { s_addr: 0 };
                let info = libc::in_pktinfo { ipi_ifindex: 0, ipi_spec_dst: source, ipi_addr: any };
                self.push(libc::IPPROTO_IP, libc::IP_PKTINFO, info);
            }
            IpAddr::V6(ip) => {
                let ipi6_addr = libc::in6_addr { s6_addr: ip.octets() };
                let info = libc::in6_pktinfo { ipi6_addr, ipi6_ifindex: 0 };
                self.push(libc::IPPROTO_IPV6, libc::IPV6_PKTINFO, info);
            }
        }
    }

    /// The departure time.
    pub(super) fn departure(&mut self, at: Instant) {
        self.push(libc::SOL_SOCKET, SO_TXTIME, at.as_nanos());
    }

    /// The length of the datagrams that the message is cut into.
    pub(super) fn segment(&mut self, len: u16) {
        self.push(libc::SOL_UDP, UDP_SEGMENT, len);
    }

    fn push<T: Copy>(&mut self, level: libc::c_int, kind: libc::c_int, value: T) {
        const { assert!(align_of::<T>() <= 8, "data of a control message is aligned as its header") };
        let len = size_of::<T>() as libc::c_uint;
        // SAFETY: these compute lengths.
        let (space, len) = unsafe { (libc::CMSG_SPACE(len) as usize, libc::CMSG_LEN(len)) };
        assert!(self.used + space <= size_of::<Control>(), "control messages fit");
        // SAFETY: `used + space` bytes are within the space, which is aligned for a header, and `used` is a sum of lengths
        // that keep that alignment. CMSG_DATA is within CMSG_SPACE; its value is written as one that may be unaligned.
        unsafe {
            let header: *mut libc::cmsghdr = self.space.0.as_mut_ptr().add(self.used).cast();
            let mut zeroed: libc::cmsghdr = mem::zeroed();
            (zeroed.cmsg_level, zeroed.cmsg_type, zeroed.cmsg_len) = (level, kind, len as _);
            header.write(zeroed);
            libc::CMSG_DATA(header).cast::<T>().write_unaligned(value);
        }
        self.used += space;
    }
}

/// The control messages of a received message.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Received {
    /// The local address that the datagram was sent to.
    pub(super) to: Option<IpAddr>,
    /// TOS byte or traffic class.
    pub(super) tos: u8,
    /// The length of the datagrams that the system has joined.
    pub(super) segment: Option<usize>,
    /// How many datagrams the socket has dropped so far, modulo 2^32.
    pub(super) missed: Option<u32>,
    /// When the message came in, in nanoseconds since 1970, if the socket records it.
    pub(super) time: Option<u64>,
}

impl Received {
    /// Reads the control messages of a message that the kernel has filled.
    ///
    /// # Safety
    /// The message's control pointer and length are those that the kernel left, or null and 0.
    pub(super) unsafe fn read(message: &libc::msghdr) -> Self {
        let mut found = Self::default();
        // SAFETY: the caller's promise: the kernel has written headers with valid lengths.
        let mut at = unsafe { libc::CMSG_FIRSTHDR(message) };
        while !at.is_null() {
            // SAFETY: the macros return only headers that lie within the space.
            unsafe {
                found.take(&*at, libc::CMSG_DATA(at));
                at = libc::CMSG_NXTHDR(message, at);
            }
        }
        found
    }

    /// # Safety
    /// `data` is that of `header`.
    unsafe fn take(&mut self, header: &libc::cmsghdr, data: *const u8) {
        #[allow(clippy::unnecessary_cast, reason = "musl has another type")]
        // SAFETY: this computes a length.
        let len = (header.cmsg_len as usize).saturating_sub(unsafe { libc::CMSG_LEN(0) } as usize);
        // SAFETY: the caller's promise: `len` bytes follow the header.
        let data = unsafe { std::slice::from_raw_parts(data, len) };
        match (header.cmsg_level, header.cmsg_type) {
            (libc::IPPROTO_IP, libc::IP_TOS) => self.tos = data.first().copied().unwrap_or(0),
            (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => {
                self.tos = read::<libc::c_int>(data).unwrap_or(0) as u8;
            }
            (libc::IPPROTO_IP, libc::IP_PKTINFO) => {
                let info = read::<libc::in_pktinfo>(data);
                self.to = info.map(|info| Ipv4Addr::from(info.ipi_addr.s_addr.to_ne_bytes()).into());
            }
            // A socket of IPv6 reports IPv4 both ways.
            (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) if self.to.is_none() => {
                let info = read::<libc::in6_pktinfo>(data);
                self.to =
                    info.map(|info| IpAddr::from(Ipv6Addr::from(info.ipi6_addr.s6_addr)).to_canonical());
            }
            (libc::SOL_UDP, UDP_GRO) => {
                self.segment = read::<libc::c_int>(data).and_then(|len| usize::try_from(len).ok());
            }
            (libc::SOL_SOCKET, libc::SO_RXQ_OVFL) => self.missed = read::<u32>(data),
            (libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS) => self.time = read(data).map(sys::nanos),
            _ => {}
        }
    }
}

/// Types of control messages, of which any bytes are a value.
trait Plain: Copy {}
impl Plain for libc::c_int {}
impl Plain for u32 {}
impl Plain for libc::timespec {}
impl Plain for libc::in_pktinfo {}
impl Plain for libc::in6_pktinfo {}

fn read<T: Plain>(data: &[u8]) -> Option<T> {
    // SAFETY: there are enough bytes, any of which are a value.
    (data.len() >= size_of::<T>()).then(|| unsafe { ptr::read_unaligned(data.as_ptr().cast()) })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The messages that `Writer` writes are those that `Received` reads, as far as both know them.
    #[test]
    fn what_is_written_is_read() {
        for source in ["192.0.2.7", "2001:db8::7"] {
            let source: IpAddr = source.parse().unwrap();
            let mut space = Control::EMPTY;
            let mut writer = Writer::new(&mut space, 0);
            writer.departure(Instant::from_nanos(123));
            writer.tos(0xb9, source.is_ipv4());
            writer.segment(1200);
            writer.source(source);
            let used = writer.used();
            // SAFETY: all zeros are a valid message.
            let mut message: libc::msghdr = unsafe { mem::zeroed() };
            space.offer(&mut message);
            message.msg_controllen = used as _;
            // SAFETY: `used` bytes of control messages were just written.
            let read = unsafe { Received::read(&message) };
            assert_eq!(read.tos, 0xb9);
            // The source of IPv4 stands in `ipi_spec_dst`, and a received packet's destination in `ipi_addr`.
            let to = if source.is_ipv4() { IpAddr::from([0, 0, 0, 0]) } else { source };
            assert_eq!((read.to, read.segment, read.missed), (Some(to), None, None));
        }
    }
}
