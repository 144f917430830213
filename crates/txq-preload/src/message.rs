//! One message of the program: where its bytes are, where it goes, and what its control messages say.

use std::ffi::c_int;
use std::mem;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::ptr;

use crate::memory::Readable;
use crate::sys::Address;

/// The length of the datagrams that a message is cut into (`linux/udp.h`): a control message, or the socket's option.
pub(crate) const UDP_SEGMENT: c_int = 103;
/// The departure time (`asm-generic/socket.h`): a control message, and the socket's option that allows it.
pub(crate) const SO_TXTIME: c_int =
    if cfg!(any(target_arch = "sparc", target_arch = "sparc64")) { 63 } else { 61 };

/// The longest message that an IP packet's length can state, in bytes.
const MAX_TAKEN_MESSAGE_BYTES: usize = 65_535;
/// Maximum number of parts (`UIO_MAXIOV`).
const MAX_IOVECS: usize = 1024;
/// Maximum length of the control messages that are read, in bytes: several times that of all known ones.
const MAX_CONTROL_BYTES: usize = 512;

/// A destination, or a source, with the interface of a link-local address.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place {
    pub(crate) address: SocketAddr,
    pub(crate) interface: u32,
}

/// What a message says beside its bytes.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Said {
    /// TOS byte of IPv4, or traffic class of IPv6.
    pub(crate) tos: Option<u8>,
    /// Source address, and the interface to leave by (0: the routes decide).
    pub(crate) source: Option<(IpAddr, u32)>,
    /// The length of its datagrams.
    pub(crate) segment: Option<usize>,
    /// The departure time on the socket's clock, in nanoseconds.
    pub(crate) departure: Option<u64>,
}

/// The parts of a message's payload.
#[derive(Clone, Copy)]
pub(crate) struct Parts {
    first: *const libc::iovec,
    n: usize,
    len: usize,
}

impl Parts {
    /// Returns the parts; `None` if one of them cannot be read, or they are more or longer than any datagram's.
    pub(crate) fn new(first: *const libc::iovec, n: usize, memory: &mut Readable) -> Option<Self> {
        if n > MAX_IOVECS || !memory.covers(first, n * size_of::<libc::iovec>()) {
            return None;
        }
        let mut len = 0usize;
        for i in 0..n {
            // SAFETY: the `n` parts can be read, and any bytes are one.
            let part = unsafe { first.add(i).read_unaligned() };
            len = len.checked_add(part.iov_len).filter(|&len| len <= MAX_TAKEN_MESSAGE_BYTES)?;
            if !memory.covers(part.iov_base, part.iov_len) {
                return None;
            }
        }
        Some(Self { first, n, len })
    }

    /// Returns the length of all parts together, in bytes.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Copies the bytes from `skip` on to `to`, which is no longer than they are.
    pub(crate) fn copy(&self, mut skip: usize, mut to: &mut [u8]) {
        for i in 0..self.n {
            // SAFETY: `new` has found the parts readable in this call.
            let part = unsafe { self.first.add(i).read_unaligned() };
            if skip >= part.iov_len {
                skip -= part.iov_len;
                continue;
            }
            let n = (part.iov_len - skip).min(to.len());
            // SAFETY: `n` bytes from `skip` on are within the part, which `new` has found readable, and `to` has as many. A packet's buffer is
            // not the program's. A program whose other threads change the parts during the call breaks its contract with the kernel, too.
            unsafe { ptr::copy_nonoverlapping(part.iov_base.cast::<u8>().add(skip), to.as_mut_ptr(), n) };
            to = &mut to[n..];
            skip = 0;
        }
    }
}

/// A destination that this library does not carry.
#[derive(Debug)]
pub(crate) struct Unknown;

