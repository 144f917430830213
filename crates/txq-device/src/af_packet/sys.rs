//! The system calls: a raw socket bound to one interface, and sending many frames by one call.

use std::io;
use std::mem;
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::net::{AddressFamily, SocketFlags, SocketType, netdevice, socket_with};

/// Frames of one system call.
pub(super) const BATCH: usize = 64;

/// What the system says about an interface.
#[derive(Debug, Clone, Copy)]
pub(super) struct Interface {
    index: libc::c_int,
    pub(super) mtu: u32,
    /// `ARPHRD_ETHER` and others.
    pub(super) hardware: u16,
}

/// A raw socket that receives nothing, for it asks for no protocol.
pub(super) fn open() -> io::Result<OwnedFd> {
    Ok(socket_with(AddressFamily::PACKET, SocketType::RAW, SocketFlags::CLOEXEC, None)?)
}

impl Interface {
    pub(super) fn find(name: &str) -> io::Result<Self> {
        // Interfaces are asked for through a socket, of any kind: this one needs no permission.
        let socket = socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
        let index = netdevice::name_to_index(&socket, name)? as libc::c_int;
        let mtu = ask(&socket, name, libc::SIOCGIFMTU)?;
        let hardware = ask(&socket, name, libc::SIOCGIFHWADDR)?;
        // SAFETY: SIOCGIFMTU fills in `ifru_mtu`, and SIOCGIFHWADDR `ifru_hwaddr`; both are plain integers.
        let (mtu, hardware) = unsafe { (mtu.ifr_ifru.ifru_mtu, hardware.ifr_ifru.ifru_hwaddr.sa_family) };
        Ok(Self { index, mtu: mtu.max(0) as u32, hardware })
    }
}

fn ask(socket: &OwnedFd, name: &str, request: libc::Ioctl) -> io::Result<libc::ifreq> {
    // SAFETY: all zeros are a valid ifreq: an empty name and integers.
    let mut query: libc::ifreq = unsafe { mem::zeroed() };
    // A name that was found fits with its terminating zero.
    for (to, from) in query.ifr_name.iter_mut().take(libc::IFNAMSIZ - 1).zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    // SAFETY: the request reads and writes one ifreq, which `query` is.
    match unsafe { libc::ioctl(socket.as_raw_fd(), request, &raw mut query) } {
        0 => Ok(query),
        _ => Err(io::Error::last_os_error()),
    }
}

/// A socket that sends to one interface.
pub(super) struct Socket {
    fd: OwnedFd,
    /// One for each part, to which it points.
    headers: Box<[libc::mmsghdr]>,
    /// Where a frame is. Pointers left from an earlier call are not read again.
    parts: Box<[libc::iovec]>,
}

// SAFETY: the pointers in `headers` lead to `parts`, which this value owns and moves along without its memory moving;
// those in `parts` are used only within `send`, which sets them.
unsafe impl Send for Socket {}

impl Socket {
    /// Binds a socket to the interface.
    pub(super) fn bind(fd: OwnedFd, interface: Interface) -> io::Result<Self> {
        // SAFETY: all zeros are a valid address.
        let mut address: libc::sockaddr_ll = unsafe { mem::zeroed() };
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_ifindex = interface.index;
        let len = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
        // SAFETY: `address` is a sockaddr_ll of `len` bytes that lives through the call.
        if unsafe { libc::bind(fd.as_raw_fd(), (&raw const address).cast(), len) } != 0 {
            return Err(io::Error::last_os_error());
        }
        let mut parts: Box<[libc::iovec]> =
            (0..BATCH).map(|_| libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 }).collect();
        let base = parts.as_mut_ptr();
        let header = |i| {
            // SAFETY: all zeros are a valid message without address, data and control data.
            let mut header: libc::mmsghdr = unsafe { mem::zeroed() };
            header.msg_hdr.msg_iov = base.wrapping_add(i);
            header.msg_hdr.msg_iovlen = 1;
            header
        };
        let headers = (0..BATCH).map(header).collect();
        Ok(Self { fd, headers, parts })
    }

    /// Sends past the interface's qdisc (`PACKET_QDISC_BYPASS`).
    pub(super) fn bypass_qdisc(&self) -> io::Result<()> {
        self.set(libc::SOL_PACKET, libc::PACKET_QDISC_BYPASS, 1)
    }

    /// Asks for a send buffer of `bytes`, or for as much as an unprivileged process may have.
    pub(super) fn set_send_buffer(&self, bytes: libc::c_int) -> io::Result<()> {
        self.set(libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, bytes)
            .or_else(|_| self.set(libc::SOL_SOCKET, libc::SO_SNDBUF, bytes))
    }

    fn set(&self, level: libc::c_int, option: libc::c_int, value: libc::c_int) -> io::Result<()> {
        let len = size_of::<libc::c_int>() as libc::socklen_t;
        // SAFETY: the kernel reads `len` bytes of `value`.
        match unsafe { libc::setsockopt(self.fd.as_raw_fd(), level, option, (&raw const value).cast(), len) }
        {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Sends frames, at most [`BATCH`], without waiting, and returns how many from the first on the kernel took. An
    /// error is about the first one, and then none was taken.
    pub(super) fn send<'f>(&mut self, frames: impl Iterator<Item = &'f [u8]>) -> io::Result<usize> {
        let mut n = 0;
        for (part, frame) in self.parts.iter_mut().zip(frames) {
            *part = libc::iovec { iov_base: frame.as_ptr().cast_mut().cast(), iov_len: frame.len() };
            n += 1;
        }
        if n == 0 {
            return Ok(0);
        }
        loop {
            // SAFETY: the first `n` headers lead to the first `n` parts, which lead to frames that `'f` keeps alive
            // through the call; the kernel only reads them, and writes the headers' `msg_len`.
            let sent = unsafe {
                libc::sendmmsg(self.fd.as_raw_fd(), self.headers.as_mut_ptr(), n, libc::MSG_DONTWAIT)
            };
            match usize::try_from(sent) {
                Ok(sent) => return Ok(sent),
                Err(_) => {
                    let error = io::Error::last_os_error();
                    if error.kind() != io::ErrorKind::Interrupted {
                        return Err(error);
                    }
                }
            }
        }
    }
}
