//! Options of a UDP socket, and addresses for the kernel.

use std::io;
use std::mem;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::AsFd;

use crate::sys::{self, Plain};

/// Sends a message as datagrams of a length, which a control message or the socket option states (`linux/udp.h`).
pub(super) const UDP_SEGMENT: libc::c_int = 103;
/// Receives datagrams that the system has joined.
pub(super) const UDP_GRO: libc::c_int = 104;
/// Sends messages at a time that a control message of the same number states (`asm-generic/socket.h`).
pub(super) const SO_TXTIME: libc::c_int =
    if cfg!(any(target_arch = "sparc", target_arch = "sparc64")) { 63 } else { 61 };

/// The option's argument (`struct sock_txtime`).
#[derive(Clone, Copy)]
#[repr(C)]
struct SockTxtime {
    clock: libc::clockid_t,
    flags: u32,
}

// SAFETY: a struct of integers.
unsafe impl Plain for SockTxtime {}

/// Lets messages have a departure time on `CLOCK_MONOTONIC`.
pub(super) fn set_txtime(fd: impl AsFd) -> io::Result<()> {
    let txtime = SockTxtime { clock: libc::CLOCK_MONOTONIC, flags: 0 };
    sys::set(fd, libc::SOL_SOCKET, SO_TXTIME, txtime)
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