/// Returns the destination of a call; the error is that it has none that this library carries, or that it cannot be read.
pub(crate) fn destination(
    name: *const libc::sockaddr,
    len: usize,
    is_v6: bool,
    memory: &mut Readable,
) -> Result<Option<Place>, Unknown> {
    if name.is_null() || len == 0 {
        return Ok(None);
    }
    if !(size_of::<libc::sa_family_t>()..=size_of::<libc::sockaddr_storage>()).contains(&len)
        || !memory.covers(name, len)
    {
        return Err(Unknown);
    }
    // SAFETY: `len` bytes can be read; the address may be unaligned.
    let family = c_int::from(unsafe { ptr::read_unaligned(name.cast::<libc::sa_family_t>()) });
    let mut address = Address::empty();
    // SAFETY: the lengths are checked before the bytes are read, and any bytes are such an address.
    unsafe {
        match family {
            // A socket of IPv6 takes such an address, too.
            libc::AF_INET if len >= size_of::<libc::sockaddr_in>() => {
                address.v4 = ptr::read_unaligned(name.cast());
            }
            libc::AF_INET6 if is_v6 && len >= size_of::<libc::sockaddr_in6>() => {
                address.v6 = ptr::read_unaligned(name.cast());
            }
            _ => return Err(Unknown),
        }
    }
    place(&address).filter(|place| place.address.port() != 0).map(Some).ok_or(Unknown)
}

/// Returns an address in its canonical form; `None` for one that is not of IP, or has a flow label.
pub(crate) fn place(address: &Address) -> Option<Place> {
    // SAFETY: each family begins with its number; all fields are integers, of which any value is valid.
    unsafe {
        match c_int::from(address.family) {
            libc::AF_INET => {
                let ip = Ipv4Addr::from(address.v4.sin_addr.s_addr.to_ne_bytes());
                let address = SocketAddr::new(ip.into(), u16::from_be(address.v4.sin_port));
                Some(Place { address, interface: 0 })
            }
            libc::AF_INET6 if address.v6.sin6_flowinfo == 0 => {
                let ip = Ipv6Addr::from(address.v6.sin6_addr.s6_addr);
                let interface = if ip.is_unicast_link_local() || ip.is_multicast() {
                    address.v6.sin6_scope_id
                } else {
                    0
                };
                let address = SocketAddr::new(ip.to_canonical(), u16::from_be(address.v6.sin6_port));
                Some(Place { address, interface })
            }
            _ => None,
        }
    }
}

/// Returns the number of a message's parts.
#[allow(clippy::unnecessary_cast, reason = "musl has another type")]
pub(crate) fn parts_of(message: &libc::msghdr) -> usize {
    message.msg_iovlen as usize
}

/// Returns the length of a message's control messages, in bytes.
#[allow(clippy::unnecessary_cast, reason = "musl has another type")]
pub(crate) fn control_len(message: &libc::msghdr) -> usize {
    message.msg_controllen as usize
}

/// Returns the unspecified address of a family.
pub(crate) fn unspecified(is_v4: bool) -> IpAddr {
    if is_v4 { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() }
}

/// Reads a message's control messages; `None` if one of them is unknown to this library or malformed, or they cannot be read.
pub(crate) fn control(message: &libc::msghdr, said: &mut Said, memory: &mut Readable) -> Option<()> {
    let len = control_len(message);
    if len == 0 {
        return Some(());
    }
    let mut bytes = [0u8; MAX_CONTROL_BYTES];
    let bytes = bytes.get_mut(..len)?;
    if !memory.covers(message.msg_control, len) {
        return None;
    }
    // SAFETY: `len` bytes can be read there, and `bytes` has as many, which are not the program's.
    unsafe { ptr::copy_nonoverlapping(message.msg_control.cast(), bytes.as_mut_ptr(), len) };
    said.read(bytes)
}

