//! What the kernel says about a socket: addresses and options, which are read again after each call that may change them.

use std::ffi::c_int;
use std::net::{IpAddr, SocketAddr};

use super::UDP_CORK;
use crate::message::{Place, SO_TXTIME, UDP_SEGMENT, place, unspecified};
use crate::sys::{self, Answer};

/// What the kernel says about a socket.
#[derive(Clone, Copy)]
pub(crate) struct Facts {
    pub(crate) local: SocketAddr,
    pub(crate) peer: Option<Place>,
    pub(crate) tos: [u8; 2],
    pub(crate) priority: u32,
    pub(crate) mark: u32,
    /// The length of datagrams into which messages are cut; 0 for whole messages.
    pub(crate) segment: usize,
    /// Whether departure times are on the clock of qdiscs.
    pub(crate) txtime: bool,
    /// Whether datagrams wait in the kernel for more of their bytes.
    pub(crate) is_corked: bool,
    /// Bytes that the kernel lets wait (`SO_SNDBUF`), with its overhead.
    pub(crate) send_buffer: usize,
    /// The longest packet that the route to the peer takes, in bytes; `None` without a peer.
    pub(crate) mtu: Option<usize>,
    /// How long a call waits for room, in nanoseconds; `None` for ever.
    pub(crate) timeout: Option<u64>,
}

impl Facts {
    pub(super) fn read(fd: c_int, is_v6: bool) -> Answer<Self> {
        let local = || -> Answer<_> {
            Ok(place(&sys::address(fd, libc::SYS_getsockname)?).map(|place| place.address))
        };
        let mut found = local()?;
        if found.is_some_and(|address| address.port() == 0) {
            sys::bind_any(fd, is_v6);
            found = local()?;
        }
        let int = |level, name| sys::option::<c_int>(fd, level, name).unwrap_or(0);
        let [seconds, micros] =
            sys::option::<[i64; 2]>(fd, libc::SOL_SOCKET, libc::SO_SNDTIMEO).unwrap_or_default();
        let timeout = (seconds as u64).saturating_mul(1_000_000_000).saturating_add(micros as u64 * 1000);
        // The clock, and flags.
        let txtime = sys::option::<[c_int; 2]>(fd, libc::SOL_SOCKET, SO_TXTIME);
        Ok(Self {
            local: found.ok_or(libc::EAFNOSUPPORT)?,
            peer: sys::address(fd, libc::SYS_getpeername).ok().and_then(|peer| place(&peer)),
            tos: [
                int(libc::IPPROTO_IP, libc::IP_TOS) as u8,
                if is_v6 { int(libc::IPPROTO_IPV6, libc::IPV6_TCLASS) as u8 } else { 0 },
            ],
            priority: int(libc::SOL_SOCKET, libc::SO_PRIORITY) as u32,
            mark: int(libc::SOL_SOCKET, libc::SO_MARK) as u32,
            segment: int(libc::SOL_UDP, UDP_SEGMENT) as usize,
            txtime: txtime.is_ok_and(|[clock, _]| clock == libc::CLOCK_MONOTONIC),
            is_corked: int(libc::SOL_UDP, UDP_CORK) != 0,
            send_buffer: int(libc::SOL_SOCKET, libc::SO_SNDBUF).max(0) as usize,
            mtu: sys::option::<c_int>(fd, libc::IPPROTO_IP, libc::IP_MTU)
                .or_else(|_| sys::option::<c_int>(fd, libc::IPPROTO_IPV6, libc::IPV6_MTU))
                .map_or(None, |mtu| usize::try_from(mtu).ok()),
            timeout: (timeout > 0).then_some(timeout),
        })
    }

    /// Returns how many datagrams of `len` bytes may wait: as many as the kernel's send buffer holds, with the overhead that the
    /// kernel counts for each, and at least 2.
    pub(crate) fn limit(&self, len: usize) -> u64 {
        const HEADERS: usize = 400;
        const DESCRIPTOR: usize = 256;
        // The kernel's buffers are powers of two, with its headers and a trailer in them, and a descriptor beside.
        let each = (len + HEADERS).next_power_of_two().min(len + 4096) + DESCRIPTOR;
        (self.send_buffer / each).max(2) as u64
    }

    /// Returns the source address for a destination, as far as it is known.
    pub(crate) fn source(&self, to: SocketAddr, said: Option<IpAddr>) -> SocketAddr {
        let like = |ip: &IpAddr| ip.is_ipv4() == to.is_ipv4();
        let ip = said.filter(like).or(Some(self.local.ip()).filter(like));
        let ip = ip.unwrap_or_else(|| unspecified(to.is_ipv4()));
        SocketAddr::new(ip, self.local.port())
    }
}
