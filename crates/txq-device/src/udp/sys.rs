//! System calls: options of a UDP socket, addresses, sending and receiving many messages by one call.

use std::io;
use std::mem;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Sends a message as datagrams of a length, which a control message or the socket option states (`linux/udp.h`).
pub(super) const UDP_SEGMENT: libc::c_int = 103;
/// Receives datagrams that the system has joined.
pub(super) const UDP_GRO: libc::c_int = 104;
/// Sends messages at a time that a control message of the same number states (`asm-generic/socket.h`).
pub(super) const SO_TXTIME: libc::c_int =
    if cfg!(any(target_arch = "sparc", target_arch = "sparc64")) { 63 } else { 61 };

/// The option's argument (`struct sock_txtime`).
#[repr(C)]
struct SockTxtime {
    clock: libc::clockid_t,
    flags: u32,
}

/// Sets an option of a socket.
pub(super) fn set(
    fd: impl AsFd,
    level: libc::c_int,
    option: libc::c_int,
    value: libc::c_int,
) -> io::Result<()> {
    set_any(fd.as_fd(), level, option, &value)
}

/// Lets messages have a departure time on `CLOCK_MONOTONIC`.
pub(super) fn set_txtime(fd: impl AsFd) -> io::Result<()> {
    let txtime = SockTxtime { clock: libc::CLOCK_MONOTONIC, flags: 0 };
    set_any(fd.as_fd(), libc::SOL_SOCKET, SO_TXTIME, &txtime)
}

fn set_any<T>(fd: BorrowedFd<'_>, level: libc::c_int, option: libc::c_int, value: &T) -> io::Result<()> {
    let len = size_of::<T>() as libc::socklen_t;
    // SAFETY: the kernel reads `len` bytes of `value`.
    match unsafe { libc::setsockopt(fd.as_raw_fd(), level, option, (&raw const *value).cast(), len) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Returns an option of a socket.
pub(super) fn get(fd: impl AsFd, level: libc::c_int, option: libc::c_int) -> io::Result<libc::c_int> {
    let mut value: libc::c_int = 0;
    let mut len = size_of::<libc::c_int>() as libc::socklen_t;
    let fd = fd.as_fd().as_raw_fd();
    // SAFETY: the kernel writes at most `len` bytes to `value`, and the number of them to `len`.
    match unsafe { libc::getsockopt(fd, level, option, (&raw mut value).cast(), &raw mut len) } {
        0 => Ok(value),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Sleeps until the socket has something to read, or until `timeout` has passed; returns whether it may have.
pub(super) fn wait_readable(fd: impl AsFd, timeout: Option<Duration>) -> io::Result<bool> {
    let fd = fd.as_fd();
    let timeout = timeout.map(|t| Timespec { tv_sec: t.as_secs() as _, tv_nsec: t.subsec_nanos() as _ });
    match poll(&mut [PollFd::new(&fd, PollFlags::IN)], timeout.as_ref()) {
        Ok(ready) => Ok(ready > 0),
        Err(rustix::io::Errno::INTR) => Ok(true),
        Err(error) => Err(error.into()),
    }
}

/// An address of either family, for the kernel.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) union Address {
    family: libc::sa_family_t,
    v4: libc::sockaddr_in,
    v6: libc::sockaddr_in6,
}

impl Address {
    /// Space for an address of either family, without one.
    pub(super) const LEN: libc::socklen_t = size_of::<Self>() as libc::socklen_t;

    /// Returns an empty address.
    pub(super) fn empty() -> Self {
        // SAFETY: all zeros are a valid address of no family, as the fields are integers.
        unsafe { mem::zeroed() }
    }

    /// Returns an address for a socket that is of IPv6 or not, and its length. `scope` is the interface of a link-local
    /// address.
    pub(super) fn new(address: SocketAddr, is_v6: bool, scope: u32) -> (Self, libc::socklen_t) {
        let mut to = Self::empty();
        let port = address.port().to_be();
        if let (SocketAddr::V4(v4), false) = (address, is_v6) {
            to.v4 = libc::sockaddr_in {
                sin_family: libc::AF_INET as _,
                sin_port: port,
                sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(v4.ip().octets()) },
                sin_zero: [0; 8],
            };
            return (to, size_of::<libc::sockaddr_in>() as _);
        }
        let ip = match address {
            SocketAddr::V4(v4) => v4.ip().to_ipv6_mapped(),
            SocketAddr::V6(v6) => *v6.ip(),
        };
        to.v6 = libc::sockaddr_in6 {
            sin6_family: libc::AF_INET6 as _,
            sin6_port: port,
            sin6_flowinfo: 0,
            sin6_addr: libc::in6_addr { s6_addr: ip.octets() },
            sin6_scope_id: if ip.is_unicast_link_local() { scope } else { 0 },
        };
        (to, size_of::<libc::sockaddr_in6>() as _)
    }

    /// Returns the address that the kernel has written, if it is of IP.
    pub(super) fn read(&self) -> Option<SocketAddr> {
        // SAFETY: each family begins with its number; all fields are integers, of which any value is valid.
        unsafe {
            match libc::c_int::from(self.family) {
                libc::AF_INET => {
                    let ip = Ipv4Addr::from(self.v4.sin_addr.s_addr.to_ne_bytes());
                    Some(SocketAddr::new(ip.into(), u16::from_be(self.v4.sin_port)))
                }
                libc::AF_INET6 => {
                    let ip = Ipv6Addr::from(self.v6.sin6_addr.s6_addr);
                    Some(SocketAddr::new(ip.into(), u16::from_be(self.v6.sin6_port)))
                }
                _ => None,
            }
        }
    }
}

/// Sends messages without waiting; returns how many the kernel took, counted from the first. An error concerns the first
/// message, and then none was taken.
///
/// # Safety
/// Each message's pointers are null or valid for reads of the lengths beside them.
pub(super) unsafe fn send(fd: impl AsFd, messages: &mut [libc::mmsghdr]) -> io::Result<usize> {
    let (fd, n) = (fd.as_fd().as_raw_fd(), messages.len() as libc::c_uint);
    again(|| {
        // SAFETY: `messages` are `n`, and the caller answers for their pointers; the kernel writes only their `msg_len`.
        unsafe { libc::sendmmsg(fd, messages.as_mut_ptr(), n, libc::MSG_DONTWAIT as _) }
    })
}

/// Receives messages without waiting; returns how many.
///
/// # Safety
/// Each message's pointers are null or valid for writes of the lengths beside them.
pub(super) unsafe fn receive(fd: impl AsFd, messages: &mut [libc::mmsghdr]) -> io::Result<usize> {
    let (fd, n) = (fd.as_fd().as_raw_fd(), messages.len() as libc::c_uint);
    again(|| {
        let (first, no_timeout) = (messages.as_mut_ptr(), std::ptr::null_mut());
        // SAFETY: `messages` are `n`, and the caller answers for their pointers.
        unsafe { libc::recvmmsg(fd, first, n, libc::MSG_DONTWAIT as _, no_timeout) }
    })
}

/// Repeats a call until no signal interrupts it.
fn again(mut call: impl FnMut() -> libc::c_int) -> io::Result<usize> {
    loop {
        match usize::try_from(call()) {
            Ok(n) => return Ok(n),
            Err(_) => {
                let error = io::Error::last_os_error();
                if error.kind() != io::ErrorKind::Interrupted {
                    return Err(error);
                }
            }
        }
    }
}