impl Said {
    /// Reads control messages in sequence, as the kernel does.
    fn read(&mut self, mut bytes: &[u8]) -> Option<()> {
        const CMSG_HEADER: usize = size_of::<libc::cmsghdr>();
        while bytes.len() >= CMSG_HEADER {
            // SAFETY: the header's bytes are there, and any are one.
            let header: libc::cmsghdr = unsafe { ptr::read_unaligned(bytes.as_ptr().cast()) };
            #[allow(clippy::unnecessary_cast, reason = "musl has another type")]
            let len = header.cmsg_len as usize;
            self.take(header.cmsg_level, header.cmsg_type, bytes.get(CMSG_HEADER..len)?)?;
            bytes = bytes.get(len.next_multiple_of(size_of::<usize>())..).unwrap_or_default();
        }
        Some(())
    }

    /// Takes one control message; `None` if it is unknown.
    fn take(&mut self, level: c_int, kind: c_int, data: &[u8]) -> Option<()> {
        let int = || Some(u32::from_ne_bytes(data.try_into().ok()?));
        match (level, kind) {
            // The kernel takes one byte, too.
            (libc::IPPROTO_IP, libc::IP_TOS) => {
                self.tos = Some(if data.len() == 1 { data[0] } else { u8::try_from(int()?).ok()? });
            }
            (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => self.tos = Some(u8::try_from(int()?).ok()?),
            (libc::IPPROTO_IP, libc::IP_PKTINFO) => {
                let info: &[u8; 12] = data.try_into().ok()?;
                let (interface, spec) = (*info.first_chunk()?, *info[4..].first_chunk::<4>()?);
                self.source = Some((Ipv4Addr::from(spec).into(), u32::from_ne_bytes(interface)));
            }
            (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) => {
                let from = Ipv6Addr::from(*data.first_chunk::<16>()?);
                let interface = u32::from_ne_bytes(data.get(16..)?.try_into().ok()?);
                let from = if from.is_unspecified() { from.into() } else { from.to_canonical() };
                self.source = Some((from, interface));
            }
            (libc::SOL_UDP, UDP_SEGMENT) => {
                self.segment = Some(u16::from_ne_bytes(data.try_into().ok()?).into()).filter(|&len| len > 0);
            }
            (libc::SOL_SOCKET, SO_TXTIME) => {
                self.departure = Some(u64::from_ne_bytes(data.try_into().ok()?));
            }
            _ => return None,
        }
        Some(())
    }
}

/// Space for the control messages of one message: for all that this library writes.
#[repr(C, align(8))]
#[derive(Clone, Copy)]
pub(crate) struct Control([u8; 256]);

impl Control {
    pub(crate) const EMPTY: Self = Self([0; 256]);

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }
}

/// Returns an address for a socket that is of IPv6 or not, and its length.
pub(crate) fn address(to: SocketAddr, is_v6: bool, interface: u32) -> (Address, libc::socklen_t) {
    let (mut address, port) = (Address::empty(), to.port().to_be());
    let ip = match to.ip() {
        IpAddr::V4(ip) if !is_v6 => {
            address.v4 = libc::sockaddr_in {
                sin_family: libc::AF_INET as _,
                sin_port: port,
                sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(ip.octets()) },
                sin_zero: [0; 8],
            };
            return (address, size_of::<libc::sockaddr_in>() as _);
        }
        IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        IpAddr::V6(ip) => ip,
    };
    address.v6 = libc::sockaddr_in6 {
        sin6_family: libc::AF_INET6 as _,
        sin6_port: port,
        sin6_flowinfo: 0,
        sin6_addr: libc::in6_addr { s6_addr: ip.octets() },
        sin6_scope_id: if ip.is_unicast_link_local() || ip.is_multicast() { interface } else { 0 },
    };
    (address, size_of::<libc::sockaddr_in6>() as _)
}

/// Appends a control message to those of a message.
pub(crate) fn push<T: Copy>(space: &mut Control, to: &mut libc::msghdr, level: c_int, kind: c_int, value: T) {
    const { assert!(align_of::<T>() <= 8, "data of a control message is aligned as its header") };
    let (used, len) = (control_len(to), size_of::<T>() as libc::c_uint);
    // SAFETY: these compute lengths.
    let (room, len) = unsafe { (libc::CMSG_SPACE(len) as usize, libc::CMSG_LEN(len)) };
    assert!(used + room <= size_of::<Control>(), "control messages fit");
    // SAFETY: `used + room` bytes are within the space, which is aligned for a header, and `used` is a sum of lengths that keep that
    // alignment. CMSG_DATA is within CMSG_SPACE; its value is written as one that may be unaligned.
    unsafe {
        let header: *mut libc::cmsghdr = space.0.as_mut_ptr().add(used).cast();
        let mut zeroed: libc::cmsghdr = mem::zeroed();
        (zeroed.cmsg_level, zeroed.cmsg_type, zeroed.cmsg_len) = (level, kind, len as _);
        header.write(zeroed);
        libc::CMSG_DATA(header).cast::<T>().write_unaligned(value);
    }
    to.msg_control = (&raw mut *space).cast();
    to.msg_controllen = (used + room) as _;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_gathered_from_any_place() {
        let (a, b, c) = ([1u8, 2, 3], [0u8; 0], [4u8, 5, 6, 7]);
        let part =
            |bytes: &[u8]| libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
        let parts = [part(&a), part(&b), part(&c)];
        let parts = Parts::new(parts.as_ptr(), 3, &mut Readable::new()).unwrap();
        assert_eq!(parts.len(), 7);
        for (skip, len, expected) in
            [(0, 7, &[1, 2, 3, 4, 5, 6, 7][..]), (2, 3, &[3, 4, 5]), (3, 4, &[4, 5, 6, 7]), (7, 0, &[])]
        {
            let mut to = vec![0; len];
            parts.copy(skip, &mut to);
            assert_eq!(to, expected);
        }
    }

    #[test]
    fn unknown_or_short_control_messages_are_refused() {
        let mut said = Said::default();
        assert_eq!(said.take(libc::IPPROTO_IP, libc::IP_TTL, &[1, 0, 0, 0]), None);
        assert_eq!(said.take(libc::IPPROTO_IP, libc::IP_TOS, &[]), None);
        assert_eq!(said.take(libc::IPPROTO_IPV6, libc::IPV6_PKTINFO, &[0; 19]), None);
        assert_eq!(said.take(libc::IPPROTO_IP, libc::IP_TOS, &[0xb8]), Some(()));
        assert_eq!(said.take(libc::SOL_UDP, UDP_SEGMENT, &1200u16.to_ne_bytes()), Some(()));
        assert_eq!((said.tos, said.segment), (Some(0xb8), Some(1200)));
    }

    #[test]
    fn control_messages_of_any_length_end_the_reading() {
        let header = size_of::<libc::cmsghdr>();
        let message = |len: usize, data: &[u8]| {
            // SAFETY: all zeros are a header.
            let mut head: libc::cmsghdr = unsafe { mem::zeroed() };
            (head.cmsg_level, head.cmsg_type, head.cmsg_len) = (libc::IPPROTO_IP, libc::IP_TOS, len as _);
            let mut bytes = vec![0; header];
            // SAFETY: the bytes of a header fit.
            unsafe { ptr::write_unaligned(bytes.as_mut_ptr().cast(), head) };
            bytes.extend(data);
            bytes
        };
        for len in [0, 1, header - 1, header + 5, usize::MAX, usize::MAX - 7, usize::MAX / 2 + 1] {
            assert_eq!(Said::default().read(&message(len, &[1, 0, 0, 0])), None, "{len:x}");
        }
        let mut said = Said::default();
        let two = [message(header + 4, &[1, 0, 0, 0, 0, 0, 0, 0]), message(header + 1, &[2])].concat();
        assert_eq!((said.read(&two), said.tos), (Some(()), Some(2)));
        // Fewer bytes than a header has are none, as in the kernel.
        assert_eq!(said.read(&two[..header - 1]), Some(()));
    }
}
